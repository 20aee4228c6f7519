//! Applies the overriders of one rule to a manifest, in Karmada's order: image, command, args,
//! labels, annotations, field, plaintext. An error names the entry of the rule and the path.

use std::fmt;

use karmada_api::IdentityFields;
use karmada_api::policy::{
    CommandArgsOverrider, FieldOverrider, LabelAnnotationOverrider, Overriders,
};
use serde_json::{Map, Value, json};

use crate::json_document::LazyJsonDocument;
use crate::pod_spec::pod_spec_path;
use crate::{image_reference, json_patch};

/// An overrider that cannot be applied.
#[derive(Debug, PartialEq)]
pub(crate) struct OverriderError {
    /// The field of the overrider, relative to the rule's `overriders`.
    pub(crate) field: String,
    /// The path in the manifest.
    pub(crate) path: String,
    pub(crate) reason: String,
}

impl OverriderError {
    pub(crate) fn new(field: String, path: &str, reason: impl fmt::Display) -> Self {
        Self {
            field,
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }
}

impl fmt::Display for OverriderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field: entry,
            path,
            reason,
        } = self;
        write!(f, "{entry}: {path:?}: {reason}")
    }
}

/// Applies one rule. After an error the manifest must not be used. A rule may not make the
/// manifest another object; commands, arguments, labels and annotations cannot.
pub(crate) fn apply_overriders(
    manifest: &mut Value,
    rule: &Overriders,
) -> Result<(), OverriderError> {
    let identity = IdentityFields::of(manifest);
    let check_identity = |manifest: &Value, entry: String| {
        let changed = identity.check(manifest);
        changed.map_err(|change| OverriderError::new(entry, change.path, change))
    };
    for (at, overrider) in rule.image_overrider.iter().enumerate() {
        let entry = format!("imageOverrider[{at}]");
        image_reference::apply_image_overrider(manifest, overrider)
            .map_err(|(path, reason)| OverriderError::new(entry.clone(), &path, reason))?;
        check_identity(manifest, entry)?;
    }
    for overrider in &rule.command_overrider {
        apply_command_overrider(manifest, "command", overrider);
    }
    for overrider in &rule.args_overrider {
        apply_command_overrider(manifest, "args", overrider);
    }
    for overrider in &rule.labels_overrider {
        apply_map_overrider(manifest, "labels", overrider);
    }
    for overrider in &rule.annotations_overrider {
        apply_map_overrider(manifest, "annotations", overrider);
    }
    for (at, overrider) in rule.field_overrider.iter().enumerate() {
        let entry = format!("fieldOverrider[{at}]");
        apply_field_overrider(manifest, overrider, &entry)?;
        check_identity(manifest, entry)?;
    }
    for (at, operation) in rule.plaintext.iter().enumerate() {
        let entry = format!("plaintext[{at}]");
        json_patch::apply_operation(
            manifest,
            &operation.operator,
            &operation.path,
            &operation.value,
        )
        .map_err(|reason| OverriderError::new(entry.clone(), &operation.path, reason))?;
        check_identity(manifest, entry)?;
    }
    Ok(())
}

fn apply_command_overrider(manifest: &mut Value, field: &str, overrider: &CommandArgsOverrider) {
    let Some(path) = pod_spec_path(manifest) else {
        return;
    };
    let containers = manifest
        .pointer_mut(&format!("{path}/containers"))
        .and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        if container["name"] != overrider.container_name.as_str() {
            continue;
        }
        let old = container[field].as_array().cloned().unwrap_or_default();
        let new: Vec<Value> = match overrider.operator.as_str() {
            "add" => {
                let more = overrider.value.iter().map(|v| json!(v));
                old.into_iter().chain(more).collect()
            }
            "remove" => {
                let is_removed = |v: &Value| overrider.value.iter().any(|r| v == r);
                old.into_iter().filter(|v| !is_removed(v)).collect()
            }
            _ => continue,
        };
        container[field] = new.into();
    }
}

fn apply_map_overrider(manifest: &mut Value, field: &str, overrider: &LabelAnnotationOverrider) {
    let Some(metadata) = manifest.get_mut("metadata") else {
        return;
    };
    let Some(metadata) = metadata.as_object_mut() else {
        return;
    };
    if !metadata.get(field).is_some_and(Value::is_object) {
        if overrider.operator != "add" || overrider.value.is_empty() {
            return;
        }
        metadata.insert(field.into(), Map::new().into());
    }
    let Some(entries) = metadata.get_mut(field).and_then(Value::as_object_mut) else {
        return;
    };
    for (key, value) in &overrider.value {
        match overrider.operator.as_str() {
            "add" => drop(entries.insert(key.clone(), json!(value))),
            "replace" if entries.contains_key(key) => {
                entries.insert(key.clone(), json!(value));
            }
            "remove" => drop(entries.remove(key)),
            _ => {}
        }
    }
}

/// Changes a JSON or YAML document that is the text of a field, as in a ConfigMap.
fn apply_field_overrider(
    manifest: &mut Value,
    overrider: &FieldOverrider,
    entry: &str,
) -> Result<(), OverriderError> {
    let path = &overrider.field_path;
    let error = |reason: String| OverriderError::new(entry.to_owned(), path, reason);
    let text = match manifest.pointer_mut(path) {
        Some(Value::String(text)) => text,
        Some(_) => return Err(error("the value is not a string".into())),
        None => return Err(error(json_patch::JsonPatchError::MissingTarget.to_string())),
    };
    let error_at = |form: &str, at: usize, sub_path: &str, error: json_patch::JsonPatchError| {
        let entry = format!("{entry}.{form}[{at}]");
        let reason = format!("{sub_path:?} in the text: {error}");
        OverriderError::new(entry, path, reason)
    };
    if !overrider.yaml.is_empty() {
        let mut document = machinery::yaml::from_str_with_duplicate_keys(text)
            .map_err(|e| error(format!("the text is not valid YAML: {e}")))?;
        for (at, o) in overrider.yaml.iter().enumerate() {
            json_patch::apply_operation(&mut document, &o.operator, &o.sub_path, &o.value)
                .map_err(|e| error_at("yaml", at, &o.sub_path, e))?;
        }
        *text = serde_saphyr::to_string(&document).map_err(|e| error(e.to_string()))?;
    } else if !overrider.json.is_empty() {
        let mut document = LazyJsonDocument::parse(text)
            .map_err(|e| error(format!("the text is not valid JSON: {e}")))?;
        for (at, o) in overrider.json.iter().enumerate() {
            document
                .apply(&o.operator, &o.sub_path, &o.value)
                .map_err(|e| error_at("json", at, &o.sub_path, e))?;
        }
        *text = document.to_string();
    }
    Ok(())
}
