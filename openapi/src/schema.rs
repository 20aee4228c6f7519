//! Operations on a typed schema: apply defaults, prune unknown fields, validate, and walk
//! the schema beside a value.
//!
//! Errors have the texts of `apiextensions-apiserver/pkg/apiserver/validation`. Depth is
//! bounded by [`MAX_DEPTH`]; nothing here panics on malformed values.

mod crd;
mod decoding;
mod defaulting;
mod formats;
mod pruning;
#[cfg(test)]
mod tests;
mod validation;

use std::fmt::Write;
use std::sync::Arc;

use machinery::FieldError;
use serde_json::Value;

use crate::model::{DefId, Definition, Definitions, ListType, Node, Patch, Type};

/// How deep a value may be nested. Parsed JSON is at most 128 levels deep.
pub const MAX_DEPTH: usize = 200;

/// A type with all definitions it refers to. Clones share them.
#[derive(Clone, Debug)]
pub struct Schema {
    definitions: Arc<Definitions>,
    root: Arc<Node>,
}

impl Schema {
    pub(crate) fn new(definitions: Arc<Definitions>, root: DefId) -> Self {
        Self {
            definitions,
            root: Arc::new(Node::of(Type::Ref(root))),
        }
    }

    #[cfg(test)]
    pub(crate) fn of_node(definitions: &Arc<Definitions>, node: &Node) -> Self {
        Self {
            definitions: Arc::clone(definitions),
            root: Arc::new(node.clone()),
        }
    }

    /// The schema of a kind without schema: any object, nothing defaulted, all fields
    /// preserved.
    pub fn keep_all() -> Self {
        Self {
            definitions: Arc::default(),
            root: Arc::new(Node::of(Type::Object)),
        }
    }

    /// Builds a schema from `openAPIV3Schema` of a CRD version and adds `apiVersion`,
    /// `kind` and `metadata`. The error names what cannot be converted.
    pub fn from_crd(schema: &Value) -> Result<Self, String> {
        let (definitions, root) = crd::build(schema)?;
        Ok(Self {
            definitions: Arc::new(definitions),
            root: Arc::new(root),
        })
    }

    /// Sets defaults of fields whose parent is present. Before that, removes `null` from
    /// fields of Go types, and from fields that have a default and are not nullable.
    pub fn default(&self, value: &mut Value) {
        defaulting::fill(&self.definitions, &self.root, value, 0);
    }

    /// Removes unknown fields. Returns their paths as strict decoding spells them:
    /// `spec.x`, `spec.a[0].b`.
    pub fn prune(&self, value: &mut Value) -> Vec<String> {
        let mut removed = Vec::new();
        pruning::prune(&self.definitions, &self.root, value, "", &mut removed, 0);
        removed
    }

    /// Validates types and values.
    pub fn validate(&self, value: &Value) -> Vec<FieldError> {
        let mut validation = validation::Validation::new(&self.definitions);
        validation.check(&self.root, value);
        validation.errors
    }

    /// The first error that Go's decoder would report, with its text. Meant for kinds that
    /// Kubernetes has as Go types; for other kinds use [`Self::validate`].
    pub fn undecodable(&self, value: &Value) -> Option<String> {
        decoding::Decoding::new(&self.definitions).complaint(&self.root, value, 0)
    }

    /// A cursor at the root of the schema.
    pub fn root(&self) -> Cursor<'_> {
        Cursor {
            definitions: &self.definitions,
            node: &self.root,
        }
    }
}

/// A position in a schema, moved beside a value.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    definitions: &'a Definitions,
    node: &'a Node,
}

impl<'a> Cursor<'a> {
    fn at(self, node: &'a Node) -> Self {
        Self { node, ..self }
    }

    /// The field of an object, or the value type of a map. `None`: unknown field.
    pub fn field(self, name: &str) -> Option<Self> {
        match &self.node.ty {
            Type::Map(value) => Some(self.at(value)),
            Type::Ref(id) => Some(self.at(&self.definitions.get(*id).field(name)?.node)),
            _ => None,
        }
    }

    /// The type of an array's items.
    pub fn item(self) -> Option<Self> {
        match &self.node.ty {
            Type::Array(item) => Some(self.at(item)),
            _ => None,
        }
    }

    /// The arena that the ids at this position belong to.
    pub(crate) fn definitions(self) -> &'a Definitions {
        self.definitions
    }

    pub fn node(self) -> &'a Node {
        self.node
    }

    pub fn ty(self) -> &'a Type {
        &self.node.ty
    }

    /// The definition, if this is an object with named fields.
    pub fn definition(self) -> Option<&'a Definition> {
        match &self.node.ty {
            Type::Ref(id) => Some(self.definitions.get(*id)),
            _ => None,
        }
    }

    /// The list type of an array.
    pub fn list(self) -> &'a ListType {
        &self.node.list
    }

    /// Whether server-side apply owns this map or object as a whole.
    pub fn atomic(self) -> bool {
        self.node.atomic_map || self.definition().is_some_and(|d| d.atomic)
    }

    /// How strategic merge patch treats this field.
    pub fn patch(self) -> &'a Patch {
        &self.node.patch
    }

    pub fn default(self) -> Option<&'a Value> {
        self.node.default.as_ref()
    }

    /// Whether unknown fields are preserved here.
    pub fn keeps_unknown(self) -> bool {
        match &self.node.ty {
            Type::Any | Type::Object => true,
            _ => self.definition().is_some_and(|d| d.preserve_unknown),
        }
    }
}

/// The path of a walk, rendered only for an error (`field.Path`).
#[derive(Debug, Default)]
struct Path<'v> {
    segments: Vec<Segment<'v>>,
}

#[derive(Clone, Copy, Debug)]
enum Segment<'v> {
    Key(&'v str),
    Index(usize),
}

impl<'v> Path<'v> {
    fn too_deep(&self) -> bool {
        self.segments.len() > MAX_DEPTH
    }

    fn render(&self) -> String {
        let mut text = String::new();
        for segment in &self.segments {
            let dot = if text.is_empty() { "" } else { "." };
            // Writing to a String does not fail.
            let _ = match segment {
                Segment::Key(key) => write!(text, "{dot}{key}"),
                Segment::Index(at) => write!(text, "[{at}]"),
            };
        }
        text
    }

    fn render_child(&self, key: &str) -> String {
        let parent = self.render();
        if parent.is_empty() {
            key.to_owned()
        } else {
            format!("{parent}.{key}")
        }
    }
}
