//! A compiled expression: parsed, checked, its cost estimated, ready to be evaluated.

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use crate::authorization::AuthorizationDecisions;
use crate::checker::check;
use crate::cost::estimate::max_cost;
use crate::declarations::Declaration;
use crate::environment::Environment;
use crate::error::EvalError;
use crate::from_json::to_value;
use crate::interpreter::{Interpreter, Variables};
use crate::meter::Meter;
use crate::node::{Node, NodeKind};
use crate::syntax::{Literal, SyntaxError, parse};
use crate::to_json::from_value;
use crate::types::Type;
use crate::value::{EvaluationResult, Value};

/// The cost that one evaluation may have (`celconfig.PerCallLimit`).
pub const PER_CALL_LIMIT: u64 = 1_000_000;

/// The type that an expression must evaluate to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputType {
    Bool,
    String,
    /// A string, or null for none.
    StringOrNull,
    Any,
    /// An object that is merged into another one.
    ApplyConfiguration,
    /// A list of operations of a JSON patch.
    JsonPatch,
}

impl OutputType {
    /// The type that an expression must evaluate to, in error messages.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Bool => "must evaluate to bool",
            Self::String => "must evaluate to string",
            Self::StringOrNull => "must evaluate to one of [string null_type]",
            Self::Any => "must evaluate to one of [any dyn]",
            Self::ApplyConfiguration => "must evaluate to Object",
            Self::JsonPatch => "must evaluate to list(JSONPatch)",
        }
    }
}

/// A compiled expression.
pub struct Program {
    root: Node,
    slots: usize,
    /// The patterns that are written in the expression.
    patterns: HashSet<String>,
    /// How deep the syntax tree is.
    depth: usize,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").finish_non_exhaustive()
    }
}

/// The result of an evaluation and its cost.
#[derive(Debug)]
pub struct Evaluation<T> {
    pub result: Result<T, EvalError>,
    pub cost: u64,
}

impl Program {
    /// Compiles an expression. The error is what cel-go prints of it.
    pub fn compile(source: &str, environment: &Environment) -> Result<Self, String> {
        let render = |errors: &[SyntaxError]| {
            let errors: Vec<String> = errors.iter().map(|e| e.render(source)).collect();
            errors.join("\n")
        };
        let expr = parse(source).map_err(|message| render(&[message]))?;
        let checked = check(environment, &expr).map_err(|errors| render(&errors))?;
        let depth = usize::from(expr.depth());
        let mut root = checked.root;
        let mut patterns = HashSet::new();
        collect_patterns(&mut root, &mut patterns);
        Ok(Self {
            root,
            slots: checked.slots,
            patterns,
            depth,
        })
    }

    /// Whether every value of the expression has this type.
    pub fn has_output(&self, output: OutputType) -> bool {
        let is_struct =
            |ty: &Type, type_name: &str| matches!(ty, Type::Struct(n) if &**n == type_name);
        match (output, &self.root.ty) {
            (OutputType::ApplyConfiguration, ty) => return is_struct(ty, "Object"),
            (OutputType::JsonPatch, Type::List(element)) => {
                return is_struct(element, "JSONPatch");
            }
            _ => {}
        }
        matches!(
            (output, &self.root.ty),
            (OutputType::Any, _)
                | (OutputType::Bool, Type::Bool)
                | (OutputType::String | OutputType::StringOrNull, Type::String)
                | (OutputType::StringOrNull, Type::Null)
        )
    }

    pub(crate) fn root(&self) -> &Node {
        &self.root
    }

    /// Whether a variable of the environment is used.
    pub fn uses(&self, environment: &Environment, name: &str) -> bool {
        let Some((number, _)) = environment.find(name) else {
            return false;
        };
        uses_variable(&self.root, number)
    }

