//! The syntax tree. Macros are gone from it: they have become comprehensions.

use super::{MAX_DEPTH, MAX_NODES, Position, SyntaxError};

/// An expression with its position, and the depth and size of the tree below it.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) position: Position,
    depth: u16,
    nodes: u32,
    pub(crate) kind: ExprKind,
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    Literal(Literal),
    Identifier(String),
    /// `operand.field`, or `has(operand.field)` with `test`.
    Select {
        operand: Box<Expr>,
        field: String,
        test: bool,
    },
    Call {
        function: String,
        target: Option<Box<Expr>>,
        arguments: Vec<Expr>,
    },
    /// Elements, each with whether it is optional (`?element`).
    List(Vec<(Expr, bool)>),
    Map(Vec<MapEntry>),
    /// A message literal `Name{field: value}`; the key of an entry is the field's name.
    Struct {
        name: String,
        entries: Vec<MapEntry>,
    },
    Comprehension(Box<Comprehension>),
}

#[derive(Clone, Debug)]
pub(crate) struct MapEntry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A loop over a list or map: `accumulator` begins as `init` and becomes `step` for each
/// element while `condition` holds; `result` is its value.
#[derive(Clone, Debug)]
pub(crate) struct Comprehension {
    pub(crate) range: Expr,
    pub(crate) variable: String,
    pub(crate) second_variable: Option<String>,
    pub(crate) accumulator: String,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

impl Expr {
    /// Fails when the tree would be deeper than [`MAX_DEPTH`] or larger than [`MAX_NODES`].
    pub(crate) fn new(position: Position, kind: ExprKind) -> Result<Self, SyntaxError> {
        let (mut depth, mut nodes) = (1, 1u32);
        kind.for_each_child(|child| {
            depth = depth.max(child.depth + 1);
            nodes = nodes.saturating_add(child.nodes);
        });
        if depth > MAX_DEPTH {
            let message = format!("expression recursion limit exceeded: {MAX_DEPTH}");
            return Err(SyntaxError::new(position, message));
        }
        if nodes > MAX_NODES {
            let message = format!("expression node limit exceeded: {MAX_NODES}");
            return Err(SyntaxError::new(position, message));
        }
        let expr = Self {
            position,
            depth,
            nodes,
            kind,
        };
        Ok(expr)
    }

    /// How deep the tree is.
    pub(crate) fn depth(&self) -> u16 {
        self.depth
    }

    pub(crate) fn call(
        position: Position,
        function: &str,
        arguments: Vec<Self>,
    ) -> Result<Self, SyntaxError> {
        let function = function.to_owned();
        let kind = ExprKind::Call {
            function,
            target: None,
            arguments,
        };
        Self::new(position, kind)
    }

    pub(crate) fn literal(position: Position, literal: Literal) -> Self {
        Self::leaf(position, ExprKind::Literal(literal))
    }

    pub(crate) fn identifier(position: Position, name: &str) -> Self {
        Self::leaf(position, ExprKind::Identifier(name.to_owned()))
    }

    fn leaf(position: Position, kind: ExprKind) -> Self {
        Self {
            position,
            depth: 1,
            nodes: 1,
            kind,
        }
    }
}

impl ExprKind {
    fn for_each_child(&self, mut visit: impl FnMut(&Expr)) {
        match self {
            Self::Literal(_) | Self::Identifier(_) => {}
            Self::Select { operand, .. } => visit(operand),
            Self::Call {
                target, arguments, ..
            } => {
                target.iter().for_each(|t| visit(t));
                arguments.iter().for_each(visit);
            }
            Self::List(elements) => elements.iter().for_each(|(e, _)| visit(e)),
            Self::Map(entries) | Self::Struct { entries, .. } => {
                for entry in entries {
                    visit(&entry.key);
                    visit(&entry.value);
                }
            }
            Self::Comprehension(c) => {
                let parts = [&c.range, &c.init, &c.condition, &c.step, &c.result];
                parts.into_iter().for_each(visit);
            }
        }
    }
}
