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
        checker.errors.sort_by_key(|error| error.at);
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
    fn error(&mut self, at: Position, message: impl Into<String>) {
        self.errors.push(SyntaxError::new(at, message));
    }

    /// A node in place of what has an error; it fits everywhere.
    fn failed(at: Position) -> Node {
        Node {
            at,
            ty: Type::Dyn,
            kind: NodeKind::Literal(Literal::Null),
        }
    }

    fn undeclared(&mut self, at: Position, name: &str) -> Node {
        let why = format!("undeclared reference to '{name}' (in container '')");
        self.error(at, why);
        Self::failed(at)
    }

    fn resolved(&self, ty: &Type) -> Type {
        self.substitutions.apply(ty, false)
    }

    fn check(&mut self, expr: &Expr) -> Node {
        let at = expr.at;
        if self.errors.len() >= MAX_ERRORS {
            return Self::failed(at);
        }
        match &expr.kind {
            ExprKind::Literal(literal) => Node {
                at,
                ty: literal_type(literal),
                kind: NodeKind::Literal(literal.clone()),
            },
            ExprKind::Identifier(name) => match self.resolve(at, name) {
                Some(node) => node,
                None => self.undeclared(at, name),
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
            } => self.check_call(at, function, target.as_deref(), arguments),
            ExprKind::List(elements) => self.check_list(at, elements),
            ExprKind::Map(entries) => self.check_map(at, entries),
            ExprKind::Struct { name, entries } => self.check_struct(at, name, entries),
            ExprKind::Comprehension(comprehension) => self.check_comprehension(at, comprehension),
        }
    }

    /// A variable or a type by its name, which may have dots.
    fn resolve(&self, at: Position, name: &str) -> Option<Node> {
        let local = self.locals.iter().rev().find(|(n, ..)| n == name);
        if let Some((_, slot, ty)) = local {
            let (kind, ty) = (NodeKind::Local(*slot), ty.clone());
            return Some(Node { at, ty, kind });
        }
        if let Some((number, variable)) = self.environment.find(name) {
            let (kind, ty) = (NodeKind::Variable(number), variable.ty());
            return Some(Node { at, ty, kind });
        }
        let named = TYPE_NAMES.into_iter().find(|n| *n == name)?;
        let (kind, ty) = (NodeKind::Type(named), Type::Meta);
        Some(Node { at, ty, kind })
    }

    fn check_select(&mut self, expr: &Expr, operand: &Expr, field: &str, test: bool) -> Node {
        if let Some(node) = self.resolve_qualified(expr) {
            if !test {
                return node;
            }
            // A field that is a variable of its own has a value.
            let (kind, ty) = (NodeKind::Literal(Literal::Bool(true)), Type::Bool);
            return Node {
                at: expr.at,
                ty,
                kind,
            };
        }
        let operand = Box::new(self.check(operand));
        let Some((field, ty)) = self.field_type(expr.at, &operand.ty, field, false) else {
            return Self::failed(expr.at);
        };
        let (kind, ty) = if test {
            (NodeKind::Test { operand, field }, Type::Bool)
        } else {
            (NodeKind::Select { operand, field }, ty)
        };
        let at = expr.at;
        Node { at, ty, kind }
    }

    /// A dotted name that is one variable or type, as `google.protobuf.Timestamp`. A variable
    /// of a comprehension hides it.
    fn resolve_qualified(&self, expr: &Expr) -> Option<Node> {
        let name = qualified_name(expr)?;
        let root = name.split('.').next()?;
        if self.locals.iter().any(|(local, ..)| local == root) {
            return None;
        }
        self.resolve(expr.at, &name)
    }

    /// The escaped name and the type of a field that may be selected.
    fn field_type(
        &mut self,
        at: Position,
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
                let Some(found) = object.field(&name) else {
                    self.error(at, format!("undefined field '{field}'"));
                    return None;
                };
                found.declaration.cel_type()
            }
            Type::Struct(type_name) => match struct_field_type(type_name, field) {
                Some(ty) => ty,
                None => {
                    self.error(at, format!("undefined field '{field}'"));
                    return None;
                }
            },
            Type::Dyn => Type::Dyn,
            Type::Parameter(_) => {
                self.substitutions.is_assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            other => {
                let why = format!("type '{other}' does not support field selection");
                self.error(at, why);
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
        at: Position,
        function: &str,
        target: Option<&Expr>,
        arguments: &[Expr],
    ) -> Node {
        if let ("_?._", [operand, name]) = (function, arguments)
            && let ExprKind::Literal(Literal::String(field)) = &name.kind
        {
            let operand = Box::new(self.check(operand));
            let Some((field, ty)) = self.field_type(at, &operand.ty, field, true) else {
                return Self::failed(at);
            };
            let kind = NodeKind::OptionalSelect { operand, field };
            return Node { at, ty, kind };
        }
        if let Some(target) = target {
            // `sets.contains(a, b)` is the function of that name, not a call on a variable.
            let qualified = qualified_name(target).map(|prefix| format!("{prefix}.{function}"));
            if let Some(name) = qualified.filter(|name| FUNCTIONS.contains_key(&**name)) {
                return self.check_overloads(at, &name, None, arguments);
            }
        }
        if !FUNCTIONS.contains_key(function) && special_arity(function) != Some(arguments.len()) {
            target.map(|target| self.check(target));
            return self.undeclared(at, function);
        }
        self.check_overloads(at, function, target, arguments)
    }

    fn check_overloads(
        &mut self,
        at: Position,
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
            return self.check_special(at, function, nodes);
        }
        let mut fitting = Vec::new();
        let mut result: Option<Type> = None;
        let overloads = FUNCTIONS.get(function).map_or(&[][..], Vec::as_slice);
        for overload in overloads.iter().filter(|o| o.receiver == receiver) {
            let Some(ty) = self.try_overload(overload, &nodes) else {
                continue;
            };
            fitting.push(overload);
            result = Some(match result {
                None => ty,
                Some(before) if before.is_same(&self.resolved(&ty)) => before,
                Some(_) => Type::Dyn,
            });
        }
        let Some(ty) = result else {
            self.no_matching_overload(at, function, receiver, &nodes);
            return Self::failed(at);
        };
        self.check_literals(function, &nodes);
        let ty = self.resolved(&ty);
        let call = Call {
            function: function.to_owned(),
            overloads: fitting,
            receiver,
            grows: self.grown_accumulator(function, &nodes),
            arguments: nodes,
        };
        let kind = NodeKind::Call(call);
        Node { at, ty, kind }
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
        at: Position,
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
        let why = format!("found no matching overload for '{function}' applied to '{signature}'");
        self.error(at, why);
    }

    /// Checks the operators that do not evaluate all of their operands.
    fn check_special(&mut self, at: Position, function: &str, nodes: Vec<Node>) -> Node {
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
            self.no_matching_overload(at, function, false, &nodes);
            return Self::failed(at);
        };
        let mut nodes = nodes.into_iter();
        let kind = match (nodes.next(), nodes.next(), nodes.next()) {
            (Some(a), Some(b), Some(c)) => NodeKind::Conditional(Box::new([a, b, c])),
            (Some(a), Some(b), None) if function == "_&&_" => NodeKind::And(Box::new([a, b])),
            (Some(a), Some(b), None) => NodeKind::Or(Box::new([a, b])),
            (Some(a), ..) => NodeKind::NotStrictlyFalse(Box::new(a)),
            _ => NodeKind::Literal(Literal::Null),
        };
        Node { at, ty, kind }
    }

    /// Reports patterns, times and durations that are written wrong.
    fn check_literals(&mut self, function: &str, nodes: &[Node]) {
        let at = match function {
            "matches" | "find" | "findAll" => 1,
            "duration" | "timestamp" => 0,
            _ => return,
        };
        let Some(node) = nodes.get(at) else {
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
                Err(why) => return self.error(node.at, format!("{function}: {why}")),
                Ok(()) => true,
            },
        };
        if !valid {
            self.error(node.at, format!("invalid {function} argument"));
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

    fn check_list(&mut self, at: Position, elements: &[(Expr, bool)]) -> Node {
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

    fn check_map(&mut self, at: Position, entries: &[MapEntry]) -> Node {
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

    fn check_struct(&mut self, at: Position, name: &str, entries: &[MapEntry]) -> Node {
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

    fn declare(&mut self, name: &str, ty: Type) -> usize {
        let slot = self.locals.len();
        self.slots = self.slots.max(slot + 1);
        self.locals.push((name.to_owned(), slot, ty));
        slot
    }

    fn check_comprehension(&mut self, at: Position, comprehension: &Comprehension) -> Node {
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
            let found = self.resolved(&condition.ty);
            self.error(
                condition.at,
                format!("expected type 'bool' but found '{found}'"),
            );
        }
        if !self.substitutions.is_assignable(&step.ty, &init.ty) {
            let (wanted, found) = (self.resolved(&init.ty), self.resolved(&step.ty));
            let why = format!("expected type '{wanted}' but found '{found}'");
            self.error(step.at, why);
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
        Node { at, ty, kind }
    }

    /// The types of the variables of a loop over a list or map.
    fn range_types(&mut self, range: &Node, two: bool) -> (Type, Type) {
        match self.resolved(&range.ty) {
            Type::List(element) if two => (Type::Int, (*element).clone()),
            Type::List(element) => ((*element).clone(), Type::Dyn),
            Type::Map(key, value) => ((*key).clone(), (*value).clone()),
            Type::Dyn => (Type::Dyn, Type::Dyn),
            parameter @ Type::Parameter(_) => {
                self.substitutions.is_assignable(&Type::Dyn, &parameter);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let why = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.error(range.at, why);
                (Type::Dyn, Type::Dyn)
            }
        }
    }
}
