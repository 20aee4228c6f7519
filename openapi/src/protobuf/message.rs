//! Decodes a protobuf message into JSON with the field numbers of its definition. Unknown
//! numbers are skipped.

use std::cell::Cell;

use serde_json::{Map, Value};

use super::value;
use super::wire::{WireField as Wire, WireFieldIterator};
use crate::model::{SchemaDefinition, SchemaDefinitionArena, SchemaField, SchemaNode, SchemaType};

/// Deepest nesting of messages; a JSON schema may nest its properties as deep.
const MAX_MESSAGE_DEPTH: usize = 64;
/// Most values of one message: an empty element takes two bytes on the wire, and much more
/// as a JSON value.
const MAX_VALUES: usize = 400_000;
/// A message counts as so many values: its map takes as much.
const VALUES_OF_MESSAGE: usize = 4;

/// Decodes one request body and counts its values.
pub(super) struct ProtobufDecoder<'a> {
    definitions: &'a SchemaDefinitionArena,
    value_count: Cell<usize>,
}

impl<'a> ProtobufDecoder<'a> {
    pub(super) fn new(definitions: &'a SchemaDefinitionArena) -> Self {
        Self {
            definitions,
            value_count: Cell::new(0),
        }
    }

    /// Adds the fields of a message to `out`.
    pub(super) fn decode_message(
        &self,
        definition: &SchemaDefinition,
        bytes: &[u8],
        out: &mut Map<String, Value>,
    ) -> Result<(), String> {
        self.decode_fields(definition, 0, bytes, out, 0)
    }

    /// `outer` is the path of the nested message whose fields are inline in JSON, or 0 at the
    /// top.
    fn decode_fields(
        &self,
        definition: &SchemaDefinition,
        outer: u32,
        bytes: &[u8],
        out: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), String> {
        if depth > MAX_MESSAGE_DEPTH {
            return Err(format!(
                "messages are nested deeper than {MAX_MESSAGE_DEPTH}"
            ));
        }
        for wire in WireFieldIterator::new(bytes) {
            let wire = wire?;
            if wire.number > 0xffff {
                continue;
            }
            if let Some(field) = definition.field_by_number(outer << 16 | wire.number) {
                self.decode_field(definition, field, &wire, out, depth)
                    .map_err(|e| format!("{}: {e}", field.name))?;
            } else if let Some(nested) = nested_message(definition, outer, wire.number) {
                self.decode_fields(definition, nested, wire.bytes()?, out, depth + 1)?;
            }
        }
        Ok(())
    }

    fn decode_field(
        &self,
        definition: &SchemaDefinition,
        field: &SchemaField,
        wire: &Wire<'_>,
        out: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), String> {
        match &field.node.ty {
            SchemaType::Array(item) => {
                let element = self.decode_value(definition, field, item, wire, depth)?;
                let slot = out
                    .entry(&*field.name)
                    .or_insert_with(|| Value::Array(Vec::new()));
                if let (Value::Array(list), Some(element)) = (slot, element) {
                    list.push(element);
                }
            }
            SchemaType::Map(of) => {
                let (key, value) = self.decode_map_entry(definition, field, of, wire, depth)?;
                let slot = out
                    .entry(&*field.name)
                    .or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(map) = slot {
                    map.insert(key, value);
                }
            }
            _ => {
                let value = self.decode_value(definition, field, &field.node, wire, depth)?;
                // `additionalProperties: false` is a pointer in Go, not an empty value.
                let is_union = json_schema_union(definition, field).is_some();
                let is_encoded = |value: &Value| field.node.is_encoded(field.required, value);
                match value.filter(|value| is_union || is_encoded(value)) {
                    Some(value) => out.insert(field.name.to_string(), value),
                    None => out.remove(&*field.name),
                };
            }
        }
        Ok(())
    }

    /// Decodes a map entry: a message of key 1 and value 2; each is omitted when zero.
    fn decode_map_entry(
        &self,
        definition: &SchemaDefinition,
        field: &SchemaField,
        value_node: &SchemaNode,
        wire: &Wire<'_>,
        depth: usize,
    ) -> Result<(String, Value), String> {
        let (mut key, mut value) = (String::new(), None);
        for part in WireFieldIterator::new(wire.bytes()?) {
            let part = part?;
            match part.number {
                1 => key = part.text()?.to_owned(),
                2 => value = self.decode_value(definition, field, value_node, &part, depth)?,
                _ => {}
            }
        }
        Ok((key, value.unwrap_or_else(|| value_node.ty.zero_value())))
    }

