//! Gives numbers of objects without a Go type the form in which Kubernetes stores them: its
//! decoder reads what is not a 64-bit integer as a float, and its encoder writes floats without
//! a fraction as integers.

use serde_json::{Number, Value};

/// Brings all numbers of a value into the form that Kubernetes stores.
pub fn normalize(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(stored) = stored_form(number) {
                *number = stored;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        Value::Object(fields) => fields.values_mut().for_each(normalize),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// The other form of a number, if it has one.
fn stored_form(number: &Number) -> Option<Number> {
    if number.is_i64() {
        return None;
    }
    let float = number.as_f64()?;
    if float.fract() != 0.0 {
        return None;
    }
    let digits = float.to_string();
    let integer = digits.parse::<i64>().map(Number::from);
    let integer = integer.or_else(|_| digits.parse::<u64>().map(Number::from));
    integer.ok().or_else(|| Number::from_f64(float))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::normalize;

    #[test]
    fn numbers_have_the_form_of_kubernetes() {
        for (sent, stored) in [
            ("1", "1"),
            ("1.0", "1"),
            ("1e3", "1000"),
            ("-0.0", "0"),
            ("1.5", "1.5"),
            ("9223372036854775807", "9223372036854775807"),
            ("9223372036854775808", "9223372036854776000"),
            ("18446744073709551615", "18446744073709552000"),
            ("1e30", "1e30"),
        ] {
            let mut value = json!({"a": [serde_json::from_str::<Value>(sent).unwrap()]});
            normalize(&mut value);
            let expected: Value = serde_json::from_str(stored).unwrap();
            assert_eq!(value["a"][0], expected, "{sent}");
            normalize(&mut value);
            assert_eq!(value["a"][0], expected, "{sent} twice");
        }
    }
}
