//! Encodes JSON into Kubernetes' protobuf messages, by the field numbers of the definitions:
//! the reverse of `message`. What a definition does not have is left out, as by Go.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::{duration, time};
use serde_json::{Map, Value};

use super::message::{JsonSchemaUnion, json_schema_union};
use crate::model::{SchemaDefinition, SchemaDefinitionArena, SchemaField, SchemaNode, SchemaType};
use crate::schema::MAX_DEPTH;

/// Appends the fields of a message.
pub(super) struct ProtobufEncoder<'a> {
    definitions: &'a SchemaDefinitionArena,
}

impl<'a> ProtobufEncoder<'a> {
    pub(super) fn new(definitions: &'a SchemaDefinitionArena) -> Self {
        Self { definitions }
    }

    /// Encodes the fields of an object. The error names a value that does not fit its type.
    pub(super) fn encode_message(
        &self,
        definition: &SchemaDefinition,
        object: &Map<String, Value>,
        depth: usize,
    ) -> Result<Vec<u8>, String> {
        if depth > MAX_DEPTH {
            return Err(format!("messages are nested deeper than {MAX_DEPTH}"));
        }
        let mut out = Vec::new();
        // Messages whose fields are inline in JSON, by their path.
        let mut nested: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for field in definition.fields.iter().filter(|f| f.number != 0) {
            let Some(value) = object.get(&*field.name).filter(|v| !v.is_null()) else {
                continue;
            };
            let target = match field.number >> 16 {
                0 => &mut out,
                outer => nested.entry(outer).or_default(),
            };
            self.encode_field(definition, field, value, target, depth)
                .map_err(|detail| format!("{}: {detail}", field.name))?;
        }
        // The innermost have the highest paths.
        let mut outermost = Vec::new();
        while let Some((path, message)) = nested.pop_last() {
            match path >> 8 {
                0 => outermost.push((path, message)),
                outer => put_bytes(nested.entry(outer).or_default(), path & 0xff, &message),
            }
        }
        for (number, message) in outermost.into_iter().rev() {
            put_bytes(&mut out, number, &message);
        }
        Ok(out)
    }

    fn encode_field(
        &self,
        definition: &SchemaDefinition,
        field: &SchemaField,
        value: &Value,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), String> {
        let number = field.number & 0xffff;
        match (&field.node.ty, value) {
            (SchemaType::Array(item), Value::Array(elements)) => {
                for element in elements {
                    self.encode_value(definition, field, item, number, element, out, depth)?;
                }
                Ok(())
            }
            (SchemaType::Map(of), Value::Object(entries)) => {
                for (key, value) in entries {
                    let mut entry = Vec::new();
                    put_bytes(&mut entry, 1, key.as_bytes());
                    self.encode_value(definition, field, of, 2, value, &mut entry, depth)?;
                    put_bytes(out, number, &entry);
                }
                Ok(())
            }
            (SchemaType::Array(_) | SchemaType::Map(_), other) => Err(mismatch(other)),
            _ => self.encode_value(definition, field, &field.node, number, value, out, depth),
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "a value of a field is written at a number that its list or map decides"
    )]
    fn encode_value(
        &self,
        definition: &SchemaDefinition,
        field: &SchemaField,
        node: &SchemaNode,
        number: u32,
        value: &Value,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), String> {
        match (&node.ty, value) {
            (SchemaType::Ref(_), Value::Null) => put_bytes(out, number, &[]),
            (_, Value::Null) => {}
            (SchemaType::Ref(id), Value::Object(inner)) => {
                let message = self.encode_message(self.definitions.get(*id), inner, depth + 1)?;
                put_bytes(out, number, &message);
            }
            // A list that is the value of a map is wrapped in a message.
            (SchemaType::Array(item), Value::Array(elements)) => {
                let mut list = Vec::new();
                for element in elements {
                    self.encode_value(definition, field, item, 1, element, &mut list, depth + 1)?;
                }
                put_bytes(out, number, &list);
            }
            (SchemaType::Any, _) => {
                let message = match json_schema_union(definition, field) {
                    Some(union) => self.encode_union(definition, union, value, depth + 1)?,
                    None => raw_json(value),
                };
                put_bytes(out, number, &message);
            }
            (SchemaType::Object, _) => put_bytes(out, number, &raw_json(value)),
            (ty, _) => encode_scalar(ty, number, value, out).ok_or_else(|| mismatch(value))?,
        }
        Ok(())
    }

