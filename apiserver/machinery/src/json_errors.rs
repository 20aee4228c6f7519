//! Describes JSON syntax errors in the words of Go's `encoding/json`, which clients of
//! Kubernetes know. Does no I/O.

use serde_json::Value;
use serde_json::error::Category;

/// The text of Go's error for the error of parsing `bytes`.
pub fn syntax_error_text(bytes: &[u8], error: &serde_json::Error) -> String {
    if error.classify() == Category::Eof {
        return "unexpected end of JSON input".to_owned();
    }
    let full = error.to_string();
    let text = full.split(" at line ").next().unwrap_or(&full);
    let character = quoted_byte(byte_at(bytes, error.line(), error.column()));
    let place = match text {
        "expected value" | "expected ident" => "looking for beginning of value",
        "key must be a string" => "looking for beginning of object key string",
        "expected `:`" => "after object key",
        "expected `,` or `}`" => "after object key:value pair",
        "expected `,` or `]`" => "after array element",
        "trailing characters" => "after top-level value",
        "trailing comma" if character == "']'" => "looking for beginning of value",
        "trailing comma" => "looking for beginning of object key string",
        "control character (\\u0000-\\u001F) found while parsing a string" => "in string literal",
        _ => return full,
    };
    format!("invalid character {character} {place}")
}

/// Go's name of the type of a JSON value, as in `cannot unmarshal array into …`.
pub fn value_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The byte at a position that counts from 1.
fn byte_at(bytes: &[u8], line: usize, column: usize) -> u8 {
    let lines = bytes.split(|b| *b == b'\n');
    let found = lines
        .skip(line.saturating_sub(1))
        .map(|l| l.get(column.saturating_sub(1)).copied())
        .next();
    found.flatten().unwrap_or(b'\n')
}

/// A byte as Go quotes it: as the character of the same number.
fn quoted_byte(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        0x20..=0x7e | 0xa1..=0xac | 0xae.. => format!("'{}'", char::from(byte)),
        _ if byte < 0x80 => format!("'\\x{byte:02x}'"),
        _ => format!("'\\u{byte:04x}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_errors_are_those_of_go() {
        for (text, expected) in [
            ("", "unexpected end of JSON input"),
            (r#"{"a":"#, "unexpected end of JSON input"),
            (
                "{bad",
                "invalid character 'b' looking for beginning of object key string",
            ),
            ("x", "invalid character 'x' looking for beginning of value"),
            (
                "\n  x",
                "invalid character 'x' looking for beginning of value",
            ),
            (
                "\u{0}\u{1}",
                r"invalid character '\x00' looking for beginning of value",
            ),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (
                r#"{"a":1 "b"}"#,
                "invalid character '\"' after object key:value pair",
            ),
            ("[1 2]", "invalid character '2' after array element"),
            ("{} x", "invalid character 'x' after top-level value"),
            (
                "[1,]",
                "invalid character ']' looking for beginning of value",
            ),
            (
                r#"{"a":1,}"#,
                "invalid character '}' looking for beginning of object key string",
            ),
        ] {
            let error = crate::json::from_str::<Value>(text).unwrap_err();
            let actual = syntax_error_text(text.as_bytes(), &error);
            assert_eq!(actual, expected, "{text:?} {error}");
        }
    }
}
