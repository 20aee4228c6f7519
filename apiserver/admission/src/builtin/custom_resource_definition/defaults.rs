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
pub(super) fn validate(at: &str, schema: &Value, depth: usize, errors: &mut Vec<FieldError>) {
    if depth > MAX_DEPTH {
        return;
    }
    let default = get(schema, "/default");
    if !default.is_null() {
        validate_default(&format!("{at}.default"), schema, default, errors);
    }
    let items = get(schema, "/items");
    if items.is_object() {
        validate(&format!("{at}.items"), items, depth + 1, errors);
    }
    for (name, field) in entries(schema, "/properties") {
        let below = format!("{at}.properties[{name}]");
        validate(&below, field, depth + 1, errors);
    }
}

/// Validates a default against its own schema. Defaults within it are not applied before.
fn validate_default(at: &str, schema: &Value, default: &Value, errors: &mut Vec<FieldError>) {
    let holder_schema = json!({"type": "object", "properties": {HOLDER: schema}});
    let Ok(holder) = Schema::from_crd(&holder_schema) else {
        return;
    };
    let mut value = json!({ HOLDER: default });
    if !holder.prune(&mut value).is_empty() {
        let why = "must not have unknown fields";
        errors.push(FieldError::invalid(at, default, why));
    }
    let held = json!({ HOLDER: default });
    let schema_errors = holder.validate(&held);
    if schema_errors.is_empty() {
        for mut error in rule_errors(&holder_schema, &held) {
            if let Some(below) = error.field.strip_prefix(HOLDER) {
                error.field = format!("{at}{below}");
                errors.push(error);
            }
        }
    }
    for mut error in schema_errors {
        let Some(below) = error.field.strip_prefix(HOLDER) else {
            continue;
        };
        let named = format!(" {} in body", error.field);
        let in_default = format!(" {} in body", below.trim_start_matches('.'));
        error.message = error.message.replacen(&named, &in_default, 1);
        error.field = format!("{at}{below}");
        errors.push(error);
    }
}

/// The rules that a default violates, as an update that changes nothing and as a creation. What
/// such an update violates and may, because it changes nothing, is an error of the creation.
fn rule_errors(schema: &Value, held: &Value) -> Vec<FieldError> {
    let Some(rules) = RuleValidator::compile(schema) else {
        return Vec::new();
    };
    let updated = rules.validate(held, Some(held));
    let mut errors = updated.errors;
    if errors.is_empty() || !updated.warnings.is_empty() {
        errors.extend(rules.validate(held, None).errors);
    }
    errors
}
