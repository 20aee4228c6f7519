//! Evaluates the rules of a schema for an object
//! (`apiextensions-apiserver/pkg/apiserver/schema/cel/validation.go`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use machinery::go_pattern::PatternBudget;
use machinery::{FieldError, FieldErrorType};
use serde_json::Value as Json;

use crate::declarations::Declaration;
use crate::error::EvalError;
use crate::escaping::escape;
use crate::from_json::to_value;
use crate::program::PER_CALL_LIMIT;
use crate::rules::correlation::Correlation;
use crate::rules::rule::{CompiledExpression, Rule};
use crate::rules::schema_rules::has_rules;
use crate::value::Value;

/// The cost that all rules for one object may have (`celconfig.RuntimeCELCostBudget`).
const OBJECT_BUDGET: u64 = 10_000_000;
/// The longest message of a messageExpression in bytes.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The compiled rules of a schema.
#[derive(Debug)]
pub struct RuleValidator(RuleNode);

/// The rules' view of an object.
#[derive(Debug, Default)]
pub struct RuleOutcome {
    pub errors: Vec<FieldError>,
    /// Errors that are tolerated because an update left the values unchanged.
    pub warnings: Vec<String>,
}

/// The rules of one node of the schema and of those below.
#[derive(Debug)]
struct RuleNode {
    rules: Vec<Rule>,
    declaration: Arc<Declaration>,
    /// The type in the schema.
    schema_type: String,
    properties: BTreeMap<String, RuleNode>,
    additional_properties: Option<Box<RuleNode>>,
    items: Option<Box<RuleNode>>,
    all_of: Vec<RuleNode>,
    /// The keys of a list with the type `map`.
    list_map_keys: Vec<String>,
}

impl RuleValidator {
    /// Compiles the rules of a structural schema; `None` if it has none.
    pub fn compile(schema: &Json) -> Option<Self> {
        if !has_rules(schema, 0) {
            return None;
        }
        let declaration = Arc::new(Declaration::from_schema(schema, true)?);
        RuleNode::compile(schema, schema, &declaration).map(Self)
    }

    /// Evaluates the rules for an object, and the transition rules for what it was before.
    pub fn validate(&self, new: &Json, old: Option<&Json>) -> RuleOutcome {
        let mut evaluation = RuleEvaluation {
            outcome: RuleOutcome::default(),
            budget: OBJECT_BUDGET,
        };
        // Running out of budget ends the evaluation, with the error that says so.
        let _ = evaluation.node(&self.0, "", new, old, Correlation::root(new, old));
        evaluation.outcome
    }
}

impl RuleNode {
    /// Compiles the rules of `holder`, which are about the values of `schema`; `None` if
    /// there are none.
    fn compile(holder: &Json, schema: &Json, declaration: &Arc<Declaration>) -> Option<Self> {
        let rules = holder["x-kubernetes-validations"].as_array();
        // The patterns of the whole definition were bounded when it was written.
        let patterns = PatternBudget::default();
        let rules: Vec<Rule> = rules
            .into_iter()
            .flatten()
            .map(|rule| Rule::compile(rule, schema, declaration, &patterns))
            .collect();
        let element = declaration.element();
        let compile_child = |name: &str| {
            let (holder, part) = (&holder[name], &schema[name]);
            let are_objects = holder.is_object() && part.is_object();
            let node = are_objects.then(|| Self::compile(holder, part, element?));
            node.flatten().map(Box::new)
        };
        let properties = Self::compile_properties(holder, schema, declaration);
        let all_of = holder["allOf"].as_array().into_iter().flatten();
        let node = Self {
            rules,
            declaration: Arc::clone(declaration),
            schema_type: schema["type"].as_str().unwrap_or("").to_owned(),
            properties,
            additional_properties: compile_child("additionalProperties"),
            items: compile_child("items"),
            all_of: all_of
                .filter_map(|part| Self::compile(part, schema, declaration))
                .collect(),
            list_map_keys: list_map_keys(schema),
        };
        let empty = node.rules.is_empty()
            && node.properties.is_empty()
            && node.additional_properties.is_none()
            && node.items.is_none()
            && node.all_of.is_empty();
        (!empty).then_some(node)
    }

    fn compile_properties(
        holder: &Json,
        schema: &Json,
        declaration: &Declaration,
    ) -> BTreeMap<String, Self> {
        let mut nodes = BTreeMap::new();
        for (name, property) in holder["properties"].as_object().into_iter().flatten() {
            let part = &schema["properties"][name];
            if !part.is_object() || !has_rules(property, 0) {
                continue;
            }
            let embedded = part["x-kubernetes-embedded-resource"] == true;
            let declared = match escape(name) {
                Some(escaped) => declaration.field(&escaped).cloned(),
                // Fields that no identifier names have no declaration in their parent.
                None => Declaration::from_schema(part, embedded).map(Arc::new),
            };
            let node = declared.and_then(|declared| Self::compile(property, part, &declared));
            nodes.extend(node.map(|node| (name.clone(), node)));
        }
        nodes
    }
}

