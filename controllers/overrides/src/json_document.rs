//! Applies JSON patch operations to a JSON document that is the text of a field, and preserves the
//! rest of the text as Karmada's `evanphx/json-patch` does.
//!
//! Members keep their order, and numbers and strings their spelling. White space between tokens is
//! removed, and HTML characters are escaped.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::json_patch::{JsonPatchError, pointer_tokens};

/// A JSON document that is parsed only as deep as operations need.
pub(crate) enum LazyJsonDocument {
    Object(Vec<(String, LazyJsonDocument)>),
    Array(Vec<LazyJsonDocument>),
    Unparsed(String),
}

impl LazyJsonDocument {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let raw: Box<RawValue> = machinery::json::from_str(text).map_err(|e| e.to_string())?;
        Ok(Self::from_raw(&raw))
    }

    fn from_raw(raw: &RawValue) -> Self {
        Self::Unparsed(raw.get().to_owned())
    }

    /// Applies one operation (`add`, `remove`, `replace`).
    pub(crate) fn apply(
        &mut self,
        operator: &str,
        path: &str,
        value: &Value,
    ) -> Result<(), JsonPatchError> {
        let new = || Self::Unparsed(value.to_string());
        let tokens = pointer_tokens(path, value)?;
        let Some((last, parents)) = tokens.split_last() else {
            return match operator {
                "remove" => Err(JsonPatchError::MissingTarget),
                _ => {
                    *self = new();
                    Ok(())
                }
            };
        };
        let mut at = self;
        for token in parents {
            at = at.child(token).ok_or(JsonPatchError::MissingParent)?;
        }
        match operator {
            "add" => at.add(last, new()),
            "remove" => at.remove(last),
            _ => {
                *at.child(last).ok_or(JsonPatchError::MissingTarget)? = new();
                Ok(())
            }
        }
    }

    /// Parses one level of an unparsed value.
    fn parse_level(&mut self) {
        let Self::Unparsed(text) = self else { return };
        let opened = match text.trim_start().as_bytes().first() {
            Some(b'{') => machinery::json::from_str(text)
                .ok()
                .map(|JsonObjectFields(all)| Self::Object(all)),
            Some(b'[') => machinery::json::from_str::<Vec<Box<RawValue>>>(text)
                .ok()
                .map(|items| Self::Array(items.iter().map(|raw| Self::from_raw(raw)).collect())),
            _ => None,
        };
        if let Some(opened) = opened {
            *self = opened;
        }
    }

    fn child(&mut self, token: &str) -> Option<&mut Self> {
        self.parse_level();
        match self {
            Self::Object(entries) => entries.iter_mut().find(|(k, _)| k == token).map(|(_, v)| v),
            Self::Array(items) => items.get_mut(token.parse::<usize>().ok()?),
            Self::Unparsed(_) => None,
        }
    }

    fn add(&mut self, token: &str, value: Self) -> Result<(), JsonPatchError> {
        self.parse_level();
        match self {
            Self::Object(entries) => match entries.iter_mut().find(|(k, _)| k == token) {
                Some((_, old)) => *old = value,
                None => entries.push((token.to_owned(), value)),
            },
            Self::Array(items) => {
                let at = match token {
                    "-" => Some(items.len()),
                    _ => token.parse().ok().filter(|at| *at <= items.len()),
                };
                items.insert(at.ok_or(JsonPatchError::IndexOutOfBounds)?, value);
            }
            Self::Unparsed(_) => return Err(JsonPatchError::MissingParent),
        }
        Ok(())
    }

    fn remove(&mut self, token: &str) -> Result<(), JsonPatchError> {
        self.parse_level();
        match self {
            Self::Object(entries) => {
                let at = entries.iter().position(|(k, _)| k == token);
                entries.remove(at.ok_or(JsonPatchError::MissingTarget)?);
            }
            Self::Array(items) => {
                let at = token.parse().ok().filter(|at| *at < items.len());
                items.remove(at.ok_or(JsonPatchError::MissingTarget)?);
            }
            Self::Unparsed(_) => return Err(JsonPatchError::MissingTarget),
        }
        Ok(())
    }
}

