//! Reads and writes field sets as `FieldsV1` JSON (`fieldpath/serialize.go`).
//!
//! Read sets are bounded in depth and size. Written sets have the order and text that
//! Kubernetes writes.

use std::fmt;

use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::field_set::{FieldSet, FieldSetNode};
use crate::path_element::PathElement;

/// How deep a path may be: as deep as JSON is read.
const MAX_FIELD_SET_DEPTH: usize = machinery::json::MAX_DEPTH;
/// How many nodes a set may have.
const MAX_FIELD_SET_NODES: usize = 100_000;

/// The key under which a node with children says that it is a member.
const SELF_KEY: &str = ".";

impl<'de> Deserialize<'de> for FieldSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut budget = MAX_FIELD_SET_NODES;
        let seed = FieldSetSeed {
            budget: &mut budget,
            depth: 0,
        };
        Ok(seed.deserialize(deserializer)?.0)
    }
}

/// Reads a set and whether it contains the path to itself.
struct FieldSetSeed<'b> {
    budget: &'b mut usize,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for FieldSetSeed<'_> {
    type Value = (FieldSet, bool);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldSetSeed<'_> {
    type Value = (FieldSet, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of FieldsV1")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok((FieldSet::default(), true))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        if self.depth > MAX_FIELD_SET_DEPTH {
            return Err(de::Error::custom("the field set is nested too deeply"));
        }
        let mut nodes = Vec::new();
        let mut is_member = false;
        while let Some(key) = map.next_key::<FieldsV1Key>()? {
            let element = match key {
                FieldsV1Key::Element(element) => element,
                other => {
                    is_member |= matches!(other, FieldsV1Key::SelfKey);
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *self.budget = self
                .budget
                .checked_sub(1)
                .ok_or_else(|| de::Error::custom("the field set is too large"))?;
            let (descendants, member) = map.next_value_seed(FieldSetSeed {
                budget: self.budget,
                depth: self.depth + 1,
            })?;
            nodes.push(FieldSetNode {
                element,
                is_member: member,
                children: descendants,
            });
        }
        let children = FieldSet::from_nodes(nodes);
        let is_member = is_member || children.is_empty();
        Ok((children, is_member))
    }
}

enum FieldsV1Key {
    SelfKey,
    Element(PathElement),
    /// An element of a type that only later versions know.
    Unknown,
}

impl<'de> Deserialize<'de> for FieldsV1Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(FieldsV1KeyVisitor)
    }
}

struct FieldsV1KeyVisitor;

impl Visitor<'_> for FieldsV1KeyVisitor {
    type Value = FieldsV1Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path element")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        if text == SELF_KEY {
            return Ok(FieldsV1Key::SelfKey);
        }
        let element = PathElement::parse(text).map_err(E::custom)?;
        Ok(element.map_or(FieldsV1Key::Unknown, FieldsV1Key::Element))
    }
}

impl Serialize for FieldSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_nodes(self, false, serializer)
    }
}

struct SerializedNode<'n>(&'n FieldSetNode);

impl Serialize for SerializedNode<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(node) = self;
        let with_self = node.is_member && !node.children.is_empty();
        serialize_nodes(&node.children, with_self, serializer)
    }
}

fn serialize_nodes<S: Serializer>(
    set: &FieldSet,
    with_self: bool,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(set.nodes().len() + usize::from(with_self)))?;
    if with_self {
        map.serialize_entry(SELF_KEY, &FieldSet::default())?;
    }
    let mut key = String::new();
    for node in set.nodes() {
        key.clear();
        node.element.write_to(&mut key);
        map.serialize_entry(&key, &SerializedNode(node))?;
    }
    map.end()
}

impl FieldSet {
    /// Parses `FieldsV1` JSON.
    pub fn from_fields_v1(text: &str) -> Result<Self, serde_json::Error> {
        machinery::json::from_str(text)
    }
}
