//! The data model of kinds: names, printer columns, and the types of fields.
//!
//! Schema files and CRDs fill an arena of [`SchemaDefinition`]s, which refer to each
//! other by [`SchemaDefinitionId`]; a [`KindInfo`] names one of them.

use std::collections::HashMap;
use std::ops::Deref;

use machinery::go_pattern::GoPattern;
use machinery::tree_memory::estimate_tree_bytes;
use machinery::{Gvk, Gvr};
use serde_json::{Map, Value};

use crate::jsonpath::JsonPath;

/// The index of a definition in its arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SchemaDefinitionId(u32);

/// An arena of definitions, either of the catalog or of one CRD version.
#[derive(Debug, Default)]
pub struct SchemaDefinitionArena {
    list: Vec<SchemaDefinition>,
    by_name: HashMap<Box<str>, SchemaDefinitionId>,
}

impl SchemaDefinitionArena {
    /// The definition with an id of this arena.
    pub fn get(&self, id: SchemaDefinitionId) -> &SchemaDefinition {
        &self.list[id.0 as usize]
    }

    pub fn id(&self, name: &str) -> Option<SchemaDefinitionId> {
        self.by_name.get(name).copied()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (SchemaDefinitionId, &SchemaDefinition)> {
        (0u32..).map(SchemaDefinitionId).zip(&self.list)
    }

    /// Adds a definition. The error names a definition that exists already.
    pub(crate) fn add(
        &mut self,
        definition: SchemaDefinition,
    ) -> Result<SchemaDefinitionId, String> {
        let id = u32::try_from(self.list.len())
            .map(SchemaDefinitionId)
            .map_err(|_| "too many definitions".to_owned())?;
        if !definition.name.is_empty() && self.by_name.insert(definition.name.clone(), id).is_some()
        {
            return Err(format!("{} is defined twice", definition.name));
        }
        self.list.push(definition);
        Ok(id)
    }

    pub(crate) fn get_mut(&mut self, id: SchemaDefinitionId) -> &mut SchemaDefinition {
        &mut self.list[id.0 as usize]
    }
}

/// An object type with named fields.
#[derive(Clone, Debug, Default)]
pub struct SchemaDefinition {
    /// The published name, as in `io.k8s.api.apps.v1.DeploymentSpec`; empty when anonymous.
    pub name: Box<str>,
    pub description: Box<str>,
    /// In the order of declaration; fields of inlined types stand where they are inlined.
    pub fields: Vec<SchemaField>,
    /// `x-kubernetes-preserve-unknown-fields`
    pub preserve_unknown: bool,
    /// `x-kubernetes-map-type: atomic`
    pub atomic: bool,
    /// Whether `null` means absent, as for a Go struct.
    pub native: bool,
    /// `x-kubernetes-embedded-resource`: the object has `apiVersion` and `kind`.
    pub embedded_resource: bool,
    pub(crate) by_name: HashMap<Box<str>, u32>,
}

impl SchemaDefinition {
    pub fn field(&self, json_name: &str) -> Option<&SchemaField> {
        let index = *self.by_name.get(json_name)?;
        self.fields.get(index as usize)
    }

    /// The field with a protobuf number.
    pub fn field_by_number(&self, number: u32) -> Option<&SchemaField> {
        self.fields
            .iter()
            .find(|f| f.number == number && number != 0)
    }

    /// Replaces the field with the same name, if there is one.
    pub(crate) fn replace_field(&mut self, field: SchemaField) {
        if let Some(index) = self.by_name.get(&field.name) {
            self.fields[*index as usize] = field;
        }
    }

