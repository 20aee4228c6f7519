//! Expressions that say for which requests an authorization webhook is called
//! (`apiserver/pkg/authorization/cel` of Kubernetes).

use std::sync::LazyLock;

use kubernetes_cel::{Environment, OutputType, Program};
use serde_json::{Value, json};

/// More conditions are refused.
const MAX_CONDITIONS: usize = 64;

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    Environment::new().with_unescaped_schema("request", &subject_access_review_schema())
});

/// The type of the variable `request`: a SubjectAccessReviewSpec.
fn subject_access_review_schema() -> Value {
    let text = || json!({"type": "string"});
    let list = || json!({"type": "array", "items": {"type": "string"}});
    let requirement = json!({"type": "object", "properties": {
        "key": text(), "operator": text(), "values": list()}});
    let selector = json!({"type": "object", "properties": {
        "rawSelector": text(), "requirements": {"type": "array", "items": requirement}}});
    json!({"type": "object", "properties": {
        "resourceAttributes": {"type": "object", "properties": {
            "namespace": text(), "verb": text(), "group": text(), "version": text(),
            "resource": text(), "subresource": text(), "name": text(),
            "fieldSelector": selector, "labelSelector": selector}},
        "nonResourceAttributes": {"type": "object", "properties": {
            "path": text(), "verb": text()}},
        "user": text(), "groups": list(), "uid": text(),
        "extra": {"type": "object", "additionalProperties": list()}}})
}

struct MatchCondition {
    expression: String,
    program: Program,
}

/// The conditions of one webhook, of which all must hold.
#[derive(Default)]
pub struct MatchConditions(Vec<MatchCondition>);

impl MatchConditions {
    /// Compiles the expressions; `path` is the field that has them. Errors name the field.
    pub fn compile(expressions: &[String], path: &str) -> Result<Self, String> {
        if expressions.len() > MAX_CONDITIONS {
            let count = expressions.len();
            return Err(format!(
                "{path}: Too many: {count}: must have at most {MAX_CONDITIONS} items"
            ));
        }
        let mut conditions: Vec<MatchCondition> = Vec::new();
        for (i, expression) in expressions.iter().enumerate() {
            let path = format!("{path}[{i}].expression");
            if expression.trim().is_empty() {
                return Err(format!("{path}: Required value"));
            }
            if conditions.iter().any(|c| c.expression == *expression) {
                return Err(format!("{path}: Duplicate value: {expression:?}"));
            }
            let invalid =
                |message: &str| format!("{path}: Invalid value: {expression:?}: {message}");
            let program = Program::compile(expression, &ENVIRONMENT)
                .map_err(|message| invalid(&format!("compilation failed: {message}")))?;
            if !program.has_output(OutputType::Bool) {
                return Err(invalid("must evaluate to bool"));
            }
            conditions.push(MatchCondition {
                expression: expression.clone(),
                program,
            });
        }
        Ok(Self(conditions))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all conditions hold for the spec of a review. One that is false decides; an
    /// error of another one counts only if none is false.
    pub(crate) fn matches(&self, spec: &Value) -> Result<bool, String> {
        let request = with_empty_fields(spec);
        let mut errors = Vec::new();
        for condition in &self.0 {
            let evaluated = condition
                .program
                .evaluate_json(&ENVIRONMENT, &[Some(&request)]);
            match evaluated.result {
                Ok(Value::Bool(true)) => {}
                Ok(_) => return Ok(false),
                Err(error) => errors.push(format!(
                    "cel evaluation error: expression '{}' resulted in error: {error}",
                    condition.expression
                )),
            }
        }
        match errors.len() {
            0 => Ok(true),
            1 => Err(errors.remove(0)),
            _ => Err(format!("[{}]", errors.join(", "))),
        }
    }
}

/// The spec with all texts, groups and extra, which expressions may read whether a request has
/// them or not.
fn with_empty_fields(spec: &Value) -> Value {
    let mut request = json!({"user": "", "uid": "", "groups": [], "extra": {}});
    for field in ["user", "uid", "groups", "extra"] {
        if let Some(value) = spec.get(field) {
            request[field] = value.clone();
        }
    }
    let attributes = [
        (
            "resourceAttributes",
            json!({"namespace": "", "verb": "", "group": "", "version": "", "resource": "",
                "subresource": "", "name": ""}),
        ),
        ("nonResourceAttributes", json!({"path": "", "verb": ""})),
    ];
    for (name, mut complete) in attributes {
        let Some(fields) = spec[name].as_object() else {
            continue;
        };
        for (field, value) in fields {
            complete[field.as_str()] = value.clone();
        }
        request[name] = complete;
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_select_requests() {
        let pods = json!({"user": "ann", "groups": ["dev"], "resourceAttributes": {
            "namespace": "n", "verb": "get", "resource": "pods", "version": "v1"}});
        let healthz =
            json!({"user": "ann", "nonResourceAttributes": {"path": "/x", "verb": "get"}});
        for (expression, of_pods, of_path) in [
            ("has(request.resourceAttributes)", Ok(true), Ok(false)),
            ("!('dev' in request.groups)", Ok(false), Ok(true)),
            (
                "request.resourceAttributes.namespace == 'n'",
                Ok(true),
                Err(()),
            ),
            ("request.resourceAttributes.name == ''", Ok(true), Err(())),
            (
                "request.nonResourceAttributes.path == '/x'",
                Err(()),
                Ok(true),
            ),
            ("'a' in request.extra", Ok(false), Ok(false)),
        ] {
            let conditions = MatchConditions::compile(&[expression.to_owned()], "c").unwrap();
            assert_eq!(
                conditions.matches(&pods).map_err(drop),
                of_pods,
                "{expression}"
            );
            assert_eq!(
                conditions.matches(&healthz).map_err(drop),
                of_path,
                "{expression}"
            );
        }
        // A false operand decides, whatever fails.
        let expressions = [
            "request.nonResourceAttributes.path == ''",
            "request.user == 'bob'",
        ];
        let conditions = MatchConditions::compile(&expressions.map(str::to_owned), "c").unwrap();
        assert_eq!(conditions.matches(&pods), Ok(false));
    }

    #[test]
    fn invalid_conditions_are_refused() {
        for (expressions, message) in [
            (vec![""], "c[0].expression: Required value"),
            (vec!["true", "true"], "c[1].expression: Duplicate value"),
            (vec!["request.user"], "must evaluate to bool"),
            (vec!["request.other == ''"], "undefined field"),
            (vec!["1 +"], "compilation failed"),
            (vec!["true"; 65], "must have at most 64 items"),
        ] {
            let expressions: Vec<String> = expressions.iter().map(|e| (*e).to_owned()).collect();
            let error = MatchConditions::compile(&expressions, "c").err().unwrap();
            assert!(error.contains(message), "{error}");
        }
    }
}