fn list_map_keys(schema: &Json) -> Vec<String> {
    if schema["x-kubernetes-list-type"] != "map" {
        return Vec::new();
    }
    let keys = schema["x-kubernetes-list-map-keys"].as_array();
    let keys = keys.into_iter().flatten().filter_map(Json::as_str);
    keys.map(str::to_owned).collect()
}

/// The budget is used up; the error is reported.
struct BudgetExceeded;

struct RuleEvaluation {
    outcome: RuleOutcome,
    budget: u64,
}

type BudgetResult = Result<(), BudgetExceeded>;

impl RuleEvaluation {
    fn node<'v>(
        &mut self,
        node: &'v RuleNode,
        path: &str,
        new: &'v Json,
        old: Option<&'v Json>,
        correlation: Correlation<'v>,
    ) -> BudgetResult {
        if new.is_null() {
            return Ok(());
        }
        for rule in &node.rules {
            self.rule(node, rule, path, new, old, correlation)?;
        }
        for part in &node.all_of {
            self.node(part, path, new, old, correlation.without_current())?;
        }
        match new {
            Json::Array(items) => self.items(node, path, items, old, correlation),
            Json::Object(_) => self.fields(node, path, new, old, correlation),
            _ => Ok(()),
        }
    }

    fn fields<'v>(
        &mut self,
        node: &'v RuleNode,
        path: &str,
        new: &'v Json,
        old: Option<&'v Json>,
        correlation: Correlation<'v>,
    ) -> BudgetResult {
        for (name, value) in new.as_object().into_iter().flatten() {
            let old = old.and_then(|old| old.get(name));
            let correlation = correlation.field(name, value, old);
            if let Some(child_node) = &node.additional_properties {
                let path = format!("{path}[{name}]");
                self.node(child_node, &path, value, old, correlation)?;
            }
            if let Some(child_node) = node.properties.get(name) {
                self.node(child_node, &child(path, name), value, old, correlation)?;
            }
        }
        Ok(())
    }

    fn items<'v>(
        &mut self,
        node: &'v RuleNode,
        path: &str,
        items: &'v [Json],
        old: Option<&'v Json>,
        correlation: Correlation<'v>,
    ) -> BudgetResult {
        let Some(item_node) = &node.items else {
            return Ok(());
        };
        let old_items = old_items_by_key(&node.list_map_keys, old);
        for (i, item) in items.iter().enumerate() {
            let key = composite_key(&node.list_map_keys, item);
            let old = key.and_then(|key| old_items.get(&key).copied());
            let path = format!("{path}[{i}]");
            self.node(item_node, &path, item, old, correlation.item(item, old))?;
        }
        Ok(())
    }

    fn rule<'v>(
        &mut self,
        node: &'v RuleNode,
        rule: &'v Rule,
        object_path: &str,
        new: &'v Json,
        old: Option<&'v Json>,
        correlation: Correlation<'v>,
    ) -> BudgetResult {
        let path = if object_path.is_empty() {
            "<nil>"
        } else {
            object_path
        };
        let schema_type = Json::from(&*node.schema_type);
        let invalid = |message: &str| FieldError::invalid(path, &schema_type, message);
        if self.budget == 0 {
            self.outcome.errors.push(invalid(OUT_OF_BUDGET));
            return Err(BudgetExceeded);
        }
        let compiled = match &rule.program {
            None => return Ok(()),
            Some(Err(message)) => {
                let message = format!("rule compile error: {message}");
                self.outcome.errors.push(invalid(&message));
                return Ok(());
            }
            Some(Ok(compiled)) => compiled,
        };
        // Null is no old value.
        let old = old.filter(|old| !old.is_null());
        if compiled.uses_old_self && old.is_none() && !rule.optional_old_self {
            return Ok(());
        }
        let values = RuleValues {
            declaration: &node.declaration,
            new,
            old,
            optional: rule.optional_old_self,
        };
        let (result, cost) = values.evaluate(compiled, |value| match value {
            Value::Bool(holds) => Ok(holds),
            _ => Err(EvalError::NoSuchOverload),
        });
        if cost > self.budget {
            self.outcome.errors.push(invalid(OUT_OF_BUDGET));
            return Err(BudgetExceeded);
        }
        self.budget -= cost;
        match result {
            Ok(true) => Ok(()),
            Ok(false) => self.failed_rule(rule, path, &node.schema_type, &values, correlation),
            Err(message) => {
                self.outcome
                    .errors
                    .push(invalid(&evaluation_error(&message, rule)));
                match message {
                    EvalError::CostLimitExceeded => Err(BudgetExceeded),
                    _ => Ok(()),
                }
            }
        }
    }

    fn failed_rule(
        &mut self,
        rule: &Rule,
        path: &str,
        schema_type: &str,
        values: &RuleValues<'_>,
        correlation: Correlation<'_>,
    ) -> BudgetResult {
        let path = match &*rule.field_path {
            "" => path.to_owned(),
            below if path == "<nil>" => below.to_owned(),
            below => format!("{path}.{below}"),
        };
        let tolerated = !rule.uses_old_self() && correlation.is_unchanged();
        let mut message = None;
        if let Some(Ok(expression)) = &rule.message_program {
            match self.message(expression, &rule.message_expression, values) {
                Ok(text) => message = text,
                Err(detail) => {
                    let value = Json::from(schema_type);
                    self.add(FieldError::invalid(path, &value, detail), tolerated);
                    return Err(BudgetExceeded);
                }
            }
        }
        let message = message.unwrap_or_else(|| match rule.message.trim() {
            "" => format!("failed rule: {}", rule.describe()),
            text => text.to_owned(),
        });
        let composite = matches!(schema_type, "object" | "array");
        let value = (!composite).then_some(values.new);
        self.add(
            error_for_reason(rule.reason.as_deref(), path, value, &message),
            tolerated,
        );
        Ok(())
    }

    fn add(&mut self, error: FieldError, tolerated: bool) {
        if tolerated {
            let text = format!("{}: {}", error.field, error.message);
            self.outcome.warnings.push(text);
        } else {
            self.outcome.errors.push(error);
        }
    }

    /// The message that an expression yields; `None` if it yields none that can be shown. An
    /// error is out of budget.
    fn message(
        &mut self,
        expression: &CompiledExpression,
        text: &str,
        values: &RuleValues<'_>,
    ) -> Result<Option<String>, String> {
        let (result, cost) = values.evaluate(expression, |value| match value {
            Value::String(text) => Ok(text.as_str().to_owned()),
            _ => Err(EvalError::NoSuchOverload),
        });
        if cost > self.budget {
            return Err("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_owned());
        }
        self.budget -= cost;
        match result {
            Err(EvalError::CostLimitExceeded) => Err(format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {text:?}"
            )),
            Err(_) => Ok(None),
            Ok(message) => {
                let message = message.trim();
                let is_valid = !message.is_empty()
                    && message.len() <= MAX_MESSAGE_BYTES
                    && !message.contains('\n');
                Ok(is_valid.then(|| message.to_owned()))
            }
        }
    }
}

