//! JSON as one flat list of nodes, from which the arguments of scripts are converted.
//!
//! JSON bytes or a parsed value ──► [`FlatJson`] ──[`super::lazy_table`]──► Lua tables
//!
//! The children of a node follow it in the list, so a node needs no allocation of its own. Strings
//! without escapes are ranges of the original text. Numbers are doubles, as in gopher-lua.

use std::fmt;
use std::ops::Range;
use std::str::Utf8Error;

use machinery::Gvk;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A node as it is stored.
#[derive(Clone, Copy, Debug)]
enum EncodedJsonNode {
    Null,
    Bool(bool),
    Number(f64),
    /// Offset in the text, and length in bytes.
    String(u32, u32),
    /// Number of elements, and the index after the last of them.
    List(u32, u32),
    /// Number of fields (a name node and a value node each), and the index after the last of them.
    Object(u32, u32),
}

/// A JSON value.
#[derive(Debug)]
pub(crate) struct FlatJson {
    nodes: Vec<EncodedJsonNode>,
    /// The original text, followed by the strings that are escaped in it.
    text: String,
}

/// A node as it is read.
#[derive(Clone, Copy)]
pub(super) enum DecodedJsonNode<'a> {
    Null,
    Bool(bool),
    Number(f64),
    String(&'a str),
    List,
    Object,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum FlatJsonError {
    #[error(transparent)]
    Utf8(#[from] Utf8Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// The index of a node.
pub(super) type JsonNodeIndex = u32;
pub(super) const ROOT_NODE: JsonNodeIndex = 0;

impl FlatJson {
    fn with_capacity(slots: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(slots),
            text: String::new(),
        }
    }

    /// Parses an object and sets its apiVersion and kind, which objects from a list lack.
    pub(super) fn from_object(bytes: &[u8], kind: &Gvk) -> Result<Self, FlatJsonError> {
        let text = str::from_utf8(bytes)?;
        let mut json = Self::with_capacity(text.len() / 12);
        json.text.push_str(text);
        let mut from = machinery::json::str_deserializer(text)?;
        let start = text.as_ptr() as usize;
        let within = start..start + text.len();
        let seed = FlatJsonSeed {
            json: &mut json,
            text_range: &within,
            kind: Some(kind),
        };
        seed.deserialize(&mut from)?;
        from.end()?;
        Ok(json)
    }

    pub(crate) fn from_value(tree: &Value) -> Self {
        let mut json = Self::with_capacity(512);
        json.text.reserve(4096);
        json.push_value(tree);
        json
    }

    fn push_value(&mut self, tree: &Value) {
        match tree {
            Value::Null => self.nodes.push(EncodedJsonNode::Null),
            Value::Bool(value) => self.nodes.push(EncodedJsonNode::Bool(*value)),
            Value::Number(number) => {
                let number = number.as_f64().unwrap_or_default();
                self.nodes.push(EncodedJsonNode::Number(number));
            }
            Value::String(text) => self.push_string(text),
            Value::Array(items) => {
                let at = self.reserve_node();
                items.iter().for_each(|item| self.push_value(item));
                self.nodes[at] =
                    EncodedJsonNode::List(saturating_u32(items.len()), self.next_index());
            }
            Value::Object(fields) => {
                let at = self.reserve_node();
                for (name, value) in fields {
                    self.push_string(name);
                    self.push_value(value);
                }
                self.nodes[at] =
                    EncodedJsonNode::Object(saturating_u32(fields.len()), self.next_index());
            }
        }
    }

    fn push_string(&mut self, text: &str) {
        let at = saturating_u32(self.text.len());
        self.text.push_str(text);
        self.nodes
            .push(EncodedJsonNode::String(at, saturating_u32(text.len())));
    }

    /// Reserves the node of a list or an object; it is written after its children.
    fn reserve_node(&mut self) -> usize {
        self.nodes.push(EncodedJsonNode::Null);
        self.nodes.len() - 1
    }

    fn next_index(&self) -> u32 {
        saturating_u32(self.nodes.len())
    }

    /// Approximate size as JSON, in bytes.
    pub(super) fn approximate_bytes(&self) -> usize {
        self.text.len() + 4 * self.nodes.len()
    }

    pub(super) fn node(&self, at: JsonNodeIndex) -> DecodedJsonNode<'_> {
        match self.nodes[at as usize] {
            EncodedJsonNode::Null => DecodedJsonNode::Null,
            EncodedJsonNode::Bool(value) => DecodedJsonNode::Bool(value),
            EncodedJsonNode::Number(value) => DecodedJsonNode::Number(value),
            EncodedJsonNode::String(at, length) => {
                let at = at as usize;
                let text = self.text.get(at..at + length as usize);
                DecodedJsonNode::String(text.unwrap_or_default())
            }
            EncodedJsonNode::List(..) => DecodedJsonNode::List,
            EncodedJsonNode::Object(..) => DecodedJsonNode::Object,
        }
    }

    /// The index after a node and its children.
    fn next_sibling(&self, at: JsonNodeIndex) -> JsonNodeIndex {
        match self.nodes[at as usize] {
            EncodedJsonNode::List(_, end) | EncodedJsonNode::Object(_, end) => end,
            _ => at + 1,
        }
    }

    /// The children of a list or an object, for an object the names among them.
    fn children(&self, at: JsonNodeIndex) -> ChildIndexIterator<'_> {
        let left = match self.nodes[at as usize] {
            EncodedJsonNode::List(length, _) | EncodedJsonNode::Object(length, _) => length,
            _ => 0,
        };
        ChildIndexIterator {
            json: self,
            next_index: at + 1,
            remaining: left,
        }
    }

    pub(super) fn items(
        &self,
        list: JsonNodeIndex,
    ) -> impl ExactSizeIterator<Item = JsonNodeIndex> {
        self.children(list)
    }

    /// The fields of an object: name, and index of the value.
    pub(super) fn fields(
        &self,
        object: JsonNodeIndex,
    ) -> impl ExactSizeIterator<Item = (&str, JsonNodeIndex)> {
        FieldNameIndexIterator(self.children(object)).map(|name| (self.string_at(name), name + 1))
    }

    /// The name of the field with this value.
    pub(super) fn field_name(&self, value: JsonNodeIndex) -> &str {
        self.string_at(value - 1)
    }

    fn string_at(&self, at: JsonNodeIndex) -> &str {
        match self.node(at) {
            DecodedJsonNode::String(text) => text,
            _ => "",
        }
    }

    /// The value as `serde_json::Value`.
    pub(super) fn to_value(&self, at: JsonNodeIndex) -> Value {
        match self.node(at) {
            DecodedJsonNode::Null => Value::Null,
            DecodedJsonNode::Bool(value) => value.into(),
            DecodedJsonNode::Number(value) => value.into(),
            DecodedJsonNode::String(text) => text.into(),
            DecodedJsonNode::List => self.items(at).map(|item| self.to_value(item)).collect(),
            DecodedJsonNode::Object => {
                let fields = self.fields(at);
                let fields = fields.map(|(name, value)| (name.to_owned(), self.to_value(value)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }
}

/// Saturates; no body is that long.
fn saturating_u32(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Indices of consecutive values.
struct ChildIndexIterator<'a> {
    json: &'a FlatJson,
    next_index: JsonNodeIndex,
    remaining: u32,
}

impl Iterator for ChildIndexIterator<'_> {
    type Item = JsonNodeIndex;

    fn next(&mut self) -> Option<JsonNodeIndex> {
        self.remaining = self.remaining.checked_sub(1)?;
        let at = self.next_index;
        self.next_index = self.json.next_sibling(at);
        Some(at)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining as usize, Some(self.remaining as usize))
    }
}

impl ExactSizeIterator for ChildIndexIterator<'_> {}

/// Indices of field names, each followed by its value.
struct FieldNameIndexIterator<'a>(ChildIndexIterator<'a>);

impl Iterator for FieldNameIndexIterator<'_> {
    type Item = JsonNodeIndex;

    fn next(&mut self) -> Option<JsonNodeIndex> {
        let name = self.0.next()?;
        self.0.next_index = self.0.json.next_sibling(self.0.next_index);
        Some(name)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for FieldNameIndexIterator<'_> {}

/// Deserializes a value and appends its nodes.
struct FlatJsonSeed<'a> {
    json: &'a mut FlatJson,
    /// The address range of the original text.
    text_range: &'a Range<usize>,
    /// The kind to set on the outermost object.
    kind: Option<&'a Gvk>,
}

impl FlatJsonSeed<'_> {
    fn nested(&mut self) -> FlatJsonSeed<'_> {
        FlatJsonSeed {
            json: self.json,
            text_range: self.text_range,
            kind: None,
        }
    }
}

