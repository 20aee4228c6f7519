//! Formats JSON values as Go's `fmt` does, for the texts of Kubernetes' errors that contain
//! them. Does no I/O.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// A string as `%q` quotes it.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_ascii_control() => push_hexadecimal(&mut quoted, "\\x", c, 2),
            c if is_printable(c) => quoted.push(c),
            c if u32::from(c) <= 0xffff => push_hexadecimal(&mut quoted, "\\u", c, 4),
            c => push_hexadecimal(&mut quoted, "\\U", c, 8),
        }
    }
    quoted.push('"');
    quoted
}

fn push_hexadecimal(text: &mut String, prefix: &str, c: char, width: usize) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{prefix}{:0width$x}", u32::from(c));
}

fn is_printable(c: char) -> bool {
    c == ' '
        || !(c.is_control()
            || c.is_whitespace()
            || matches!(c, '\u{feff}' | '\u{200b}'..='\u{200f}'))
}

/// A value as `%v` shows it.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(number) => number_text(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields = fields.into_iter().map(|(k, v)| format!("{k}:{}", plain(v)));
            format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
        }
    }
}

/// A value as `%#v` shows it.
pub fn go_syntax(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(item_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields = fields
                .into_iter()
                .map(|(k, v)| format!("{}:{}", quoted(k), item_syntax(v)));
            let fields = fields.collect::<Vec<_>>().join(", ");
            format!("map[string]interface {{}}{{{fields}}}")
        }
        other => plain(other),
    }
}

/// As [`go_syntax`], within a list or map.
fn item_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        other => go_syntax(other),
    }
}

/// The type of a decoded value, as `%T` shows it.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Integers as they are; other numbers with the fewest digits, and an exponent if it is below
/// -4 or at least 6.
fn number_text(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    let scientific = format!("{float:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{float}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_formatted_as_by_go() {
        for (value, formatted, syntax, name) in [
            (json!(null), "<nil>", "<nil>", "<nil>"),
            (json!(true), "true", "true", "bool"),
            (json!(7), "7", "7", "int64"),
            (json!(0.25), "0.25", "0.25", "float64"),
            (
                json!(1_048_576.0),
                "1.048576e+06",
                "1.048576e+06",
                "float64",
            ),
            (json!(2.5e-7), "2.5e-07", "2.5e-07", "float64"),
            (json!("a b"), "a b", r#""a b""#, "string"),
            (
                json!([1, null]),
                "[1 <nil>]",
                "[]interface {}{1, interface {}(nil)}",
                "[]interface {}",
            ),
            (
                json!({"b": "x", "a": [2]}),
                "map[a:[2] b:x]",
                r#"map[string]interface {}{"a":[]interface {}{2}, "b":"x"}"#,
                "map[string]interface {}",
            ),
        ] {
            assert_eq!(plain(&value), formatted);
            assert_eq!(go_syntax(&value), syntax);
            assert_eq!(type_name(&value), name);
        }
    }

    #[test]
    fn strings_are_quoted_as_by_go() {
        assert_eq!(
            quoted("a\u{1}\u{7f}\"\\\u{7}ü\u{feff}"),
            r#""a\x01\x7f\"\\\aü\ufeff""#
        );
    }
}
