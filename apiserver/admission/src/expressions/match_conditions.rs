//! Match conditions of webhooks and policies
//! (`k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions`).

use kubernetes_cel::{
    AdmissionEvaluation, AdmissionEvaluationError, AdmissionExpression, AdmissionExpressions,
    AdmissionInputs, AuthorizationCheck, DeclaredAdmissionVariables, EvaluationBudget, OutputType,
};
use serde_json::Value;

use crate::unstructured::{items, text};

/// The result of match conditions for a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MatchOutcome {
    Matches,
    Excluded,
    /// A condition failed, none is false, and failures are not ignored.
    Error(String),
}

/// Compiles the field `matchConditions` of a webhook or of a policy's spec.
pub(crate) fn compile_match_conditions(
    expressions: &AdmissionExpressions,
    owner: &Value,
    declared: DeclaredAdmissionVariables,
) -> Vec<AdmissionExpression> {
    let conditions = items(owner, "/matchConditions").iter();
    conditions
        .map(|c| expressions.compile(text(c, "/expression"), OutputType::Bool, declared))
        .collect()
}

/// Evaluates match conditions. A false one excludes the request even if others fail.
pub(crate) fn evaluate_match_conditions(
    expressions: &AdmissionExpressions,
    conditions: &[AdmissionExpression],
    ignore_failures: bool,
    inputs: AdmissionInputs<'_>,
) -> Result<MatchOutcome, Box<AuthorizationCheck>> {
    let budget = EvaluationBudget::MATCH_CONDITIONS;
    let mut evaluation = AdmissionEvaluation::new(expressions, inputs, budget);
    let mut failures: Vec<String> = Vec::new();
    let mut excluded = false;
    for condition in conditions {
        match evaluation.evaluate(condition) {
            Ok(Value::Bool(false)) => excluded = true,
            Ok(_) => {}
            Err(AdmissionEvaluationError::Expression(message)) => {
                if !failures.contains(&message) {
                    failures.push(message);
                }
            }
            Err(AdmissionEvaluationError::OutOfBudget) => {
                let message = AdmissionEvaluationError::out_of_budget_text().to_owned();
                return Ok(failed(message, ignore_failures));
            }
            Err(AdmissionEvaluationError::Pending(check)) => return Err(check),
        }
    }
    if excluded {
        return Ok(MatchOutcome::Excluded);
    }
    Ok(match failures.len() {
        0 => MatchOutcome::Matches,
        1 => failed(failures.remove(0), ignore_failures),
        _ => failed(format!("[{}]", failures.join(", ")), ignore_failures),
    })
}

fn failed(message: String, ignore_failures: bool) -> MatchOutcome {
    if ignore_failures {
        MatchOutcome::Excluded
    } else {
        MatchOutcome::Error(message)
    }
}
