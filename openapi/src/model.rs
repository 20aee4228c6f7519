//! The data model of kinds: names, printer columns, and the types of fields.
//!
//! Schema files and CRDs fill an arena of [`SchemaDefinition`]s, which refer to each
//! other by [`DefinitionId`]; a [`KindInfo`] names one of them.

use std::collections::HashMap;
use std::sync::OnceLock;

use machinery::{Gvk, Gvr};
use regex::Regex;
use serde_json::Value;

use crate::jsonpath::JsonPath;

/// The index of a definition in its arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DefId(u32);

/// An arena of definitions: those of the catalog, or those of one CRD version.
#[derive(Debug, Default)]
pub struct Definitions {
    list: Vec<Definition>,
    by_name: HashMap<Box<str>, DefId>,
}

impl Definitions {
    /// The definition with an id of this arena.
    pub fn get(&self, id: DefId) -> &Definition {
        &self.list[id.0 as usize]
    }

    pub fn id(&self, name: &str) -> Option<DefId> {
        self.by_name.get(name).copied()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (DefId, &Definition)> {
        (0u32..).map(DefId).zip(&self.list)
    }

    /// Adds a definition. The error names a definition that exists already.
    pub(crate) fn add(&mut self, definition: Definition) -> Result<DefId, String> {
        let id = u32::try_from(self.list.len())
            .map(DefId)
            .map_err(|_| "too many definitions".to_owned())?;
        if !definition.name.is_empty() && self.by_name.insert(definition.name.clone(), id).is_some()
        {
            return Err(format!("{} is defined twice", definition.name));
        }
        self.list.push(definition);
        Ok(id)
    }

    pub(crate) fn get_mut(&mut self, id: DefId) -> &mut Definition {
        &mut self.list[id.0 as usize]
    }
}

/// An object type with named fields.
#[derive(Clone, Debug, Default)]
pub struct Definition {
    /// The published name, as in `io.k8s.api.apps.v1.DeploymentSpec`; empty when anonymous.
    pub name: Box<str>,
    pub description: Box<str>,
    /// In the order of declaration; fields of inlined types stand where they are inlined.
    pub fields: Vec<Field>,
    /// `x-kubernetes-preserve-unknown-fields`
    pub preserve_unknown: bool,
    /// `x-kubernetes-map-type: atomic`
    pub atomic: bool,
    /// Whether `null` means absent, as for a Go struct.
    pub native: bool,
    /// `x-kubernetes-embedded-resource`: the object has `apiVersion` and `kind`.
    pub embedded: bool,
    pub(crate) by_name: HashMap<Box<str>, u32>,
}

impl Definition {
    pub fn field(&self, json_name: &str) -> Option<&Field> {
        let at = *self.by_name.get(json_name)?;
        self.fields.get(at as usize)
    }

    /// The field with a protobuf number.
    pub fn numbered(&self, number: u32) -> Option<&Field> {
        self.fields
            .iter()
            .find(|f| f.number == number && number != 0)
    }

    /// Replaces the field with the same name, if there is one.
    pub(crate) fn replace(&mut self, field: Field) {
        if let Some(at) = self.by_name.get(&field.name) {
            self.fields[*at as usize] = field;
        }
    }

    /// Appends a field. The error names a field that exists already.
    pub(crate) fn push(&mut self, field: Field) -> Result<(), String> {
        let at = u32::try_from(self.fields.len()).map_err(|_| "too many fields".to_owned())?;
        if self.by_name.insert(field.name.clone(), at).is_some() {
            return Err(format!("field {} is declared twice", field.name));
        }
        self.fields.push(field);
        Ok(())
    }
}

/// A named member of a definition.
#[derive(Clone, Debug)]
pub struct Field {
    pub name: Box<str>,
    /// The protobuf field number, or 0. A field that is inline in JSON but nested in
    /// protobuf carries the number of the nested message in its upper 16 bits:
    /// `hostPath` of a volume is field 1 of field 2, 0x2_0001.
    pub number: u32,
    pub required: bool,
    pub description: Box<str>,
    pub node: Node,
}

/// The type of a value with its defaults and validations.
#[derive(Clone, Debug, Default)]
pub struct Node {
    pub ty: Type,
    pub default: Option<Value>,
    /// For arrays.
    pub list: ListType,
    /// For maps and objects: replaced as a whole.
    pub atomic_map: bool,
    pub patch: Patch,
    pub nullable: bool,
    /// A scalar that is a pointer in Go, so that its zero differs from absence. Protobuf
    /// writes other optional scalars even when they are zero.
    pub pointer: bool,
    pub format: Box<str>,
    pub rules: Option<Box<Rules>>,
    /// Only for nodes that are not fields; a field has its own.
    pub description: Box<str>,
}

impl Node {
    pub(crate) fn of(ty: Type) -> Self {
        Self {
            ty,
            ..Self::default()
        }
    }

    /// Whether Go's JSON encoder writes this value of a field: empty values are written
    /// only for pointers and for required fields.
    pub(crate) fn keeps(&self, required: bool, value: &Value) -> bool {
        if required || self.pointer {
            return true;
        }
        match value {
            Value::String(text) => !text.is_empty(),
            Value::Bool(set) => *set,
            Value::Number(number) => self.ty == Type::IntOrString || number.as_f64() != Some(0.0),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !matches!(self.ty, Type::Map(_)) || !fields.is_empty(),
            Value::Null => true,
        }
    }

