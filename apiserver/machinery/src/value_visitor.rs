//! Builds a JSON tree from what a deserializer reads. The scalars of all formats are alike; each format
//! reads lists and maps in its own way.

use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

/// Reads the lists and maps of a format.
pub trait CompoundReader<'de>: Sized {
    /// What a document of the format has, for errors.
    const EXPECTED: &'static str;

    fn read_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Value, A::Error>;

    fn read_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error>;

    /// The value of an infinity, or of no number, which JSON does not have.
    fn non_finite<E: Error>() -> Result<Value, E>;
}

/// A visitor for any value.
pub struct ValueVisitor<R>(pub R);

impl<'de, R: CompoundReader<'de>> Visitor<'de> for ValueVisitor<R> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(R::EXPECTED)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Value, E> {
        Number::from_f64(v).map_or_else(R::non_finite, |number| Ok(Value::Number(number)))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Value, A::Error> {
        self.0.read_seq(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        self.0.read_map(map)
    }
}
