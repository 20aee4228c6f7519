//! A ValidatingAdmissionPolicy, compiled, and what it decides of a request
//! (`k8s.io/apiserver/pkg/admission/plugin/policy/validating/validator.go`).

use std::time::{Duration, Instant};

use kubernetes_cel::{
    AdmissionEvaluation, AdmissionEvaluationError, AdmissionExpression, AdmissionInputs,
    AuthorizationCheck, DeclaredAdmissionVariables, EvaluationBudget, OutputType,
};
use serde_json::Value;

use super::definition::PolicyDefinition;
use crate::expressions::{MatchOutcome, evaluate_match_conditions};
use crate::unstructured::{items, text};

/// The longest message of a messageExpression in bytes.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;
const DEFAULT_REASON: &str = "Invalid";

/// A policy and its validations.
#[derive(Debug)]
pub(super) struct ValidatingPolicy {
    pub(super) definition: PolicyDefinition,
    validations: Vec<Validation>,
    audit_annotations: Vec<AuditAnnotation>,
}

#[derive(Debug)]
struct Validation {
    expression: AdmissionExpression,
    text: String,
    message: String,
    message_expression: Option<AdmissionExpression>,
    reason: String,
}

#[derive(Debug)]
struct AuditAnnotation {
    key: String,
    value: AdmissionExpression,
}

/// Why a request violates a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    /// The index of the validation.
    pub(super) index: usize,
    pub(super) message: String,
    /// Empty when the validation could not be evaluated.
    pub(super) reason: String,
}

/// The decision of a policy about a request with one object of parameters.
#[derive(Debug, Default)]
pub(super) struct PolicyDecisions {
    pub(super) violations: Vec<Violation>,
    /// The errors that the failure policy ignores, with the index of their validation.
    pub(super) ignored_errors: Vec<(usize, String)>,
    /// How long each validation took.
    pub(super) durations: Vec<Duration>,
    pub(super) audit_annotations: Vec<(String, String)>,
    /// Why an audit annotation could not be computed; denies whatever the actions are.
    pub(super) audit_error: Option<String>,
}

type PendingOr<T> = Result<T, Box<AuthorizationCheck>>;

impl ValidatingPolicy {
    pub(super) fn compile(name: &str, policy: &Value) -> Result<Self, String> {
        let definition = PolicyDefinition::compile(name, policy)?;
        let declared = definition.declared_variables();
        let for_messages = DeclaredAdmissionVariables {
            authorizer: false,
            ..declared
        };
        let expressions = &definition.expressions;
        let validations = items(policy, "/spec/validations").iter().map(|written| {
            let source = text(written, "/expression");
            let message = text(written, "/messageExpression");
            Validation {
                expression: expressions.compile(source, OutputType::Bool, declared),
                text: source.trim().to_owned(),
                message: text(written, "/message").trim().to_owned(),
                message_expression: (!message.is_empty())
                    .then(|| expressions.compile(message, OutputType::String, for_messages)),
                reason: match text(written, "/reason") {
                    "" => DEFAULT_REASON.to_owned(),
                    reason => reason.to_owned(),
                },
            }
        });
        let validations = validations.collect();
        let annotations = items(policy, "/spec/auditAnnotations")
            .iter()
            .map(|written| {
                let value = text(written, "/valueExpression");
                AuditAnnotation {
                    key: text(written, "/key").to_owned(),
                    value: expressions.compile(value, OutputType::StringOrNull, declared),
                }
            });
        let audit_annotations = annotations.collect();
        Ok(Self {
            validations,
            audit_annotations,
            definition,
        })
    }

    /// Evaluates the policy. `in_match` has no namespace, which match conditions do not see.
    pub(super) fn evaluate(
        &self,
        in_match: AdmissionInputs<'_>,
        inputs: AdmissionInputs<'_>,
    ) -> PendingOr<PolicyDecisions> {
        let definition = &self.definition;
        let ignore = definition.ignore_failures;
        if !definition.match_conditions.is_empty() {
            let conditions = &definition.match_conditions;
            match evaluate_match_conditions(&definition.expressions, conditions, ignore, in_match)?
            {
                MatchOutcome::Matches => {}
                MatchOutcome::Excluded => return Ok(PolicyDecisions::default()),
                MatchOutcome::Error(message) => return Ok(self.failure(message)),
            }
        }
        let expressions = &definition.expressions;
        let mut evaluation =
            AdmissionEvaluation::new(expressions, inputs, EvaluationBudget::POLICY);
        let mut results = Vec::with_capacity(self.validations.len());
        let mut durations = Vec::with_capacity(self.validations.len());
        for validation in &self.validations {
            let start = Instant::now();
            results.push(match evaluation.evaluate(&validation.expression) {
                Ok(value) => Ok(value),
                Err(AdmissionEvaluationError::Expression(message)) => Err(message),
                Err(AdmissionEvaluationError::Pending(check)) => return Err(check),
                Err(AdmissionEvaluationError::OutOfBudget) => {
                    return Ok(self.failure(out_of_budget()));
                }
            });
            durations.push(start.elapsed());
        }
        let messages = self.messages(inputs, evaluation.budget(), &results)?;
        let mut decisions = PolicyDecisions {
            durations,
            ..PolicyDecisions::default()
        };
        self.collect_violations(results, messages, &mut decisions);
        self.annotate(inputs, &mut decisions)?;
        Ok(decisions)
    }

