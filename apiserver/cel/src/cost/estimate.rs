//! Estimates what a checked expression costs, from the declared sizes of what it reads.

use crate::cost::call_estimates::{Argument, estimate_call};
use crate::cost::estimated_path::{EstimatedPath, PathStep, extend};
use crate::cost::range::Range;
use crate::cost::{CREATE_LIST, CREATE_MAP, CREATE_STRUCT, SELECT};
use crate::declarations::{Declaration, DeclaredKind};
use crate::environment::Environment;
use crate::node::{Call, CheckedComprehension, Node, NodeKind};
use crate::syntax::Literal;
use crate::types::Type;

/// The highest cost of an expression. `root` declares the sizes of `self` and `oldSelf`, which are
/// values of it.
pub(crate) fn max_cost(node: &Node, environment: &Environment, root: &Declaration) -> u64 {
    let mut estimator = Estimator {
        environment,
        root,
        locals: Vec::new(),
    };
    estimator.estimate(node).cost.max
}

/// The sizes of the keys and values of a list or map.
#[derive(Clone, Copy, Debug)]
struct EntrySizes {
    of_list: bool,
    key: Range,
    value: Range,
}

impl EntrySizes {
    fn union(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        let (a, b) = (a?, b?);
        Some(Self {
            of_list: a.of_list,
            key: a.key.union(b.key),
            value: a.value.union(b.value),
        })
    }
}

/// The facts about the value of an expression, and the cost of computing it.
#[derive(Clone, Debug)]
struct Estimate {
    cost: Range,
    path: Option<EstimatedPath>,
    size: Option<Range>,
    entries: Option<EntrySizes>,
}

/// A variable of a comprehension.
#[derive(Clone, Debug, Default)]
struct LocalEstimate {
    path: Option<EstimatedPath>,
    size: Option<Range>,
    entries: Option<EntrySizes>,
}

struct Estimator<'e> {
    environment: &'e Environment,
    root: &'e Declaration,
    /// By slot.
    locals: Vec<LocalEstimate>,
}

