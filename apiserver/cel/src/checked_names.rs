//! The checker's knowledge of names and literals: types by their names, the arities of
//! operators, the types that mutations construct.

use crate::syntax::{Expr, ExprKind, Literal};
use crate::types::Type;

/// Names that stand for types, and the names that `type()` returns for them.
pub(crate) const TYPE_NAMES: [&str; 19] = [
    "bool",
    "bytes",
    "double",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
    "optional_type",
    "kubernetes.URL",
    "kubernetes.Quantity",
    "kubernetes.Semver",
    "kubernetes.NamedFormat",
    "net.IP",
    "net.CIDR",
];

/// The type of one operation of a JSON patch.
const JSON_PATCH: &str = "JSONPatch";
const OBJECT: &str = "Object";

/// The type of a field of a type that expressions construct; `None` if it has no such field.
/// Objects have all fields: their values are checked when they are merged.
pub(crate) fn struct_field_type(type_name: &str, field: &str) -> Option<Type> {
    match (type_name, field) {
        (JSON_PATCH, "op" | "path" | "from") => Some(Type::String),
        (JSON_PATCH, "value") => Some(Type::Dyn),
        (JSON_PATCH, _) => None,
        _ => Some(Type::Dyn),
    }
}

pub(crate) fn is_patch_type(name: &str) -> bool {
    let part = name.strip_prefix(OBJECT);
    name == JSON_PATCH || part.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// How many operands an operator takes that does not evaluate all of them.
pub(crate) fn special_arity(function: &str) -> Option<usize> {
    match function {
        "_&&_" | "_||_" => Some(2),
        "_?_:_" => Some(3),
        "@not_strictly_false" => Some(1),
        _ => None,
    }
}

pub(crate) fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

pub(crate) fn qualified_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Identifier(name) => Some(name.clone()),
        ExprKind::Select { operand, field, .. } => {
            Some(format!("{}.{field}", qualified_name(operand)?))
        }
        _ => None,
    }
}
