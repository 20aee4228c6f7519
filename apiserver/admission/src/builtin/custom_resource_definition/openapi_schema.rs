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

pub(super) fn validate(path: &str, schema: &Value, errors: &mut Vec<FieldError>) {
    let context = SchemaContext {
        is_root: true,
        ..SchemaContext::default()
    };
    validate_schema(path, schema, context, 0, errors);
}

fn validate_schema(
    path: &str,
    schema: &Value,
    context: SchemaContext<'_>,
    depth: usize,
    errors: &mut Vec<FieldError>,
) {
    if depth > MAX_DEPTH || !schema.is_object() {
        return;
    }
    validate_supported_fields(path, schema, context, errors);
    if flag(schema, "/uniqueItems") {
        let detail =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
    }
    validate_map_values(path, schema, context, depth, errors);
    validate_properties(path, schema, context, depth, errors);
    let child_context = SchemaContext {
        is_root: false,
        ..context
    };
    let negated = get(schema, "/not");
    validate_schema(
        &format!("{path}.not"),
        negated,
        child_context,
        depth + 1,
        errors,
    );
    for name in ["allOf", "oneOf", "anyOf"] {
        for (i, part) in items(schema, &format!("/{name}")).iter().enumerate() {
            let path = index_path(&format!("{path}.{name}"), i);
            validate_schema(&path, part, child_context, depth + 1, errors);
        }
    }
    let item = get(schema, "/items");
    validate_schema(
        &format!("{path}.items"),
        item,
        child_context,
        depth + 1,
        errors,
    );
    for (i, part) in items(schema, "/items").iter().enumerate() {
        let path = index_path(&format!("{path}.items"), i);
        validate_schema(&path, part, child_context, depth + 1, errors);
    }
    let keeps = "x-kubernetes-preserve-unknown-fields";
    if *get(schema, &format!("/{keeps}")) == Value::Bool(false) {
        let field = format!("{path}.{keeps}");
        let detail = "must be true or undefined";
        errors.push(FieldError::invalid(field, &false.into(), detail));
    }
    validate_list_and_map_type(path, schema, errors);
}

fn validate_supported_fields(
    path: &str,
    schema: &Value,
    context: SchemaContext<'_>,
    errors: &mut Vec<FieldError>,
) {
    let schema_type = text(schema, "/type");
    if !schema_type.is_empty() && !SCHEMA_TYPES.contains(&schema_type) {
        let field = format!("{path}.type");
        let value = json!(schema_type);
        errors.push(FieldError::not_supported(field, &value, SCHEMA_TYPES));
    }
    if let Some(reason) = context.forbids_default
        && has(schema, "/default")
    {
        let detail = format!("must not be set {reason}");
        errors.push(FieldError::forbidden(format!("{path}.default"), &detail));
    }
    for name in FORBIDDEN {
        let is_set = match get(schema, &format!("/{name}")) {
            Value::Null => false,
            Value::String(text) => !text.is_empty() || name == "$ref",
            Value::Object(fields) => !fields.is_empty() || name == "dependencies",
            _ => true,
        };
        if is_set {
            let detail = format!("{name} is not supported");
            errors.push(FieldError::forbidden(format!("{path}.{name}"), &detail));
        }
    }
    if schema_type == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(format!("{path}.type"), detail));
    }
    if !items(schema, "/items").is_empty() {
        let detail = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(format!("{path}.items"), detail));
    }
    if context.in_resource_meta && flag(schema, "/x-kubernetes-embedded-resource") {
        let field = format!("{path}.x-kubernetes-embedded-resource");
        let detail = "must not be used inside of resource meta";
        errors.push(FieldError::forbidden(field, detail));
    }
}

fn validate_map_values(
    path: &str,
    schema: &Value,
    context: SchemaContext<'_>,
    depth: usize,
    errors: &mut Vec<FieldError>,
) {
    let values = get(schema, "/additionalProperties");
    let has_properties = entries(schema, "/properties").next().is_some();
    let field = format!("{path}.additionalProperties");
    if has_properties && !values.is_null() && *values != Value::Bool(true) {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(field.clone(), detail));
    }
    let forbids_default = match context.in_resource_meta {
        true => Some("inside additionalProperties applying to object metadata"),
        false => context.forbids_default,
    };
    let child_context = SchemaContext {
        is_root: false,
        forbids_default,
        ..context
    };
    validate_schema(&field, values, child_context, depth + 1, errors);
}

fn validate_properties(
    path: &str,
    schema: &Value,
    context: SchemaContext<'_>,
    depth: usize,
    errors: &mut Vec<FieldError>,
) {
    let is_resource = context.is_root || flag(schema, "/x-kubernetes-embedded-resource");
    for (name, field) in entries(schema, "/properties") {
        let is_meta = is_resource && matches!(name, "metadata" | "kind" | "apiVersion");
        let reason = format!("in top-level {name}");
        let child_context = SchemaContext {
            is_root: false,
            forbids_default: match is_meta && context.is_root {
                true => Some(&reason),
                false => context.forbids_default,
            },
            in_resource_meta: context.in_resource_meta || is_meta,
        };
        let path = format!("{path}.properties[{name}]");
        validate_schema(&path, field, child_context, depth + 1, errors);
    }
}
