//! Validates `selectableFields` of a version against its schema
//! (`ValidateCustomResourceSelectableFields` and `ValidFieldPath` in
//! `apiextensions-apiserver`).

use std::collections::HashSet;

use machinery::FieldError;
use serde_json::Value;

use crate::unstructured::{get, index_path, items, text};

const MAX_SELECTABLE_FIELDS: usize = 8;

/// `unchanged`: too many fields do not keep a stored definition from being updated.
pub(super) fn validate(
    field_path: &str,
    version: &Value,
    unchanged: bool,
    errors: &mut Vec<FieldError>,
) {
    let schema = get(version, "/schema/openAPIV3Schema");
    let mut distinct = HashSet::new();
    for (i, field) in items(version, "/selectableFields").iter().enumerate() {
        let field_path = format!("{}.jsonPath", index_path(field_path, i));
        let path = text(field, "/jsonPath");
        if path.is_empty() {
            errors.push(FieldError::required(field_path, ""));
            continue;
        }
        let mut refuse = |detail: &str| {
            errors.push(FieldError::invalid(
                field_path.clone(),
                &path.into(),
                detail,
            ));
        };
        let (names, selected) = match resolve(path, schema) {
            Ok(resolved) => resolved,
            Err(detail) => {
                refuse(&format!("is an invalid path: {detail}"));
                continue;
            }
        };
        if names.first() == Some(&"metadata") {
            refuse("must not point to fields in metadata");
        }
        if !matches!(text(selected, "/type"), "string" | "boolean" | "integer") {
            refuse(
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
            );
        }
        if !distinct.insert(names) {
            errors.push(FieldError::duplicate(field_path, &path.into()));
        }
    }
    let count = distinct.len();
    if count > MAX_SELECTABLE_FIELDS && !unchanged {
        errors.push(FieldError::too_many(
            field_path,
            count,
            MAX_SELECTABLE_FIELDS,
        ));
    }
}

/// The names in a path like `.spec.color`, and the schema that it leads to.
fn resolve<'a>(path: &'a str, schema: &'a Value) -> Result<(Vec<&'a str>, &'a Value), String> {
    let mut names = Vec::new();
    let mut schema = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let end = |text: &str| text.find(['.', '[', ']']).unwrap_or(text.len());
        let Some(after) = rest.strip_prefix('.') else {
            return Err(match rest.starts_with('[') {
                true => "array notation is not allowed".to_owned(),
                false => format!("expected [ or . but got: {}", &rest[..end(rest).max(1)]),
            });
        };
        if after.is_empty() {
            return Err("unexpected end of JSON path".to_owned());
        }
        // A delimiter that follows a dot is taken for a name.
        let (name, after) = after.split_at(end(after).max(1));
        let properties = get(schema, "/properties");
        let child = match properties.as_object().is_some_and(|p| !p.is_empty()) {
            true => properties.get(name),
            false => schema.get("additionalProperties").filter(|p| p.is_object()),
        };
        schema = child.ok_or("does not refer to a valid field")?;
        names.push(name);
        rest = after;
    }
    Ok((names, schema))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::resolve;

    #[test]
    fn paths_lead_to_schemas() {
        let schema = json!({"properties": {
            "spec": {"properties": {"a": {"type": "string"}}},
            "labels": {"additionalProperties": {"type": "string"}},
        }});
        for (path, expected) in [
            (".spec.a", Ok("string")),
            (".labels.x", Ok("string")),
            ("spec.a", Err("expected [ or . but got: spec")),
            (".spec.b", Err("does not refer to a valid field")),
            (".spec.a.b", Err("does not refer to a valid field")),
            (".spec['a']", Err("array notation is not allowed")),
            (".spec.", Err("unexpected end of JSON path")),
            (".spec..a", Err("does not refer to a valid field")),
        ] {
            let resolved = resolve(path, &schema);
            let resolved = resolved.as_ref().map(|(_, schema)| schema["type"].as_str());
            let expected = expected.map(Some).map_err(str::to_owned);
            assert_eq!(resolved.map_err(String::clone), expected, "{path}");
        }
    }
}
