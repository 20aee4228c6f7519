//! Sets the defaults of a schema in a value, in place. Depth and size are bounded.

use std::cell::Cell;

use serde_json::{Map, Value};

use super::{MAX_DEPTH, Schema};
use crate::model::{DefaultValue, SchemaDefinition, SchemaDefinitionArena, SchemaNode, SchemaType};

/// How much the defaults of one object may take in memory. A list item of two bytes can have a
/// default of any size, and no store takes an object with that many.
const MAX_DEFAULT_BYTES: usize = 8 << 20;

/// The defaults of an object would take more memory than one object may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the defaults of its schema would take more than {MAX_DEFAULT_BYTES} bytes of memory")]
pub struct DefaultsTooLarge;

impl Schema {
    /// Sets defaults of fields whose parent is present. Before that, removes `null` from
    /// fields and map values that are not nullable; list items keep it unless they have a default.
    ///
    /// # Errors
    ///
    /// [`DefaultsTooLarge`]; some defaults are set then.
    pub fn apply_defaults(&self, value: &mut Value) -> Result<(), DefaultsTooLarge> {
        self.set_defaults(value, false)
    }

    /// As [`Self::apply_defaults`], but `null` stays unless there is a default: Kubernetes
    /// leaves it to validation to refuse what an apply sets to `null`.
    ///
    /// # Errors
    ///
    /// [`DefaultsTooLarge`]; some defaults are set then.
    pub fn apply_defaults_and_keep_nulls(&self, value: &mut Value) -> Result<(), DefaultsTooLarge> {
        self.set_defaults(value, true)
    }

    fn set_defaults(&self, value: &mut Value, keeps_nulls: bool) -> Result<(), DefaultsTooLarge> {
        let defaulting = Defaulting {
            definitions: &self.definitions,
            keeps_nulls,
            available_bytes: Cell::new(Some(MAX_DEFAULT_BYTES)),
        };
        defaulting.apply(&self.root, value, 0);
        defaulting
            .available_bytes
            .get()
            .map(|_| ())
            .ok_or(DefaultsTooLarge)
    }
}

/// Sets the defaults of types.
struct Defaulting<'a> {
    definitions: &'a SchemaDefinitionArena,
    keeps_nulls: bool,
    /// The bytes that further defaults may take; `None` once they took too much, and no more are set.
    available_bytes: Cell<Option<usize>>,
}

impl Defaulting<'_> {
    /// A copy of a default, if it may be set.
    fn copy_of(&self, default: &DefaultValue) -> Option<Value> {
        let remaining_bytes = self
            .available_bytes
            .get()
            .and_then(|remaining_bytes| remaining_bytes.checked_sub(default.tree_bytes()));
        self.available_bytes.set(remaining_bytes);
        remaining_bytes.map(|_| Value::clone(default))
    }

    fn apply(&self, node: &SchemaNode, value: &mut Value, depth: usize) {
        if depth > MAX_DEPTH || self.available_bytes.get().is_none() {
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
                    self.replace_null(of, child);
                    self.apply(of, child, depth + 1);
                }
            }
            (SchemaType::Array(of), Value::Array(items)) => {
                for child in items {
                    self.replace_null(of, child);
                    self.apply(of, child, depth + 1);
                }
            }
            _ => {}
        }
    }

    /// Removes nulls that mean absence, and sets the defaults of absent fields.
    fn default_fields(&self, definition: &SchemaDefinition, map: &mut Map<String, Value>) {
        for field in &definition.fields {
            let default = field.node.default.as_ref();
            let keeps_null = field.node.nullable || self.keeps_nulls && default.is_none();
            if !keeps_null && map.get(&*field.name).is_some_and(Value::is_null) {
                map.remove(&*field.name);
            }
            if let Some(default) = default
                && !map.contains_key(&*field.name)
                && let Some(copy) = self.copy_of(default)
            {
                map.insert(field.name.to_string(), copy);
            }
        }
    }

    fn replace_null(&self, node: &SchemaNode, value: &mut Value) {
        if value.is_null()
            && !node.nullable
            && let Some(default) = &node.default
            && let Some(copy) = self.copy_of(default)
        {
            *value = copy;
        }
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
            schema.apply_defaults(&mut value).unwrap();
            assert_eq!(value, expect);
        }
    }

    #[test]
    fn defaults_are_bounded_in_size() {
        let schema = Schema::from_crd(&json!({"type": "object", "properties": {"list": {
            "type": "array", "items": {"type": "object", "properties": {
                "a": {"type": "string", "default": "x".repeat(20_000)}}}}}}))
        .unwrap();
        let items = |count: usize| json!({"list": vec![json!({}); count]});
        let mut few = items(100);
        schema.apply_defaults(&mut few).unwrap();
        assert_eq!(few["list"][99]["a"].as_str().map(str::len), Some(20_000));
        let mut large = items(100_000);
        assert_eq!(
            schema.apply_defaults(&mut large),
            Err(super::DefaultsTooLarge)
        );
        assert_eq!(large["list"][99_999], json!({}));
    }
}