    /// Decodes one value; `None` for an empty message that means absence.
    fn decode_value(
        &self,
        definition: &SchemaDefinition,
        field: &SchemaField,
        node: &SchemaNode,
        wire: &Wire<'_>,
        depth: usize,
    ) -> Result<Option<Value>, String> {
        let cost = match &node.ty {
            SchemaType::Ref(_) => VALUES_OF_MESSAGE,
            _ => 1,
        };
        self.value_count.set(self.value_count.get() + cost);
        if self.value_count.get() > MAX_VALUES {
            return Err(format!("more than {MAX_VALUES} values"));
        }
        match &node.ty {
            SchemaType::Ref(id) => {
                let mut object = Map::new();
                let inner = self.definitions.get(*id);
                self.decode_fields(inner, 0, wire.bytes()?, &mut object, depth + 1)?;
                Ok(Some(Value::Object(object)))
            }
            // A list that is the value of a map is wrapped in a message.
            SchemaType::Array(item) => {
                let mut list = Vec::new();
                for element in WireFieldIterator::new(wire.bytes()?) {
                    let element = element?;
                    if element.number == 1 {
                        list.extend(self.decode_value(
                            definition,
                            field,
                            item,
                            &element,
                            depth + 1,
                        )?);
                    }
                }
                Ok(Some(Value::Array(list)))
            }
            SchemaType::Any => match json_schema_union(definition, field) {
                Some(union) => self.decode_union(definition, union, wire.bytes()?, depth + 1),
                None => value::decode_raw_json(wire.bytes()?),
            },
            ty => value::decode_scalar(ty, wire),
        }
    }

    /// Decodes the unions of `JSONSchemaProps`, of which JSON has the chosen member only.
    fn decode_union(
        &self,
        schema: &SchemaDefinition,
        union: JsonSchemaUnion,
        bytes: &[u8],
        depth: usize,
    ) -> Result<Option<Value>, String> {
        let (mut single, mut list, mut allows) = (None, Vec::new(), false);
        for wire in WireFieldIterator::new(bytes) {
            let wire = wire?;
            match (union, wire.number) {
                (JsonSchemaUnion::Bool, 1) => allows = wire.integer()? != 0,
                (JsonSchemaUnion::Strings, 2) => list.push(wire.text()?.into()),
                (JsonSchemaUnion::Bool, 2)
                | (JsonSchemaUnion::List | JsonSchemaUnion::Strings, 1)
                | (JsonSchemaUnion::List, 2) => {
                    let mut object = Map::new();
                    self.decode_fields(schema, 0, wire.bytes()?, &mut object, depth)?;
                    if union == JsonSchemaUnion::List && wire.number == 2 {
                        list.push(Value::Object(object));
                    } else {
                        single = Some(Value::Object(object));
                    }
                }
                _ => {}
            }
        }
        Ok(Some(match (single, union) {
            (Some(single), _) => single,
            (None, JsonSchemaUnion::Bool) => allows.into(),
            (None, _) => list.into(),
        }))
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum JsonSchemaUnion {
    /// A schema or a list of schemas.
    List,
    /// A boolean or a schema.
    Bool,
    /// A schema or a list of strings.
    Strings,
}

pub(crate) fn json_schema_union(
    definition: &SchemaDefinition,
    field: &SchemaField,
) -> Option<JsonSchemaUnion> {
    if !definition.name.ends_with(".JSONSchemaProps") {
        return None;
    }
    match &*field.name {
        "items" => Some(JsonSchemaUnion::List),
        "additionalProperties" | "additionalItems" => Some(JsonSchemaUnion::Bool),
        "dependencies" => Some(JsonSchemaUnion::Strings),
        _ => None,
    }
}

/// The path of the message `number` within the message at `outer`, if it has fields that are
/// inline in JSON.
fn nested_message(definition: &SchemaDefinition, outer: u32, number: u32) -> Option<u32> {
    if outer > 0xff || number > 0xff {
        return None;
    }
    let path = outer << 8 | number;
    let mut paths = definition.fields.iter().map(|field| field.number >> 16);
    paths.any(|p| p == path || p >> 8 == path).then_some(path)
}
