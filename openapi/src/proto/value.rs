//! Decodes scalars and small messages whose JSON form differs from their protobuf form, as
//! Kubernetes' own encoders write them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use machinery::time;
use serde_json::{Map, Value};

use super::wire::{Field, Fields};
use crate::model::Type;

/// Decodes a value that needs no definition.
pub(super) fn plain(ty: &Type, wire: &Field<'_>) -> Result<Option<Value>, String> {
    Ok(Some(match ty {
        Type::String => wire.text()?.into(),
        // Go truncates a varint to the width of its field.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "as the reference decoder does"
        )]
        Type::Int32 => (wire.integer()? as i32).into(),
        Type::Int64 => wire.integer()?.into(),
        Type::Bool => (wire.integer()? != 0).into(),
        Type::Number => number(wire.double()?)?,
        Type::Bytes => STANDARD.encode(wire.bytes()?).into(),
        Type::Quantity => quantity(wire.bytes()?)?,
        Type::IntOrString => int_or_string(wire.bytes()?)?,
        Type::Time => return timestamp(wire.bytes()?, time::rfc3339_seconds),
        Type::MicroTime => return timestamp(wire.bytes()?, time::rfc3339_micros),
        Type::Object => return raw(wire.bytes()?),
        Type::Duration | Type::Any | Type::Array(_) | Type::Map(_) | Type::Ref(_) => {
            return Err("this type has no protobuf form".into());
        }
    }))
}

/// The value of a map entry that omits it.
pub(super) fn zero(ty: &Type) -> Value {
    match ty {
        Type::String | Type::Bytes => "".into(),
        Type::Int32 | Type::Int64 | Type::IntOrString | Type::Number => 0.into(),
        Type::Quantity => "0".into(),
        Type::Bool => false.into(),
        Type::Array(_) => Value::Array(Vec::new()),
        Type::Ref(_) | Type::Map(_) => Value::Object(Map::new()),
        Type::Time | Type::MicroTime | Type::Duration | Type::Any | Type::Object => Value::Null,
    }
}

/// Parses the JSON in field 1 of a message (`RawExtension`, `FieldsV1`, `JSON`).
pub(super) fn raw(bytes: &[u8]) -> Result<Option<Value>, String> {
    let mut text = &[][..];
    for field in Fields::of(bytes) {
        let field = field?;
        if field.number == 1 {
            text = field.bytes()?;
        }
    }
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(text)
        .map(Some)
        .map_err(|e| format!("embedded JSON: {e}"))
}

fn number(value: f64) -> Result<Value, String> {
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

fn quantity(bytes: &[u8]) -> Result<Value, String> {
    let mut text = "";
    for field in Fields::of(bytes) {
        let field = field?;
        if field.number == 1 {
            text = field.text()?;
        }
    }
    Ok(if text.is_empty() { "0" } else { text }.into())
}

fn int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let (mut kind, mut number, mut text) = (0, 0, "");
    for field in Fields::of(bytes) {
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
fn timestamp(bytes: &[u8], write: fn(Timestamp) -> String) -> Result<Option<Value>, String> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (mut seconds, mut nanos) = (0, 0);
    for field in Fields::of(bytes) {
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
