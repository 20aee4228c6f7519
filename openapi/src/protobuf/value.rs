//! Decodes scalars and small messages whose JSON form differs from their protobuf form, as
//! Kubernetes' own encoders write them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use machinery::time;
use serde_json::Value;

use super::wire::{WireField, WireFieldIterator};
use crate::model::SchemaType;

/// Decodes a value that needs no definition.
pub(super) fn decode_scalar(
    ty: &SchemaType,
    wire: &WireField<'_>,
) -> Result<Option<Value>, String> {
    Ok(Some(match ty {
        SchemaType::String => wire.text()?.into(),
        // Go truncates a varint to the width of its field.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "as the reference decoder does"
        )]
        SchemaType::Int32 => (wire.integer()? as i32).into(),
        SchemaType::Int64 => wire.integer()?.into(),
        SchemaType::Bool => (wire.integer()? != 0).into(),
        SchemaType::Number => encode_number(wire.double()?)?,
        SchemaType::Bytes => STANDARD.encode(wire.bytes()?).into(),
        SchemaType::Quantity => decode_quantity(wire.bytes()?)?,
        SchemaType::IntOrString => decode_int_or_string(wire.bytes()?)?,
        SchemaType::Time => return decode_timestamp(wire.bytes()?, time::rfc3339_seconds),
        SchemaType::MicroTime => return decode_timestamp(wire.bytes()?, time::rfc3339_micros),
        SchemaType::Object => return decode_raw_json(wire.bytes()?),
        SchemaType::Duration
        | SchemaType::Any
        | SchemaType::Array(_)
        | SchemaType::Map(_)
        | SchemaType::Ref(_) => {
            return Err("this type has no protobuf form".into());
        }
    }))
}

/// Parses the JSON in field 1 of a message (`RawExtension`, `FieldsV1`, `JSON`).
pub(super) fn decode_raw_json(bytes: &[u8]) -> Result<Option<Value>, String> {
    let mut text = &[][..];
    for field in WireFieldIterator::new(bytes) {
        let field = field?;
        if field.number == 1 {
            text = field.bytes()?;
        }
    }
    if text.is_empty() {
        return Ok(None);
    }
    machinery::json::from_slice(text)
        .map(Some)
        .map_err(|e| format!("embedded JSON: {e}"))
}

fn encode_number(value: f64) -> Result<Value, String> {
    // Go writes integers without a fraction: 1, not 1.0.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "checked to be whole and small"
    )]
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return Ok((value as i64).into());
    }
    serde_json::Number::from_f64(value)
        .map(Value::Number)
        .ok_or_else(|| "not a finite number".to_owned())
}

fn decode_quantity(bytes: &[u8]) -> Result<Value, String> {
    let mut text = "";
    for field in WireFieldIterator::new(bytes) {
        let field = field?;
        if field.number == 1 {
            text = field.text()?;
        }
    }
    Ok(if text.is_empty() { "0" } else { text }.into())
}

fn decode_int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let (mut kind, mut number, mut text) = (0, 0, "");
    for field in WireFieldIterator::new(bytes) {
        let field = field?;
        match field.number {
            1 => kind = field.integer()?,
            2 => number = field.integer()?,
            3 => text = field.text()?,
            _ => {}
        }
    }
    Ok(if kind == 0 {
        number.into()
    } else {
        text.into()
    })
}

/// An empty message is Go's zero time, which JSON omits.
fn decode_timestamp(bytes: &[u8], write: fn(Timestamp) -> String) -> Result<Option<Value>, String> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (mut seconds, mut nanos) = (0, 0);
    for field in WireFieldIterator::new(bytes) {
        let field = field?;
        match field.number {
            1 => seconds = field.integer()?,
            2 => nanos = field.integer()?,
            _ => {}
        }
    }
    let nanos = i32::try_from(nanos).map_err(|_| "nanoseconds out of range")?;
    let time = Timestamp::new(seconds, nanos).map_err(|_| "time out of range")?;
    Ok(Some(write(time).into()))
}