impl<'de> DeserializeSeed<'de> for FlatJsonSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FlatJsonSeed<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.json.nodes.push(EncodedJsonNode::Null);
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        self.json.nodes.push(EncodedJsonNode::Bool(value));
        Ok(())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        self.json.nodes.push(EncodedJsonNode::Number(value));
        Ok(())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.json.push_string(text);
        Ok(())
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<(), E> {
        let address = text.as_ptr() as usize;
        if !self.text_range.contains(&address) {
            return self.visit_str(text);
        }
        let at = saturating_u32(address - self.text_range.start);
        self.json
            .nodes
            .push(EncodedJsonNode::String(at, saturating_u32(text.len())));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let at = self.json.reserve_node();
        let mut length = 0;
        while items.next_element_seed(self.nested())?.is_some() {
            length += 1;
        }
        self.json.nodes[at] = EncodedJsonNode::List(length, self.json.next_index());
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        let at = self.json.reserve_node();
        let mut length = 0;
        loop {
            let name = self.json.nodes.len();
            if fields.next_key_seed(self.nested())?.is_none() {
                break;
            }
            if self.kind.is_some()
                && matches!(
                    self.json.string_at(saturating_u32(name)),
                    "apiVersion" | "kind"
                )
            {
                self.json.nodes.truncate(name);
                fields.next_value::<de::IgnoredAny>()?;
                continue;
            }
            fields.next_value_seed(self.nested())?;
            length += 1;
        }
        if let Some(kind) = self.kind {
            for (name, value) in [("apiVersion", &*kind.api_version()), ("kind", &kind.kind)] {
                self.json.push_string(name);
                self.json.push_string(value);
                length += 1;
            }
        }
        self.json.nodes[at] = EncodedJsonNode::Object(length, self.json.next_index());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::inputs::json_values;
    use proptest::prelude::*;
    use serde_json::json;

    static THING: Gvk = Gvk::from_static("example.io", "v1", "Thing");

    #[test]
    fn object_is_parsed_with_escapes_and_kind() {
        let text =
            br#" {"kind":"Other","a\u0062":"x\ny","n":[1,-2.5e3,18446744073709551615,null,true],
            "o":{"kind":"inner","e":{},"l":[[]]},"apiVersion":7,"t":"\u00fc"} "#;
        let json = FlatJson::from_object(text, &THING).unwrap();
        assert_eq!(
            json.to_value(ROOT_NODE),
            json!({"apiVersion": "example.io/v1", "kind": "Thing", "ab": "x\ny", "t": "ü",
                "n": [1.0, -2500.0, 18_446_744_073_709_551_615.0, null, true],
                "o": {"kind": "inner", "e": {}, "l": [[]]}})
        );
        for bad in [
            &b"{\"a\":\"\xff\"}"[..],
            b"{\"a\":1",
            b"{\"a\":1} x",
            b"",
            &[b'['; 300],
        ] {
            assert!(FlatJson::from_object(bad, &THING).is_err());
        }
    }

    proptest! {
        #[test]
        fn parsed_and_converted_values_are_equal(tree in json_values()) {
            let text = serde_json::to_vec(&tree).unwrap();
            let mut tree: Value = machinery::json::from_slice(&text).unwrap_or_default();
            if let Some(fields) = tree.as_object_mut() {
                fields.insert("apiVersion".into(), THING.api_version().into());
                fields.insert("kind".into(), (&*THING.kind).into());
            }
            if let Ok(json) = FlatJson::from_object(&text, &THING) {
                prop_assert_eq!(json.to_value(ROOT_NODE), FlatJson::from_value(&tree).to_value(ROOT_NODE));
            }
        }
    }
}