    /// Appends a field. The error names a field that exists already.
    pub(crate) fn push_field(&mut self, field: SchemaField) -> Result<(), String> {
        let index = u32::try_from(self.fields.len()).map_err(|_| "too many fields".to_owned())?;
        if self.by_name.insert(field.name.clone(), index).is_some() {
            return Err(format!("field {} is declared twice", field.name));
        }
        self.fields.push(field);
        Ok(())
    }
}

/// A named member of a definition.
#[derive(Clone, Debug)]
pub struct SchemaField {
    pub name: Box<str>,
    /// The protobuf field number, or 0. A field that is inline in JSON but nested in
    /// protobuf carries the path of the nested message in its upper 16 bits, at most two
    /// numbers of a byte each: `hostPath` of a volume is field 1 of field 2, 0x2_0001.
    pub number: u32,
    pub required: bool,
    pub description: Box<str>,
    pub node: SchemaNode,
}

/// The type of a value with its defaults and validations.
#[derive(Clone, Debug, Default)]
pub struct SchemaNode {
    pub ty: SchemaType,
    pub default: Option<DefaultValue>,
    /// For arrays.
    pub list: ListType,
    /// For maps and objects: replaced as a whole.
    pub atomic_map: bool,
    pub patch: PatchMeta,
    pub nullable: bool,
    /// `x-kubernetes-preserve-unknown-fields`, which a schema of any type may have. It holds for
    /// the items of a list, too.
    pub preserve_unknown: bool,
    /// The schema of a custom resource for values of some types, if it declares none.
    pub untyped: Option<Box<UntypedSchema>>,
    /// A scalar that is a pointer in Go, so that its zero differs from absence. Protobuf
    /// writes other optional scalars even when they are zero.
    pub pointer: bool,
    pub format: Box<str>,
    pub validation: Option<Box<ValueValidation>>,
    /// Only for nodes that are not fields; a field has its own.
    pub description: Box<str>,
}

/// The default of a field, with what a copy of it takes in memory.
#[derive(Clone, Debug)]
pub struct DefaultValue {
    value: Value,
    tree_bytes: usize,
}

impl DefaultValue {
    pub(crate) fn tree_bytes(&self) -> usize {
        self.tree_bytes
    }
}

impl From<Value> for DefaultValue {
    fn from(value: Value) -> Self {
        let tree_bytes = estimate_tree_bytes(&value);
        Self { value, tree_bytes }
    }
}

impl Deref for DefaultValue {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

/// The schemas of the values of a schema without a declared type; no value has to be one of them.
#[derive(Clone, Debug)]
pub struct UntypedSchema {
    pub object: Option<SchemaNode>,
    pub array: Option<SchemaNode>,
}

impl SchemaNode {
    /// The schema of a value: of a schema without a declared type the part that is meant for it.
    pub fn for_value(&self, value: &Value) -> &Self {
        let part = self.untyped.as_ref().and_then(|parts| match value {
            Value::Object(_) => parts.object.as_ref(),
            Value::Array(_) => parts.array.as_ref(),
            _ => None,
        });
        part.unwrap_or(self)
    }

    pub(crate) fn from_type(ty: SchemaType) -> Self {
        Self {
            ty,
            ..Self::default()
        }
    }

    /// Whether Go's JSON encoder writes this value of a field: empty values are written
    /// only for pointers and for required fields.
    pub(crate) fn is_encoded(&self, required: bool, value: &Value) -> bool {
        if required || self.pointer {
            return true;
        }
        match value {
            Value::String(text) => !text.is_empty(),
            Value::Bool(set) => *set,
            Value::Number(number) => {
                self.ty == SchemaType::IntOrString || number.as_f64() != Some(0.0)
            }
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !matches!(self.ty, SchemaType::Map(_)) || !fields.is_empty(),
            Value::Null => true,
        }
    }

    pub(crate) fn rules_mut(&mut self) -> &mut ValueValidation {
        self.validation.get_or_insert_default()
    }
}

/// The type of a JSON value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SchemaType {
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
    Array(Box<SchemaNode>),
    Map(Box<SchemaNode>),
    Ref(SchemaDefinitionId),
}

impl SchemaType {
    /// Go's zero value of the type, in JSON.
    pub(crate) fn zero_value(&self) -> Value {
        match self {
            Self::String | Self::Bytes => "".into(),
            Self::Int32 | Self::Int64 | Self::IntOrString | Self::Number => 0.into(),
            Self::Quantity => "0".into(),
            Self::Duration => "0s".into(),
            Self::Bool => false.into(),
            Self::Array(_) => Value::Array(Vec::new()),
            Self::Ref(_) | Self::Map(_) => Value::Object(Map::new()),
            Self::Time | Self::MicroTime | Self::Any | Self::Object => Value::Null,
        }
    }
}

impl PartialEq for SchemaNode {
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
pub struct PatchMeta {
    /// Empty for lists of scalars, or where nothing is merged.
    pub merge_key: Box<str>,
    pub merge: bool,
    pub retain_keys: bool,
    /// Whether the strategy `replace` is declared.
    pub replace: bool,
}

/// The value validations of OpenAPI.
#[derive(Clone, Debug, Default)]
pub struct ValueValidation {
    pub enum_values: Vec<Value>,
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
    pub pattern: Option<RegexPattern>,
    pub composition: Option<Box<SchemaComposition>>,
    /// `x-kubernetes-validations`, for publication.
    pub cel_rules: Vec<Value>,
}

/// `allOf`, `anyOf`, `oneOf` and `not`: further schemas for the same value.
#[derive(Clone, Debug, Default)]
pub struct SchemaComposition {
    pub all_of: Vec<SchemaNode>,
    pub any_of: Vec<SchemaNode>,
    pub one_of: Vec<SchemaNode>,
    pub not: Option<SchemaNode>,
}

/// A regular expression in Go's syntax. The process keeps those compiled that are used.
#[derive(Clone, Debug)]
pub struct RegexPattern {
    pub source: Box<str>,
}

impl RegexPattern {
    pub fn new(source: &str) -> Self {
        Self {
            source: source.into(),
        }
    }

