//! Compares JSON values as `structured-merge-diff/value` does: numbers by their value, so
//! that `1` equals `1.0`, and values of different types in a fixed order.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// Whether two values are equal; numbers are compared by value.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b).is_eq(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|((k, a), (l, b))| k == l && equal(a, b))
        }
        _ => a == b,
    }
}

/// A total order: numbers, strings, booleans, arrays, objects, null.
pub(crate) fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let mut pairs = a.iter().zip(b).map(|(a, b)| compare(a, b));
            pairs
                .find(|order| order.is_ne())
                .unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let mut pairs = a
                .iter()
                .zip(b)
                .map(|((k, a), (l, b))| k.cmp(l).then_with(|| compare(a, b)));
            pairs
                .find(|order| order.is_ne())
                .unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => type_rank(a).cmp(&type_rank(b)),
    }
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return a.cmp(&b);
    }
    if let (Some(a), Some(b)) = (a.as_u64(), b.as_u64()) {
        return a.cmp(&b);
    }
    let (a, b) = (a.as_f64().unwrap_or(0.0), b.as_f64().unwrap_or(0.0));
    // JSON has no NaN.
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}

fn type_rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Writes whole floating-point numbers as integers, as Go's encoder does.
pub(crate) fn normalize_number(value: Value) -> Value {
    const EXACT_INTEGERS: f64 = 9_007_199_254_740_992.0;
    match &value {
        Value::Number(n) if n.is_f64() => match n.as_f64() {
            #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
            Some(f) if f.fract() == 0.0 && f.abs() <= EXACT_INTEGERS => Value::from(f as i64),
            _ => value,
        },
        _ => value,
    }
}

/// Encodes a value as Go's `encoding/json` does, which escapes `<`, `>` and `&` in strings.
pub(crate) fn encode_like_go(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_compared_by_value() {
        assert!(equal(
            &json!({"a": [1, {"b": 2}]}),
            &json!({"a": [1.0, {"b": 2.0}]})
        ));
        assert!(!equal(&json!(1), &json!(true)));
        assert!(!equal(&json!([1]), &json!([1, 1])));
        assert!(equal(&json!(u64::MAX), &json!(u64::MAX)));
    }

    #[test]
    fn values_of_different_types_have_a_fixed_order() {
        let ordered = [
            json!(-1),
            json!(0.5),
            json!(1),
            json!("a"),
            json!("b"),
            json!(false),
            json!(true),
            json!([]),
            json!([1]),
            json!([1, 0]),
            json!({}),
            json!({"a": 1}),
            json!({"a": 2}),
            json!({"b": 0}),
            json!(null),
        ];
        for (i, a) in ordered.iter().enumerate() {
            for (j, b) in ordered.iter().enumerate() {
                assert_eq!(compare(a, b), i.cmp(&j), "{a} {b}");
            }
        }
    }

    #[test]
    fn text_is_escaped_like_go() {
        assert_eq!(encode_like_go(&json!("a<b>&")), r#""a\u003cb\u003e\u0026""#);
        assert_eq!(normalize_number(json!(3.0)), json!(3));
        assert_eq!(normalize_number(json!(3.5)), json!(3.5));
    }
}
