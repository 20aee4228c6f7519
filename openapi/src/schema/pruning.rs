//! Removes the fields that a schema does not know, and reports their paths. Depth is bounded.

use machinery::bounded_text::{child_path, push_path_step};
use serde_json::Value;

use super::{MAX_DEPTH, Schema};
use crate::model::{SchemaDefinitionArena, SchemaNode, SchemaType};

/// How many removed paths are reported; fields beyond are removed without a report.
const MAX_REPORTED_PATHS: usize = 256;

impl Schema {
    /// Removes unknown fields. Returns their paths, sorted and as strict decoding spells them:
    /// `spec.a[0].b`, `spec.x`.
    pub fn prune(&self, value: &mut Value) -> Vec<String> {
        let mut removed = Vec::new();
        prune(&self.definitions, &self.root, value, "", &mut removed, 0);
        removed.sort_unstable();
        removed
    }
}

pub(super) fn prune(
    definitions: &SchemaDefinitionArena,
    node: &SchemaNode,
    value: &mut Value,
    path: &str,
    removed: &mut Vec<String>,
    depth: usize,
) {
    // A value that is too deep to check is removed.
    if depth > MAX_DEPTH {
        *value = Value::Null;
        return;
    }
    match (&node.ty, value) {
        (SchemaType::Ref(id), Value::Object(map)) => {
            let definition = definitions.get(*id);
            if !definition.preserve_unknown {
                map.retain(|key, _| {
                    let known = definition.field(key).is_some();
                    if !known && removed.len() < MAX_REPORTED_PATHS {
                        removed.push(child_path(path, key));
                    }
                    known
                });
            }
            for (key, value) in map.iter_mut() {
                if let Some(field) = definition.field(key)
                    && may_contain_fields(&field.node, value)
                {
                    let path = child_path(path, key);
                    prune(definitions, &field.node, value, &path, removed, depth + 1);
                }
            }
        }
        (SchemaType::Map(of), Value::Object(map)) => {
            for (key, value) in map.iter_mut() {
                if may_contain_fields(of, value) {
                    prune(
                        definitions,
                        of,
                        value,
                        &child_path(path, key),
                        removed,
                        depth + 1,
                    );
                }
            }
        }
        // A schema without fields knows none.
        (ty, Value::Object(map)) if !matches!(ty, SchemaType::Any | SchemaType::Object) => {
            for key in map.keys() {
                if removed.len() < MAX_REPORTED_PATHS {
                    removed.push(child_path(path, key));
                }
            }
            map.clear();
        }
        (SchemaType::Array(of), Value::Array(items)) => {
            for (at, value) in items.iter_mut().enumerate() {
                if may_contain_fields(of, value) {
                    let mut path = path.to_owned();
                    push_path_step(&mut path, "", &format!("[{at}]"));
                    prune(definitions, of, value, &path, removed, depth + 1);
                }
            }
        }
        _ => {}
    }
}

/// Whether the value can contain fields; if not, no path needs to be built.
fn may_contain_fields(node: &SchemaNode, value: &Value) -> bool {
    match value {
        Value::Object(_) => !matches!(node.ty, SchemaType::Any | SchemaType::Object),
        Value::Array(_) => matches!(node.ty, SchemaType::Array(_)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::schema::Schema;

    #[test]
    fn unknown_fields_are_removed_and_reported() {
        let schema = Schema::from_crd(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "a": {"type": "array", "items": {"type": "object", "properties": {
                "b": {"type": "string"}}}},
            "m": {"type": "object", "additionalProperties": {"type": "object",
                "properties": {"k": {"type": "string"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"known": {"type": "object", "properties": {}}}},
            "open": {"type": "object"},
        }}}}))
        .unwrap();
        let mut value = json!({
            "apiVersion": "g/v1", "kind": "T", "metadata": {"name": "x", "nme": "y"},
            "spec": {
                "a": [{"b": "1"}, {"c": 1}],
                "also": 1,
                "m": {"any": {"k": "v", "l": "w"}},
                "free": {"x": 1, "known": {"gone": 1}},
                "open": {"gone": 1},
                "zzz": 1,
            }, "top": 1});
        let removed = schema.prune(&mut value);
        assert_eq!(
            removed,
            [
                "metadata.nme",
                "spec.a[1].c",
                "spec.also",
                "spec.free.known.gone",
                "spec.m.any.l",
                "spec.open.gone",
                "spec.zzz",
                "top"
            ]
        );
        assert_eq!(
            value,
            json!({
            "apiVersion": "g/v1", "kind": "T", "metadata": {"name": "x"},
            "spec": {
                "a": [{"b": "1"}, {}],
                "m": {"any": {"k": "v"}},
                "free": {"x": 1, "known": {}},
                "open": {},
            }})
        );
        let mut untyped = json!({"spec": {"zzz": 1}});
        assert!(
            Schema::preserving_unknown_fields()
                .prune(&mut untyped)
                .is_empty()
        );
        assert_eq!(untyped, json!({"spec": {"zzz": 1}}));
    }
}
