//! Sets the defaults of a schema in a value, in place. Depth is bounded.

use serde_json::{Map, Value};

use super::{MAX_DEPTH, Schema};
use crate::model::{SchemaDefinition, SchemaDefinitionArena, SchemaNode, SchemaType};

impl Schema {
    /// Sets defaults of fields whose parent is present. Before that, removes `null` from
    /// fields and map values that are not nullable; list items keep it unless they have a default.
    pub fn apply_defaults(&self, value: &mut Value) {
        let defaulting = Defaulting {
            definitions: &self.definitions,
            keeps_nulls: false,
        };
        defaulting.apply(&self.root, value, 0);
    }

    /// As [`Self::apply_defaults`], but `null` stays unless there is a default: Kubernetes
    /// leaves it to validation to refuse what an apply sets to `null`.
    pub fn apply_defaults_and_keep_nulls(&self, value: &mut Value) {
        let defaulting = Defaulting {
            definitions: &self.definitions,
            keeps_nulls: true,
        };
        defaulting.apply(&self.root, value, 0);
    }
}

/// Sets the defaults of types.
#[derive(Clone, Copy)]
struct Defaulting<'a> {
    definitions: &'a SchemaDefinitionArena,
    keeps_nulls: bool,
}

impl Defaulting<'_> {
    fn apply(self, node: &SchemaNode, value: &mut Value, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match (&node.for_value(value).ty, value) {
            (SchemaType::Ref(id), Value::Object(map)) => {
                let definition = self.definitions.get(*id);
                self.default_fields(definition, map);
                for (key, child) in map.iter_mut() {
                    if let Some(field) = definition.field(key) {
                        self.apply(&field.node, child, depth + 1);
                    }
                }
            }
            (SchemaType::Map(of), Value::Object(map)) => {
                if !self.keeps_nulls && !of.nullable && of.default.is_none() {
                    map.retain(|_, child| !child.is_null());
                }
                for child in map.values_mut() {
                    replace_null(of, child);
                    self.apply(of, child, depth + 1);
                }
            }
            (SchemaType::Array(of), Value::Array(items)) => {
                for child in items {
                    replace_null(of, child);
                    self.apply(of, child, depth + 1);
                }
            }
            _ => {}
        }
    }

    /// Removes nulls that mean absence, and sets the defaults of absent fields.
    fn default_fields(self, definition: &SchemaDefinition, map: &mut Map<String, Value>) {
        for field in &definition.fields {
            let default = field.node.default.as_ref();
            let keeps_null = field.node.nullable || self.keeps_nulls && default.is_none();
            if !keeps_null && map.get(&*field.name).is_some_and(Value::is_null) {
                map.remove(&*field.name);
            }
            if let Some(default) = default
                && !map.contains_key(&*field.name)
            {
                map.insert(field.name.to_string(), default.clone());
            }
        }
    }
}

fn replace_null(node: &SchemaNode, value: &mut Value) {
    if value.is_null()
        && !node.nullable
        && let Some(default) = &node.default
    {
        *value = default.clone();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::schema::Schema;

    #[test]
    fn defaults_need_a_parent_and_replace_null() {
        let schema = Schema::from_crd(&json!({"type": "object", "properties": {"spec": {
        "type": "object", "properties": {
            "a": {"type": "integer", "default": 1},
            "n": {"type": "string", "nullable": true, "default": "x"},
            "o": {"type": "object", "default": {}, "properties": {
                "deep": {"type": "boolean", "default": true}}},
            "plain": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object", "properties": {
                "p": {"type": "string", "default": "TCP"}}}},
        }}}}))
        .unwrap();
        let table = [
            (json!({}), json!({})),
            (
                json!({"spec": {}}),
                json!({"spec": {"a": 1, "n": "x", "o": {"deep": true}}}),
            ),
            (
                json!({"spec": {"a": null, "n": null, "o": {"deep": false}, "plain": null,
                                "list": [{}, {"p": "UDP"}]}}),
                json!({"spec": {"a": 1, "n": null, "o": {"deep": false},
                                "list": [{"p": "TCP"}, {"p": "UDP"}]}}),
            ),
            (json!({"spec": []}), json!({"spec": []})),
        ];
        for (mut value, expect) in table {
            schema.apply_defaults(&mut value);
            assert_eq!(value, expect);
        }
    }
}
