//! Determines from the schema how a value is merged: as a scalar, a list or a map.
//!
//! Rules of `kube-openapi/pkg/schemaconv` and of `structured-merge-diff/schema`. Where no
//! schema says more, the type is deduced from the value: maps are granular, lists atomic.

use openapi::{ListType, Schema, SchemaCursor, SchemaDefinition, SchemaType};
use serde_json::{Map, Value};

/// The type of a value, resolved one level at a time.
#[derive(Clone, Copy, Debug)]
pub enum FieldType<'s> {
    /// As the schema declares it.
    Declared {
        cursor: SchemaCursor<'s>,
        /// Whether an object around it preserves unknown fields, here as well.
        preserve_unknown: bool,
    },
    /// Any value: maps are granular, lists atomic.
    Deduced,
    /// Any value, owned as a whole.
    Atomic,
}

/// A type of one value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ResolvedType<'s> {
    Scalar(ScalarType),
    List(ListMerge<'s>),
    Map(MapMerge<'s>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarType {
    Numeric,
    String,
    Boolean,
    Untyped,
}

/// How a list is merged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListMerge<'s> {
    pub(crate) identity: ListIdentity<'s>,
    pub(crate) item: FieldType<'s>,
}

/// The identity of an item of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListIdentity<'s> {
    /// The list is owned as a whole.
    Atomic,
    /// Its value.
    Value,
    /// Some of its fields.
    Keys(&'s [Box<str>]),
}

/// How an object or map is merged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapMerge<'s> {
    pub(crate) is_atomic: bool,
    definition: Option<(&'s SchemaDefinition, SchemaCursor<'s>)>,
    preserve_unknown: bool,
    /// The type of fields without declaration; `None` if there may be none.
    pub(crate) element: Option<FieldType<'s>>,
}

impl<'s> FieldType<'s> {
    /// The type of objects with a schema.
    pub fn of_schema(schema: &'s Schema) -> Self {
        Self::of_cursor(schema.root(), false)
    }

    fn of_cursor(cursor: SchemaCursor<'s>, preserve_unknown: bool) -> Self {
        match cursor.ty() {
            SchemaType::Any if !is_partly_typed(cursor) => Self::Deduced,
            _ => Self::Declared {
                cursor,
                preserve_unknown,
            },
        }
    }

    /// Whether values of different types are allowed here.
    pub(crate) fn is_untyped(self) -> bool {
        match self {
            Self::Declared { cursor, .. } => cursor.node().untyped.is_some(),
            Self::Deduced | Self::Atomic => true,
        }
    }

    /// The type for a value. An absent value of any type counts as a map.
    pub(crate) fn resolve(self, value: Option<&Value>) -> ResolvedType<'s> {
        match self {
            Self::Declared {
                cursor,
                preserve_unknown,
            } if cursor.node().untyped.is_some() => resolve_parts(cursor, preserve_unknown, value),
            Self::Declared {
                cursor,
                preserve_unknown,
            } => resolve_declared(cursor, preserve_unknown),
            Self::Deduced => resolve_untyped(value, false),
            Self::Atomic => resolve_untyped(value, true),
        }
    }

    /// The default of a field of this type.
    pub(crate) fn field_default(self, name: &str) -> Option<&'s Value> {
        match self {
            Self::Declared { cursor, .. } => cursor.field(name)?.default(),
            _ => None,
        }
    }
}

fn resolve_untyped<'s>(value: Option<&Value>, is_atomic: bool) -> ResolvedType<'s> {
    let element = match is_atomic {
        true => FieldType::Atomic,
        false => FieldType::Deduced,
    };
    match value {
        Some(Value::Array(_)) => ResolvedType::List(ListMerge {
            identity: ListIdentity::Atomic,
            item: FieldType::Atomic,
        }),
        None | Some(Value::Object(_) | Value::Null) => ResolvedType::Map(MapMerge {
            is_atomic,
            definition: None,
            preserve_unknown: false,
            element: Some(element),
        }),
        Some(_) => ResolvedType::Scalar(ScalarType::Untyped),
    }
}

/// Resolves a schema without a declared type that says more about values of some types.
fn resolve_parts<'s>(
    cursor: SchemaCursor<'s>,
    preserve_unknown: bool,
    value: Option<&Value>,
) -> ResolvedType<'s> {
    let object = Value::Object(Map::new());
    let part = cursor.for_value(value.filter(|value| !value.is_null()).unwrap_or(&object));
    match part.ty() {
        SchemaType::Any | SchemaType::IntOrString => resolve_untyped(value, false),
        _ => resolve_declared(part, preserve_unknown),
    }
}