impl fmt::Display for LazyJsonDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unparsed(text) => f.write_str(&compact(text)),
            Self::Object(entries) => {
                f.write_str("{")?;
                for (at, (key, value)) in entries.iter().enumerate() {
                    let key = compact(&Value::from(key.as_str()).to_string());
                    write!(f, "{}{key}:{value}", if at > 0 { "," } else { "" })?;
                }
                f.write_str("}")
            }
            Self::Array(items) => {
                f.write_str("[")?;
                for (at, value) in items.iter().enumerate() {
                    write!(f, "{}{value}", if at > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
        }
    }
}

/// Removes white space between the tokens of a JSON text and escapes HTML characters.
fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut quoted, mut escaped) = (false, false);
    for c in text.chars() {
        if !quoted && c.is_ascii_whitespace() {
            continue;
        }
        if c == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = c == '\\' && !escaped;
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out
}

/// The members of an object in their order.
struct JsonObjectFields(Vec<(String, LazyJsonDocument)>);

impl<'de> Deserialize<'de> for JsonObjectFields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(JsonObjectFieldsVisitor)
    }
}

struct JsonObjectFieldsVisitor;

impl<'de> Visitor<'de> for JsonObjectFieldsVisitor {
    type Value = JsonObjectFields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonObjectFields, A::Error> {
        let mut entries: Vec<(String, LazyJsonDocument)> = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
            let value = LazyJsonDocument::from_raw(&value);
            match entries.iter_mut().find(|(k, _)| *k == key) {
                Some((_, old)) => *old = value,
                None => entries.push((key, value)),
            }
        }
        Ok(JsonObjectFields(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(text: &str, operations: &[(&str, &str, Value)], expected: &str) {
        let mut document = LazyJsonDocument::parse(text).unwrap();
        for (operator, path, value) in operations {
            document.apply(operator, path, value).unwrap();
        }
        assert_eq!(document.to_string(), expected, "{text} {operations:?}");
    }

    fn check_error(text: &str, operator: &str, path: &str, expected: JsonPatchError) {
        let actual = LazyJsonDocument::parse(text)
            .unwrap()
            .apply(operator, path, &json!(1));
        assert_eq!(actual, Err(expected), "{text} {operator} {path}");
    }

    #[test]
    fn order_and_spelling_stay() {
        let text = "{ \"z\": 1.0, \"a\": { \"y\" : \"\\u00e4 <b>\", \"b\": [ 1e3, 2 ] } }";
        check(
            text,
            &[
                ("replace", "/a/b/1", json!(3)),
                ("add", "/m", json!({"k": null})),
            ],
            "{\"z\":1.0,\"a\":{\"y\":\"\\u00e4 \\u003cb\\u003e\",\"b\":[1e3,3]},\"m\":{\"k\":null}}",
        );
        check(text, &[("remove", "/a", json!(null))], "{\"z\":1.0}");
        check(
            "{\"a\": \" \\\" \"}",
            &[("add", "/a~1b", json!(1))],
            "{\"a\":\" \\\" \",\"a/b\":1}",
        );
        check("{}", &[("add", "", json!([1]))], "[1]");
    }

    #[test]
    fn lists_are_changed_by_index() {
        check(
            "[1,2]",
            &[("add", "/-", json!(3)), ("add", "/0", json!(0))],
            "[0,1,2,3]",
        );
        check(
            "[1,2]",
            &[("remove", "/0", json!(null)), ("replace", "/0", json!("x"))],
            "[\"x\"]",
        );
        check("[1,2]", &[("add", "/2", json!(3))], "[1,2,3]");
    }

    #[test]
    fn missing_paths_are_reported() {
        check_error("{\"a\":1}", "remove", "/b", JsonPatchError::MissingTarget);
        check_error("{\"a\":1}", "replace", "/b", JsonPatchError::MissingTarget);
        check_error("{\"a\":1}", "add", "/b/c", JsonPatchError::MissingParent);
        check_error("{\"a\":1}", "add", "/a/c", JsonPatchError::MissingParent);
        check_error("[1]", "add", "/2", JsonPatchError::IndexOutOfBounds);
        check_error("[1]", "replace", "/1", JsonPatchError::MissingTarget);
        check_error("{}", "remove", "", JsonPatchError::MissingTarget);
        check_error("{}", "add", "a", JsonPatchError::InvalidPointer);
        assert!(LazyJsonDocument::parse("{").is_err());
    }
}
