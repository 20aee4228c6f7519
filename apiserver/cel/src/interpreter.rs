//! Evaluates a checked expression, paying for each step.

use std::rc::Rc;

use crate::cost::actual::{
    LIST_COST, MAP_COST, SELECT_COST, STRUCT_COST, call_cost, join_cost, work,
};
use crate::error::EvalError;
use crate::meter::Meter;
use crate::node::{Call, CheckedComprehension, Node, NodeKind};
use crate::syntax::Literal;
use crate::value::{EvaluationResult, List, Map, OwnedMap, Text, Value};

/// The value of a variable by its number; `None` for a variable without a value.
pub(crate) type Variables<'v, 'a> = &'v dyn Fn(usize) -> Option<EvaluationResult<'a>>;

pub(crate) struct Interpreter<'v, 'a> {
    variables: Variables<'v, 'a>,
    /// The variables of comprehensions. One that could not be computed holds its error, which
    /// `&&` and `||` may still absorb.
    locals: Vec<EvaluationResult<'a>>,
    meter: Meter<'a>,
}

impl<'v, 'a> Interpreter<'v, 'a> {
    pub(crate) fn new(variables: Variables<'v, 'a>, slots: usize, meter: Meter<'a>) -> Self {
        Self {
            variables,
            locals: vec![Ok(Value::Null); slots],
            meter,
        }
    }

    pub(crate) fn cost(&self) -> u64 {
        self.meter.cost()
    }

