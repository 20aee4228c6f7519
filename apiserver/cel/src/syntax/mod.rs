//! Parses CEL text into a syntax tree with its macros expanded (`cel-spec/doc/langdef.md`).
//!
//! Depth is bounded while the tree is built, so that no later walk can exhaust a stack.

mod ast;
mod escapes;
mod lexer;
mod macros;
mod parser;

pub(crate) use ast::{Comprehension, Expr, ExprKind, Literal, MapEntry};
pub(crate) use parser::{RESERVED, parse};

/// How many expressions may be nested in one another.
pub(crate) const MAX_DEPTH: u16 = 100;
/// How many expressions one text may consist of once its macros are expanded.
pub(crate) const MAX_NODES: u32 = 200_000;
/// How many characters an expression may have.
pub(crate) const MAX_EXPRESSION_CHARS: usize = 100_000;

/// A position in the text of an expression: the number of characters before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(pub(crate) u32);

/// An error in the text of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) position: Position,
    pub(crate) message: String,
}

impl SyntaxError {
    pub(crate) fn new(position: Position, message: impl Into<String>) -> Self {
        Self {
            position,
            message: message.into(),
        }
    }

    /// The error as cel-go prints it: where, what, and the line with a caret below.
    pub(crate) fn render(&self, source: &str) -> String {
        let (mut line, mut column) = (1, 0);
        for c in source.chars().take(self.position.0 as usize) {
            if c == '\n' {
                (line, column) = (line + 1, 0);
            } else {
                column += 1;
            }
        }
        let message = &self.message;
        let text = source
            .lines()
            .nth(line - 1)
            .unwrap_or("")
            .replace('\t', " ");
        let dots = ".".repeat(column);
        let column_number = column + 1;
        format!("ERROR: <input>:{line}:{column_number}: {message}\n | {text}\n | {dots}^")
    }
}
