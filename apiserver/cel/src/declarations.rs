//! Declares the types of a structural schema to expressions, with the sizes that its limits
//! allow (`k8s.io/apiserver/pkg/cel/common/schemas.go`, `pkg/cel/types.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::escaping::escape;

/// The largest request, which bounds the sizes of values without declared limits.
pub(crate) const MAX_REQUEST_BYTES: u64 = 3 * 1024 * 1024;
/// The length of the longest time or duration in JSON, with quotes.
const MAX_TIME_CHARS: u64 = 32;
const DATE_CHARS: u64 = 12;
/// The longest `metadata.name`.
const MAX_NAME_CHARS: u64 = 253;
/// Bound on the nesting of a schema.
const MAX_SCHEMA_DEPTH: usize = 128;

/// The declaration of a value: its type, and how large it can be.
#[derive(Debug)]
pub(crate) struct Declaration {
    pub(crate) kind: DeclaredKind,
    /// The largest number of elements, characters or entries; 0 where it has no meaning.
    pub(crate) max_elements: u64,
    /// The shortest JSON text of a value.
    pub(crate) min_serialized_size: u64,
}

#[derive(Debug)]
pub(crate) enum DeclaredKind {
    /// Any JSON value, without a schema.
    Any,
    IntOrString,
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Duration,
    /// `date` or `date-time`.
    Timestamp,
    List {
        element: Arc<Declaration>,
        list_type: DeclaredListType,
    },
    Map(Arc<Declaration>),
    Object(Arc<ObjectDeclaration>),
    /// A value of a library, which no JSON has.
    Opaque(&'static str),
}

/// `x-kubernetes-list-type`, which decides which lists are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeclaredListType {
    #[default]
    Atomic,
    Set,
    /// Keyed by these fields.
    Map(Vec<String>),
}

/// The fields of an object, by their escaped names.
#[derive(Debug, Default)]
pub(crate) struct ObjectDeclaration {
    /// Empty for the objects of schemas.
    pub(crate) type_name: &'static str,
    pub(crate) fields: BTreeMap<String, DeclaredField>,
    /// The escaped names by the names in JSON.
    pub(crate) escaped: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(crate) struct DeclaredField {
    /// The name in JSON.
    pub(crate) name: String,
    pub(crate) declaration: Arc<Declaration>,
}

impl ObjectDeclaration {
    pub(crate) fn field(&self, escaped: &str) -> Option<&DeclaredField> {
        self.fields.get(escaped)
    }
}

impl Declaration {
    pub(crate) const ANY: Self = Self::new(DeclaredKind::Any, MAX_REQUEST_BYTES, 1);

    const fn new(kind: DeclaredKind, max_elements: u64, min_serialized_size: u64) -> Self {
        Self {
            kind,
            max_elements,
            min_serialized_size,
        }
    }

    /// The declaration of a structural schema; `None` when its values are hidden from
    /// expressions. The root of a resource has `apiVersion`, `kind` and `metadata` whatever
    /// its schema says.
    pub(crate) fn from_schema(schema: &Json, resource_root: bool) -> Option<Self> {
        Self::from_schema_at(schema, resource_root, 0)
    }

    fn from_schema_at(schema: &Json, resource_root: bool, depth: usize) -> Option<Self> {
        if depth > MAX_SCHEMA_DEPTH {
            return None;
        }
        if schema["x-kubernetes-int-or-string"] == true {
            let max = limit(schema, "maxLength").map(|max| max.saturating_mul(4));
            let max = max.unwrap_or(MAX_REQUEST_BYTES - 2);
            return Some(Self::new(DeclaredKind::IntOrString, max, 1));
        }
        match schema["type"].as_str()? {
            "array" => Self::from_array(schema, depth),
            "object" if resource_root => Some(Self::from_fields(schema, true, depth)),
            "object" if schema["additionalProperties"].is_object() => Self::from_map(schema, depth),
            "object" => Some(Self::from_fields(schema, false, depth)),
            "string" => Some(Self::from_string(schema)),
            "boolean" => Some(Self::new(DeclaredKind::Bool, 0, 4)),
            "number" => Some(Self::new(DeclaredKind::Double, 0, 1)),
            "integer" => Some(Self::new(DeclaredKind::Int, 0, 1)),
            _ => None,
        }
    }

    fn below(schema: &Json, depth: usize) -> Option<Arc<Self>> {
        let embedded = schema["x-kubernetes-embedded-resource"] == true;
        Self::from_schema_at(schema, embedded, depth + 1).map(Arc::new)
    }

