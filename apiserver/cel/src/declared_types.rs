//! The CEL types of declared values.

use std::sync::Arc;

use crate::declarations::{Declaration, DeclaredKind};
use crate::types::Type;

impl Declaration {
    pub(crate) fn cel_type(&self) -> Type {
        match &self.kind {
            DeclaredKind::Any | DeclaredKind::IntOrString => Type::Dyn,
            DeclaredKind::Bool => Type::Bool,
            DeclaredKind::Int => Type::Int,
            DeclaredKind::Double => Type::Double,
            DeclaredKind::String => Type::String,
            DeclaredKind::Bytes => Type::Bytes,
            DeclaredKind::Duration => Type::Duration,
            DeclaredKind::Timestamp => Type::Timestamp,
            DeclaredKind::List { element, .. } => Type::list(element.cel_type()),
            DeclaredKind::Map(value) => Type::map(Type::String, value.cel_type()),
            DeclaredKind::Object(object) => Type::Object(Arc::clone(object)),
            DeclaredKind::Opaque(name) => Type::Opaque(name),
        }
    }
}