fn is_partly_typed(cursor: SchemaCursor<'_>) -> bool {
    let parts = cursor.node().untyped.as_ref();
    parts.is_some_and(|parts| parts.object.is_some() || parts.array.is_some())
}

fn resolve_declared(cursor: SchemaCursor<'_>, preserve_unknown: bool) -> ResolvedType<'_> {
    let preserve_unknown = preserve_unknown || cursor.node().preserve_unknown;
    match cursor.ty() {
        SchemaType::Int32 | SchemaType::Int64 | SchemaType::Number => {
            ResolvedType::Scalar(ScalarType::Numeric)
        }
        SchemaType::String if cursor.node().format.is_empty() => {
            ResolvedType::Scalar(ScalarType::String)
        }
        SchemaType::Bytes => ResolvedType::Scalar(ScalarType::String),
        SchemaType::Bool => ResolvedType::Scalar(ScalarType::Boolean),
        SchemaType::String
        | SchemaType::Quantity
        | SchemaType::IntOrString
        | SchemaType::Time
        | SchemaType::MicroTime
        | SchemaType::Duration => ResolvedType::Scalar(ScalarType::Untyped),
        SchemaType::Array(_) => ResolvedType::List(ListMerge {
            identity: list_identity(cursor),
            item: cursor.item().map_or(FieldType::Atomic, |c| {
                FieldType::of_cursor(c, preserve_unknown)
            }),
        }),
        SchemaType::Map(_) => ResolvedType::Map(MapMerge {
            is_atomic: cursor.is_atomic(),
            definition: None,
            preserve_unknown,
            // A map has the same type for all keys.
            element: cursor
                .field("")
                .map(|c| FieldType::of_cursor(c, preserve_unknown)),
        }),
        SchemaType::Any | SchemaType::Object => ResolvedType::Map(MapMerge {
            is_atomic: cursor.is_atomic(),
            definition: None,
            preserve_unknown: true,
            element: Some(FieldType::Deduced),
        }),
        SchemaType::Ref(_) => resolve_object(cursor, preserve_unknown),
    }
}

fn resolve_object(cursor: SchemaCursor<'_>, preserve_unknown: bool) -> ResolvedType<'_> {
    let definition = cursor.definition();
    let preserve_unknown = preserve_unknown || cursor.preserves_unknown_fields();
    // An object without declared fields is free of form.
    let is_free_form = definition.is_none_or(|d| d.fields.is_empty());
    ResolvedType::Map(MapMerge {
        is_atomic: cursor.is_atomic(),
        definition: definition.map(|d| (d, cursor)),
        preserve_unknown,
        element: (preserve_unknown || is_free_form).then_some(FieldType::Deduced),
    })
}

/// The declared list type; for a list of Kubernetes' own kinds without one, the strategy of
/// strategic merge patches.
fn list_identity(cursor: SchemaCursor<'_>) -> ListIdentity<'_> {
    let patch = cursor.patch_strategy();
    match cursor.list_type() {
        ListType::Map(keys) => ListIdentity::Keys(keys),
        ListType::Set => ListIdentity::Value,
        ListType::Unset if patch.merge && !patch.merge_key.is_empty() => {
            ListIdentity::Keys(std::slice::from_ref(&patch.merge_key))
        }
        ListType::Unset if patch.merge => ListIdentity::Value,
        ListType::Unset | ListType::Atomic => ListIdentity::Atomic,
    }
}

impl<'s> MapMerge<'s> {
    /// Whether a field is declared by name.
    pub(crate) fn declares(&self, name: &str) -> bool {
        self.definition
            .is_some_and(|(d, _)| d.field(name).is_some())
    }

    /// Whether nothing is declared, so that all types below are deduced.
    pub(crate) fn is_deduced(&self) -> bool {
        self.definition.is_none_or(|(d, _)| d.fields.is_empty())
            && matches!(self.element, Some(FieldType::Deduced))
    }

    /// The type of a field; `None` if the schema allows no such field.
    pub(crate) fn field(&self, name: &str) -> Option<FieldType<'s>> {
        let declared = self.definition.and_then(|(d, cursor)| {
            let field = cursor.field(name)?;
            // `runtime.RawExtension` of Kubernetes' own kinds is owned as a whole.
            if d.native && *field.ty() == SchemaType::Object {
                return Some(FieldType::Atomic);
            }
            // The types of metadata are shared, and know all their fields.
            let is_shared = field.definition().is_some_and(|d| d.native);
            Some(FieldType::of_cursor(
                field,
                self.preserve_unknown && !is_shared,
            ))
        });
        declared.or(self.element)
    }

    /// As [`Self::field`]; what the schema does not know is deduced.
    pub(crate) fn field_or_deduced(&self, name: &str) -> FieldType<'s> {
        self.field(name).unwrap_or(FieldType::Deduced)
    }
}
