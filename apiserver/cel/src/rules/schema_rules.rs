//! Checks the rules of a schema when its CustomResourceDefinition is written: fields,
//! compilation, and estimated cost
//! (`apiextensions-apiserver/pkg/apis/apiextensions/validation`).

use std::sync::Arc;

use machinery::FieldError;
use machinery::go_pattern::PatternBudget;
use serde_json::{Value as Json, json};

use crate::declarations::{Declaration, limit};
use crate::escaping::escape;
use crate::rules::field_path;
use crate::rules::rule::{Rule, max_cardinality};

const RULES: &str = "x-kubernetes-validations";
/// The estimated cost that one rule may have.
const RULE_COST_LIMIT: u64 = 10_000_000;
/// The estimated cost that all rules of a schema may have.
const TOTAL_COST_LIMIT: u64 = 100_000_000;
/// How many of the most expensive rules are named.
const REPORTED_RULES: usize = 4;
/// Bound on the nesting of a schema.
const MAX_DEPTH: usize = 128;
const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// The rules of one version's schema, and what they are checked against.
#[derive(Clone, Copy, Debug)]
pub struct SchemaRules<'a> {
    /// The path of the schema in its CustomResourceDefinition.
    pub path: &'a str,
    pub schema: &'a Json,
    /// Whether the schema is stored already: a limit on single rules that came later does not
    /// keep its definition from being updated.
    pub stored: bool,
    /// The patterns of the whole definition.
    pub patterns: &'a PatternBudget,
}

/// Appends what is wrong with the rules of a structural schema.
pub fn validate_schema_rules(rules: SchemaRules<'_>, errors: &mut Vec<FieldError>) {
    if !has_rules(rules.schema, 0) {
        return;
    }
    let mut check = RuleCheck {
        stored: rules.stored,
        errors: Vec::new(),
        total_cost: 0,
        patterns: rules.patterns.clone(),
        expensive: Vec::new(),
    };
    let declaration = Declaration::from_schema(rules.schema, true).map(Arc::new);
    let node = SchemaPosition {
        path: rules.path,
        schema: rules.schema,
        declaration,
        cardinality: Some(1),
        uncorrelatable: None,
        depth: 0,
    };
    check.node(&node);
    check.report_total(rules.path);
    errors.append(&mut check.errors);
}

/// Whether the schema or a part of it has rules.
pub(super) fn has_rules(schema: &Json, depth: usize) -> bool {
    if depth > MAX_DEPTH || !schema.is_object() {
        return false;
    }
    let has_own = schema[RULES].as_array().is_some_and(|r| !r.is_empty());
    let part_has = |part: &Json| has_rules(part, depth + 1);
    let properties = schema["properties"].as_object();
    let all_of = schema["allOf"].as_array();
    has_own
        || properties.is_some_and(|p| p.values().any(part_has))
        || all_of.is_some_and(|parts| parts.iter().any(part_has))
        || part_has(&schema["items"])
        || part_has(&schema["additionalProperties"])
}

/// A node of the schema and what is known of it from its parents.
struct SchemaPosition<'a> {
    path: &'a str,
    schema: &'a Json,
    declaration: Option<Arc<Declaration>>,
    /// How often its values can occur in one object; `None` without a bound.
    cardinality: Option<u64>,
    /// The path of the outermost part whose old and new values cannot be matched.
    uncorrelatable: Option<&'a str>,
    depth: usize,
}

impl<'a> SchemaPosition<'a> {
    /// How many values its children have for each of its own.
    fn child_cardinality(&self) -> Option<u64> {
        let schema = self.schema;
        let factor = match schema["type"].as_str() {
            Some("array") => limit(schema, "maxItems")?,
            Some("object") if schema["additionalProperties"].is_object() => {
                limit(schema, "maxProperties")?
            }
            _ => 1,
        };
        Some(self.cardinality?.saturating_mul(factor))
    }