    /// Whether the text matches. `None`: the regular expression cannot be compiled.
    pub fn matches(&self, text: &str) -> Option<bool> {
        let compiled = GoPattern::cached(&self.source).ok()?;
        Some(compiled.is_match(text))
    }
}

/// A kind as it is served in one group version.
#[derive(Clone, Debug)]
pub struct KindInfo {
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
    pub scale: Option<ScalePaths>,
    pub columns: Vec<PrinterColumn>,
    /// Whether request bodies in protobuf are accepted.
    pub protobuf: bool,
    /// Whether strategic merge patches are accepted.
    pub strategic_merge_patch: bool,
    pub verbs: Vec<String>,
    /// Whether its objects are computed for each request and not stored. It is served where
    /// there is a provider of them.
    pub computed: bool,
    /// The warning of every response, if this version of the kind is deprecated.
    pub deprecation_warning: Option<String>,
    /// The storage key prefix, with a trailing slash.
    pub storage_prefix: String,
    /// Whether an update may omit `resourceVersion` (`AllowUnconditionalUpdate`).
    pub allow_unconditional_update: bool,
    /// Whether an update of an absent object creates it (`AllowCreateOnUpdate`).
    pub allow_create_on_update: bool,
    /// Whether a deletion returns the object instead of a `Status`.
    pub returns_deleted_object: bool,
}

impl Default for KindInfo {
    fn default() -> Self {
        Self {
            gvk: Gvk::from_static("", "", ""),
            gvr: Gvr::from_static("", "", ""),
            list_kind: String::new(),
            singular: String::new(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: false,
            definition: String::new(),
            status: false,
            scale: None,
            columns: Vec::new(),
            protobuf: false,
            strategic_merge_patch: false,
            verbs: Self::default_verbs(),
            computed: false,
            deprecation_warning: None,
            storage_prefix: String::new(),
            allow_unconditional_update: false,
            allow_create_on_update: false,
            returns_deleted_object: false,
        }
    }
}

impl KindInfo {
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
    pub fn default_storage_prefix(group: &str, plural: &str) -> String {
        if group.is_empty() {
            format!("/registry/{plural}/")
        } else {
            format!("/registry/{group}/{plural}/")
        }
    }

    pub fn supports_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
}

/// The fields of the `scale` subresource, as JSON paths like `.spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec: String,
    pub status: String,
    /// Empty when the kind has none.
    pub selector: String,
}

/// A printer column, shown by `kubectl get`.
#[derive(Clone, Debug)]
pub struct PrinterColumn {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub ty: String,
    pub format: String,
    pub description: String,
    /// Above 0: shown in wide output only.
    pub priority: i32,
    pub path: JsonPath,
}

impl PrinterColumn {
    /// A column with a JSON path like `.spec.x`. The error says what is wrong with the
    /// path.
    pub fn new(name: &str, ty: &str, path: &str) -> Result<Self, String> {
        Ok(Self {
            name: name.to_owned(),
            ty: ty.to_owned(),
            format: String::new(),
            description: format!("Custom resource definition column (in JSONPath format): {path}"),
            priority: 0,
            path: JsonPath::compile(path)?,
        })
    }
}
