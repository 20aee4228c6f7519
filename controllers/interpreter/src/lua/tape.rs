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
enum Slot {
    Null,
    Bool(bool),
    Number(f64),
    /// Offset in the text, and length in bytes.
    Text(u32, u32),
    /// Number of elements, and the index after the last of them.
    List(u32, u32),
    /// Number of fields (a name node and a value node each), and the index after the last of them.
    Object(u32, u32),
}

/// A JSON value.
#[derive(Debug)]
pub(crate) struct Tape {
    slots: Vec<Slot>,
    /// The original text, followed by the strings that are escaped in it.
    text: String,
}

/// A node as it is read.
#[derive(Clone, Copy)]
pub(super) enum Node<'a> {
    Null,
    Bool(bool),
    Number(f64),
    Text(&'a str),
    List,
    Object,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error(transparent)]
    Text(#[from] Utf8Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// The index of a node.
pub(super) type At = u32;
pub(super) const ROOT: At = 0;

impl Tape {
    fn with_room(slots: usize) -> Self {
        Self {
            slots: Vec::with_capacity(slots),
            text: String::new(),
        }
    }

    /// Parses an object and sets its apiVersion and kind, which objects from a list lack.
    pub(super) fn of_object(bytes: &[u8], kind: &Gvk) -> Result<Self, Unreadable> {
        let text = str::from_utf8(bytes)?;
        let mut json = Self::with_room(text.len() / 12);
        json.text.push_str(text);
        let mut from = serde_json::Deserializer::from_str(text);
        let start = text.as_ptr() as usize;
        let within = start..start + text.len();
        let seed = Seed {
            json: &mut json,
            within: &within,
            kind: Some(kind),
        };
        seed.deserialize(&mut from)?;
        from.end()?;
        Ok(json)
    }

    pub(crate) fn of(tree: &Value) -> Self {
        let mut json = Self::with_room(512);
        json.text.reserve(4096);
        json.add(tree);
        json
    }

    fn add(&mut self, tree: &Value) {
        match tree {
            Value::Null => self.slots.push(Slot::Null),
            Value::Bool(value) => self.slots.push(Slot::Bool(*value)),
            Value::Number(number) => {
                let number = number.as_f64().unwrap_or_default();
                self.slots.push(Slot::Number(number));
            }
            Value::String(text) => self.add_text(text),
            Value::Array(items) => {
                let at = self.open();
                items.iter().for_each(|item| self.add(item));
                self.slots[at] = Slot::List(count(items.len()), self.end());
            }
            Value::Object(fields) => {
                let at = self.open();
                for (name, value) in fields {
                    self.add_text(name);
                    self.add(value);
                }
                self.slots[at] = Slot::Object(count(fields.len()), self.end());
            }
        }
    }

    fn add_text(&mut self, text: &str) {
        let at = count(self.text.len());
        self.text.push_str(text);
        self.slots.push(Slot::Text(at, count(text.len())));
    }

    /// Reserves the node of a list or an object; it is written after its children.
    fn open(&mut self) -> usize {
        self.slots.push(Slot::Null);
        self.slots.len() - 1
    }

    fn end(&self) -> u32 {
        count(self.slots.len())
    }

    /// Approximate size as JSON, in bytes.
    pub(super) fn weight(&self) -> usize {
        self.text.len() + 4 * self.slots.len()
    }

    pub(super) fn node(&self, at: At) -> Node<'_> {
        match self.slots[at as usize] {
            Slot::Null => Node::Null,
            Slot::Bool(value) => Node::Bool(value),
            Slot::Number(value) => Node::Number(value),
            Slot::Text(at, length) => {
                let at = at as usize;
                let text = self.text.get(at..at + length as usize);
                Node::Text(text.unwrap_or_default())
            }
            Slot::List(..) => Node::List,
            Slot::Object(..) => Node::Object,
        }
    }

    /// The index after a node and its children.
    fn after(&self, at: At) -> At {
        match self.slots[at as usize] {
            Slot::List(_, end) | Slot::Object(_, end) => end,
            _ => at + 1,
        }
    }

    /// The children of a list or an object, for an object the names among them.
    fn inside(&self, at: At) -> Inside<'_> {
        let left = match self.slots[at as usize] {
            Slot::List(length, _) | Slot::Object(length, _) => length,
            _ => 0,
        };
        Inside {
            json: self,
            at: at + 1,
            left,
        }
    }

    pub(super) fn items(&self, list: At) -> impl ExactSizeIterator<Item = At> {
        self.inside(list)
    }

    /// The fields of an object: name, and index of the value.
    pub(super) fn fields(&self, object: At) -> impl ExactSizeIterator<Item = (&str, At)> {
        Names(self.inside(object)).map(|name| (self.text(name), name + 1))
    }

    /// The name of the field with this value.
    pub(super) fn name(&self, value: At) -> &str {
        self.text(value - 1)
    }

    fn text(&self, at: At) -> &str {
        match self.node(at) {
            Node::Text(text) => text,
            _ => "",
        }
    }

    /// The value as `serde_json::Value`.
    pub(super) fn value(&self, at: At) -> Value {
        match self.node(at) {
            Node::Null => Value::Null,
            Node::Bool(value) => value.into(),
            Node::Number(value) => value.into(),
            Node::Text(text) => text.into(),
            Node::List => self.items(at).map(|item| self.value(item)).collect(),
            Node::Object => {
                let fields = self.fields(at);
                let fields = fields.map(|(name, value)| (name.to_owned(), self.value(value)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }
}

/// Saturates; no body is that long.
fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Indices of consecutive values.
struct Inside<'a> {
    json: &'a Tape,
    at: At,
    left: u32,
}

impl Iterator for Inside<'_> {
    type Item = At;

    fn next(&mut self) -> Option<At> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        self.at = self.json.after(at);
        Some(at)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Inside<'_> {}

/// Indices of field names, each followed by its value.
struct Names<'a>(Inside<'a>);

impl Iterator for Names<'_> {
    type Item = At;

    fn next(&mut self) -> Option<At> {
        let name = self.0.next()?;
        self.0.at = self.0.json.after(self.0.at);
        Some(name)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Names<'_> {}

/// Deserializes a value and appends its nodes.
struct Seed<'a> {
    json: &'a mut Tape,
    /// The address range of the original text.
    within: &'a Range<usize>,
    /// The kind to set on the outermost object.
    kind: Option<&'a Gvk>,
}

impl Seed<'_> {
    fn inner(&mut self) -> Seed<'_> {
        Seed {
            json: self.json,
            within: self.within,
            kind: None,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.json.slots.push(Slot::Null);
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        self.json.slots.push(Slot::Bool(value));
        Ok(())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        self.json.slots.push(Slot::Number(value));
        Ok(())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.json.add_text(text);
        Ok(())
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<(), E> {
        let address = text.as_ptr() as usize;
        if !self.within.contains(&address) {
            return self.visit_str(text);
        }
        let at = count(address - self.within.start);
        self.json.slots.push(Slot::Text(at, count(text.len())));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let at = self.json.open();
        let mut length = 0;
        while items.next_element_seed(self.inner())?.is_some() {
            length += 1;
        }
        self.json.slots[at] = Slot::List(length, self.json.end());
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        let at = self.json.open();
        let mut length = 0;
        loop {
            let name = self.json.slots.len();
            if fields.next_key_seed(self.inner())?.is_none() {
                break;
            }
            if self.kind.is_some() && matches!(self.json.text(count(name)), "apiVersion" | "kind") {
                self.json.slots.truncate(name);
                fields.next_value::<de::IgnoredAny>()?;
                continue;
            }
            fields.next_value_seed(self.inner())?;
            length += 1;
        }
        if let Some(kind) = self.kind {
            for (name, value) in [("apiVersion", &*kind.api_version()), ("kind", &kind.kind)] {
                self.json.add_text(name);
                self.json.add_text(value);
                length += 1;
            }
        }
        self.json.slots[at] = Slot::Object(length, self.json.end());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::inputs::trees;
    use proptest::prelude::*;
    use serde_json::json;

    static THING: Gvk = Gvk::constant("example.io", "v1", "Thing");

    #[test]
    fn object_is_parsed_with_escapes_and_kind() {
        let text =
            br#" {"kind":"Other","a\u0062":"x\ny","n":[1,-2.5e3,18446744073709551615,null,true],
            "o":{"kind":"inner","e":{},"l":[[]]},"apiVersion":7,"t":"\u00fc"} "#;
        let json = Tape::of_object(text, &THING).unwrap();
        assert_eq!(
            json.value(ROOT),
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
            assert!(Tape::of_object(bad, &THING).is_err());
        }
    }

    proptest! {
        #[test]
        fn parsed_and_converted_values_are_equal(tree in trees()) {
            let text = serde_json::to_vec(&tree).unwrap();
            let mut tree: Value = serde_json::from_slice(&text).unwrap_or_default();
            if let Some(fields) = tree.as_object_mut() {
                fields.insert("apiVersion".into(), THING.api_version().into());
                fields.insert("kind".into(), (&*THING.kind).into());
            }
            if let Ok(json) = Tape::of_object(&text, &THING) {
                prop_assert_eq!(json.value(ROOT), Tape::of(&tree).value(ROOT));
            }
        }
    }
}
