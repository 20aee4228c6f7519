//! CEL's types, and when a value of one may stand where another is expected
//! (`cel-go/checker/types.go`).

use std::fmt;
use std::sync::Arc;

use crate::declarations::ObjectDeclaration;

/// The type of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    /// The type of types, as of `type(x)`.
    Meta,
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    Optional(Arc<Type>),
    /// An object with declared fields.
    Object(Arc<ObjectDeclaration>),
    /// An object that an expression constructs, by the name of its type: `JSONPatch`,
    /// `Object.spec`.
    Struct(Arc<str>),
    /// A type of a library, which only its functions can look into.
    Opaque(&'static str),
    /// A type that is not yet known, by its number in the [`Substitutions`].
    Parameter(usize),
}

impl Type {
    pub(crate) fn list(element: Self) -> Self {
        Self::List(Arc::new(element))
    }

    pub(crate) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    pub(crate) fn optional(value: Self) -> Self {
        Self::Optional(Arc::new(value))
    }

    /// Whether null may stand for a value of this type.
    fn is_nullable(&self) -> bool {
        matches!(
            self,
            Self::Null
                | Self::Dyn
                | Self::Object(_)
                | Self::Struct(_)
                | Self::Timestamp
                | Self::Duration
                | Self::Opaque(_)
                | Self::Optional(_)
        )
    }

    /// Whether both are the same type, with parameters being equal only to themselves.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.is_same(b),
            (Self::Map(a, b), Self::Map(c, d)) => a.is_same(c) && b.is_same(d),
            (Self::Object(a), Self::Object(b)) => Arc::ptr_eq(a, b),
            (Self::Opaque(a), Self::Opaque(b)) => a == b,
            (Self::Struct(a), Self::Struct(b)) => a == b,
            (Self::Parameter(a), Self::Parameter(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// Whether every value of the type has the same size.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool
            | Self::Double
            | Self::Duration
            | Self::Int
            | Self::Timestamp
            | Self::Uint => true,
            Self::Optional(value) => value.is_scalar(),
            _ => false,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn | Self::Parameter(_) => f.write_str("dyn"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Duration => f.write_str("duration"),
            Self::Meta => f.write_str("type"),
            Self::List(element) => write!(f, "list({element})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(value) => write!(f, "optional_type({value})"),
            Self::Object(object) if !object.type_name.is_empty() => f.write_str(object.type_name),
            Self::Object(_) => f.write_str("object"),
            Self::Struct(name) => f.write_str(name),
            Self::Opaque(name) => f.write_str(name),
        }
    }
}

/// The facts about the type parameters of one expression, by their number.
#[derive(Debug, Default)]
pub(crate) struct Substitutions {
    types: Vec<Option<Type>>,
    /// The values of parameters before each change, to undo a comparison that failed.
    trail: Vec<(usize, Option<Type>)>,
}

impl Substitutions {
    /// A parameter of which nothing is known.
    pub(crate) fn fresh(&mut self) -> Type {
        self.types.push(None);
        Type::Parameter(self.types.len() - 1)
    }

    fn find(&self, parameter: usize) -> Option<&Type> {
        self.types.get(parameter)?.as_ref()
    }

    /// The type with all known parameters replaced; unknown ones become `dyn` if `finally`.
    pub(crate) fn apply(&self, ty: &Type, finally: bool) -> Type {
        match ty {
            Type::Parameter(p) => match self.find(*p) {
                Some(substituted) => self.apply(substituted, finally),
                None if finally => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(element) => Type::list(self.apply(element, finally)),
            Type::Optional(value) => Type::optional(self.apply(value, finally)),
            Type::Map(key, value) => {
                Type::map(self.apply(key, finally), self.apply(value, finally))
            }
            other => other.clone(),
        }
    }

    /// Whether values of `from` are accepted where `to` is expected. What the answer implies
    /// of parameters is remembered if it is yes.
    pub(crate) fn is_assignable(&mut self, from: &Type, to: &Type) -> bool {
        let mark = self.mark();
        let assignable = self.unify(from, to);
        if !assignable {
            self.undo(mark);
        }
        assignable
    }

    /// A point to which [`Self::undo`] returns.
    pub(crate) fn mark(&self) -> usize {
        self.trail.len()
    }

    /// Forgets what was learned since the mark.
    pub(crate) fn undo(&mut self, mark: usize) {
        for (parameter, before) in self.trail.drain(mark..).rev() {
            self.types[parameter] = before;
        }
    }

    fn unify(&mut self, a: &Type, b: &Type) -> bool {
        if let Type::Parameter(p) = b {
            let substituted = self.find(*p).cloned();
            if self.substitute(a, *p, substituted.as_ref()) {
                return true;
            }
            if substituted.is_some() {
                return false;
            }
        }
        if let Type::Parameter(p) = a {
            let substituted = self.find(*p).cloned();
            return self.substitute(b, *p, substituted.as_ref());
        }
        match (a, b) {
            (Type::Dyn, _) | (_, Type::Dyn) => true,
            (Type::Null, other) | (other, Type::Null) => other.is_nullable(),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
                self.unify(a, b)
            }
            (Type::Map(a, b), Type::Map(c, d)) => self.unify(a, c) && self.unify(b, d),
            _ => a.is_same(b),
        }
    }

    /// Whether `parameter`, which `substituted` stands for so far, may stand for `ty`.
    fn substitute(&mut self, ty: &Type, parameter: usize, substituted: Option<&Type>) -> bool {
        if matches!(ty, Type::Parameter(p) if *p == parameter) {
            return true;
        }
        let Some(substituted) = substituted else {
            if self.occurs(parameter, ty) {
                return false;
            }
            self.set(parameter, ty);
            return true;
        };
        if !self.unify(ty, substituted) {
            return false;
        }
        // The more general type of both: dyn absorbs all others.
        if self.is_more_general(ty, substituted) {
            self.set(parameter, ty);
        }
        true
    }

    fn set(&mut self, parameter: usize, ty: &Type) {
        let before = self.types[parameter].replace(ty.clone());
        self.trail.push((parameter, before));
    }

    fn is_more_general(&self, a: &Type, b: &Type) -> bool {
        match (self.apply(a, false), self.apply(b, false)) {
            (Type::Dyn, b) => !matches!(b, Type::Dyn),
            // A type that null may stand for is more general than null.
            (a, Type::Null) => !matches!(a, Type::Null),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
                self.is_more_general(&a, &b)
            }
            (Type::Map(a, b), Type::Map(c, d)) => {
                self.is_more_general(&a, &c) || self.is_more_general(&b, &d)
            }
            _ => false,
        }
    }

    fn occurs(&self, parameter: usize, ty: &Type) -> bool {
        match ty {
            Type::Parameter(p) => {
                *p == parameter || self.find(*p).is_some_and(|t| self.occurs(parameter, t))
            }
            Type::List(inner) | Type::Optional(inner) => self.occurs(parameter, inner),
            Type::Map(key, value) => self.occurs(parameter, key) || self.occurs(parameter, value),
            _ => false,
        }
    }
}
