//! A checked expression: every name is resolved, every node has a type.

use crate::overloads::Overload;
use crate::syntax::{Literal, Position};
use crate::types::Type;

pub(crate) struct Node {
    pub(crate) position: Position,
    pub(crate) ty: Type,
    pub(crate) kind: NodeKind,
}

pub(crate) enum NodeKind {
    Literal(Literal),
    /// A type as a value, by its name.
    Type(&'static str),
    /// A variable of the environment, by its number.
    Variable(usize),
    /// A variable of a comprehension, by its slot.
    Local(usize),
    Select {
        operand: Box<Node>,
        field: String,
    },
    /// `has(operand.field)`
    Test {
        operand: Box<Node>,
        field: String,
    },
    /// `operand.?field`
    OptionalSelect {
        operand: Box<Node>,
        field: String,
    },
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Conditional(Box<[Node; 3]>),
    /// Whether the operand is anything but false; an error counts as true.
    NotStrictlyFalse(Box<Node>),
    Call(Call),
    /// Elements, each with whether it is optional.
    List(Vec<(Node, bool)>),
    /// Keys, values, and whether they are optional.
    Map(Vec<(Node, Node, bool)>),
    /// A typed object: its fields, their values, and whether they are optional.
    Struct {
        type_name: String,
        fields: Vec<(String, Node, bool)>,
    },
    Comprehension(Box<CheckedComprehension>),
}

pub(crate) struct Call {
    pub(crate) function: String,
    /// The overloads that fit the static types; values decide which one is called.
    pub(crate) overloads: Vec<&'static Overload>,
    /// Whether the first argument is the receiver.
    pub(crate) receiver: bool,
    pub(crate) arguments: Vec<Node>,
    /// The slot of the macro's accumulator when the call only adds to it: it is changed in
    /// place.
    pub(crate) grows: Option<usize>,
}

pub(crate) struct CheckedComprehension {
    pub(crate) range: Node,
    pub(crate) variable: usize,
    pub(crate) second_variable: Option<usize>,
    pub(crate) accumulator: usize,
    pub(crate) init: Node,
    pub(crate) condition: Node,
    pub(crate) step: Node,
    pub(crate) result: Node,
    /// Whether this only binds a variable, as `optMap` does.
    pub(crate) binds: bool,
}

impl Node {
    /// Visits the nodes directly below.
    pub(crate) fn for_each_child_mut(&mut self, visit: &mut dyn FnMut(&mut Self)) {
        match &mut self.kind {
            NodeKind::Literal(_)
            | NodeKind::Type(_)
            | NodeKind::Variable(_)
            | NodeKind::Local(_) => {}
            NodeKind::Select { operand, .. }
            | NodeKind::Test { operand, .. }
            | NodeKind::OptionalSelect { operand, .. }
            | NodeKind::NotStrictlyFalse(operand) => visit(operand),
            NodeKind::And(operands) | NodeKind::Or(operands) => operands.iter_mut().for_each(visit),
            NodeKind::Conditional(operands) => operands.iter_mut().for_each(visit),
            NodeKind::Call(call) => call.arguments.iter_mut().for_each(visit),
            NodeKind::List(elements) => elements.iter_mut().for_each(|(e, _)| visit(e)),
            NodeKind::Map(entries) => {
                for (key, value, _) in entries {
                    visit(key);
                    visit(value);
                }
            }
            NodeKind::Struct { fields, .. } => fields.iter_mut().for_each(|(_, v, _)| visit(v)),
            NodeKind::Comprehension(c) => {
                for part in [
                    &mut c.range,
                    &mut c.init,
                    &mut c.condition,
                    &mut c.step,
                    &mut c.result,
                ] {
                    visit(part);
                }
            }
        }
    }
}
