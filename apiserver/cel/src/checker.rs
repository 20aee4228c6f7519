//! Checks the types of an expression and resolves its names (`cel-go/checker/checker.go`).

use std::sync::Arc;

use machinery::go_pattern::{PatternBudget, PatternError};

use crate::checked_names::{
    TYPE_NAMES, is_patch_type, literal_type, qualified_name, special_arity, struct_field_type,
};
use crate::environment::Environment;
use crate::escaping::is_reserved;
use crate::node::{Call, CheckedComprehension, Node, NodeKind};
use crate::overloads::{FUNCTIONS, Overload};
use crate::syntax::{Comprehension, Expr, ExprKind, Literal, MapEntry, Position, SyntaxError};
use crate::time_text::{parse_duration, parse_timestamp};
use crate::types::{Substitutions, Type};

/// How many errors of one expression are reported.
const MAX_ERRORS: usize = 20;
/// The accumulator of a macro, which no text can name.
const MACRO_ACCUMULATOR: &str = "@result";

/// A checked expression and the number of slots for variables of its comprehensions.
pub(crate) struct Checked {
    pub(crate) root: Node,
    pub(crate) slots: usize,
}

pub(crate) fn check(environment: &Environment, expr: &Expr) -> Result<Checked, Vec<SyntaxError>> {
    let mut checker = Checker {
        environment,
        substitutions: Substitutions::default(),
        locals: Vec::new(),
        slots: 0,
        patterns: environment.patterns(),
        errors: Vec::new(),
    };
    let mut root = checker.check(expr);
    if !checker.errors.is_empty() {
        checker.errors.sort_by_key(|error| error.position);
        checker.errors.truncate(MAX_ERRORS);
        return Err(checker.errors);
    }
    finish_types(&mut root, &checker.substitutions);
    Ok(Checked {
        root,
        slots: checker.slots,
    })
}

fn finish_types(node: &mut Node, substitutions: &Substitutions) {
    node.ty = substitutions.apply(&node.ty, true);
    node.for_each_child_mut(&mut |child| finish_types(child, substitutions));
}

struct Checker<'e> {
    environment: &'e Environment,
    substitutions: Substitutions,
    /// The variables of the comprehensions around, with their slots.
    locals: Vec<(String, usize, Type)>,
    slots: usize,
    /// The patterns of the object that the expression belongs to.
    patterns: PatternBudget,
    errors: Vec<SyntaxError>,
}