    fn from_array(schema: &Json, depth: usize) -> Option<Self> {
        let element = Self::below(&schema["items"], depth)?;
        let items_that_fit = (MAX_REQUEST_BYTES - 2) / (element.min_serialized_size + 1);
        let list_type = match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => DeclaredListType::Set,
            Some("map") => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array();
                let keys = keys.into_iter().flatten().filter_map(Json::as_str);
                DeclaredListType::Map(keys.map(str::to_owned).collect())
            }
            _ => DeclaredListType::Atomic,
        };
        let kind = DeclaredKind::List { element, list_type };
        let max = limit(schema, "maxItems").unwrap_or(items_that_fit);
        Some(Self::new(kind, max, 2))
    }

    fn from_map(schema: &Json, depth: usize) -> Option<Self> {
        let value = Self::below(&schema["additionalProperties"], depth)?;
        let properties_that_fit = (MAX_REQUEST_BYTES - 2) / (value.min_serialized_size + 6);
        let max = limit(schema, "maxProperties").unwrap_or(properties_that_fit);
        Some(Self::new(DeclaredKind::Map(value), max, 2))
    }

    fn from_fields(schema: &Json, resource_root: bool, depth: usize) -> Self {
        let required = schema["required"].as_array();
        let required: Vec<&str> = required
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
            .collect();
        let mut object = ObjectDeclaration::default();
        // An object is at least {}.
        let mut min_size = 2;
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            if resource_root && matches!(&**name, "apiVersion" | "kind" | "metadata") {
                continue;
            }
            let Some(declaration) = Self::below(field, depth) else {
                continue;
            };
            if required.contains(&&**name) && field["default"].is_null() {
                min_size += name.len() as u64 + declaration.min_serialized_size + 4;
            }
            object.add(name, declaration);
        }
        if resource_root {
            object.add_resource_fields(&schema["properties"]["metadata"]["properties"]);
        }
        Self::new(DeclaredKind::Object(Arc::new(object)), 0, min_size)
    }

    fn from_string(schema: &Json) -> Self {
        let max = limit(schema, "maxLength");
        match schema["format"].as_str() {
            Some("byte") => {
                let max = max.unwrap_or(MAX_REQUEST_BYTES - 2);
                Self::new(DeclaredKind::Bytes, max, 2)
            }
            Some("duration") => Self::new(DeclaredKind::Duration, MAX_TIME_CHARS, 3),
            Some("date") => Self::new(DeclaredKind::Timestamp, DATE_CHARS, DATE_CHARS),
            Some("date-time") => Self::new(DeclaredKind::Timestamp, MAX_TIME_CHARS, 21),
            _ => {
                let longest = |values: &Vec<Json>| {
                    let lengths = values.iter().filter_map(Json::as_str).map(str::len);
                    lengths.max().unwrap_or(0) as u64
                };
                let values = schema["enum"].as_array().filter(|v| !v.is_empty());
                // A character has up to four bytes.
                let max = max
                    .map(|max| max.saturating_mul(4))
                    .or_else(|| values.map(longest));
                Self::new(
                    DeclaredKind::String,
                    max.unwrap_or(MAX_REQUEST_BYTES - 2),
                    2,
                )
            }
        }
    }

    /// A value of this kind, of any size.
    pub(crate) const fn unbounded(kind: DeclaredKind) -> Self {
        Self::new(kind, MAX_REQUEST_BYTES, 1)
    }

    /// An object with these fields, for variables that no schema declares.
    pub(crate) fn object(fields: Vec<(&str, Self)>) -> Self {
        Self::named_object("", fields)
    }

    /// An object of a named type with these fields.
    pub(crate) fn named_object(type_name: &'static str, fields: Vec<(&str, Self)>) -> Self {
        let mut object = ObjectDeclaration {
            type_name,
            ..ObjectDeclaration::default()
        };
        for (name, declaration) in fields {
            object.add_unescaped(name, Arc::new(declaration));
        }
        Self::new(DeclaredKind::Object(Arc::new(object)), 0, 2)
    }

    /// The declaration of a list's elements or a map's values.
    pub(crate) fn element(&self) -> Option<&Arc<Self>> {
        match &self.kind {
            DeclaredKind::List { element, .. } => Some(element),
            DeclaredKind::Map(value) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn field(&self, escaped: &str) -> Option<&Arc<Self>> {
        match &self.kind {
            DeclaredKind::Object(object) => Some(&object.field(escaped)?.declaration),
            _ => None,
        }
    }
}

impl ObjectDeclaration {
    fn add(&mut self, name: &str, declaration: Arc<Declaration>) {
        if let Some(escaped) = escape(name) {
            self.insert(name, escaped, declaration);
        }
    }

    fn add_unescaped(&mut self, name: &str, declaration: Arc<Declaration>) {
        self.insert(name, name.to_owned(), declaration);
    }

    fn insert(&mut self, name: &str, escaped: String, declaration: Arc<Declaration>) {
        self.escaped.insert(name.to_owned(), escaped.clone());
        let field = DeclaredField {
            name: name.to_owned(),
            declaration,
        };
        self.fields.insert(escaped, field);
    }

    fn add_resource_fields(&mut self, metadata: &Json) {
        let text = |max| Declaration::new(DeclaredKind::String, max, 2);
        let name = |field: &str, max: u64| {
            let declared = limit(&metadata[field], "maxLength").unwrap_or(max);
            text(declared.min(max) * 4)
        };
        self.add("kind", Arc::new(text(MAX_REQUEST_BYTES - 2)));
        self.add("apiVersion", Arc::new(text(MAX_REQUEST_BYTES - 2)));
        let fields = vec![
            ("name", name("name", MAX_NAME_CHARS)),
            ("generateName", name("generateName", MAX_NAME_CHARS - 1)),
        ];
        self.add("metadata", Arc::new(Declaration::object(fields)));
    }
}

/// A declared limit; a negative one is zero.
pub(crate) fn limit(schema: &Json, name: &str) -> Option<u64> {
    let limit = &schema[name];
    limit
        .as_u64()
        .or_else(|| limit.as_i64().map(|_| 0))
        .or_else(|| limit.as_f64().map(|max| max.max(0.0) as u64))
}
