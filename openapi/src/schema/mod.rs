//! Operations on a typed schema: apply defaults, prune unknown fields, validate, and walk
//! the schema beside a value.
//!
//! Errors have the texts of `apiextensions-apiserver/pkg/apiserver/validation`. Depth is
//! bounded by [`MAX_DEPTH`]; nothing here panics on malformed values.

mod crd;
mod decoding;
mod defaulting;
mod embedded_resources;
mod formats;
mod null_values;
mod pruning;
#[cfg(test)]
mod tests;
mod validation;
mod value_types;
mod value_validation;

pub use self::defaulting::DefaultsTooLarge;
pub use self::embedded_resources::{EmbeddedResource, object_meta_error};
pub(crate) use self::formats::canonical_base64;

use std::sync::Arc;

use machinery::bounded_text::{child_path, push_path_step};
use serde_json::Value;

use crate::model::{
    ListType, PatchMeta, SchemaDefinition, SchemaDefinitionArena, SchemaDefinitionId, SchemaNode,
    SchemaType,
};

/// How deep a value may be nested: as deep as JSON is read.
pub const MAX_DEPTH: usize = machinery::json::MAX_DEPTH;

/// A type with all definitions it refers to. Clones share them.
#[derive(Clone, Debug)]
pub struct Schema {
    definitions: Arc<SchemaDefinitionArena>,
    root: Arc<SchemaNode>,
}

impl Schema {
    pub(crate) fn new(definitions: Arc<SchemaDefinitionArena>, root: SchemaDefinitionId) -> Self {
        Self {
            definitions,
            root: Arc::new(SchemaNode::from_type(SchemaType::Ref(root))),
        }
    }

    #[cfg(test)]
    pub(crate) fn from_node(definitions: &Arc<SchemaDefinitionArena>, node: &SchemaNode) -> Self {
        Self {
            definitions: Arc::clone(definitions),
            root: Arc::new(node.clone()),
        }
    }

    /// The schema of a kind without schema: any object, nothing defaulted, all fields
    /// preserved.
    pub fn preserving_unknown_fields() -> Self {
        Self {
            definitions: Arc::default(),
            root: Arc::new(SchemaNode::from_type(SchemaType::Object)),
        }
    }

    /// A cursor at the root of the schema.
    pub fn root(&self) -> SchemaCursor<'_> {
        SchemaCursor {
            definitions: &self.definitions,
            node: &self.root,
        }
    }
}

/// A position in a schema, moved beside a value.
#[derive(Clone, Copy, Debug)]
pub struct SchemaCursor<'a> {
    definitions: &'a SchemaDefinitionArena,
    node: &'a SchemaNode,
}

impl<'a> SchemaCursor<'a> {
    fn with_node(self, node: &'a SchemaNode) -> Self {
        Self { node, ..self }
    }

    /// The field of an object, or the value type of a map. `None`: unknown field.
    pub fn field(self, name: &str) -> Option<Self> {
        match &self.node.ty {
            SchemaType::Map(value) => Some(self.with_node(value)),
            SchemaType::Ref(id) => {
                Some(self.with_node(&self.definitions.get(*id).field(name)?.node))
            }
            _ => {
                let object = self.node.untyped.as_ref()?.object.as_ref()?;
                self.with_node(object).field(name)
            }
        }
    }

    /// The type of an array's items.
    pub fn item(self) -> Option<Self> {
        match &self.node.ty {
            SchemaType::Array(item) => Some(self.with_node(item)),
            _ => {
                let array = self.node.untyped.as_ref()?.array.as_ref()?;
                self.with_node(array).item()
            }
        }
    }

    /// The position for a value, as by [`SchemaNode::for_value`].
    pub fn for_value(self, value: &Value) -> Self {
        self.with_node(self.node.for_value(value))
    }

    /// The arena that the ids at this position belong to.
    pub(crate) fn definitions(self) -> &'a SchemaDefinitionArena {
        self.definitions
    }

    pub fn node(self) -> &'a SchemaNode {
        self.node
    }

    pub fn ty(self) -> &'a SchemaType {
        &self.node.ty
    }

    /// The definition, if this is an object with named fields.
    pub fn definition(self) -> Option<&'a SchemaDefinition> {
        match &self.node.ty {
            SchemaType::Ref(id) => Some(self.definitions.get(*id)),
            _ => None,
        }
    }

    /// The list type of an array.
    pub fn list_type(self) -> &'a ListType {
        &self.node.list
    }

    /// Whether server-side apply owns this map or object as a whole.
    pub fn is_atomic(self) -> bool {
        self.node.atomic_map || self.definition().is_some_and(|d| d.atomic)
    }

    /// How strategic merge patch treats this field.
    pub fn patch_strategy(self) -> &'a PatchMeta {
        &self.node.patch
    }

    pub fn default(self) -> Option<&'a Value> {
        self.node.default.as_deref()
    }

    /// Whether unknown fields are preserved here.
    pub fn preserves_unknown_fields(self) -> bool {
        match &self.node.ty {
            SchemaType::Any | SchemaType::Object => true,
            _ => {
                self.node.preserve_unknown || self.definition().is_some_and(|d| d.preserve_unknown)
            }
        }
    }
}

/// The path of a walk, rendered only for an error (`field.Path`).
#[derive(Debug, Default)]
struct FieldPath<'v> {
    segments: Vec<PathSegment<'v>>,
}

#[derive(Clone, Copy, Debug)]
enum PathSegment<'v> {
    Key(&'v str),
    /// The key of a map. Errors treat it as a field, except for errors of list types.
    MapKey(&'v str),
    Index(usize),
}

impl<'v> FieldPath<'v> {
    fn too_deep(&self) -> bool {
        self.segments.len() > MAX_DEPTH
    }

    fn render(&self) -> String {
        self.render_segments(false)
    }

    /// The path as errors of list types have it: with the keys of maps in brackets.
    fn render_with_map_keys(&self) -> String {
        self.render_segments(true)
    }

    fn render_segments(&self, map_keys_in_brackets: bool) -> String {
        let mut text = String::new();
        for segment in &self.segments {
            let dot = if text.is_empty() { "" } else { "." };
            match segment {
                PathSegment::MapKey(key) if map_keys_in_brackets => {
                    push_path_step(&mut text, "[", key);
                    push_path_step(&mut text, "", "]");
                }
                PathSegment::Key(key) | PathSegment::MapKey(key) => {
                    push_path_step(&mut text, dot, key);
                }
                PathSegment::Index(at) => push_path_step(&mut text, "", &format!("[{at}]")),
            }
        }
        text
    }

    fn render_child(&self, key: &str) -> String {
        child_path(&self.render(), key)
    }
}