impl Estimator<'_> {
    /// The size of the value at a path, as declared.
    fn declared_size(&self, path: Option<&EstimatedPath>) -> Option<Range> {
        let (_, steps) = path?.split_first()?;
        let mut declaration = self.root;
        for step in steps {
            declaration = match step {
                PathStep::Items | PathStep::Values => declaration.element()?,
                PathStep::Keys => match declaration.kind {
                    // Keys have no declared limit.
                    DeclaredKind::Map(_) => return Some(Range::ZERO),
                    _ => return None,
                },
                PathStep::Field(name) => declaration.field(name)?,
                PathStep::Indices | PathStep::Variable => return None,
            };
        }
        Some(Range::up_to(declaration.max_elements))
    }

    /// The size of a value that no computation yielded.
    fn size(&self, path: Option<&EstimatedPath>, ty: &Type, local: Option<Range>) -> Option<Range> {
        self.declared_size(path)
            .or_else(|| ty.is_scalar().then_some(Range::ONE))
            .or(local)
    }

    fn estimate(&mut self, node: &Node) -> Estimate {
        match &node.kind {
            NodeKind::Literal(literal) => Estimate {
                cost: Range::ZERO,
                path: None,
                size: Some(Range::fixed(literal_size(literal))),
                entries: None,
            },
            // cel-go looks up every name like a variable, so a type has the declared size of
            // the root.
            NodeKind::Type(_) => {
                let path = extend(None, PathStep::Variable);
                self.plain(node, Range::fixed(SELECT), Some(path))
            }
            NodeKind::Variable(number) => {
                let is_declared = self.environment.variable(*number).is_some();
                let path = is_declared.then(|| extend(None, PathStep::Variable));
                self.plain(node, Range::fixed(SELECT), path)
            }
            NodeKind::Local(slot) => {
                let local = self.locals.get(*slot).cloned().unwrap_or_default();
                Estimate {
                    cost: Range::fixed(SELECT),
                    size: self.size(local.path.as_ref(), &node.ty, local.size),
                    path: local.path,
                    entries: local.entries,
                }
            }
            NodeKind::Select { operand, field } => {
                let operand_estimate = self.estimate(operand);
                let own_cost = match operand.ty {
                    Type::Map(..) | Type::Object(_) => SELECT,
                    _ => 0,
                };
                let path = extend(
                    operand_estimate.path.as_ref(),
                    PathStep::Field(field.as_str().into()),
                );
                self.plain(
                    node,
                    operand_estimate.cost.plus(Range::fixed(own_cost)),
                    Some(path),
                )
            }
            NodeKind::Test { operand, .. } => {
                let cost = self.estimate(operand).cost;
                self.plain(node, cost, None)
            }
            NodeKind::OptionalSelect { operand, .. } | NodeKind::NotStrictlyFalse(operand) => {
                let cost = self.estimate(operand).cost.plus(Range::ONE);
                self.plain(node, cost, None)
            }
            NodeKind::And(operands) | NodeKind::Or(operands) => {
                let [left, right] = &**operands;
                let (left, right) = (self.estimate(left).cost, self.estimate(right).cost);
                let cost = Range {
                    min: left.min,
                    max: left.plus(right).max,
                };
                self.plain(node, cost, None)
            }
            NodeKind::Conditional(operands) => self.estimate_conditional(operands),
            NodeKind::Call(call) => self.estimate_call(node, call),
            NodeKind::List(elements) => self.estimate_list(elements),
            NodeKind::Map(entries) => self.estimate_map(entries),
            NodeKind::Struct { fields, .. } => {
                let costs = fields.iter().map(|(_, value, _)| self.estimate(value).cost);
                let cost = costs.fold(Range::fixed(CREATE_STRUCT), Range::plus);
                self.plain(node, cost, None)
            }
            NodeKind::Comprehension(c) if c.binds => self.estimate_bind(c),
            NodeKind::Comprehension(c) => self.estimate_comprehension(node, c),
        }
    }

    fn plain(&self, node: &Node, cost: Range, path: Option<EstimatedPath>) -> Estimate {
        Estimate {
            cost,
            size: self.size(path.as_ref(), &node.ty, None),
            path,
            entries: None,
        }
    }

    fn estimate_conditional(&mut self, operands: &[Node; 3]) -> Estimate {
        let [condition, if_true, if_false] = operands;
        let (condition, if_true, if_false) = (
            self.estimate(condition),
            self.estimate(if_true),
            self.estimate(if_false),
        );
        let size = |e: &Estimate| e.size.unwrap_or(Range::UNKNOWN);
        Estimate {
            cost: condition.cost.plus(if_true.cost.union(if_false.cost)),
            path: None,
            size: Some(size(&if_true).union(size(&if_false))),
            entries: EntrySizes::union(if_true.entries, if_false.entries),
        }
    }

    fn estimate_call(&mut self, node: &Node, call: &Call) -> Estimate {
        let estimates: Vec<Estimate> = call.arguments.iter().map(|a| self.estimate(a)).collect();
        if call.function == "dyn"
            && let Some(target_estimate) = estimates.first()
        {
            return Estimate {
                cost: target_estimate.cost.plus(Range::ONE),
                path: None,
                size: target_estimate.size,
                entries: target_estimate.entries,
            };
        }
        let inner = estimates
            .iter()
            .fold(Range::ZERO, |sum, e| sum.plus(e.cost));
        let arguments: Vec<Argument<'_>> = call
            .arguments
            .iter()
            .zip(&estimates)
            .map(|(node, estimate)| Argument {
                node,
                path: estimate.path.as_ref(),
                size: estimate.size,
            })
            .collect();
        let (target, parameters) = match arguments.split_first() {
            Some((target, parameters)) if call.receiver => (Some(target), parameters),
            _ => (None, &arguments[..]),
        };
        let (mut cost, mut size): (Range, Option<Range>) = (Range::EMPTY, None);
        let (mut path, mut entries) = (None, None);
        let sized = |path: &EstimatedPath| self.declared_size(Some(path));
        for overload in &call.overloads {
            let id = overload.id;
            let (call_cost, result) = estimate_call(&call.function, id, target, parameters, &sized);
            cost = cost.union(call_cost);
            size = match (size, result) {
                (Some(a), Some(b)) => Some(a.union(b)),
                (a, b) => a.or(b),
            };
            let target_estimate = estimates.first();
            if let (Some(step), Some(target_estimate)) = (index_step(id), target_estimate) {
                size = target_estimate.entries.map(|e| e.value);
                path = Some(extend(target_estimate.path.as_ref(), step));
            }
            if let ("add_string" | "add_bytes" | "add_list", [a, b]) = (id, &estimates[..]) {
                entries = EntrySizes::union(a.entries, b.entries);
            }
            size = size.or_else(|| self.size(path.as_ref(), &node.ty, None));
        }
        Estimate {
            cost: inner.plus(cost),
            path,
            size,
            entries,
        }
    }

    fn estimate_list(&mut self, elements: &[(Node, bool)]) -> Estimate {
        let (mut cost, mut item) = (Range::fixed(CREATE_LIST), Range::EMPTY);
        if elements.is_empty() {
            item.min = 0;
        }
        for (element, _) in elements {
            let estimate = self.estimate(element);
            cost = cost.plus(estimate.cost);
            item = item.union(estimate.size.unwrap_or(Range::UNKNOWN));
        }
        Estimate {
            cost,
            path: None,
            size: Some(Range::fixed(elements.len() as u64)),
            entries: Some(EntrySizes {
                of_list: true,
                key: Range::ONE,
                value: item,
            }),
        }
    }

    fn estimate_map(&mut self, entries: &[(Node, Node, bool)]) -> Estimate {
        let mut cost = Range::fixed(CREATE_MAP);
        let (mut key_size, mut value_size) = (Range::EMPTY, Range::EMPTY);
        if entries.is_empty() {
            (key_size.min, value_size.min) = (0, 0);
        }
        for (key, value, _) in entries {
            let (key, value) = (self.estimate(key), self.estimate(value));
            cost = cost.plus(key.cost).plus(value.cost);
            key_size = key_size.union(key.size.unwrap_or(Range::UNKNOWN));
            value_size = value_size.union(value.size.unwrap_or(Range::UNKNOWN));
        }
        Estimate {
            cost,
            path: None,
            size: Some(Range::fixed(entries.len() as u64)),
            entries: Some(EntrySizes {
                of_list: false,
                key: key_size,
                value: value_size,
            }),
        }
    }

    fn set_local(&mut self, slot: usize, local: LocalEstimate) {
        if self.locals.len() <= slot {
            self.locals.resize(slot + 1, LocalEstimate::default());
        }
        self.locals[slot] = local;
    }

    fn bind_accumulator(&mut self, comprehension: &CheckedComprehension, init: &Estimate) {
        let local = LocalEstimate {
            path: init.path.clone(),
            size: init.size,
            entries: init.entries,
        };
        self.set_local(comprehension.accumulator, local);
    }

    fn estimate_bind(&mut self, comprehension: &CheckedComprehension) -> Estimate {
        let range = self.estimate(&comprehension.range);
        let init = self.estimate(&comprehension.init);
        self.bind_accumulator(comprehension, &init);
        let result = self.estimate(&comprehension.result);
        Estimate {
            cost: range.cost.plus(init.cost).plus(result.cost),
            path: None,
            size: result.size,
            entries: result.entries,
        }
    }

    /// Binds the variables of a loop to the elements of its range.
    fn bind_elements(&mut self, comprehension: &CheckedComprehension, range: &Estimate) {
        let of_list = match range.entries {
            Some(entries) => entries.of_list,
            None => matches!(comprehension.range.ty, Type::List(_)),
        };
        let key_size = range.entries.map(|e| e.key);
        let value_size = range.entries.map(|e| e.value);
        let local = |step, size| LocalEstimate {
            path: Some(extend(range.path.as_ref(), step)),
            size,
            entries: None,
        };
        let value_step = if of_list {
            PathStep::Items
        } else {
            PathStep::Values
        };
        let variable = match (comprehension.second_variable.is_some(), of_list) {
            (true, true) => local(PathStep::Indices, key_size),
            (false, true) => local(PathStep::Items, value_size),
            (_, false) => local(PathStep::Keys, key_size),
        };
        let second = local(value_step, value_size);
        self.set_local(comprehension.variable, variable);
        if let Some(slot) = comprehension.second_variable {
            self.set_local(slot, second);
        }
    }

    fn estimate_comprehension(
        &mut self,
        node: &Node,
        comprehension: &CheckedComprehension,
    ) -> Estimate {
        let range = self.estimate(&comprehension.range);
        let init = self.estimate(&comprehension.init);
        self.bind_accumulator(comprehension, &init);
        self.bind_elements(comprehension, &range);
        let condition = self.estimate(&comprehension.condition);
        let step = self.estimate(&comprehension.step);
        let result = self.estimate(&comprehension.result);
        let count = range.size.unwrap_or(Range::UNKNOWN);
        let loop_cost = count.times(step.cost.plus(condition.cost));
        let cost = range.cost.plus(init.cost).plus(result.cost).plus(loop_cost);
        let (size, entries) = match comprehension.init.kind {
            NodeKind::Literal(_) => (init.size, None),
            NodeKind::List(_) | NodeKind::Map(_) => (Some(count), step.entries),
            _ => (self.size(None, &node.ty, None), None),
        };
        Estimate {
            cost,
            path: None,
            size,
            entries,
        }
    }
}

/// The step from a value to its part that an index selects.
fn index_step(id: &str) -> Option<PathStep> {
    match id {
        "index_list" => Some(PathStep::Items),
        "index_map" => Some(PathStep::Values),
        _ => None,
    }
}

fn literal_size(literal: &Literal) -> u64 {
    match literal {
        Literal::String(text) => text.chars().count() as u64,
        Literal::Bytes(bytes) => bytes.len() as u64,
        _ => 1,
    }
}
