//! Validates the defaults in a structural schema against the schema
//! (`apiextensions-apiserver/pkg/apiserver/schema/defaulting/validation.go`).

use machinery::FieldError;
use openapi::Schema;
use serde_json::{Value, json};

use super::structural::MAX_DEPTH;
use crate::unstructured::{entries, get};

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
    const HOLDER: &str = "spec";
    let holder = json!({"type": "object", "properties": {HOLDER: schema}});
    let Ok(holder) = Schema::from_crd(&holder) else {
        return;
    };
    let mut value = json!({ HOLDER: default });
    if !holder.prune(&mut value).is_empty() {
        let why = "must not have unknown fields";
        errors.push(FieldError::invalid(at, default, why));
    }
    for mut error in holder.validate(&json!({ HOLDER: default })) {
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
