//! An element of a field path, with its text in `FieldsV1` (`fieldpath.PathElement`).

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::json_order::{compare, encode_like_go, normalize_number};

/// One field of the key of a list item.
#[derive(Clone, Debug)]
pub struct KeyField {
    pub name: Box<str>,
    pub value: Value,
}

/// How a child is selected in the object or list that contains it. Clones share memory.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// `f:name`: a field of an object or a key of a map.
    FieldName(Arc<str>),
    /// `k:{"name":"value"}`: the item of a keyed list; sorted by name.
    Key(Arc<[KeyField]>),
    /// `v:value`: the item of a set.
    Value(Arc<Value>),
    /// `i:0`: the item of an atomic list.
    Index(i64),
}

/// A path from the root of an object.
pub type Path = [PathElement];

impl PathElement {
    pub fn field(name: &str) -> Self {
        Self::FieldName(name.into())
    }

    pub fn key(fields: impl IntoIterator<Item = (Box<str>, Value)>) -> Self {
        let mut fields: Vec<KeyField> = fields
            .into_iter()
            .map(|(name, value)| KeyField {
                name,
                value: normalize_number(value),
            })
            .collect();
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        Self::Key(fields.into())
    }

    pub fn value(value: Value) -> Self {
        Self::Value(Arc::new(normalize_number(value)))
    }

    /// Parses the text of an element in `FieldsV1`; `None` if its type is unknown. Later
    /// versions may know the type, so that an unknown one is no error.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        let Some((kind, content)) = text.split_at_checked(2) else {
            return Err("key must be 2 characters long".into());
        };
        if !kind.ends_with(':') {
            return Err(format!("missing colon: {text}"));
        }
        Ok(Some(match kind {
            "f:" => Self::field(content),
            "k:" => {
                let fields: serde_json::Map<String, Value> = parse_json(content)?;
                Self::key(fields.into_iter().map(|(k, v)| (k.into(), v)))
            }
            "v:" => Self::value(parse_json(content)?),
            "i:" => Self::Index(content.parse().map_err(|e| format!("{text:?}: {e}"))?),
            _ => return Ok(None),
        }))
    }

    /// Appends the text of this element in `FieldsV1`.
    pub fn write_to(&self, out: &mut String) {
        match self {
            Self::FieldName(name) => {
                out.push_str("f:");
                out.push_str(name);
            }
            Self::Key(fields) => {
                out.push_str("k:{");
                for (i, field) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    out.push_str(&Value::from(&*field.name).to_string());
                    out.push(':');
                    out.push_str(&encode_like_go(&field.value));
                }
                out.push('}');
            }
            Self::Value(value) => {
                out.push_str("v:");
                out.push_str(&encode_like_go(value));
            }
            Self::Index(index) => {
                out.push_str("i:");
                out.push_str(&index.to_string());
            }
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::FieldName(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

fn parse_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    machinery::json::from_str(text).map_err(|e| format!("{text:?}: {e}"))
}

/// The order of `FieldsV1`: fields, keys, values, indices.
impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::FieldName(a), Self::FieldName(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => compare_keys(a, b),
            (Self::Value(a), Self::Value(b)) => compare(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

fn compare_keys(a: &[KeyField], b: &[KeyField]) -> Ordering {
    let mut pairs = a.iter().zip(b).map(|(a, b)| {
        a.name
            .cmp(&b.name)
            .then_with(|| compare(&a.value, &b.value))
    });
    pairs
        .find(|order| order.is_ne())
        .unwrap_or_else(|| a.len().cmp(&b.len()))
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

/// The text in errors and conflicts: `.name`, `[name="value"]`, `[="value"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FieldName(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (i, field) in fields.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma}{}={}", field.name, ValueText(&field.value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", ValueText(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

struct ValueText<'v>(&'v Value);

impl fmt::Display for ValueText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(text) => write!(f, "{text:?}"),
            other => write!(f, "{other}"),
        }
    }
}

/// The text of a path, as in `.spec.containers[name="a"].image`.
pub fn path_text(path: &Path) -> String {
    path.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(element: &PathElement) -> String {
        let mut text = String::new();
        element.write_to(&mut text);
        text
    }

    #[test]
    fn elements_are_read_and_written() {
        for canonical in [
            "i:0",
            "i:1234",
            "f:",
            "f:spec",
            "f: with spaces   ",
            r#"k:{"name":"my-container"}"#,
            r#"k:{"port":"8080","protocol":"TCP"}"#,
            r#"k:{"optional":null}"#,
            r#"k:{"json":{"A":1,"B":null,"C":"D","E":{"F":"G"}}}"#,
            r#"k:{"list":["1","2","3"]}"#,
            "v:null",
            r#"v:"text""#,
            "v:1234",
            r#"v:{"some":" text  with spaces  "}"#,
            r#"k:{"name":"app-🚀"}"#,
            r#"v:"你好世界""#,
            "f:spec-🚀",
            r"f:spec-\n",
            r#"v:"\u003ca\u003e""#,
        ] {
            let element = PathElement::parse(canonical).unwrap().unwrap();
            assert_eq!(text(&element), canonical);
        }
    }

    #[test]
    fn other_texts_are_normalized() {
        for (read, written) in [
            ("v: 3", "v:3"),
            ("v:3.0", "v:3"),
            (r#"v:"value\u002dcontainer""#, r#"v:"value-container""#),
            (r#"k: {"b":1,"a":2} "#, r#"k:{"a":2,"b":1}"#),
            (r#"k:{"name-\ud83d\ude80":"x"}"#, r#"k:{"name-🚀":"x"}"#),
        ] {
            let element = PathElement::parse(read).unwrap().unwrap();
            assert_eq!(text(&element), written);
        }
        assert_eq!(PathElement::parse("r:Hello").unwrap(), None);
    }

    #[test]
    fn malformed_elements_are_rejected() {
        for malformed in [
            "",
            "no-colon",
            "i:index",
            "i:1.23",
            "i:",
            "i: 0",
            "i:0 ",
            "v:invalid json",
            "v:",
            "k:invalid json",
            r#"k:{"name":invalid}"#,
            r#"v:{"some":" \x41"}"#,
            "v",
            "k",
            "f",
            ":",
            r#"v:{"a":"b""#,
            r#"k:{"a":"b""#,
            r#"v:{"some":"json"} {"other":"json"}"#,
            r#"k:{"name":"a"} garbage"#,
            "é:",
        ] {
            assert!(PathElement::parse(malformed).is_err(), "{malformed}");
        }
    }

    #[test]
    fn paths_have_the_text_of_conflicts() {
        let path = [
            PathElement::field("spec"),
            PathElement::key([
                ("protocol".into(), json!("TCP")),
                ("port".into(), json!(80)),
            ]),
            PathElement::value(json!("a")),
            PathElement::Index(2),
        ];
        assert_eq!(
            path_text(&path),
            r#".spec[port=80,protocol="TCP"][="a"][2]"#
        );
    }
}