    fn child(&self, path: &'a str, schema: &'a Json, declared: Option<&Arc<Declaration>>) -> Self {
        let embedded = schema["x-kubernetes-embedded-resource"] == true;
        // Fields that no identifier names have no declaration in their parent.
        let declaration = declared
            .cloned()
            .or_else(|| Declaration::from_schema(schema, embedded).map(Arc::new));
        SchemaPosition {
            path,
            schema,
            declaration,
            cardinality: self.child_cardinality(),
            uncorrelatable: self.uncorrelatable,
            depth: self.depth + 1,
        }
    }
}

struct RuleCheck {
    stored: bool,
    errors: Vec<FieldError>,
    total_cost: u64,
    patterns: PatternBudget,
    expensive: Vec<(u64, String)>,
}

impl RuleCheck {
    fn node(&mut self, node: &SchemaPosition<'_>) {
        if node.depth > MAX_DEPTH || !has_rules(node.schema, node.depth) {
            return;
        }
        let schema = node.schema;
        let declaration = node.declaration.as_deref();
        let map_type = schema["x-kubernetes-map-type"]
            .as_str()
            .unwrap_or("granular");
        let uncorrelatable_map = !matches!(map_type, "granular" | "atomic");
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{}.properties[{name}]", node.path);
            let declared = escape(name).and_then(|name| declaration?.field(&name));
            let mut child = node.child(&path, property, declared);
            if uncorrelatable_map {
                child.uncorrelatable = child.uncorrelatable.or(Some(node.path));
            }
            self.node(&child);
        }
        let element = declaration.and_then(Declaration::element);
        if schema["additionalProperties"].is_object() {
            let path = format!("{}.additionalProperties", node.path);
            self.node(&node.child(&path, &schema["additionalProperties"], element));
        }
        if schema["items"].is_object() {
            let path = format!("{}.items", node.path);
            let mut child = node.child(&path, &schema["items"], element);
            // Only the elements of lists with keys can be matched with their old values.
            if schema["x-kubernetes-list-type"] != "map" {
                child.uncorrelatable = child.uncorrelatable.or(Some(node.path));
            }
            self.node(&child);
        }
        let parts = schema["allOf"].as_array();
        for (i, part) in parts.into_iter().flatten().enumerate() {
            let path = format!("{}.allOf[{i}]", node.path);
            self.rules(&path, part, node);
        }
        self.rules(node.path, schema, node);
    }

    /// Checks the rules of `holder`, which are about the values of `node`.
    fn rules(&mut self, path: &str, holder: &Json, node: &SchemaPosition<'_>) {
        let before = self.errors.len();
        let rules = holder[RULES].as_array();
        for (i, rule) in rules.into_iter().flatten().enumerate() {
            self.fields(&format!("{path}.{RULES}[{i}]"), rule, node.schema);
        }
        if self.errors.len() > before {
            return;
        }
        for (i, rule) in rules.into_iter().flatten().enumerate() {
            let path = format!("{path}.{RULES}[{i}]");
            let Some(declaration) = &node.declaration else {
                let detail = "unable to convert structural schema to CEL declarations";
                let value = &node.schema["type"];
                self.errors
                    .push(FieldError::invalid(format!("{path}.rule"), value, detail));
                continue;
            };
            let compiled = Rule::compile(rule, node.schema, declaration, &self.patterns);
            self.expression(&path, rule, &compiled, node, declaration);
        }
    }

    fn fields(&mut self, rule_path: &str, rule: &Json, schema: &Json) {
        let text = |name: &str| rule[name].as_str().unwrap_or("");
        let invalid = |name: &str, detail: &str| {
            FieldError::invalid(format!("{rule_path}.{name}"), &text(name).into(), detail)
        };
        let lines = |text: &str| text.contains(['\n', '\r']);
        let (trimmed_rule, trimmed_message) = (text("rule").trim(), text("message").trim());
        if trimmed_rule.is_empty() {
            let detail = "rule is not specified";
            self.errors
                .push(FieldError::required(format!("{rule_path}.rule"), detail));
        } else if !text("message").is_empty() && trimmed_message.is_empty() {
            self.errors
                .push(invalid("message", "must be non-empty if specified"));
        } else if lines(trimmed_message) {
            self.errors
                .push(invalid("message", "must not contain line breaks"));
        } else if lines(trimmed_rule) && trimmed_message.is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            self.errors
                .push(FieldError::required(format!("{rule_path}.message"), detail));
        }
        let expression = text("messageExpression");
        if !expression.is_empty() && expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            self.errors.push(FieldError::required(
                format!("{rule_path}.messageExpression"),
                detail,
            ));
        }
        let reason = &rule["reason"];
        if !reason.is_null() && !REASONS.contains(&text("reason")) {
            let field = format!("{rule_path}.reason");
            self.errors
                .push(FieldError::not_supported(field, reason, &REASONS));
        }
        let path = text("fieldPath");
        if path.is_empty() {
            return;
        }
        if path.trim().is_empty() {
            self.errors
                .push(invalid("fieldPath", "must be non-empty if specified"));
        }
        if lines(path) {
            self.errors
                .push(invalid("fieldPath", "must not contain line breaks"));
        }
        if field_path::normalize(path, schema).is_err() {
            self.errors
                .push(invalid("fieldPath", "must be a valid path"));
        }
    }

    fn expression(
        &mut self,
        path: &str,
        rule: &Json,
        compiled: &Rule,
        node: &SchemaPosition<'_>,
        declaration: &Declaration,
    ) {
        let rule_at = format!("{path}.rule");
        match &compiled.program {
            Some(Ok(expression)) => {
                let occurrences = node
                    .cardinality
                    .unwrap_or_else(|| max_cardinality(declaration));
                let cost = expression.max_cost.saturating_mul(occurrences);
                self.observe_cost(&rule_at, "estimated rule cost", cost);
            }
            Some(Err(detail)) => self.errors.push(invalid_rule(&rule_at, rule, detail)),
            None => {}
        }
        let message_at = format!("{path}.messageExpression");
        match &compiled.message_program {
            Some(Ok(expression)) => {
                let name = "estimated messageExpression cost";
                self.observe_cost(&message_at, name, expression.max_cost);
            }
            Some(Err(detail)) => self.errors.push(invalid_rule(&message_at, rule, detail)),
            None => {}
        }
        if compiled.uses_old_self() {
            if let Some(part) = node.uncorrelatable {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {part}"
                );
                let text = Json::from(&*compiled.text);
                self.errors
                    .push(FieldError::invalid(rule_at, &text, detail));
            }
        } else if !rule["optionalOldSelf"].is_null() {
            let detail = "may not be set if oldSelf is not used in rule";
            let field = format!("{path}.optionalOldSelf");
            self.errors
                .push(FieldError::invalid(field, &rule["optionalOldSelf"], detail));
        }
    }

    fn observe_cost(&mut self, path: &str, name: &str, cost: u64) {
        if !self.stored && cost > RULE_COST_LIMIT {
            let detail = cost_error(name, cost, RULE_COST_LIMIT);
            self.errors.push(FieldError::forbidden(path, &detail));
        }
        self.total_cost = self.total_cost.saturating_add(cost);
        if cost >= TOTAL_COST_LIMIT / 100 {
            self.expensive.push((cost, path.to_owned()));
        }
    }

    fn report_total(&mut self, path: &str) {
        if self.total_cost <= TOTAL_COST_LIMIT {
            return;
        }
        self.expensive.sort_by(|(a, _), (b, _)| b.cmp(a));
        let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        for (_, path) in self.expensive.iter().take(REPORTED_RULES) {
            self.errors.push(FieldError::forbidden(path, detail));
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let detail = cost_error(name, self.total_cost, TOTAL_COST_LIMIT);
        self.errors.push(FieldError::forbidden(path, &detail));
    }
}

fn cost_error(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// An error about a rule as a whole, which Go prints with its fields in order.
fn invalid_rule(path: &str, rule: &Json, detail: &str) -> FieldError {
    let text = |name: &str| json!(rule[name].as_str().unwrap_or("")).to_string();
    let rendered = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        rule["reason"],
        text("fieldPath"),
        rule["optionalOldSelf"],
    );
    FieldError::invalid_rendered(path, &rendered, detail)
}
