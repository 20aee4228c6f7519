//! Checks that the schema of a CustomResourceDefinition is structural: every node has a
//! type, no construct hides one, and defaults are valid
//! (`apiextensions-apiserver/pkg/apiserver/schema`, KEP-1693). Does no I/O; depth and
//! the number of errors are bounded.

use machinery::FieldError;
use openapi::Schema;
use serde_json::{Value, json};

use crate::unstructured::{entries, flag, get, has, index_path, items, text};

/// Bound on the nesting of a schema; parsed JSON is never deeper than 128.
const MAX_DEPTH: usize = 128;
/// Bound on reported errors.
const MAX_ERRORS: usize = 50;

const SCHEMA_TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// The position of a node in the schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StructuralSchemaLevel {
    Root,
    Field,
    Item,
}

impl StructuralSchemaLevel {
    fn missing_type_message(self) -> &'static str {
        match self {
            Self::Root => "must not be empty at the root",
            Self::Field => "must not be empty for specified object fields",
            Self::Item => "must not be empty for specified array items",
        }
    }
}

pub(super) fn validate(at: &str, schema: &Value, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    validate_node(at, schema, StructuralSchemaLevel::Root, 0, errors);
    // Defaults can be validated only when the types are.
    if errors.len() == before {
        validate_defaults(at, schema, 0, errors);
    }
    errors.truncate(before + MAX_ERRORS);
}

fn validate_node(
    at: &str,
    schema: &Value,
    level: StructuralSchemaLevel,
    depth: usize,
    errors: &mut Vec<FieldError>,
) {
    if depth > MAX_DEPTH || errors.len() > 2 * MAX_ERRORS {
        return;
    }
    forbid_unsupported_fields(at, schema, errors);
    validate_type(at, schema, level, errors);
    validate_extensions(at, schema, errors);
    if has(schema, "/properties") && has(schema, "/additionalProperties") {
        errors.push(FieldError::forbidden(
            format!("{at}.additionalProperties"),
            "additionalProperties and properties are mutual exclusive",
        ));
    }
    for (name, field) in entries(schema, "/properties") {
        let below = format!("{at}.properties[{name}]");
        // The server validates metadata; only its names may be restricted.
        if level == StructuralSchemaLevel::Root && name == "metadata" {
            validate_metadata_schema(&below, field, errors);
            continue;
        }
        validate_node(
            &below,
            field,
            StructuralSchemaLevel::Field,
            depth + 1,
            errors,
        );
    }
    if let value @ Value::Object(_) = get(schema, "/additionalProperties") {
        let below = format!("{at}.additionalProperties");
        validate_node(
            &below,
            value,
            StructuralSchemaLevel::Field,
            depth + 1,
            errors,
        );
    }
    match get(schema, "/items") {
        Value::Null => {
            if text(schema, "/type") == "array" {
                errors.push(FieldError::required(
                    format!("{at}.items"),
                    "must be specified",
                ));
            }
        }
        Value::Array(_) => errors.push(FieldError::forbidden(
            format!("{at}.items"),
            "items must be a schema object and not an array",
        )),
        item => validate_node(
            &format!("{at}.items"),
            item,
            StructuralSchemaLevel::Item,
            depth + 1,
            errors,
        ),
    }
}

fn validate_type(
    at: &str,
    schema: &Value,
    level: StructuralSchemaLevel,
    errors: &mut Vec<FieldError>,
) {
    let name = text(schema, "/type");
    let either = flag(schema, "/x-kubernetes-int-or-string");
    let keeps = flag(schema, "/x-kubernetes-preserve-unknown-fields");
    let field = format!("{at}.type");
    match name {
        "" if level == StructuralSchemaLevel::Root || !(either || keeps) => {
            errors.push(FieldError::required(field, level.missing_type_message()));
        }
        "" => {}
        other if level == StructuralSchemaLevel::Root && other != "object" => {
            let why = "must be object at the root";
            errors.push(FieldError::invalid(field, &other.into(), why));
        }
        other if either => {
            let why = "must be empty if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(field, &other.into(), why));
        }
        other if !SCHEMA_TYPES.contains(&other) => {
            errors.push(FieldError::not_supported(
                field,
                &other.into(),
                SCHEMA_TYPES,
            ));
        }
        _ => {}
    }
}

