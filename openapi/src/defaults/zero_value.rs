//! The value of a built-in kind with no field set, as Go's JSON has it: structs are there, lists and
//! maps that are not optional are null.

use serde_json::{Map, Value};

use crate::catalog::catalog;
use crate::model::{KindInfo, SchemaDefinitionArena, SchemaDefinitionId, SchemaType};
use crate::schema::MAX_DEPTH;

/// The zero value of a kind that API servers hold as a Go struct.
pub fn zero_value(kind: &KindInfo) -> Value {
    let definitions = catalog().definitions();
    match definitions.id(&kind.definition) {
        Some(id) => zero_struct(definitions, id, 0),
        None => Value::Object(Map::new()),
    }
}

fn zero_struct(definitions: &SchemaDefinitionArena, id: SchemaDefinitionId, depth: usize) -> Value {
    let mut fields = Map::new();
    for field in &definitions.get(id).fields {
        let is_struct = field.node.default.as_deref().is_some_and(Value::is_object);
        let zero = match field.node.ty {
            SchemaType::Ref(of) if is_struct && depth < MAX_DEPTH => {
                zero_struct(definitions, of, depth + 1)
            }
            SchemaType::Array(_) | SchemaType::Map(_) if field.required => Value::Null,
            _ => continue,
        };
        fields.insert(field.name.to_string(), zero);
    }
    Value::Object(fields)
}
