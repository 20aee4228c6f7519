//! Validates the schema of a version: its root, its structure, its defaults and its rules
//! (`validateCustomResourceDefinitionValidation` in `apiextensions/validation`). The number of
//! errors is bounded.

use kubernetes_cel::{SchemaRules, validate_schema_rules};
use machinery::go_pattern::PatternBudget;
use machinery::{FieldError, json};
use serde_json::Value;

use super::{defaults, openapi_schema, structural};
use crate::unstructured::{entries, flag, text};

/// Bound on reported errors.
const MAX_ERRORS: usize = 50;

/// The keywords of a root schema beside a status subresource, whose schema Kubernetes
/// takes out of it.
const ROOT_FIELDS: [(&str, &str); 22] = [
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    (
        "x-kubernetes-preserve-unknown-fields",
        "XPreserveUnknownFields",
    ),
    ("x-kubernetes-validations", "XValidations"),
];

/// The schema of a version, or the one that all versions share.
pub(super) struct VersionSchema<'a> {
    /// The path of what contains `openAPIV3Schema`.
    pub(super) path: &'a str,
    pub(super) schema: &'a Value,
    pub(super) has_status: bool,
    /// Whether the schema is stored already.
    pub(super) stored: bool,
    /// The patterns of the whole definition.
    pub(super) patterns: &'a PatternBudget,
}

pub(super) fn validate(version: &VersionSchema<'_>, errors: &mut Vec<FieldError>) {
    let schema = version.schema;
    let path = format!("{}.openAPIV3Schema", version.path);
    let before = errors.len();
    if json::depth(schema) > structural::MAX_DEPTH {
        let detail = format!(
            "may be nested at most {} levels deep",
            structural::MAX_DEPTH
        );
        errors.push(FieldError::forbidden(path, &detail));
        return;
    }
    if version.has_status {
        validate_root_fields(&path, schema, errors);
    }
    if flag(schema, "/nullable") {
        let detail = "nullable cannot be true at the root";
        errors.push(FieldError::forbidden(format!("{path}.nullable"), detail));
    }
    if structural::is_convertible(schema, 0) {
        let before = errors.len();
        // A bound that came later does not keep a definition from being updated.
        let patterns = Some(version.patterns).filter(|_| !version.stored);
        structural::validate(&path, schema, patterns, errors);
        // Defaults can be validated only when the types are.
        if errors.len() == before {
            defaults::validate(&path, schema, 0, errors);
        }
    }
    openapi_schema::validate(&path, schema, errors);
    errors.truncate(before + MAX_ERRORS);
    if errors.len() == before {
        let rules = SchemaRules {
            path: &path,
            schema,
            stored: version.stored,
            patterns: version.patterns,
        };
        validate_schema_rules(rules, errors);
    }
}

fn validate_root_fields(path: &str, schema: &Value, errors: &mut Vec<FieldError>) {
    let root_type = text(schema, "/type");
    if !root_type.is_empty() && root_type != "object" {
        let detail = r#"only "object" is allowed as the type at the root of the schema if the status subresource is enabled"#;
        let field = format!("{path}.type");
        errors.push(FieldError::invalid(field, &root_type.into(), detail));
        return;
    }
    let is_allowed = |name: &str| ROOT_FIELDS.iter().any(|(field, _)| *field == name);
    let is_set = |value: &Value| {
        !matches!(value, Value::Null | Value::Bool(false)) && value.as_str() != Some("")
    };
    if entries(schema, "").any(|(name, value)| is_set(value) && !is_allowed(name)) {
        let names: Vec<&str> = ROOT_FIELDS.iter().map(|(_, name)| *name).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        errors.push(FieldError::invalid(path, schema, detail));
    }
}