/// The values of a rule's variables.
struct RuleValues<'v> {
    declaration: &'v Arc<Declaration>,
    new: &'v Json,
    old: Option<&'v Json>,
    /// Whether `oldSelf` is an optional.
    optional: bool,
}

impl<'v> RuleValues<'v> {
    fn evaluate<T>(
        &self,
        expression: &CompiledExpression,
        read: impl FnOnce(Value<'_>) -> Result<T, EvalError>,
    ) -> (Result<T, EvalError>, u64) {
        let variables = |number: usize| match number {
            0 => Some(to_value(self.new, self.declaration)),
            _ if self.optional => {
                let old = self.old.map(|old| to_value(old, self.declaration));
                Some(old.transpose().map(Value::optional))
            }
            _ => self.old.map(|old| to_value(old, self.declaration)),
        };
        let evaluation = expression
            .program
            .evaluate(&variables, PER_CALL_LIMIT, read);
        (evaluation.result, evaluation.cost)
    }
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// The keys of an element of a list with the type `map`, as one text.
fn composite_key(keys: &[String], item: &Json) -> Option<String> {
    if keys.is_empty() || !item.is_object() {
        return None;
    }
    let values: Vec<&Json> = keys.iter().map(|key| &item[key]).collect();
    serde_json::to_string(&values).ok()
}

fn old_items_by_key<'v>(keys: &[String], old: Option<&'v Json>) -> HashMap<String, &'v Json> {
    let mut by_key = HashMap::new();
    for item in old.and_then(Json::as_array).into_iter().flatten() {
        if let Some(key) = composite_key(keys, item) {
            by_key.entry(key).or_insert(item);
        }
    }
    by_key
}

fn evaluation_error(error: &EvalError, rule: &Rule) -> String {
    let rule = rule.describe();
    match error {
        EvalError::NoSuchOverload => format!(
            "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {rule}"
        ),
        EvalError::CostLimitExceeded => format!(
            "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {rule}"
        ),
        // Rules have no authorizer.
        EvalError::Message(_) | EvalError::PendingAuthorization(_) => {
            format!("{error} evaluating rule: {rule}")
        }
    }
}

/// The error of a rule that does not hold. Objects and lists are not shown.
fn error_for_reason(
    reason: Option<&str>,
    field: String,
    value: Option<&Json>,
    message: &str,
) -> FieldError {
    let omitted = |error_type, text: String| FieldError::new(error_type, field.clone(), text);
    match (reason, value) {
        (Some("FieldValueForbidden"), _) => FieldError::forbidden(field, message),
        (Some("FieldValueRequired"), _) => FieldError::required(field, message),
        (Some("FieldValueDuplicate"), Some(value)) => FieldError::duplicate(field, value),
        (Some("FieldValueDuplicate"), None) => {
            omitted(FieldErrorType::Duplicate, "Duplicate value".to_owned())
        }
        (_, Some(value)) => FieldError::invalid(field, value, message),
        (_, None) => omitted(FieldErrorType::Invalid, format!("Invalid value: {message}")),
    }
}
