//! Validates the defaults in a structural schema against the schema
//! (`apiextensions-apiserver/pkg/apiserver/schema/defaulting/validation.go`).

use kubernetes_cel::RuleValidator;
use machinery::FieldError;
use openapi::Schema;
use serde_json::{Value, json};

use super::structural::MAX_DEPTH;
use crate::unstructured::{entries, get};

/// The field of an object that holds a default while it is validated.
const HOLDER: &str = "spec";

/// Validates the defaults of a schema and of its fields and items, not of map values: they
/// have none.
pub(super) fn validate(path: &str, schema: &Value, depth: usize, errors: &mut Vec<FieldError>) {
    if depth > MAX_DEPTH {
        return;
    }
    let default = get(schema, "/default");
    if !default.is_null() {
        validate_default(&format!("{path}.default"), schema, default, errors);
    }
    let items = get(schema, "/items");
    if items.is_object() {
        validate(&format!("{path}.items"), items, depth + 1, errors);
    }
    for (name, field) in entries(schema, "/properties") {
        let field_path = format!("{path}.properties[{name}]");
        validate(&field_path, field, depth + 1, errors);
    }
}

/// Validates a default against its own schema. Defaults within it are not applied before.
fn validate_default(path: &str, schema: &Value, default: &Value, errors: &mut Vec<FieldError>) {
    let holder_schema = json!({"type": "object", "properties": {HOLDER: schema}});
    let Ok(holder) = Schema::from_crd(&holder_schema) else {
        return;
    };
    let mut value = json!({ HOLDER: default });
    if !holder.prune(&mut value).is_empty() {
        let detail = "must not have unknown fields";
        errors.push(FieldError::invalid(path, default, detail));
    }
    let default_holder = json!({ HOLDER: default });
    let schema_errors = holder.validate(&default_holder);
    if schema_errors.is_empty() {
        for mut error in rule_errors(&holder_schema, &default_holder) {
            if let Some(subpath) = error.field.strip_prefix(HOLDER) {
                error.field = format!("{path}{subpath}");
                errors.push(error);
            }
        }
    }
    for mut error in schema_errors {
        let Some(subpath) = error.field.strip_prefix(HOLDER) else {
            continue;
        };
        let holder_text = format!(" {} in body", error.field);
        let in_default = format!(" {} in body", subpath.trim_start_matches('.'));
        error.message = error.message.replacen(&holder_text, &in_default, 1);
        error.field = format!("{path}{subpath}");
        errors.push(error);
    }
}

/// The rules that a default violates, as an update that changes nothing and as a creation. What
/// such an update violates and may, because it changes nothing, is an error of the creation.
fn rule_errors(schema: &Value, value: &Value) -> Vec<FieldError> {
    let Some(rules) = RuleValidator::compile(schema) else {
        return Vec::new();
    };
    let updated = rules.validate(value, Some(value));
    let mut errors = updated.errors;
    if errors.is_empty() || !updated.warnings.is_empty() {
        errors.extend(rules.validate(value, None).errors);
    }
    errors
}