    /// Encodes the unions of `JSONSchemaProps`, of which JSON has the chosen member only.
    fn encode_union(
        &self,
        schema: &SchemaDefinition,
        union: JsonSchemaUnion,
        value: &Value,
        depth: usize,
    ) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        let schema_number = if union == JsonSchemaUnion::Bool { 2 } else { 1 };
        match value {
            Value::Bool(allows) => put_varint_field(&mut out, 1, u64::from(*allows)),
            Value::Object(one) => {
                if union == JsonSchemaUnion::Bool {
                    put_varint_field(&mut out, 1, 1);
                }
                let message = self.encode_message(schema, one, depth)?;
                put_bytes(&mut out, schema_number, &message);
            }
            Value::Array(many) => {
                for element in many {
                    let message = match element {
                        Value::String(text) => text.as_bytes().to_vec(),
                        Value::Object(one) => self.encode_message(schema, one, depth)?,
                        other => return Err(mismatch(other)),
                    };
                    put_bytes(&mut out, 2, &message);
                }
            }
            other => return Err(mismatch(other)),
        }
        Ok(out)
    }
}

fn mismatch(value: &Value) -> String {
    format!("{value} does not have the type of the field")
}

/// Encodes a value that needs no definition; `None` if it is of another type.
fn encode_scalar(ty: &SchemaType, number: u32, value: &Value, out: &mut Vec<u8>) -> Option<()> {
    match ty {
        SchemaType::String => put_bytes(out, number, value.as_str()?.as_bytes()),
        SchemaType::Int32 | SchemaType::Int64 => {
            put_varint_field(out, number, value.as_i64()?.cast_unsigned());
        }
        SchemaType::Bool => put_varint_field(out, number, value.as_bool()?.into()),
        SchemaType::Number => {
            put_varint(out, u64::from(number) << 3 | 1);
            out.extend_from_slice(&value.as_f64()?.to_le_bytes());
        }
        SchemaType::Bytes => put_bytes(out, number, &STANDARD.decode(value.as_str()?).ok()?),
        SchemaType::Quantity => {
            let mut message = Vec::new();
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return None,
            };
            put_bytes(&mut message, 1, text.as_bytes());
            put_bytes(out, number, &message);
        }
        SchemaType::IntOrString => {
            let mut message = Vec::new();
            let text = value.as_str();
            put_varint_field(&mut message, 1, text.is_some().into());
            let integer = if text.is_some() { 0 } else { value.as_i64()? };
            put_varint_field(&mut message, 2, integer.cast_unsigned());
            put_bytes(&mut message, 3, text.unwrap_or_default().as_bytes());
            put_bytes(out, number, &message);
        }
        SchemaType::Time | SchemaType::MicroTime => {
            let at = time::parse(value.as_str()?).ok()?;
            let mut message = Vec::new();
            put_varint_field(&mut message, 1, at.as_second().cast_unsigned());
            let nanos = i64::from(at.subsec_nanosecond());
            put_varint_field(&mut message, 2, nanos.cast_unsigned());
            put_bytes(out, number, &message);
        }
        SchemaType::Duration => {
            let nanos = duration::parse(value.as_str()?).ok()?.as_nanos();
            let mut message = Vec::new();
            put_varint_field(&mut message, 1, u64::try_from(nanos).ok()?);
            put_bytes(out, number, &message);
        }
        SchemaType::Any
        | SchemaType::Object
        | SchemaType::Array(_)
        | SchemaType::Map(_)
        | SchemaType::Ref(_) => return None,
    }
    Some(())
}

/// JSON in field 1 of a message (`RawExtension`, `FieldsV1`, `JSON`).
fn raw_json(value: &Value) -> Vec<u8> {
    let mut message = Vec::new();
    put_bytes(&mut message, 1, value.to_string().as_bytes());
    message
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "the lower seven bits")]
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 0x80")]
    out.push(value as u8);
}

pub(super) fn put_varint_field(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

pub(super) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