    /// The decision when the policy as a whole cannot be evaluated.
    fn failure(&self, message: String) -> PolicyDecisions {
        let mut decisions = PolicyDecisions::default();
        if self.definition.ignore_failures {
            decisions.ignored_errors.push((0, message));
            return decisions;
        }
        decisions.violations.push(Violation {
            index: 0,
            message,
            reason: String::new(),
        });
        decisions
    }

    /// The values of the messageExpressions of what is violated; `None` when they exceed the
    /// budget.
    fn messages(
        &self,
        inputs: AdmissionInputs<'_>,
        budget: EvaluationBudget,
        results: &[Result<Value, String>],
    ) -> PendingOr<Option<Vec<Option<String>>>> {
        let mut evaluation = AdmissionEvaluation::new(&self.definition.expressions, inputs, budget);
        let mut messages = Vec::with_capacity(results.len());
        for (validation, result) in self.validations.iter().zip(results) {
            let has_failed = !matches!(result, Ok(Value::Bool(true)));
            let expression = validation
                .message_expression
                .as_ref()
                .filter(|_| has_failed);
            let message = match expression.map(|e| evaluation.evaluate(e)) {
                Some(Ok(Value::String(message))) => usable_message(&message),
                Some(Err(AdmissionEvaluationError::Pending(check))) => return Err(check),
                Some(Err(AdmissionEvaluationError::OutOfBudget)) => return Ok(None),
                _ => None,
            };
            messages.push(message);
        }
        Ok(Some(messages))
    }

    fn collect_violations(
        &self,
        results: Vec<Result<Value, String>>,
        messages: Option<Vec<Option<String>>>,
        decisions: &mut PolicyDecisions,
    ) {
        let out_of_budget = messages.is_none();
        let mut messages = messages.unwrap_or_default().into_iter();
        for (index, (validation, result)) in self.validations.iter().zip(results).enumerate() {
            let computed = messages.next().flatten();
            let (message, reason) = match result {
                Err(_) | Ok(_) if out_of_budget && self.definition.ignore_failures => continue,
                Err(detail) if self.definition.ignore_failures => {
                    tracing::debug!(message = %detail, "a validation failed and is ignored");
                    decisions.ignored_errors.push((index, detail));
                    continue;
                }
                Err(detail) => (detail, String::new()),
                Ok(_) if out_of_budget => {
                    let detail = AdmissionEvaluationError::out_of_budget_text();
                    (format!("failed messageExpression: {detail}"), String::new())
                }
                Ok(Value::Bool(true)) => continue,
                Ok(_) => {
                    let written = || match &*validation.message {
                        "" => format!("failed expression: {}", validation.text),
                        message => message.to_owned(),
                    };
                    (computed.unwrap_or_else(written), validation.reason.clone())
                }
            };
            decisions.violations.push(Violation {
                index,
                message,
                reason,
            });
        }
    }

    fn annotate(
        &self,
        inputs: AdmissionInputs<'_>,
        decisions: &mut PolicyDecisions,
    ) -> PendingOr<()> {
        let expressions = &self.definition.expressions;
        let mut evaluation =
            AdmissionEvaluation::new(expressions, inputs, EvaluationBudget::POLICY);
        for annotation in &self.audit_annotations {
            let failure = match evaluation.evaluate(&annotation.value) {
                Ok(Value::String(value)) => {
                    let value = value.trim();
                    if !value.is_empty() {
                        let entry = (annotation.key.clone(), value.to_owned());
                        decisions.audit_annotations.push(entry);
                    }
                    continue;
                }
                Ok(_) => continue,
                Err(AdmissionEvaluationError::Pending(check)) => return Err(check),
                Err(AdmissionEvaluationError::Expression(message)) => message,
                Err(AdmissionEvaluationError::OutOfBudget) => {
                    *decisions = self.failure(out_of_budget());
                    return Ok(());
                }
            };
            if !self.definition.ignore_failures {
                decisions.audit_error.get_or_insert(failure);
            }
        }
        Ok(())
    }
}

fn out_of_budget() -> String {
    AdmissionEvaluationError::out_of_budget_text().to_owned()
}

/// A computed message, unless it is empty, too long or of several lines.
fn usable_message(message: &str) -> Option<String> {
    let message = message.trim();
    let usable =
        !message.is_empty() && message.len() <= MAX_MESSAGE_BYTES && !message.contains('\n');
    usable.then(|| message.to_owned())
}
