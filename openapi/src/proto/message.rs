//! Decodes a protobuf message into JSON with the field numbers of its definition. Unknown
//! numbers are skipped.

use std::cell::Cell;

use serde_json::{Map, Value};

use super::value;
use super::wire::{Field as Wire, Fields};
use crate::model::{Definition, Definitions, Field, Node, Type};

/// Deepest nesting of messages; a JSON schema may nest its properties as deep.
const MAX_DEPTH: usize = 64;
/// Most values of one message: an empty element takes two bytes on the wire, and much more
/// as a JSON value.
const MAX_VALUES: usize = 400_000;

/// Decodes one request body and counts its values.
pub(super) struct Decoder<'a> {
    definitions: &'a Definitions,
    values: Cell<usize>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(definitions: &'a Definitions) -> Self {
        Self {
            definitions,
            values: Cell::new(0),
        }
    }

    /// Adds the fields of a message to `out`.
    pub(super) fn message(
        &self,
        definition: &Definition,
        bytes: &[u8],
        out: &mut Map<String, Value>,
    ) -> Result<(), String> {
        self.fields(definition, 0, bytes, out, 0)
    }

    /// `outer` is the number of the nested message whose fields are inline in JSON, or 0 at
    /// the top.
    fn fields(
        &self,
        definition: &Definition,
        outer: u32,
        bytes: &[u8],
        out: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("messages are nested deeper than {MAX_DEPTH}"));
        }
        for wire in Fields::of(bytes) {
            let wire = wire?;
            if wire.number > 0xffff {
                continue;
            }
            if let Some(field) = definition.numbered(outer << 16 | wire.number) {
                self.field(definition, field, &wire, out, depth)
                    .map_err(|e| format!("{}: {e}", field.name))?;
            } else if outer == 0 && nests(definition, wire.number) {
                self.fields(definition, wire.number, wire.bytes()?, out, depth + 1)?;
            }
        }
        Ok(())
    }

    fn field(
        &self,
        definition: &Definition,
        field: &Field,
        wire: &Wire<'_>,
        out: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), String> {
        match &field.node.ty {
            Type::Array(item) => {
                let element = self.value(definition, field, item, wire, depth)?;
                let slot = out
                    .entry(&*field.name)
                    .or_insert_with(|| Value::Array(Vec::new()));
                if let (Value::Array(list), Some(element)) = (slot, element) {
                    list.push(element);
                }
            }
            Type::Map(of) => {
                let (key, value) = self.entry(definition, field, of, wire, depth)?;
                let slot = out
                    .entry(&*field.name)
                    .or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(map) = slot {
                    map.insert(key, value);
                }
            }
            _ => {
                let value = self.value(definition, field, &field.node, wire, depth)?;
                match value.filter(|value| field.node.keeps(field.required, value)) {
                    Some(value) => out.insert(field.name.to_string(), value),
                    None => out.remove(&*field.name),
                };
            }
        }
        Ok(())
    }

    /// Decodes a map entry: a message of key 1 and value 2; each is omitted when zero.
    fn entry(
        &self,
        definition: &Definition,
        field: &Field,
        of: &Node,
        wire: &Wire<'_>,
        depth: usize,
    ) -> Result<(String, Value), String> {
        let (mut key, mut value) = (String::new(), None);
        for part in Fields::of(wire.bytes()?) {
            let part = part?;
            match part.number {
                1 => key = part.text()?.to_owned(),
                2 => value = self.value(definition, field, of, &part, depth)?,
                _ => {}
            }
        }
        Ok((key, value.unwrap_or_else(|| value::zero(&of.ty))))
    }

    /// Decodes one value; `None` for an empty message that means absence.
    fn value(
        &self,
        definition: &Definition,
        field: &Field,
        node: &Node,
        wire: &Wire<'_>,
        depth: usize,
    ) -> Result<Option<Value>, String> {
        self.values.set(self.values.get() + 1);
        if self.values.get() > MAX_VALUES {
            return Err(format!("more than {MAX_VALUES} values"));
        }
        match &node.ty {
            Type::Ref(id) => {
                let mut object = Map::new();
                let inner = self.definitions.get(*id);
                self.fields(inner, 0, wire.bytes()?, &mut object, depth + 1)?;
                Ok(Some(Value::Object(object)))
            }
            // A list that is the value of a map is wrapped in a message.
            Type::Array(item) => {
                let mut list = Vec::new();
                for element in Fields::of(wire.bytes()?) {
                    let element = element?;
                    if element.number == 1 {
                        list.extend(self.value(definition, field, item, &element, depth + 1)?);
                    }
                }
                Ok(Some(Value::Array(list)))
            }
            Type::Any => match union_of(definition, field) {
                Some(union) => self.union(definition, union, wire.bytes()?, depth + 1),
                None => value::raw(wire.bytes()?),
            },
            ty => value::plain(ty, wire),
        }
    }

    /// Decodes the unions of `JSONSchemaProps`, of which JSON has the chosen member only.
    fn union(
        &self,
        schema: &Definition,
        union: Union,
        bytes: &[u8],
        depth: usize,
    ) -> Result<Option<Value>, String> {
        let (mut one, mut many, mut allows) = (None, Vec::new(), false);
        for wire in Fields::of(bytes) {
            let wire = wire?;
            match (union, wire.number) {
                (Union::Bool, 1) => allows = wire.integer()? != 0,
                (Union::Strings, 2) => many.push(wire.text()?.into()),
                (Union::Bool, 2) | (Union::List | Union::Strings, 1) | (Union::List, 2) => {
                    let mut object = Map::new();
                    self.fields(schema, 0, wire.bytes()?, &mut object, depth)?;
                    if union == Union::List && wire.number == 2 {
                        many.push(Value::Object(object));
                    } else {
                        one = Some(Value::Object(object));
                    }
                }
                _ => {}
            }
        }
        Ok(Some(match (one, union) {
            (Some(one), _) => one,
            (None, Union::Bool) => allows.into(),
            (None, _) => many.into(),
        }))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Union {
    /// A schema or a list of schemas.
    List,
    /// A boolean or a schema.
    Bool,
    /// A schema or a list of strings.
    Strings,
}

fn union_of(definition: &Definition, field: &Field) -> Option<Union> {
    if !definition.name.ends_with(".JSONSchemaProps") {
        return None;
    }
    match &*field.name {
        "items" => Some(Union::List),
        "additionalProperties" | "additionalItems" => Some(Union::Bool),
        "dependencies" => Some(Union::Strings),
        _ => None,
    }
}

fn nests(definition: &Definition, number: u32) -> bool {
    definition
        .fields
        .iter()
        .any(|field| field.number >> 16 == number)
}
