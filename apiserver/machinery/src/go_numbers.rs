//! Numbers as Kubernetes' decoder and encoder treat them: what is not a 64-bit integer is read as
//! a double, and a double without a fraction is written as an integer.

use std::io;

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter};
use serde_json::{Number, Serializer, Value};

/// The largest double that stands for one integer only.
pub const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_991.0;
/// Go's encoder writes doubles from here on, and below the other bound, with an exponent.
const MIN_WITH_EXPONENT: f64 = 1e21;
const MAX_WITH_EXPONENT: f64 = 1e-6;

/// Gives doubles that stand for one integer the form of integers, in which Kubernetes stores
/// them. Larger ones stay doubles for validation, which refuses them as integers.
pub fn normalize(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(other) = other_form(number) {
                *number = other;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        Value::Object(fields) => fields.values_mut().for_each(normalize),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Gives numbers of an applied configuration the form that they have after Kubernetes has
/// converted YAML to JSON: doubles without a fraction are integers if 64 bits hold them.
pub fn normalize_applied(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let integer = number.as_f64().filter(|float| float.fract() == 0.0);
            if let Some(integer) = integer.and_then(|float| float.to_string().parse::<i64>().ok()) {
                *number = integer.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize_applied),
        Value::Object(fields) => fields.values_mut().for_each(normalize_applied),
        _ => {}
    }
}

/// The form in which a number is validated, if it is another one.
fn other_form(number: &Number) -> Option<Number> {
    if number.is_i64() {
        return None;
    }
    let float = number.as_f64()?;
    if float.fract() == 0.0 && float.abs() <= MAX_EXACT_INTEGER {
        return float.to_string().parse::<i64>().map(Number::from).ok();
    }
    Number::from_f64(float)
}

/// Appends a value as Go's encoder writes it.
pub fn write_json(out: &mut Vec<u8>, value: &Value) -> serde_json::Result<()> {
    value.serialize(&mut Serializer::with_formatter(out, GoNumberFormatter))
}

/// Writes numbers as Go does, and all else without spaces.
struct GoNumberFormatter;

impl Formatter for GoNumberFormatter {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let size = value.abs();
        if size == 0.0 {
            return writer.write_all(b"0");
        }
        if (MAX_WITH_EXPONENT..MIN_WITH_EXPONENT).contains(&size) {
            return write!(writer, "{value}");
        }
        if size >= MIN_WITH_EXPONENT {
            return writer.write_all(format!("{value:e}").replace('e', "e+").as_bytes());
        }
        write!(writer, "{value:e}")
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        CompactFormatter.write_string_fragment(writer, fragment)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{normalize, write_json};

    fn written(value: &Value) -> String {
        let mut out = Vec::new();
        write_json(&mut out, value).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_have_the_form_of_kubernetes() {
        for (input, stored) in [
            ("1", "1"),
            ("1.0", "1"),
            ("1e3", "1000"),
            ("-0.0", "0"),
            ("1.5", "1.5"),
            ("9223372036854775807", "9223372036854775807"),
            ("9223372036854775808", "9223372036854776000"),
            ("18446744073709551615", "18446744073709552000"),
            ("1e20", "100000000000000000000"),
            ("1e30", "1e+30"),
            ("-3.5e-7", "-3.5e-7"),
            ("0.000001", "0.000001"),
        ] {
            let mut value = json!({"a": [crate::json::from_str::<Value>(input).unwrap()]});
            for repetition in ["once", "twice"] {
                normalize(&mut value);
                let text = written(&value);
                assert_eq!(
                    text,
                    format!("{{\"a\":[{stored}]}}"),
                    "{input} {repetition}"
                );
                value = crate::json::from_str(&text).unwrap();
            }
        }
    }

    proptest! {
        #[test]
        fn doubles_are_read_as_they_were_written(bits: u64) {
            let float = f64::from_bits(bits);
            prop_assume!(float.is_finite());
            let mut value = json!([float]);
            normalize(&mut value);
            let read: Value = crate::json::from_str(&written(&value)).unwrap();
            prop_assert_eq!(read[0].as_f64(), Some(float));
        }

        #[test]
        fn integers_are_read_as_they_were_written(integer: i64) {
            let mut value = json!([integer]);
            normalize(&mut value);
            let text = written(&value);
            prop_assert_eq!(&text, &format!("[{integer}]"));
            prop_assert_eq!(crate::json::from_str::<Value>(&text).unwrap(), value);
        }
    }
}
