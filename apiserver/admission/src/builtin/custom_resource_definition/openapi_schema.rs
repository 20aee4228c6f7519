//! Checks what a schema of a CustomResourceDefinition may use of OpenAPI
//! (`ValidateCustomResourceDefinitionOpenAPISchema` in `apiextensions/validation`). Depth is
//! bounded.

use machinery::FieldError;
use serde_json::{Value, json};

use super::list_types::validate_list_and_map_type;
use super::structural::MAX_DEPTH;
use crate::unstructured::{entries, flag, get, has, index_path, items, text};

const SCHEMA_TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// Fields that are not supported.
const FORBIDDEN: [&str; 6] = [
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
];

/// The keywords that a schema may have at its position.
#[derive(Clone, Copy, Default)]
struct SchemaContext<'a> {
    is_root: bool,
    /// Why it may not have a default.
    forbids_default: Option<&'a str>,
    /// Within the metadata or type of an object.
    in_resource_meta: bool,
}

pub(super) fn validate(at: &str, schema: &Value, errors: &mut Vec<FieldError>) {
    let context = SchemaContext {
        is_root: true,
        ..SchemaContext::default()
    };
    validate_schema(at, schema, context, 0, errors);
}

fn validate_schema(
    at: &str,
    schema: &Value,
    context: SchemaContext<'_>,
    depth: usize,
    errors: &mut Vec<FieldError>,
) {
    if depth > MAX_DEPTH || !schema.is_object() {
        return;
    }
    validate_supported_fields(at, schema, context, errors);
    if flag(schema, "/uniqueItems") {
        let why =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(format!("{at}.uniqueItems"), why));
    }
    validate_map_values(at, schema, context, depth, errors);
    validate_properties(at, schema, context, depth, errors);
    let below = SchemaContext {
        is_root: false,
        ..context
    };
    let not = get(schema, "/not");
    validate_schema(&format!("{at}.not"), not, below, depth + 1, errors);
    for name in ["allOf", "oneOf", "anyOf"] {
        for (i, part) in items(schema, &format!("/{name}")).iter().enumerate() {
            let at = index_path(&format!("{at}.{name}"), i);
            validate_schema(&at, part, below, depth + 1, errors);
        }
    }
    let item = get(schema, "/items");
    validate_schema(&format!("{at}.items"), item, below, depth + 1, errors);
    for (i, part) in items(schema, "/items").iter().enumerate() {
        let at = index_path(&format!("{at}.items"), i);
        validate_schema(&at, part, below, depth + 1, errors);
    }
    let keeps = "x-kubernetes-preserve-unknown-fields";
    if *get(schema, &format!("/{keeps}")) == Value::Bool(false) {
        let field = format!("{at}.{keeps}");
        let why = "must be true or undefined";
        errors.push(FieldError::invalid(field, &false.into(), why));
    }
    validate_list_and_map_type(at, schema, errors);
}

fn validate_supported_fields(
    at: &str,
    schema: &Value,
    context: SchemaContext<'_>,
    errors: &mut Vec<FieldError>,
) {
    let schema_type = text(schema, "/type");
    if !schema_type.is_empty() && !SCHEMA_TYPES.contains(&schema_type) {
        let field = format!("{at}.type");
        let value = json!(schema_type);
        errors.push(FieldError::not_supported(field, &value, SCHEMA_TYPES));
    }
    if let Some(reason) = context.forbids_default
        && has(schema, "/default")
    {
        let why = format!("must not be set {reason}");
        errors.push(FieldError::forbidden(format!("{at}.default"), &why));
    }
    for name in FORBIDDEN {
        let is_set = match get(schema, &format!("/{name}")) {
            Value::Null => false,
            Value::String(text) => !text.is_empty() || name == "$ref",
            Value::Object(fields) => !fields.is_empty() || name == "dependencies",
            _ => true,
        };
        if is_set {
            let why = format!("{name} is not supported");
            errors.push(FieldError::forbidden(format!("{at}.{name}"), &why));
        }
    }
    if schema_type == "null" {
        let why = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(format!("{at}.type"), why));
    }
    if !items(schema, "/items").is_empty() {
        let why = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(format!("{at}.items"), why));
    }
    if context.in_resource_meta && flag(schema, "/x-kubernetes-embedded-resource") {
        let field = format!("{at}.x-kubernetes-embedded-resource");
        let why = "must not be used inside of resource meta";
        errors.push(FieldError::forbidden(field, why));
    }
}

fn validate_map_values(
    at: &str,
    schema: &Value,
    context: SchemaContext<'_>,
    depth: usize,
    errors: &mut Vec<FieldError>,
) {
    let values = get(schema, "/additionalProperties");
    let has_properties = entries(schema, "/properties").next().is_some();
    let field = format!("{at}.additionalProperties");
    if has_properties && !values.is_null() && *values != Value::Bool(true) {
        let why = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(field.clone(), why));
    }
    let forbids_default = match context.in_resource_meta {
        true => Some("inside additionalProperties applying to object metadata"),
        false => context.forbids_default,
    };
    let below = SchemaContext {
        is_root: false,
        forbids_default,
        ..context
    };
    validate_schema(&field, values, below, depth + 1, errors);
}

fn validate_properties(
    at: &str,
    schema: &Value,
    context: SchemaContext<'_>,
    depth: usize,
    errors: &mut Vec<FieldError>,
) {
    let is_resource = context.is_root || flag(schema, "/x-kubernetes-embedded-resource");
    for (name, field) in entries(schema, "/properties") {
        let is_meta = is_resource && matches!(name, "metadata" | "kind" | "apiVersion");
        let reason = format!("in top-level {name}");
        let below = SchemaContext {
            is_root: false,
            forbids_default: match is_meta && context.is_root {
                true => Some(&reason),
                false => context.forbids_default,
            },
            in_resource_meta: context.in_resource_meta || is_meta,
        };
        let at = format!("{at}.properties[{name}]");
        validate_schema(&at, field, below, depth + 1, errors);
    }
}