fn forbid_unsupported_fields(at: &str, schema: &Value, errors: &mut Vec<FieldError>) {
    for name in [
        "id",
        "patternProperties",
        "additionalItems",
        "definitions",
        "dependencies",
        "$ref",
    ] {
        if has(schema, &format!("/{name}")) {
            let why = format!("{name} is not supported");
            errors.push(FieldError::forbidden(format!("{at}.{name}"), &why));
        }
    }
    if flag(schema, "/uniqueItems") {
        errors.push(FieldError::forbidden(
            format!("{at}.uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ));
    }
    if *get(schema, "/additionalProperties") == Value::Bool(false) {
        errors.push(FieldError::forbidden(
            format!("{at}.additionalProperties"),
            "additionalProperties cannot be set to false",
        ));
    }
    for logic in ["allOf", "anyOf", "oneOf"] {
        for (i, part) in items(schema, &format!("/{logic}")).iter().enumerate() {
            validate_junctor(&index_path(&format!("{at}.{logic}"), i), part, 0, errors);
        }
    }
    if has(schema, "/not") {
        validate_junctor(&format!("{at}.not"), get(schema, "/not"), 0, errors);
    }
}

/// Rejects type and default inside of logical junctors, which only validate values.
fn validate_junctor(at: &str, schema: &Value, depth: usize, errors: &mut Vec<FieldError>) {
    if depth > MAX_DEPTH {
        return;
    }
    for name in ["default", "additionalProperties", "description", "title"] {
        if has(schema, &format!("/{name}")) {
            errors.push(FieldError::forbidden(
                format!("{at}.{name}"),
                "must be undefined to be structural",
            ));
        }
    }
    // Rules hold always or not at all: of the junctors, only allOf may have them.
    if !items(schema, "/x-kubernetes-validations").is_empty() && !at.contains(".allOf[") {
        errors.push(FieldError::forbidden(
            format!("{at}.x-kubernetes-validations"),
            "must be empty to be structural",
        ));
    }
    for (name, field) in entries(schema, "/properties") {
        validate_junctor(
            &format!("{at}.properties[{name}]"),
            field,
            depth + 1,
            errors,
        );
    }
    if let item @ Value::Object(_) = get(schema, "/items") {
        validate_junctor(&format!("{at}.items"), item, depth + 1, errors);
    }
}

fn validate_metadata_schema(at: &str, schema: &Value, errors: &mut Vec<FieldError>) {
    let only = ["name", "generateName"];
    if entries(schema, "/properties").any(|(name, _)| !only.contains(&name)) {
        errors.push(FieldError::forbidden(
            at,
            "must not specify anything other than name and generateName, but metadata is implicitly specified",
        ));
    }
}

fn validate_extensions(at: &str, schema: &Value, errors: &mut Vec<FieldError>) {
    let keeps = "x-kubernetes-preserve-unknown-fields";
    if *get(schema, &format!("/{keeps}")) == Value::Bool(false) {
        let why = "must be true or undefined";
        errors.push(FieldError::invalid(
            format!("{at}.{keeps}"),
            &false.into(),
            why,
        ));
    }
    let list = text(schema, "/x-kubernetes-list-type");
    let field = format!("{at}.x-kubernetes-list-type");
    if !matches!(list, "" | "atomic" | "set" | "map") {
        let known = &["atomic", "set", "map"];
        errors.push(FieldError::not_supported(&field, &list.into(), known));
    }
    if !list.is_empty() && text(schema, "/type") != "array" {
        let why = "must be array if x-kubernetes-list-type is specified";
        let schema_type = get(schema, "/type");
        errors.push(FieldError::invalid(format!("{at}.type"), schema_type, why));
    }
    let keys = items(schema, "/x-kubernetes-list-map-keys");
    let keys_at = format!("{at}.x-kubernetes-list-map-keys");
    if list == "map" && keys.is_empty() {
        let why = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(&keys_at, why));
    }
    if list != "map" && !keys.is_empty() {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(FieldError::invalid(&field, &list.into(), why));
    }
    for (i, key) in keys.iter().enumerate() {
        let name = key.as_str().unwrap_or_default();
        let known = entries(schema, "/items/properties").any(|(field, _)| field == name);
        if list == "map" && !known {
            errors.push(FieldError::invalid(
                index_path(&keys_at, i),
                key,
                "must be the name of a property of the items",
            ));
        }
    }
    let map = text(schema, "/x-kubernetes-map-type");
    if !matches!(map, "" | "atomic" | "granular") {
        let known = &["atomic", "granular"];
        let field = format!("{at}.x-kubernetes-map-type");
        errors.push(FieldError::not_supported(field, &map.into(), known));
    }
}

fn validate_defaults(at: &str, schema: &Value, depth: usize, errors: &mut Vec<FieldError>) {
    if depth > MAX_DEPTH || errors.len() > MAX_ERRORS {
        return;
    }
    let default = get(schema, "/default");
    if !default.is_null() {
        validate_default(&format!("{at}.default"), schema, default, errors);
    }
    for (name, field) in entries(schema, "/properties") {
        validate_defaults(
            &format!("{at}.properties[{name}]"),
            field,
            depth + 1,
            errors,
        );
    }
    for below in ["additionalProperties", "items"] {
        if let part @ Value::Object(_) = get(schema, &format!("/{below}")) {
            validate_defaults(&format!("{at}.{below}"), part, depth + 1, errors);
        }
    }
}

/// Validates a default against its own schema, with nested defaults applied.
fn validate_default(at: &str, schema: &Value, default: &Value, errors: &mut Vec<FieldError>) {
    let holder = json!({"type": "object", "properties": {"spec": schema}});
    let Ok(holder) = Schema::from_crd(&holder) else {
        return;
    };
    let mut value = json!({ "spec": default });
    holder.apply_defaults(&mut value);
    for mut error in holder.validate(&value) {
        if let Some(below) = error.field.strip_prefix("spec") {
            error.field = format!("{at}{below}");
            errors.push(error);
        }
    }
}
