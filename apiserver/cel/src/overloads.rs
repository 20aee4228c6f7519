//! The functions that expressions may call, as the checker and the interpreter know them.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::function::{DeclaredOverload, Function};
use crate::library;
use crate::types::{Substitutions, Type};
use crate::value::Value;

/// One way to call a function.
pub(crate) struct Overload {
    /// cel-go's id of the overload, by which its cost is known.
    pub(crate) id: &'static str,
    pub(crate) receiver: bool,
    /// The types of the arguments, the receiver first.
    pub(crate) parameters: Vec<Pattern>,
    result: Pattern,
    pub(crate) call: Function,
}

/// A type in a declaration.
#[derive(Debug, PartialEq)]
pub(crate) enum Pattern {
    Plain(&'static str),
    /// `A` or `B`
    Parameter(u8),
    List(Box<Pattern>),
    Map(Box<Pattern>, Box<Pattern>),
    Optional(Box<Pattern>),
}

/// All overloads by the name of their function.
pub(crate) static FUNCTIONS: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut functions: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    for declared in library::all() {
        if let Some((name, overload)) = Overload::parse(declared) {
            functions.entry(name).or_default().push(overload);
        }
    }
    functions
});

impl Overload {
    fn parse(declared: &DeclaredOverload) -> Option<(&'static str, Self)> {
        let (id, text, call) = *declared;
        let (head, result) = text.rsplit_once(' ')?;
        let open = head.rfind('(').filter(|_| head.ends_with(')'))?;
        // Parameters may have parentheses of their own: list(A).
        let open = matching_parenthesis(head).unwrap_or(open);
        let (name, parameters) = (&head[..open], &head[open + 1..head.len() - 1]);
        let (receiver, name) = match name.split_once(">.") {
            Some((receiver, name)) => (Some(receiver.strip_prefix('<')?), name),
            None => (None, name),
        };
        let mut patterns: Vec<Pattern> = receiver.into_iter().map(Pattern::parse).collect();
        patterns.extend(split_top(parameters).into_iter().map(Pattern::parse));
        let overload = Self {
            id,
            receiver: receiver.is_some(),
            parameters: patterns,
            result: Pattern::parse(result),
            call,
        };
        Some((name, overload))
    }

    /// Whether the values can be its arguments.
    pub(crate) fn accepts(&self, arguments: &[Value<'_>]) -> bool {
        self.parameters.len() == arguments.len()
            && self
                .parameters
                .iter()
                .zip(arguments)
                .all(|(pattern, value)| pattern.accepts(value))
    }

    /// The types of the arguments and of the result, with parameters of their own.
    pub(crate) fn instantiate(&self, substitutions: &mut Substitutions) -> (Vec<Type>, Type) {
        let mut parameters = [const { None }; 2];
        let mut types = Vec::with_capacity(self.parameters.len());
        for pattern in &self.parameters {
            types.push(pattern.to_type(&mut parameters, substitutions));
        }
        let result = self.result.to_type(&mut parameters, substitutions);
        (types, result)
    }
}

/// The index at which the parameters of a declaration begin.
fn matching_parenthesis(head: &str) -> Option<usize> {
    let mut depth = 0;
    for (index, c) in head.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(index);
        }
    }
    None
}

/// Splits at the commas that are not within parentheses.
fn split_top(text: &'static str) -> Vec<&'static str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (index, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[begin..index]);
                begin = index + 1;
            }
            _ => {}
        }
    }
    if begin < text.len() {
        parts.push(&text[begin..]);
    }
    parts
}

impl Pattern {
    fn parse(text: &'static str) -> Self {
        let inner = |prefix: &str| {
            let rest = text.strip_prefix(prefix)?;
            rest.strip_prefix('(')?.strip_suffix(')')
        };
        if let Some(element) = inner("list") {
            return Self::List(Box::new(Self::parse(element)));
        }
        if let Some(value) = inner("optional") {
            return Self::Optional(Box::new(Self::parse(value)));
        }
        if let Some(parts) = inner("map") {
            let parts = split_top(parts);
            if let [key, value] = parts[..] {
                return Self::Map(Box::new(Self::parse(key)), Box::new(Self::parse(value)));
            }
        }
        match text {
            "A" => Self::Parameter(0),
            "B" => Self::Parameter(1),
            other => Self::Plain(other),
        }
    }

    fn accepts(&self, value: &Value<'_>) -> bool {
        match self {
            Self::Parameter(_) => true,
            Self::List(_) => matches!(value, Value::List(_)),
            Self::Map(..) => matches!(value, Value::Map(_)),
            Self::Optional(_) => matches!(value, Value::Optional(_)),
            Self::Plain(name) => plain_type(name, value),
        }
    }

    fn to_type(
        &self,
        parameters: &mut [Option<Type>; 2],
        substitutions: &mut Substitutions,
    ) -> Type {
        match self {
            Self::Parameter(n) => parameters[usize::from(*n)]
                .get_or_insert_with(|| substitutions.fresh())
                .clone(),
            Self::List(element) => Type::list(element.to_type(parameters, substitutions)),
            Self::Optional(value) => Type::optional(value.to_type(parameters, substitutions)),
            Self::Map(key, value) => {
                let key = key.to_type(parameters, substitutions);
                Type::map(key, value.to_type(parameters, substitutions))
            }
            Self::Plain(name) => match *name {
                "bool" => Type::Bool,
                "int" => Type::Int,
                "uint" => Type::Uint,
                "double" => Type::Double,
                "string" => Type::String,
                "bytes" => Type::Bytes,
                "timestamp" => Type::Timestamp,
                "duration" => Type::Duration,
                "type" => Type::Meta,
                "dyn" => Type::Dyn,
                opaque => Type::Opaque(opaque),
            },
        }
    }
}

fn plain_type(name: &str, value: &Value<'_>) -> bool {
    let actual = match value {
        Value::Timestamp(_) => "timestamp",
        Value::Duration(_) => "duration",
        Value::Null | Value::List(_) | Value::Map(_) | Value::Optional(_) => "",
        other => other.type_name(),
    };
    name == "dyn" || name == actual
}
