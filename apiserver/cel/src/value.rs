//! The values of expressions. Lists and maps of a JSON object are borrowed from it.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;
use machinery::Quantity;
use serde_json::{Map as JsonMap, Value as Json};

use crate::authorization::{AuthorizationDecision, CheckedTarget, CheckedUser};
use crate::declarations::{Declaration, DeclaredListType, ObjectDeclaration};
use crate::error::EvalError;
use crate::named_format::NamedFormat;
use crate::semantic_version::Semver;
use crate::url_value::Url;

pub(crate) const AUTHORIZER_TYPE: &str = "kubernetes.authorization.Authorizer";
pub(crate) const RESOURCE_CHECK_TYPE: &str = "kubernetes.authorization.ResourceCheck";

pub(crate) type EvaluationResult<'a, T = Value<'a>> = Result<T, EvalError>;

#[derive(Clone, Debug)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Rc<[u8]>),
    Timestamp(Timestamp),
    /// In nanoseconds.
    Duration(i64),
    Type(&'static str),
    List(List<'a>),
    Map(Map<'a>),
    Optional(Option<Rc<Value<'a>>>),
    Opaque(Rc<Opaque>),
}

/// A string: of the object or the program, or one that the expression made.
#[derive(Clone, Debug)]
pub(crate) enum Text<'a> {
    Borrowed(&'a str),
    Owned(Rc<str>),
}

/// Values that only functions of their library look into.
#[derive(Debug, PartialEq)]
pub(crate) enum Opaque {
    Url(Url),
    Quantity(Quantity),
    Ip(IpAddr),
    Cidr(IpAddr, u8),
    Semver(Semver),
    Format(NamedFormat),
    /// Checks the rights of a user.
    Authorizer(CheckedUser),
    GroupCheck(CheckedUser, String),
    TargetCheck(CheckedUser, CheckedTarget),
    Decision(AuthorizationDecision),
}

#[derive(Clone, Debug)]
pub(crate) enum List<'a> {
    Json {
        items: &'a [Json],
        element: &'a Declaration,
        list_type: &'a DeclaredListType,
    },
    Owned(Rc<Vec<Value<'a>>>),
    /// A list that was combined from lists with a list type, and keeps it.
    Typed(Rc<Vec<Value<'a>>>, &'a DeclaredListType),
}

#[derive(Clone, Debug)]
pub(crate) enum Map<'a> {
    Json {
        entries: &'a JsonMap<String, Json>,
        value: &'a Declaration,
    },
    Object {
        entries: &'a JsonMap<String, Json>,
        object: &'a Arc<ObjectDeclaration>,
    },
    Owned(Rc<OwnedMap<'a>>),
    /// An object that an expression constructed, with the name of its type.
    Constructed {
        type_name: &'a str,
        fields: Rc<OwnedMap<'a>>,
    },
}

/// A map that an expression made, in the order of its entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnedMap<'a> {
    entries: Vec<(Value<'a>, Value<'a>)>,
    index: HashMap<MapKey, usize>,
}

/// A map's key. Numbers of any type are equal when their amounts are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum MapKey {
    Bool(bool),
    Number(i128),
    String(Box<str>),
}

impl MapKey {
    fn of(value: &Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Bool(b) => Self::Bool(*b),
            Value::Int(n) => Self::Number(i128::from(*n)),
            Value::Uint(n) => Self::Number(i128::from(*n)),
            Value::Double(n) if n.fract() == 0.0 && n.abs() < 1e19 => Self::Number(*n as i128),
            Value::String(text) => Self::String(text.as_str().into()),
            _ => return None,
        })
    }

    /// The key in an error message.
    fn describe(&self) -> String {
        match self {
            Self::Bool(b) => b.to_string(),
            Self::Number(n) => n.to_string(),
            Self::String(text) => text.to_string(),
        }
    }
}

impl<'a> OwnedMap<'a> {
    /// Adds an entry; an error when the key exists or cannot be a key.
    pub(crate) fn insert(&mut self, key: Value<'a>, value: Value<'a>) -> EvaluationResult<'a, ()> {
        if matches!(key, Value::Double(_)) {
            return Err(EvalError::new("unsupported key type"));
        }
        let index = MapKey::of(&key).ok_or_else(|| EvalError::new("unsupported key type"))?;
        if self.index.contains_key(&index) {
            let text = index.describe();
            return Err(EvalError::new(format!(
                "insert failed: key {text} already exists"
            )));
        }
        self.index.insert(index, self.entries.len());
        self.entries.push((key, value));
        Ok(())
    }

    pub(crate) fn entries(&self) -> &[(Value<'a>, Value<'a>)] {
        &self.entries
    }

    pub(crate) fn get(&self, key: &Value<'a>) -> Option<&Value<'a>> {
        let index = self.index.get(&MapKey::of(key)?)?;
        self.entries.get(*index).map(|(_, value)| value)
    }
}

impl<'a> Text<'a> {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Owned(text) => text,
        }
    }
}

impl<'a> Value<'a> {
    pub(crate) fn string(text: impl Into<Rc<str>>) -> Self {
        Self::String(Text::Owned(text.into()))
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        Self::List(List::Owned(Rc::new(items)))
    }

