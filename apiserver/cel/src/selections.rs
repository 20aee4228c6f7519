//! Finds the fields of a variable that an expression names.

use crate::environment::Environment;
use crate::node::{Node, NodeKind};
use crate::program::Program;
use crate::syntax::Literal;

impl Program {
    /// Whether the expression selects a field of a variable, tests for it, or reads it by its
    /// name as an index.
    pub fn selects(&self, environment: &Environment, variable: &str, field: &str) -> bool {
        match environment.find(variable) {
            Some((number, _)) => selects(self.root(), number, field),
            None => false,
        }
    }
}

fn selects(node: &Node, variable: usize, field_name: &str) -> bool {
    let is_variable = |node: &Node| matches!(node.kind, NodeKind::Variable(n) if n == variable);
    match &node.kind {
        NodeKind::Select { operand, field }
        | NodeKind::Test { operand, field }
        | NodeKind::OptionalSelect { operand, field } => {
            (field == field_name && is_variable(operand)) || selects(operand, variable, field_name)
        }
        NodeKind::NotStrictlyFalse(operand) => selects(operand, variable, field_name),
        NodeKind::And(operands) | NodeKind::Or(operands) => {
            any_selects(operands.iter(), variable, field_name)
        }
        NodeKind::Conditional(operands) => any_selects(operands.iter(), variable, field_name),
        NodeKind::Call(call) => {
            let names = |node: &Node| matches!(&node.kind, NodeKind::Literal(Literal::String(name)) if name == field_name);
            let is_index =
                matches!(&call.arguments[..], [operand, key] if is_variable(operand) && names(key));
            is_index || any_selects(call.arguments.iter(), variable, field_name)
        }
        NodeKind::List(elements) => any_selects(
            elements.iter().map(|(element, _)| element),
            variable,
            field_name,
        ),
        NodeKind::Map(entries) => any_selects(
            entries.iter().flat_map(|(key, value, _)| [key, value]),
            variable,
            field_name,
        ),
        NodeKind::Comprehension(c) => any_selects(
            [&c.range, &c.init, &c.condition, &c.step, &c.result],
            variable,
            field_name,
        ),
        _ => false,
    }
}

fn any_selects<'a>(
    nodes: impl IntoIterator<Item = &'a Node>,
    variable: usize,
    field_name: &str,
) -> bool {
    let mut nodes = nodes.into_iter();
    nodes.any(|node| selects(node, variable, field_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selected_fields_are_found() {
        let environment = Environment::new().with_any("claims");
        for (expression, selected) in [
            ("claims.email", true),
            ("has(claims.email) ? 'a' : 'b'", true),
            ("claims.?email.orValue('')", true),
            ("[1].map(x, claims.email)", true),
            ("claims['email']", true),
            ("claims.other.email", false),
            ("{'email': claims.sub}", false),
            ("'email'", false),
        ] {
            let program = Program::compile(expression, &environment).unwrap();
            let selects_email = program.selects(&environment, "claims", "email");
            assert_eq!(selects_email, selected, "{expression}");
        }
    }
}
