//! Finds the objects in fields with `x-kubernetes-embedded-resource`, and checks the types of
//! their metadata as Go's decoder does. Depth is bounded.

use machinery::bounded_text::{child_path, push_path_step, rendered_json};
use serde_json::{Map, Value};

use super::decoding::GoDecodeChecker;
use super::{MAX_DEPTH, Schema, SchemaCursor};
use crate::catalog::catalog;
use crate::model::{SchemaNode, SchemaType};
use crate::schema_file_parser::OBJECT_META_TYPE;

/// An object in a field of another one.
pub struct EmbeddedResource<'v> {
    /// The path of the field.
    pub path: String,
    pub fields: &'v Map<String, Value>,
}

impl Schema {
    /// The embedded resources of a value.
    pub fn embedded_resources<'v>(&self, value: &'v Value) -> Vec<EmbeddedResource<'v>> {
        let mut resources = Vec::new();
        if self.definitions.iter().any(|(_, d)| d.embedded_resource) {
            collect(self.root(), value, String::new(), 0, &mut resources);
        }
        resources
    }

    /// The error of the first embedded resource whose type or metadata Kubernetes cannot decode.
    pub fn embedded_resource_error(&self, value: &Value) -> Option<String> {
        let resources = self.embedded_resources(value);
        resources.iter().find_map(EmbeddedResource::decode_error)
    }
}

impl EmbeddedResource<'_> {
    fn decode_error(&self) -> Option<String> {
        let Self { path, fields } = self;
        for name in ["apiVersion", "kind"] {
            if let Some(value) = fields.get(name)
                && !value.is_string()
            {
                let value = rendered_json(value);
                return Some(format!(
                    "{path}.{name}: Invalid value: {value}: must be a string"
                ));
            }
        }
        let metadata = fields.get("metadata")?;
        let detail = object_meta_error(metadata)?;
        let metadata = rendered_json(metadata);
        Some(format!(
            "{path}.metadata: Invalid value: {metadata}: {detail}"
        ))
    }
}

/// Why Go cannot decode the metadata of an object.
pub fn object_meta_error(metadata: &Value) -> Option<String> {
    let definitions = catalog().definitions();
    let id = definitions.id(OBJECT_META_TYPE)?;
    let type_name = match metadata {
        Value::Null | Value::Object(_) => {
            let node = SchemaNode::from_type(SchemaType::Ref(id));
            return GoDecodeChecker::new(definitions).first_error(&node, metadata, 0);
        }
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
    };
    Some(format!(
        "json: cannot unmarshal {type_name} into Go value of type v1.ObjectMeta"
    ))
}

fn collect<'v>(
    cursor: SchemaCursor<'_>,
    value: &'v Value,
    path: String,
    depth: usize,
    resources: &mut Vec<EmbeddedResource<'v>>,
) {
    if depth > MAX_DEPTH {
        return;
    }
    let cursor = cursor.for_value(value);
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(child) = cursor.field(name) {
                    collect(child, value, child_path(&path, name), depth + 1, resources);
                }
            }
            if cursor.definition().is_some_and(|d| d.embedded_resource) {
                resources.push(EmbeddedResource { path, fields });
            }
        }
        Value::Array(items) => {
            let Some(child) = cursor.item() else {
                return;
            };
            for (i, value) in items.iter().enumerate() {
                let mut path = path.clone();
                push_path_step(&mut path, "", &format!("[{i}]"));
                collect(child, value, path, depth + 1, resources);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn embedded_resources_are_found_and_decoded() {
        let schema = Schema::from_crd(&json!({"type": "object", "properties": {"l": {
            "type": "array", "items": {"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true}}}}))
        .unwrap();
        let paths = |value: &Value| -> Vec<String> {
            let resources = schema.embedded_resources(value).into_iter();
            resources.map(|resource| resource.path).collect()
        };
        let good = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}});
        assert_eq!(paths(&json!({"l": [good, 1, {}]})), ["l[0]", "l[2]"]);
        for (object, expected) in [
            (good, None),
            (
                json!({"kind": 1}),
                Some("l[0].kind: Invalid value: 1: must be a string"),
            ),
            (
                json!({"metadata": {"labels": [1]}}),
                Some(
                    "l[0].metadata: Invalid value: {\"labels\":[1]}: json: cannot unmarshal array into Go struct field ObjectMeta.labels of type map[string]string",
                ),
            ),
        ] {
            let error = schema.embedded_resource_error(&json!({"l": [object]}));
            assert_eq!(error.as_deref(), expected);
        }
    }

    #[test]
    fn metadata_is_decoded_as_by_go() {
        for (metadata, expected) in [
            (json!({"name": "a", "generation": 1}), None),
            (json!({"annotations": {"a": null}}), None),
            (
                json!("x"),
                Some("json: cannot unmarshal string into Go value of type v1.ObjectMeta"),
            ),
            (
                json!({"labels": {"a": 1}}),
                Some(
                    "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
                ),
            ),
            (
                json!({"generation": "x"}),
                Some(
                    "json: cannot unmarshal string into Go struct field ObjectMeta.generation of type int64",
                ),
            ),
        ] {
            assert_eq!(object_meta_error(&metadata).as_deref(), expected);
        }
    }
}
