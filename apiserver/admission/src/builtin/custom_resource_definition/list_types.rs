//! Checks `x-kubernetes-list-type`, `x-kubernetes-list-map-keys` and `x-kubernetes-map-type` of
//! a schema.

use std::collections::HashSet;

use machinery::FieldError;
use serde_json::{Value, json};

use crate::unstructured::{flag, get, has, items, text, texts};

const LIST_TYPES: &[&str] = &["atomic", "set", "map"];
const MAP_TYPES: &[&str] = &["atomic", "granular"];

pub(super) fn validate_list_and_map_type(path: &str, schema: &Value, errors: &mut Vec<FieldError>) {
    validate_extension(path, schema, ("map", "object", MAP_TYPES), errors);
    let list_is_array = validate_extension(path, schema, ("list", "array", LIST_TYPES), errors);
    let list = get(schema, "/x-kubernetes-list-type");
    let item = get(schema, "/items");
    if list_is_array && *list == json!("set") && item.is_object() {
        validate_set_item(path, item, errors);
    }
    if !items(schema, "/x-kubernetes-list-map-keys").is_empty() {
        let field = format!("{path}.x-kubernetes-list-type");
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list {
            Value::Null => errors.push(FieldError::required(field, detail)),
            list if *list != json!("map") => errors.push(FieldError::invalid(field, list, detail)),
            _ => {}
        }
    }
    if *list == json!("map") {
        validate_keyed_list(path, schema, errors);
    }
    if (*list == json!("map") || *list == json!("set")) && flag(item, "/nullable") {
        let detail = format!(
            "cannot be nullable when x-kubernetes-list-type is {}",
            text(schema, "/x-kubernetes-list-type")
        );
        errors.push(FieldError::forbidden(
            format!("{path}.items.nullable"),
            &detail,
        ));
    }
}

/// Checks the type of a schema with an extension for lists or maps, and the extension's value.
/// Returns whether the type of the schema is the right one.
fn validate_extension(
    path: &str,
    schema: &Value,
    (of, needed, supported): (&str, &str, &[&str]),
    errors: &mut Vec<FieldError>,
) -> bool {
    let name = format!("x-kubernetes-{of}-type");
    let value = get(schema, &format!("/{name}"));
    if value.is_null() {
        return false;
    }
    let is_right = text(schema, "/type") == needed;
    let detail = format!("must be {needed} if {name} is specified");
    let field = format!("{path}.type");
    match text(schema, "/type") {
        "" => errors.push(FieldError::required(field, &detail)),
        other if other != needed => errors.push(FieldError::invalid(field, &other.into(), detail)),
        _ => {}
    }
    if value
        .as_str()
        .is_none_or(|value| !supported.contains(&value))
    {
        let field = format!("{path}.{name}");
        errors.push(FieldError::not_supported(field, value, supported));
    }
    is_right
}

/// The items of a set must be compared as a whole.
fn validate_set_item(path: &str, item: &Value, errors: &mut Vec<FieldError>) {
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list = get(item, "/x-kubernetes-list-type");
    let atomic = json!("atomic");
    let extension = match text(item, "/type") {
        "array" if !list.is_null() && *list != atomic => "list",
        "object" if *get(item, "/x-kubernetes-map-type") != atomic => "map",
        _ => return,
    };
    let field = format!("{path}.items.x-kubernetes-{extension}-type");
    // Kubernetes shows the list type for both.
    errors.push(FieldError::invalid(field, list, detail));
}

fn validate_keyed_list(path: &str, schema: &Value, errors: &mut Vec<FieldError>) {
    let keys = get(schema, "/x-kubernetes-list-map-keys");
    let field = format!("{path}.x-kubernetes-list-map-keys");
    if items(keys, "").is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(field.clone(), detail));
    }
    let item = get(schema, "/items");
    if item.is_null() {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.items"), detail));
    }
    if item.is_array() {
        let detail = "must only have a single schema if x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{path}.items"), item, detail));
    }
    if !item.is_object() {
        return;
    }
    if text(item, "/type") != "object" {
        let item_type = json!(text(item, "/type"));
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        let field = format!("{path}.items.type");
        errors.push(FieldError::invalid(field, &item_type, detail));
    }
    let mut distinct = HashSet::new();
    for key in texts(keys, "") {
        let property = get(item, "/properties").get(key);
        let is_first = distinct.insert(key);
        if text(item, "/type") == "object" {
            if property.is_none() {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(field.clone(), keys, detail));
            }
            if !is_first {
                let detail = "must not contain duplicate entries";
                errors.push(FieldError::invalid(field.clone(), keys, detail));
            }
        }
        if let Some(property) = property {
            validate_key(path, item, key, property, errors);
        }
    }
}

/// Every item must have a scalar value of each key.
fn validate_key(
    path: &str,
    item: &Value,
    key: &str,
    property: &Value,
    errors: &mut Vec<FieldError>,
) {
    let field = format!("{path}.items.properties[{key}]");
    if matches!(text(property, "/type"), "array" | "object") && text(item, "/type") == "object" {
        let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
        // Kubernetes shows the type of the item.
        let item_type = get(item, "/type");
        errors.push(FieldError::invalid(
            format!("{field}.type"),
            item_type,
            detail,
        ));
    }
    let is_required = texts(item, "/required").any(|required| required == key);
    if !is_required && !has(property, "/default") {
        let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
        errors.push(FieldError::required(format!("{field}.default"), detail));
    }
    if flag(property, "/nullable") {
        let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
        errors.push(FieldError::forbidden(format!("{field}.nullable"), detail));
    }
}
