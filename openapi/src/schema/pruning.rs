//! Removes the fields that a schema does not know, and reports their paths. Depth is bounded.

use machinery::bounded_text::{child_path, push_path_step};
use serde_json::{Map, Value};

use super::{MAX_DEPTH, Schema};
use crate::model::{SchemaDefinition, SchemaDefinitionArena, SchemaNode, SchemaType};

/// How many removed paths are reported; fields beyond are removed without a report.
const MAX_REPORTED_PATHS: usize = 256;

impl Schema {
    /// Removes unknown fields. Returns their paths, sorted and as strict decoding spells them:
    /// `spec.a[0].b`, `spec.x`.
    pub fn prune(&self, value: &mut Value) -> Vec<String> {
        let mut pruning = FieldPruner {
            definitions: &self.definitions,
            removed: Vec::new(),
        };
        pruning.prune(&self.root, value, "", false, 0);
        pruning.removed.sort_unstable();
        pruning.removed
    }
}

struct FieldPruner<'a> {
    definitions: &'a SchemaDefinitionArena,
    /// The paths of removed fields.
    removed: Vec<String>,
}

impl FieldPruner<'_> {
    /// `preserves`: the value is an item of a list that preserves unknown fields
    /// (`apiextensions-apiserver/pkg/apiserver/schema/pruning`).
    fn prune(
        &mut self,
        node: &SchemaNode,
        value: &mut Value,
        path: &str,
        preserves: bool,
        depth: usize,
    ) {
        // A value that is too deep to check is removed.
        if depth > MAX_DEPTH {
            *value = Value::Null;
            return;
        }
        let node = node.for_value(value);
        let preserves = preserves || node.preserve_unknown;
        match (&node.ty, value) {
            (SchemaType::Any | SchemaType::Object, _) => {}
            (SchemaType::Ref(id), Value::Object(fields)) => {
                let definition = self.definitions.get(*id);
                if !preserves && !definition.preserve_unknown {
                    self.remove_unknown_fields(definition, fields, path);
                }
                for (key, value) in fields.iter_mut() {
                    if let Some(field) = definition.field(key)
                        && may_contain_fields(&field.node, value)
                    {
                        let path = child_path(path, key);
                        self.prune(&field.node, value, &path, false, depth + 1);
                    }
                }
            }
            (SchemaType::Map(of), Value::Object(fields)) => {
                for (key, value) in fields.iter_mut() {
                    if may_contain_fields(of, value) {
                        self.prune(of, value, &child_path(path, key), false, depth + 1);
                    }
                }
            }
            (SchemaType::Array(of), Value::Array(items)) => {
                for (index, value) in items.iter_mut().enumerate() {
                    if may_contain_fields(of, value) {
                        let path = item_path(path, index);
                        self.prune(of, value, &path, preserves, depth + 1);
                    }
                }
            }
            (_, value) if !preserves => self.remove_all_fields(value, path, depth),
            _ => {}
        }
    }

    fn remove_unknown_fields(
        &mut self,
        definition: &SchemaDefinition,
        fields: &mut Map<String, Value>,
        path: &str,
    ) {
        fields.retain(|key, _| {
            let is_known = definition.field(key).is_some();
            if !is_known {
                self.record(path, key);
            }
            is_known
        });
    }

    /// A schema without fields knows none.
    fn remove_all_fields(&mut self, value: &mut Value, path: &str, depth: usize) {
        if depth > MAX_DEPTH {
            *value = Value::Null;
            return;
        }
        match value {
            Value::Object(fields) => {
                for key in fields.keys() {
                    self.record(path, key);
                }
                fields.clear();
            }
            Value::Array(items) => {
                for (index, value) in items.iter_mut().enumerate() {
                    if value.is_object() || value.is_array() {
                        self.remove_all_fields(value, &item_path(path, index), depth + 1);
                    }
                }
            }
            _ => {}
        }
    }

    fn record(&mut self, path: &str, key: &str) {
        if self.removed.len() < MAX_REPORTED_PATHS {
            self.removed.push(child_path(path, key));
        }
    }
}

/// Whether the value can contain fields that are not preserved; if not, no path needs to be built.
fn may_contain_fields(node: &SchemaNode, value: &Value) -> bool {
    let is_free = matches!(
        node.for_value(value).ty,
        SchemaType::Any | SchemaType::Object
    );
    (value.is_object() || value.is_array()) && !is_free
}

fn item_path(path: &str, index: usize) -> String {
    let mut path = path.to_owned();
    push_path_step(&mut path, "", &format!("[{index}]"));
    path
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
        let free_list = Schema::from_crd(&json!({"type": "object", "properties": {"l": {
            "type": "array", "x-kubernetes-preserve-unknown-fields": true, "items": {
                "type": "object", "properties": {"k": {"type": "object", "properties": {}}}}}}}))
        .unwrap();
        let mut value = json!({"l": [{"x": 1, "k": {"gone": 1}}]});
        assert_eq!(free_list.prune(&mut value), ["l[0].k.gone"]);
        assert_eq!(value, json!({"l": [{"x": 1, "k": {}}]}));
        let mut untyped = json!({"spec": {"zzz": 1}});
        assert!(
            Schema::preserving_unknown_fields()
                .prune(&mut untyped)
                .is_empty()
        );
        assert_eq!(untyped, json!({"spec": {"zzz": 1}}));
    }
}
