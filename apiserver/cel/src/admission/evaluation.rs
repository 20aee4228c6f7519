//! Evaluates the expressions of one policy for one request. The variables that the policy
//! composes are evaluated when they are first used, and paid by who uses them.

use std::cell::{Cell, OnceCell};

use serde_json::Value as Json;

use crate::admission::expressions::{AdmissionExpression, AdmissionExpressions};
use crate::admission::type_names::check_type_names;
use crate::admission::variables::{
    AUTHORIZER, FIRST_COMPOSED, NAMESPACE_OBJECT, OBJECT, OLD_OBJECT, PARAMS, REQUEST,
    REQUEST_RESOURCE,
};
use crate::authorization::{
    AuthorizationCheck, AuthorizationDecisions, CheckedResource, CheckedTarget, CheckedUser,
};
use crate::environment::Environment;
use crate::error::EvalError;
use crate::from_json::to_value;
use crate::to_json::from_value;
use crate::value::{EvaluationResult, Opaque, Value};

/// The values of the variables.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionInputs<'a> {
    pub object: &'a Json,
    pub old_object: &'a Json,
    pub namespace_object: &'a Json,
    pub request: &'a Json,
    pub params: &'a Json,
    /// The request that `authorizer.requestResource` checks.
    pub request_resource: &'a CheckedResource,
    pub decisions: &'a AuthorizationDecisions,
}

/// The cost that further evaluations may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvaluationBudget(u64);

impl EvaluationBudget {
    /// For the validations of one binding (`celconfig.RuntimeCELCostBudget`).
    pub const POLICY: Self = Self(10_000_000);
    /// For match conditions (`celconfig.RuntimeCELCostBudgetMatchConditions`).
    pub const MATCH_CONDITIONS: Self = Self(2_500_000);
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmissionEvaluationError {
    /// The expression failed; others are still evaluated.
    Expression(String),
    /// No further expression is evaluated.
    OutOfBudget,
    /// The decision of this check is needed first.
    Pending(Box<AuthorizationCheck>),
}

impl AdmissionEvaluationError {
    pub fn out_of_budget_text() -> &'static str {
        "validation failed due to running out of cost budget, no further validation rules will be run"
    }
}

/// One evaluation of the expressions of a policy.
pub struct AdmissionEvaluation<'a> {
    expressions: &'a AdmissionExpressions,
    inputs: AdmissionInputs<'a>,
    /// The declarations of the inputs.
    environment: &'a Environment,
    variables: Vec<OnceCell<EvaluationResult<'a>>>,
    /// The cost of the composed variables since the last expression.
    variables_cost: Cell<u64>,
    budget: EvaluationBudget,
}

impl<'a> AdmissionEvaluation<'a> {
    pub fn new(
        expressions: &'a AdmissionExpressions,
        inputs: AdmissionInputs<'a>,
        budget: EvaluationBudget,
    ) -> Self {
        Self {
            environment: expressions.environment(),
            variables: vec![OnceCell::new(); expressions.variables.len()],
            expressions,
            inputs,
            variables_cost: Cell::new(0),
            budget,
        }
    }

    /// The remaining budget.
    pub fn budget(&self) -> EvaluationBudget {
        self.budget
    }

    /// Evaluates an expression of the policy to JSON.
    pub fn evaluate(
        &mut self,
        expression: &'a AdmissionExpression,
    ) -> Result<Json, AdmissionEvaluationError> {
        self.run(expression, |value| from_value(&value))
    }

    /// Evaluates a mutation to JSON, and checks the types of the objects that it constructs.
    pub fn evaluate_mutation(
        &mut self,
        expression: &'a AdmissionExpression,
    ) -> Result<Json, AdmissionEvaluationError> {
        let (errors, json) = self.run(expression, |value| {
            Ok((check_type_names(&value)?, from_value(&value)?))
        })?;
        if errors.is_empty() {
            return Ok(json);
        }
        let message = format!("type mismatch: {}", errors.join("\n"));
        Err(AdmissionEvaluationError::Expression(message))
    }

    fn run<T>(
        &mut self,
        expression: &'a AdmissionExpression,
        read: impl FnOnce(Value<'a>) -> EvaluationResult<'a, T>,
    ) -> Result<T, AdmissionEvaluationError> {
        let program = expression.program.as_ref().map_err(|message| {
            AdmissionEvaluationError::Expression(format!("compilation error: {message}"))
        })?;
        if self.expressions.in_order {
            for index in 0..self.variables.len() {
                self.composed(index);
            }
        }
        let evaluation = {
            let variables = |number: usize| self.variable(number);
            program.evaluate_authorized(&variables, self.inputs.decisions, read)
        };
        if let Err(EvalError::PendingAuthorization(check)) = evaluation.result {
            return Err(AdmissionEvaluationError::Pending(check));
        }
        let cost = evaluation.cost.saturating_add(self.variables_cost.take());
        let Some(remaining) = self.budget.0.checked_sub(cost) else {
            return Err(AdmissionEvaluationError::OutOfBudget);
        };
        self.budget = EvaluationBudget(remaining);
        evaluation.result.map_err(|message| {
            let text = &expression.text;
            let message = format!("expression '{text}' resulted in error: {message}");
            AdmissionEvaluationError::Expression(message)
        })
    }

    fn variable(&self, number: usize) -> Option<EvaluationResult<'a>> {
        let inputs = &self.inputs;
        let json = match number {
            OBJECT => inputs.object,
            OLD_OBJECT => inputs.old_object,
            NAMESPACE_OBJECT => inputs.namespace_object,
            REQUEST => inputs.request,
            PARAMS => inputs.params,
            AUTHORIZER => {
                let authorizer = Opaque::Authorizer(CheckedUser::Requester);
                return Some(Ok(Value::opaque(authorizer)));
            }
            REQUEST_RESOURCE => {
                let target = CheckedTarget::Resource(inputs.request_resource.clone());
                let check = Opaque::TargetCheck(CheckedUser::Requester, target);
                return Some(Ok(Value::opaque(check)));
            }
            number => return self.composed(number.checked_sub(FIRST_COMPOSED)?),
        };
        let declaration = &self.environment.variable(number)?.declaration;
        Some(to_value(json, declaration))
    }

    /// The value of a composed variable, evaluated when it is first used.
    fn composed(&self, index: usize) -> Option<EvaluationResult<'a>> {
        let cell = self.variables.get(index)?;
        if let Some(value) = cell.get() {
            return Some(value.clone());
        }
        let variable = self.expressions.variables.get(index)?;
        let name = &variable.name;
        let value = match &variable.program {
            Err(message) => Err(EvalError::new(format!(
                "composited variable {name:?} fails to compile: {message}"
            ))),
            Ok(program) => {
                let variables = |number: usize| self.variable(number);
                let evaluation = program.evaluate_authorized(&variables, self.inputs.decisions, Ok);
                let cost = self.variables_cost.get().saturating_add(evaluation.cost);
                self.variables_cost.set(cost);
                evaluation.result.map_err(|message| match message {
                    EvalError::PendingAuthorization(_) => message,
                    message => EvalError::new(format!(
                        "composited variable {name:?} fails to evaluate: {message}"
                    )),
                })
            }
        };
        Some(cell.get_or_init(|| value).clone())
    }
}