    pub(crate) fn rules_mut(&mut self) -> &mut Rules {
        self.rules.get_or_insert_default()
    }
}

/// The type of a JSON value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Type {
    String,
    Int32,
    Int64,
    Bool,
    Number,
    /// Base64 text.
    Bytes,
    Quantity,
    IntOrString,
    /// RFC 3339 with whole seconds.
    Time,
    MicroTime,
    /// Go's `1h30m`.
    Duration,
    /// Any JSON value.
    #[default]
    Any,
    /// Any JSON object; all its fields are preserved.
    Object,
    Array(Box<Node>),
    Map(Box<Node>),
    Ref(DefId),
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.ty == other.ty
    }
}

/// `x-kubernetes-list-type`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Not declared: treated as atomic, but not published as such.
    #[default]
    Unset,
    Atomic,
    Set,
    /// Keyed by these fields.
    Map(Box<[Box<str>]>),
}

/// `x-kubernetes-patch-strategy` and `x-kubernetes-patch-merge-key`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Empty for lists of scalars, or where nothing is merged.
    pub merge_key: Box<str>,
    pub merge: bool,
    pub retain_keys: bool,
    /// Whether the strategy `replace` is declared.
    pub replace: bool,
}

/// The value validations of OpenAPI.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub allowed: Vec<Value>,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub exclusive_minimum: bool,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub unique_items: bool,
    pub pattern: Option<Pattern>,
    pub logic: Option<Box<Logic>>,
}

/// `allOf`, `anyOf`, `oneOf` and `not`: further schemas for the same value.
#[derive(Clone, Debug, Default)]
pub struct Logic {
    pub all_of: Vec<Node>,
    pub any_of: Vec<Node>,
    pub one_of: Vec<Node>,
    pub not: Option<Node>,
    /// The fields that are checked, without a declared type, if the value is an object.
    pub loose: Option<DefId>,
}

/// A regular expression that is compiled when it is first used.
#[derive(Clone, Debug)]
pub struct Pattern {
    pub source: Box<str>,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    pub fn new(source: &str) -> Self {
        Self {
            source: source.into(),
            compiled: OnceLock::new(),
        }
    }

    /// Whether the text matches. `None`: the regular expression cannot be compiled.
    pub fn matches(&self, text: &str) -> Option<bool> {
        self.compiled
            .get_or_init(|| Regex::new(&self.source).ok())
            .as_ref()
            .map(|r| r.is_match(text))
    }
}

/// A kind as it is served in one group version.
#[derive(Clone, Debug)]
pub struct Kind {
    pub gvk: Gvk,
    pub gvr: Gvr,
    pub list_kind: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// The name of its definition in the catalog.
    pub definition: String,
    /// Whether it has the `status` subresource.
    pub status: bool,
    pub scale: Option<Scale>,
    pub columns: Vec<Column>,
    /// Whether request bodies in protobuf are accepted.
    pub proto: bool,
    /// Whether strategic merge patches are accepted.
    pub strategic: bool,
    pub verbs: Vec<String>,
    /// The storage key prefix, with a trailing slash.
    pub storage_prefix: String,
    /// Whether an update may omit `resourceVersion` (`AllowUnconditionalUpdate`).
    pub unconditional_update: bool,
    /// Whether an update of an absent object creates it (`AllowCreateOnUpdate`).
    pub create_on_update: bool,
    /// Whether a deletion returns the object instead of a `Status`.
    pub returns_deleted: bool,
}

impl Default for Kind {
    fn default() -> Self {
        Self {
            gvk: Gvk::constant("", "", ""),
            gvr: Gvr::constant("", "", ""),
            list_kind: String::new(),
            singular: String::new(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: false,
            definition: String::new(),
            status: false,
            scale: None,
            columns: Vec::new(),
            proto: false,
            strategic: false,
            verbs: Self::default_verbs(),
            storage_prefix: String::new(),
            unconditional_update: false,
            create_on_update: false,
            returns_deleted: false,
        }
    }
}

impl Kind {
    /// The verbs of a stored resource.
    pub fn default_verbs() -> Vec<String> {
        [
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    /// The storage key prefix of a resource, as kube-apiserver has it in etcd.
    pub fn default_prefix(group: &str, plural: &str) -> String {
        if group.is_empty() {
            format!("/registry/{plural}/")
        } else {
            format!("/registry/{group}/{plural}/")
        }
    }

    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
}

/// The fields of the `scale` subresource, as JSON paths like `.spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    pub spec: String,
    pub status: String,
    /// Empty when the kind has none.
    pub selector: String,
}

/// A printer column, shown by `kubectl get`.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub ty: String,
    pub format: String,
    pub description: String,
    /// Above 0: shown in wide output only.
    pub priority: i32,
    pub path: JsonPath,
}

impl Column {
    /// A column with a JSON path like `.spec.x`. The error says what is wrong with the
    /// path.
    pub fn new(name: &str, ty: &str, path: &str) -> Result<Self, String> {
        Ok(Self {
            name: name.to_owned(),
            ty: ty.to_owned(),
            format: String::new(),
            description: String::new(),
            priority: 0,
            path: JsonPath::compile(path)?,
        })
    }
}