    /// The type of the values of the expression.
    pub(crate) fn output_type(&self) -> &Type {
        &self.root.ty
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The numbers of the variables that are used.
    pub(crate) fn variables(&mut self) -> BTreeSet<usize> {
        let mut used = BTreeSet::new();
        collect_variables(&mut self.root, &mut used);
        used
    }

    pub(crate) fn max_cost(&self, environment: &Environment, root: &Declaration) -> u64 {
        max_cost(&self.root, environment, root)
    }

    pub(crate) fn evaluate<'a, T>(
        &'a self,
        variables: Variables<'_, 'a>,
        limit: u64,
        read: impl FnOnce(Value<'a>) -> EvaluationResult<'a, T>,
    ) -> Evaluation<T> {
        self.evaluate_metered(variables, Meter::new(limit, &self.patterns), read)
    }

    /// Evaluates with decisions of the authorizer.
    pub(crate) fn evaluate_authorized<'a, T>(
        &'a self,
        variables: Variables<'_, 'a>,
        decisions: &'a AuthorizationDecisions,
        read: impl FnOnce(Value<'a>) -> EvaluationResult<'a, T>,
    ) -> Evaluation<T> {
        let meter = Meter::new(PER_CALL_LIMIT, &self.patterns).with_decisions(decisions);
        self.evaluate_metered(variables, meter, read)
    }

    fn evaluate_metered<'a, T>(
        &'a self,
        variables: Variables<'_, 'a>,
        meter: Meter<'a>,
        read: impl FnOnce(Value<'a>) -> EvaluationResult<'a, T>,
    ) -> Evaluation<T> {
        let mut interpreter = Interpreter::new(variables, self.slots, meter);
        let result = interpreter.evaluate(&self.root).and_then(read);
        Evaluation {
            result,
            cost: interpreter.cost(),
        }
    }

    /// Evaluates with JSON values of the variables, in the order of their declarations.
    pub fn evaluate_json(
        &self,
        environment: &Environment,
        values: &[Option<&serde_json::Value>],
    ) -> Evaluation<serde_json::Value> {
        let variables = |number: usize| {
            let declaration = &environment.variable(number)?.declaration;
            let value = values.get(number).copied().flatten()?;
            Some(to_value(value, declaration))
        };
        self.evaluate(&variables, PER_CALL_LIMIT, |value| from_value(&value))
    }
}

fn collect_patterns(node: &mut Node, patterns: &mut HashSet<String>) {
    if let NodeKind::Call(call) = &node.kind
        && matches!(&*call.function, "matches" | "find" | "findAll")
        && let Some(pattern) = call.arguments.get(1)
        && let NodeKind::Literal(Literal::String(pattern)) = &pattern.kind
    {
        patterns.insert(pattern.clone());
    }
    node.for_each_child_mut(&mut |child| collect_patterns(child, patterns));
}

fn collect_variables(node: &mut Node, used: &mut BTreeSet<usize>) {
    if let NodeKind::Variable(number) = node.kind {
        used.insert(number);
    }
    node.for_each_child_mut(&mut |child| collect_variables(child, used));
}

fn uses_variable(node: &Node, number: usize) -> bool {
    let any_uses = |nodes: &[&Node]| nodes.iter().any(|node| uses_variable(node, number));
    match &node.kind {
        NodeKind::Literal(_) | NodeKind::Type(_) | NodeKind::Local(_) => false,
        NodeKind::Variable(n) => *n == number,
        NodeKind::Select { operand, .. }
        | NodeKind::Test { operand, .. }
        | NodeKind::OptionalSelect { operand, .. }
        | NodeKind::NotStrictlyFalse(operand) => uses_variable(operand, number),
        NodeKind::And(operands) | NodeKind::Or(operands) => any_uses(&operands.each_ref()),
        NodeKind::Conditional(operands) => any_uses(&operands.each_ref()),
        NodeKind::Call(call) => any_uses(&call.arguments.iter().collect::<Vec<_>>()),
        NodeKind::List(elements) => any_uses(&elements.iter().map(|(e, _)| e).collect::<Vec<_>>()),
        NodeKind::Map(entries) => {
            let nodes = entries.iter().flat_map(|(key, value, _)| [key, value]);
            any_uses(&nodes.collect::<Vec<_>>())
        }
        NodeKind::Struct { fields, .. } => {
            any_uses(&fields.iter().map(|(_, v, _)| v).collect::<Vec<_>>())
        }
        NodeKind::Comprehension(c) => {
            any_uses(&[&c.range, &c.init, &c.condition, &c.step, &c.result])
        }
    }
}