    pub(crate) fn evaluate(&mut self, node: &'a Node) -> EvaluationResult<'a> {
        match &node.kind {
            NodeKind::Literal(literal) => Ok(literal_value(literal)),
            NodeKind::Type(name) => Ok(Value::Type(name)),
            NodeKind::Variable(number) => {
                self.meter.charge(SELECT_COST)?;
                let value = (self.variables)(*number);
                value.unwrap_or_else(|| Err(EvalError::new("no such attribute(s)")))
            }
            NodeKind::Local(slot) => {
                self.meter.charge(SELECT_COST)?;
                self.locals[*slot].clone()
            }
            NodeKind::Select { operand, field } => self.select(operand, field),
            NodeKind::Test { operand, field } => {
                let is_present = match self.evaluate(operand)? {
                    Value::Optional(None) => false,
                    Value::Optional(Some(value)) => has_field(&value, field)?,
                    value => has_field(&value, field)?,
                };
                Ok(Value::Bool(is_present))
            }
            NodeKind::OptionalSelect { operand, field } => {
                let value = self.evaluate(operand)?;
                self.meter.charge(SELECT_COST)?;
                optional_field(&value, field)
            }
            NodeKind::And(operands) => self.logical(operands, false),
            NodeKind::Or(operands) => self.logical(operands, true),
            NodeKind::Conditional(operands) => {
                let [condition, if_true, if_false] = &**operands;
                match self.evaluate(condition)? {
                    Value::Bool(true) => self.evaluate(if_true),
                    Value::Bool(false) => self.evaluate(if_false),
                    _ => Err(EvalError::NoSuchOverload),
                }
            }
            NodeKind::NotStrictlyFalse(operand) => {
                let value = self.evaluate(operand);
                self.meter.charge(1)?;
                match value {
                    Err(e) if e.ends_evaluation() => Err(e),
                    value => Ok(Value::Bool(!matches!(value, Ok(Value::Bool(false))))),
                }
            }
            NodeKind::Call(call) => self.call(call),
            NodeKind::List(elements) => self.list(elements),
            NodeKind::Map(entries) => self.map(entries),
            NodeKind::Struct { type_name, fields } => self.construct(type_name, fields),
            NodeKind::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn select(&mut self, operand: &'a Node, field: &str) -> EvaluationResult<'a> {
        let value = self.evaluate(operand)?;
        self.meter.charge(SELECT_COST)?;
        match &value {
            Value::Map(map) => map
                .field(field)
                .unwrap_or_else(|| Err(EvalError::no_such_key(field))),
            Value::Optional(_) => optional_field(&value, field),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    /// `&&` and `||`: an operand that decides makes the other's error irrelevant.
    fn logical(&mut self, operands: &'a [Node; 2], deciding: bool) -> EvaluationResult<'a> {
        let mut error = None;
        for operand in operands {
            match self.evaluate(operand) {
                Ok(Value::Bool(value)) if value == deciding => return Ok(Value::Bool(value)),
                Ok(Value::Bool(_)) => {}
                Err(e) if e.ends_evaluation() => return Err(e),
                Ok(_) => error = error.or(Some(EvalError::NoSuchOverload)),
                Err(e) => error = error.or(Some(e)),
            }
        }
        match error {
            Some(e) => Err(e),
            None => Ok(Value::Bool(!deciding)),
        }
    }

    fn call(&mut self, call: &'a Call) -> EvaluationResult<'a> {
        if let Some(slot) = call.grows {
            return self.grow(call, slot);
        }
        let mut arguments = Vec::with_capacity(call.arguments.len());
        for argument in &call.arguments {
            arguments.push(self.evaluate(argument)?);
            // An alternative is evaluated only when there is no value.
            if call.receiver
                && matches!(&*call.function, "or" | "orValue")
                && let [Value::Optional(Some(value))] = &arguments[..]
            {
                self.meter.charge(1)?;
                let value = Rc::clone(value);
                return Ok(if call.function == "or" {
                    Value::Optional(Some(value))
                } else {
                    (*value).clone()
                });
            }
        }
        let function = &*call.function;
        self.meter.work(work(function, &arguments))?;
        let overload = call.overloads.iter().find(|o| o.accepts(&arguments));
        let Some(overload) = overload else {
            return self.mixed_call(function, &arguments);
        };
        if let Some(cost) = call_cost(function, overload.id, &arguments) {
            self.meter.charge(cost)?;
        }
        let result = (overload.call)(&arguments, &mut self.meter)?;
        if function == "join" {
            self.meter.charge(join_cost(&result))?;
        }
        Ok(result)
    }

    /// Calls that no overload declares but values of unknown type allow: an index that is not
    /// an int, in a list.
    fn mixed_call(&mut self, function: &str, arguments: &[Value<'a>]) -> EvaluationResult<'a> {
        self.meter.charge(1)?;
        match (function, arguments) {
            ("_[_]", [Value::List(_), _]) => {
                crate::library::aggregates::index(arguments, &mut self.meter)
            }
            ("_[?_]", [Value::List(_) | Value::Optional(_), _]) => {
                crate::library::aggregates::optional_index(arguments, &mut self.meter)
            }
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    /// Adds to a macro's list or map without copying it.
    fn grow(&mut self, call: &'a Call, slot: usize) -> EvaluationResult<'a> {
        let mut added = Vec::with_capacity(2);
        for argument in &call.arguments[1..] {
            added.push(self.evaluate(argument)?);
        }
        // The accumulator is read, and the function called.
        self.meter.charge(SELECT_COST + 1)?;
        match (
            std::mem::replace(&mut self.locals[slot], Ok(Value::Null))?,
            &added[..],
        ) {
            (Value::List(List::Owned(mut items)), [Value::List(new)]) => {
                let items_now = Rc::make_mut(&mut items);
                for item in new.iter() {
                    items_now.push(item?);
                }
                Ok(Value::List(List::Owned(items)))
            }
            (Value::Map(Map::Owned(mut map)), [key, value]) => {
                Rc::make_mut(&mut map).insert(key.clone(), value.clone())?;
                Ok(Value::Map(Map::Owned(map)))
            }
            (Value::Map(Map::Owned(mut map)), [Value::Map(new)]) => {
                let map_now = Rc::make_mut(&mut map);
                for (key, value) in new.entries()? {
                    map_now.insert(key, value)?;
                }
                Ok(Value::Map(Map::Owned(map)))
            }
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    fn list(&mut self, elements: &'a [(Node, bool)]) -> EvaluationResult<'a> {
        let mut items = Vec::with_capacity(elements.len());
        for (element, optional) in elements {
            let value = self.evaluate(element)?;
            items.extend(present(value, *optional)?);
        }
        self.meter.charge(LIST_COST)?;
        Ok(Value::list(items))
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> EvaluationResult<'a> {
        let mut map = OwnedMap::default();
        for (key, value, optional) in entries {
            let key = self.evaluate(key)?;
            let value = self.evaluate(value)?;
            if let Some(value) = present(value, *optional)? {
                map.insert(key, value)?;
            }
        }
        self.meter.charge(MAP_COST)?;
        Ok(Value::Map(Map::Owned(Rc::new(map))))
    }

    fn construct(
        &mut self,
        type_name: &'a str,
        fields: &'a [(String, Node, bool)],
    ) -> EvaluationResult<'a> {
        let mut map = OwnedMap::default();
        for (field, value, optional) in fields {
            let value = self.evaluate(value)?;
            if let Some(value) = present(value, *optional)? {
                map.insert(Value::String(Text::Borrowed(field)), value)?;
            }
        }
        self.meter.charge(STRUCT_COST)?;
        let fields = Rc::new(map);
        Ok(Value::Map(Map::Constructed { type_name, fields }))
    }

    fn comprehension(&mut self, comprehension: &'a CheckedComprehension) -> EvaluationResult<'a> {
        let range = self.evaluate(&comprehension.range)?;
        let init = self.evaluate(&comprehension.init);
        if comprehension.binds {
            self.locals[comprehension.accumulator] = init;
            return self.evaluate(&comprehension.result);
        }
        let accumulator = comprehension.accumulator;
        self.locals[accumulator] = init;
        let keys = match &range {
            Value::List(_) => None,
            Value::Map(map) => Some(map.keys()),
            _ => return Err(EvalError::NoSuchOverload),
        };
        let count = match (&range, &keys) {
            (Value::List(list), _) => list.len(),
            (_, Some(keys)) => keys.len(),
            _ => 0,
        };
        for index in 0..count {
            self.meter.work(1)?;
            let key = keys.as_ref().and_then(|keys| keys.get(index));
            self.bind_element(comprehension, &range, key, index);
            match self.evaluate(&comprehension.condition) {
                Ok(Value::Bool(false)) => break,
                Err(error) if error.ends_evaluation() => return Err(error),
                _ => {}
            }
            let step = self.evaluate(&comprehension.step);
            if let Err(error) = &step
                && error.ends_evaluation()
            {
                return Err(error.clone());
            }
            self.locals[accumulator] = step;
        }
        self.evaluate(&comprehension.result)
    }

    fn bind_element(
        &mut self,
        comprehension: &CheckedComprehension,
        range: &Value<'a>,
        key: Option<&Value<'a>>,
        position: usize,
    ) {
        let missing = || Err(EvalError::new("no such element"));
        let index = || Value::Int(i64::try_from(position).unwrap_or(i64::MAX));
        let element = match (range, key) {
            (Value::List(list), _) => list.get(position),
            (Value::Map(map), Some(key)) if comprehension.second_variable.is_some() => map.get(key),
            _ => None,
        };
        let first = match (key, comprehension.second_variable) {
            (Some(key), _) => Ok(key.clone()),
            (None, Some(_)) => Ok(index()),
            (None, None) => element.clone().unwrap_or_else(missing),
        };
        self.locals[comprehension.variable] = first;
        if let Some(slot) = comprehension.second_variable {
            self.locals[slot] = element.unwrap_or_else(missing);
        }
    }
}

fn literal_value<'a>(literal: &'a Literal) -> Value<'a> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(b) => Value::Bool(*b),
        Literal::Int(n) => Value::Int(*n),
        Literal::Uint(n) => Value::Uint(*n),
        Literal::Double(n) => Value::Double(*n),
        Literal::String(text) => Value::String(Text::Borrowed(text)),
        Literal::Bytes(bytes) => Value::Bytes(bytes.as_slice().into()),
    }
}

fn has_field(value: &Value<'_>, field: &str) -> Result<bool, EvalError> {
    match value {
        Value::Map(map) => Ok(map.field(field).is_some()),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn optional_field<'a>(value: &Value<'a>, field: &str) -> EvaluationResult<'a> {
    let field_value = match value {
        Value::Map(map) => map.field(field).transpose()?,
        Value::Optional(None) => None,
        Value::Optional(Some(inner)) => match &**inner {
            Value::Map(map) => map.field(field).transpose()?,
            _ => return Err(EvalError::NoSuchOverload),
        },
        _ => return Err(EvalError::NoSuchOverload),
    };
    Ok(Value::optional(field_value))
}

/// The value of an element; `None` for an optional one without a value.
fn present(value: Value<'_>, optional: bool) -> Result<Option<Value<'_>>, EvalError> {
    match value {
        Value::Optional(inner) if optional => Ok(inner.map(|v| (*v).clone())),
        _ if optional => Err(EvalError::NoSuchOverload),
        value => Ok(Some(value)),
    }
}
