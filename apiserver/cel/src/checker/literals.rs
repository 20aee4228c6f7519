//! Checks the types of list, map and object literals.

use std::sync::Arc;

use super::Checker;
use crate::node::{Node, NodeKind};
use crate::syntax::{Expr, ExprKind, Literal, MapEntry, Position};
use crate::types::Type;

/// The type of one operation of a JSON patch.
const JSON_PATCH: &str = "JSONPatch";
const OBJECT: &str = "Object";

/// The type of a field of a type that expressions construct; `None` if it has no such field.
/// Objects have all fields: their values are checked when they are merged.
pub(super) fn struct_field_type(type_name: &str, field: &str) -> Option<Type> {
    match (type_name, field) {
        (JSON_PATCH, "op" | "path" | "from") => Some(Type::String),
        (JSON_PATCH, "value") => Some(Type::Dyn),
        (JSON_PATCH, _) => None,
        _ => Some(Type::Dyn),
    }
}

fn is_patch_type(name: &str) -> bool {
    let part = name.strip_prefix(OBJECT);
    name == JSON_PATCH || part.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Checker<'_> {
    /// The type of elements of which the one before had `joined`; all must be of one type.
    fn join(&mut self, at: Position, joined: Option<Type>, next: &Type) -> Type {
        let Some(joined) = joined else {
            return next.clone();
        };
        if self.substitutions.is_assignable(&joined, next) {
            let general = self.resolved(&joined);
            return if matches!(general, Type::Null) {
                next.clone()
            } else {
                general
            };
        }
        let (joined, next) = (self.resolved(&joined), self.resolved(next));
        self.error(at, format!("expected type '{joined}' but found '{next}'"));
        joined
    }

    /// The type of an element, which is that of the value of an optional one.
    fn element_type(&mut self, node: &Node, optional: bool) -> Type {
        match self.resolved(&node.ty) {
            Type::Optional(inner) if optional => (*inner).clone(),
            Type::Dyn if optional => Type::Dyn,
            other if optional => {
                let why = format!("expected type 'optional_type({other})' but found '{other}'");
                self.error(node.at, why);
                Type::Dyn
            }
            other => other,
        }
    }

    pub(super) fn check_list(&mut self, at: Position, elements: &[(Expr, bool)]) -> Node {
        let mut joined = None;
        let mut nodes = Vec::with_capacity(elements.len());
        for (element, optional) in elements {
            let node = self.check(element);
            let ty = self.element_type(&node, *optional);
            joined = Some(self.join(node.at, joined, &ty));
            nodes.push((node, *optional));
        }
        let element = joined.unwrap_or_else(|| self.substitutions.fresh());
        Node {
            at,
            ty: Type::list(element),
            kind: NodeKind::List(nodes),
        }
    }

    pub(super) fn check_map(&mut self, at: Position, entries: &[MapEntry]) -> Node {
        let (mut key_type, mut value_type) = (None, None);
        let mut nodes = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = self.check(&entry.key);
            let value = self.check(&entry.value);
            let ty = self.element_type(&value, entry.optional);
            key_type = Some(self.join(key.at, key_type, &key.ty));
            value_type = Some(self.join(value.at, value_type, &ty));
            nodes.push((key, value, entry.optional));
        }
        let key = key_type.unwrap_or_else(|| self.substitutions.fresh());
        let value = value_type.unwrap_or_else(|| self.substitutions.fresh());
        Node {
            at,
            ty: Type::map(key, value),
            kind: NodeKind::Map(nodes),
        }
    }

    pub(super) fn check_struct(&mut self, at: Position, name: &str, entries: &[MapEntry]) -> Node {
        if !self.environment.has_patch_types() || !is_patch_type(name) {
            return self.undeclared(at, name);
        }
        let mut fields = Vec::with_capacity(entries.len());
        for entry in entries {
            let value = self.check(&entry.value);
            let ExprKind::Literal(Literal::String(field)) = &entry.key.kind else {
                continue;
            };
            let found = self.element_type(&value, entry.optional);
            match struct_field_type(name, field) {
                None => self.error(entry.key.at, format!("undefined field '{field}'")),
                Some(wanted) if !self.substitutions.is_assignable(&found, &wanted) => {
                    let found = self.resolved(&found);
                    let why = format!(
                        "expected type of field '{field}' is '{wanted}' but provided type is '{found}'"
                    );
                    self.error(entry.key.at, why);
                }
                Some(_) => {}
            }
            fields.push((field.clone(), value, entry.optional));
        }
        Node {
            at,
            ty: Type::Struct(Arc::from(name)),
            kind: NodeKind::Struct {
                type_name: name.to_owned(),
                fields,
            },
        }
    }
}