impl Checker<'_> {
    fn error(&mut self, position: Position, message: impl Into<String>) {
        self.errors.push(SyntaxError::new(position, message));
    }

    /// A node in place of what has an error; it fits everywhere.
    fn failed(position: Position) -> Node {
        Node {
            position,
            ty: Type::Dyn,
            kind: NodeKind::Literal(Literal::Null),
        }
    }

    fn undeclared(&mut self, position: Position, name: &str) -> Node {
        let message = format!("undeclared reference to '{name}' (in container '')");
        self.error(position, message);
        Self::failed(position)
    }

    fn resolved(&self, ty: &Type) -> Type {
        self.substitutions.apply(ty, false)
    }

    fn check(&mut self, expr: &Expr) -> Node {
        let position = expr.position;
        if self.errors.len() >= MAX_ERRORS {
            return Self::failed(position);
        }
        match &expr.kind {
            ExprKind::Literal(literal) => Node {
                position,
                ty: literal_type(literal),
                kind: NodeKind::Literal(literal.clone()),
            },
            ExprKind::Identifier(name) => match self.resolve(position, name) {
                Some(node) => node,
                None => self.undeclared(position, name),
            },
            ExprKind::Select {
                operand,
                field,
                test,
            } => self.check_select(expr, operand, field, *test),
            ExprKind::Call {
                function,
                target,
                arguments,
            } => self.check_call(position, function, target.as_deref(), arguments),
            ExprKind::List(elements) => self.check_list(position, elements),
            ExprKind::Map(entries) => self.check_map(position, entries),
            ExprKind::Struct { name, entries } => self.check_struct(position, name, entries),
            ExprKind::Comprehension(comprehension) => {
                self.check_comprehension(position, comprehension)
            }
        }
    }

    /// A variable or a type by its name, which may have dots.
    fn resolve(&self, position: Position, name: &str) -> Option<Node> {
        let local = self.locals.iter().rev().find(|(n, ..)| n == name);
        if let Some((_, slot, ty)) = local {
            let (kind, ty) = (NodeKind::Local(*slot), ty.clone());
            return Some(Node { position, ty, kind });
        }
        if let Some((number, variable)) = self.environment.find(name) {
            let (kind, ty) = (NodeKind::Variable(number), variable.ty());
            return Some(Node { position, ty, kind });
        }
        let type_name = TYPE_NAMES.into_iter().find(|n| *n == name)?;
        let (kind, ty) = (NodeKind::Type(type_name), Type::Meta);
        Some(Node { position, ty, kind })
    }

    fn check_select(&mut self, expr: &Expr, operand: &Expr, field: &str, test: bool) -> Node {
        if let Some(node) = self.resolve_qualified(expr) {
            if !test {
                return node;
            }
            // A field that is a variable of its own has a value.
            let (kind, ty) = (NodeKind::Literal(Literal::Bool(true)), Type::Bool);
            return Node {
                position: expr.position,
                ty,
                kind,
            };
        }
        let operand = Box::new(self.check(operand));
        let Some((field, ty)) = self.field_type(expr.position, &operand.ty, field, false) else {
            return Self::failed(expr.position);
        };
        let (kind, ty) = if test {
            (NodeKind::Test { operand, field }, Type::Bool)
        } else {
            (NodeKind::Select { operand, field }, ty)
        };
        let position = expr.position;
        Node { position, ty, kind }
    }

    /// A dotted name that is one variable or type, as `google.protobuf.Timestamp`. A variable
    /// of a comprehension hides it.
    fn resolve_qualified(&self, expr: &Expr) -> Option<Node> {
        let name = qualified_name(expr)?;
        let root = name.split('.').next()?;
        if self.locals.iter().any(|(local, ..)| local == root) {
            return None;
        }
        self.resolve(expr.position, &name)
    }

    /// The escaped name and the type of a field that may be selected.
    fn field_type(
        &mut self,
        position: Position,
        operand: &Type,
        field: &str,
        optional: bool,
    ) -> Option<(String, Type)> {
        let operand = self.resolved(operand);
        let (target, was_optional) = match operand {
            Type::Optional(inner) => ((*inner).clone(), true),
            other => (other, false),
        };
        let mut name = field.to_owned();
        let ty = match &target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) => {
                if object.field(&name).is_none() && is_reserved(field) {
                    name = format!("__{field}__");
                }
                let Some(declared_field) = object.field(&name) else {
                    self.error(position, format!("undefined field '{field}'"));
                    return None;
                };
                declared_field.declaration.cel_type()
            }
            Type::Struct(type_name) => match struct_field_type(type_name, field) {
                Some(ty) => ty,
                None => {
                    self.error(position, format!("undefined field '{field}'"));
                    return None;
                }
            },
            Type::Dyn => Type::Dyn,
            Type::Parameter(_) => {
                self.substitutions.is_assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            other => {
                let message = format!("type '{other}' does not support field selection");
                self.error(position, message);
                return None;
            }
        };
        let ty = if optional || was_optional {
            Type::optional(ty)
        } else {
            ty
        };
        Some((name, ty))
    }

    fn check_call(
        &mut self,
        position: Position,
        function: &str,
        target: Option<&Expr>,
        arguments: &[Expr],
    ) -> Node {
        if let ("_?._", [operand, name]) = (function, arguments)
            && let ExprKind::Literal(Literal::String(field)) = &name.kind
        {
            let operand = Box::new(self.check(operand));
            let Some((field, ty)) = self.field_type(position, &operand.ty, field, true) else {
                return Self::failed(position);
            };
            let kind = NodeKind::OptionalSelect { operand, field };
            return Node { position, ty, kind };
        }
        if let Some(target) = target {
            // `sets.contains(a, b)` is the function of that name, not a call on a variable.
            let qualified = qualified_name(target).map(|prefix| format!("{prefix}.{function}"));
            if let Some(name) = qualified.filter(|name| FUNCTIONS.contains_key(&**name)) {
                return self.check_overloads(position, &name, None, arguments);
            }
        }
        if !FUNCTIONS.contains_key(function) && special_arity(function) != Some(arguments.len()) {
            target.map(|target| self.check(target));
            return self.undeclared(position, function);
        }
        self.check_overloads(position, function, target, arguments)
    }

    fn check_overloads(
        &mut self,
        position: Position,
        function: &str,
        target: Option<&Expr>,
        arguments: &[Expr],
    ) -> Node {
        let receiver = target.is_some();
        let mut nodes: Vec<Node> = target.map(|t| self.check(t)).into_iter().collect();
        for argument in arguments {
            nodes.push(self.check(argument));
        }
        if special_arity(function).is_some() {
            return self.check_special(position, function, nodes);
        }
        let mut candidates = Vec::new();
        let mut result: Option<Type> = None;
        let overloads = FUNCTIONS.get(function).map_or(&[][..], Vec::as_slice);
        for overload in overloads.iter().filter(|o| o.receiver == receiver) {
            let Some(ty) = self.try_overload(overload, &nodes) else {
                continue;
            };
            candidates.push(overload);
            result = Some(match result {
                None => ty,
                Some(before) if before.is_same(&self.resolved(&ty)) => before,
                Some(_) => Type::Dyn,
            });
        }
        let Some(ty) = result else {
            self.no_matching_overload(position, function, receiver, &nodes);
            return Self::failed(position);
        };
        self.check_literals(function, &nodes);
        let ty = self.resolved(&ty);
        let call = Call {
            function: function.to_owned(),
            overloads: candidates,
            receiver,
            grows: self.grown_accumulator(function, &nodes),
            arguments: nodes,
        };
        let kind = NodeKind::Call(call);
        Node { position, ty, kind }
    }

    /// The result type of an overload if the arguments fit it.
    fn try_overload(&mut self, overload: &'static Overload, nodes: &[Node]) -> Option<Type> {
        if overload.parameters.len() != nodes.len() {
            return None;
        }
        let (parameters, result) = overload.instantiate(&mut self.substitutions);
        let mark = self.substitutions.mark();
        for (node, parameter) in nodes.iter().zip(&parameters) {
            if !self.substitutions.is_assignable(&node.ty, parameter) {
                self.substitutions.undo(mark);
                return None;
            }
        }
        Some(self.resolved(&result))
    }

    fn no_matching_overload(
        &mut self,
        position: Position,
        function: &str,
        receiver: bool,
        nodes: &[Node],
    ) {
        let types: Vec<String> = nodes
            .iter()
            .map(|n| self.substitutions.apply(&n.ty, true).to_string())
            .collect();
        let signature = match types.split_first() {
            Some((target, rest)) if receiver => format!("{target}.({})", rest.join(", ")),
            _ => format!("({})", types.join(", ")),
        };
        let message =
            format!("found no matching overload for '{function}' applied to '{signature}'");
        self.error(position, message);
    }

    /// Checks the operators that do not evaluate all of their operands.
    fn check_special(&mut self, position: Position, function: &str, nodes: Vec<Node>) -> Node {
        let conditions = if function == "_?_:_" { 1 } else { nodes.len() };
        let are_bool = nodes[..conditions.min(nodes.len())]
            .iter()
            .all(|n| self.substitutions.is_assignable(&n.ty, &Type::Bool));
        let branches_fit = match &nodes[..] {
            [_, yes, no] => {
                let common = self.substitutions.fresh();
                let fit = self.substitutions.is_assignable(&yes.ty, &common)
                    && self.substitutions.is_assignable(&no.ty, &common);
                fit.then(|| self.resolved(&common))
            }
            _ => Some(Type::Bool),
        };
        let (true, Some(ty)) = (are_bool, branches_fit) else {
            self.no_matching_overload(position, function, false, &nodes);
            return Self::failed(position);
        };
        let mut nodes = nodes.into_iter();
        let kind = match (nodes.next(), nodes.next(), nodes.next()) {
            (Some(a), Some(b), Some(c)) => NodeKind::Conditional(Box::new([a, b, c])),
            (Some(a), Some(b), None) if function == "_&&_" => NodeKind::And(Box::new([a, b])),
            (Some(a), Some(b), None) => NodeKind::Or(Box::new([a, b])),
            (Some(a), ..) => NodeKind::NotStrictlyFalse(Box::new(a)),
            _ => NodeKind::Literal(Literal::Null),
        };
        Node { position, ty, kind }
    }

    /// Reports patterns, times and durations that are written wrong.
    fn check_literals(&mut self, function: &str, nodes: &[Node]) {
        let position = match function {
            "matches" | "find" | "findAll" => 1,
            "duration" | "timestamp" => 0,
            _ => return,
        };
        let Some(node) = nodes.get(position) else {
            return;
        };
        let NodeKind::Literal(Literal::String(text)) = &node.kind else {
            return;
        };
        let valid = match function {
            "duration" => parse_duration(text).is_some(),
            "timestamp" => parse_timestamp(text).is_some(),
            _ => match self.patterns.add(text) {
                Err(PatternError::Syntax(_)) => false,
                Err(e) => return self.error(node.position, format!("{function}: {e}")),
                Ok(()) => true,
            },
        };
        if !valid {
            self.error(node.position, format!("invalid {function} argument"));
        }
    }

    fn grown_accumulator(&self, function: &str, nodes: &[Node]) -> Option<usize> {
        let NodeKind::Local(slot) = nodes.first()?.kind else {
            return None;
        };
        let (name, ..) = self.locals.iter().find(|(_, s, _)| *s == slot)?;
        let one_element = match (function, nodes.get(1).map(|n| &n.kind)) {
            ("_+_", Some(NodeKind::List(elements))) => matches!(&elements[..], [(_, false)]),
            ("cel.@mapInsert", _) => true,
            _ => false,
        };
        (name == MACRO_ACCUMULATOR && one_element).then_some(slot)
    }

    /// The type of elements of which the one before had `joined`; all must be of one type.
    fn join(&mut self, position: Position, joined: Option<Type>, next: &Type) -> Type {
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
        self.error(
            position,
            format!("expected type '{joined}' but found '{next}'"),
        );
        joined
    }

    /// The type of an element. An optional element has the type of its value.
    fn element_type(&mut self, node: &Node, optional: bool) -> Type {
        match self.resolved(&node.ty) {
            Type::Optional(inner) if optional => (*inner).clone(),
            Type::Dyn if optional => Type::Dyn,
            other if optional => {
                let message = format!("expected type 'optional_type({other})' but found '{other}'");
                self.error(node.position, message);
                Type::Dyn
            }
            other => other,
        }
    }

    fn check_list(&mut self, position: Position, elements: &[(Expr, bool)]) -> Node {
        let mut joined = None;
        let mut nodes = Vec::with_capacity(elements.len());
        for (element, optional) in elements {
            let node = self.check(element);
            let ty = self.element_type(&node, *optional);
            joined = Some(self.join(node.position, joined, &ty));
            nodes.push((node, *optional));
        }
        let element = joined.unwrap_or_else(|| self.substitutions.fresh());
        Node {
            position,
            ty: Type::list(element),
            kind: NodeKind::List(nodes),
        }
    }

    fn check_map(&mut self, position: Position, entries: &[MapEntry]) -> Node {
        let (mut key_type, mut value_type) = (None, None);
        let mut nodes = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = self.check(&entry.key);
            let value = self.check(&entry.value);
            let ty = self.element_type(&value, entry.optional);
            key_type = Some(self.join(key.position, key_type, &key.ty));
            value_type = Some(self.join(value.position, value_type, &ty));
            nodes.push((key, value, entry.optional));
        }
        let key = key_type.unwrap_or_else(|| self.substitutions.fresh());
        let value = value_type.unwrap_or_else(|| self.substitutions.fresh());
        Node {
            position,
            ty: Type::map(key, value),
            kind: NodeKind::Map(nodes),
        }
    }

    fn check_struct(&mut self, position: Position, name: &str, entries: &[MapEntry]) -> Node {
        if !self.environment.has_patch_types() || !is_patch_type(name) {
            return self.undeclared(position, name);
        }
        let mut fields = Vec::with_capacity(entries.len());
        for entry in entries {
            let value = self.check(&entry.value);
            let ExprKind::Literal(Literal::String(field)) = &entry.key.kind else {
                continue;
            };
            let value_type = self.element_type(&value, entry.optional);
            match struct_field_type(name, field) {
                None => self.error(entry.key.position, format!("undefined field '{field}'")),
                Some(field_type) if !self.substitutions.is_assignable(&value_type, &field_type) => {
                    let value_type = self.resolved(&value_type);
                    let message = format!(
                        "expected type of field '{field}' is '{field_type}' but provided type is '{value_type}'"
                    );
                    self.error(entry.key.position, message);
                }
                Some(_) => {}
            }
            fields.push((field.clone(), value, entry.optional));
        }
        Node {
            position,
            ty: Type::Struct(Arc::from(name)),
            kind: NodeKind::Struct {
                type_name: name.to_owned(),
                fields,
            },
        }
    }

    fn declare(&mut self, name: &str, ty: Type) -> usize {
        let slot = self.locals.len();
        self.slots = self.slots.max(slot + 1);
        self.locals.push((name.to_owned(), slot, ty));
        slot
    }

    fn check_comprehension(&mut self, position: Position, comprehension: &Comprehension) -> Node {
        let range = self.check(&comprehension.range);
        let (first, second) = self.range_types(&range, comprehension.second_variable.is_some());
        let init = self.check(&comprehension.init);
        let outer = self.locals.len();
        let accumulator = self.declare(&comprehension.accumulator, init.ty.clone());
        let inner = self.locals.len();
        let variable = self.declare(&comprehension.variable, first);
        let second_variable = comprehension
            .second_variable
            .as_ref()
            .map(|name| self.declare(name, second));
        let condition = self.check(&comprehension.condition);
        let step = self.check(&comprehension.step);
        if !self.substitutions.is_assignable(&condition.ty, &Type::Bool) {
            let step_type = self.resolved(&condition.ty);
            self.error(
                condition.position,
                format!("expected type 'bool' but found '{step_type}'"),
            );
        }
        if !self.substitutions.is_assignable(&step.ty, &init.ty) {
            let (init_type, step_type) = (self.resolved(&init.ty), self.resolved(&step.ty));
            let message = format!("expected type '{init_type}' but found '{step_type}'");
            self.error(step.position, message);
        }
        self.locals.truncate(inner);
        let result = self.check(&comprehension.result);
        self.locals.truncate(outer);
        let ty = self.resolved(&result.ty);
        let binds = comprehension.accumulator != MACRO_ACCUMULATOR;
        let kind = NodeKind::Comprehension(Box::new(CheckedComprehension {
            range,
            variable,
            second_variable,
            accumulator,
            init,
            condition,
            step,
            result,
            binds,
        }));
        Node { position, ty, kind }
    }

    /// The types of the variables of a loop over a list or map.
    fn range_types(&mut self, range: &Node, has_two_variables: bool) -> (Type, Type) {
        match self.resolved(&range.ty) {
            Type::List(element) if has_two_variables => (Type::Int, (*element).clone()),
            Type::List(element) => ((*element).clone(), Type::Dyn),
            Type::Map(key, value) => ((*key).clone(), (*value).clone()),
            Type::Dyn => (Type::Dyn, Type::Dyn),
            parameter @ Type::Parameter(_) => {
                self.substitutions.is_assignable(&Type::Dyn, &parameter);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.error(range.position, message);
                (Type::Dyn, Type::Dyn)
            }
        }
    }
}