    pub(crate) fn optional(value: Option<Self>) -> Self {
        Self::Optional(value.map(Rc::new))
    }

    pub(crate) fn opaque(value: Opaque) -> Self {
        Self::Opaque(Rc::new(value))
    }

    /// The name of the value's type, as `type()` returns it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Type(_) => "type",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Opaque(value) => value.type_name(),
        }
    }

    /// The result of `size()`; `None` for values without a size.
    pub(crate) fn size(&self) -> Option<u64> {
        Some(match self {
            Self::String(text) => text.as_str().chars().count() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(list) => list.len() as u64,
            Self::Map(map) => map.len() as u64,
            _ => return None,
        })
    }

    /// Whether this is the zero of its type, for `optional.ofNonZeroValue`.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null | Self::Optional(None) => true,
            Self::Bool(b) => !b,
            Self::Int(n) | Self::Duration(n) => *n == 0,
            Self::Uint(n) => *n == 0,
            Self::Double(n) => *n == 0.0,
            Self::String(_) | Self::Bytes(_) | Self::List(_) | Self::Map(_) => {
                self.size() == Some(0)
            }
            _ => false,
        }
    }

    /// The order of two values of one type, or of two numbers.
    pub(crate) fn compare(&self, other: &Self) -> EvaluationResult<'a, Ordering> {
        if let Some(order) = compare_numbers(self, other) {
            return order.ok_or_else(|| EvalError::new("NaN values cannot be ordered"));
        }
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Ok(a.cmp(b)),
            (Self::String(a), Self::String(b)) => Ok(a.as_str().cmp(b.as_str())),
            (Self::Bytes(a), Self::Bytes(b)) => Ok(a.cmp(b)),
            (Self::Timestamp(a), Self::Timestamp(b)) => Ok(a.cmp(b)),
            (Self::Duration(a), Self::Duration(b)) => Ok(a.cmp(b)),
            _ => Err(EvalError::NoSuchOverload),
        }
    }
}

impl Opaque {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Url(_) => "kubernetes.URL",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authorizer(_) => AUTHORIZER_TYPE,
            Self::GroupCheck(..) => "kubernetes.authorization.GroupCheck",
            Self::TargetCheck(_, CheckedTarget::Path(_)) => "kubernetes.authorization.PathCheck",
            Self::TargetCheck(_, CheckedTarget::Resource(_)) => RESOURCE_CHECK_TYPE,
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}

/// The order of two numbers of any types: the outer `None` when one is no number, the inner
/// when they have no order.
pub(crate) fn compare_numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Option<Ordering>> {
    let to_integer = |value: &Value<'_>| match value {
        Value::Int(n) => Some(i128::from(*n)),
        Value::Uint(n) => Some(i128::from(*n)),
        _ => None,
    };
    let compare_with_double = |to_integer: i128, double: f64| {
        if double.is_nan() {
            return None;
        }
        // Beyond the integers' range, the double decides.
        if double.abs() >= 1e20 {
            return 0.0f64.partial_cmp(&double);
        }
        let order = to_integer.cmp(&(double.trunc() as i128));
        Some(order.then_with(|| 0.0f64.total_cmp(&(double.fract() + 0.0))))
    };
    match (to_integer(a), to_integer(b), a, b) {
        (Some(a), Some(b), ..) => Some(Some(a.cmp(&b))),
        (Some(a), None, _, Value::Double(b)) => Some(compare_with_double(a, *b)),
        (None, Some(b), Value::Double(a), _) => {
            Some(compare_with_double(b, *a).map(Ordering::reverse))
        }
        (None, None, Value::Double(a), Value::Double(b)) => Some(a.partial_cmp(b)),
        _ => None,
    }
}

impl<'a> List<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Json { items, .. } => items.len(),
            Self::Owned(items) | Self::Typed(items, _) => items.len(),
        }
    }

    /// The list type of a list of the object.
    pub(crate) fn list_type(&self) -> Option<&'a DeclaredListType> {
        match self {
            Self::Json { list_type, .. } => Some(list_type),
            Self::Typed(_, list_type) => Some(list_type),
            Self::Owned(_) => None,
        }
    }
}

impl<'a> Map<'a> {
    /// The name of the type of a constructed object.
    pub(crate) fn type_name(&self) -> Option<&'a str> {
        match self {
            Self::Constructed { type_name, .. } => Some(type_name),
            _ => None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Json { entries, .. } => entries.len(),
            Self::Object { entries, object } => entries
                .keys()
                .filter(|k| object.escaped.contains_key(*k))
                .count(),
            Self::Owned(map) | Self::Constructed { fields: map, .. } => map.entries.len(),
        }
    }

    pub(crate) fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Self::Json { entries, .. } => {
                let keys = entries.keys().map(|k| Value::String(Text::Borrowed(k)));
                keys.collect()
            }
            Self::Object { entries, object } => {
                let served_keys = entries.keys().filter_map(|k| object.escaped.get(k));
                served_keys
                    .map(|k| Value::String(Text::Borrowed(k)))
                    .collect()
            }
            Self::Owned(map) | Self::Constructed { fields: map, .. } => {
                map.entries.iter().map(|(key, _)| key.clone()).collect()
            }
        }
    }
}
