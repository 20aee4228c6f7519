//! The expressions of admission policies and of webhooks' match conditions: their variables,
//! the variables that a policy composes, and what their evaluations cost
//! (`k8s.io/apiserver/pkg/admission/plugin/cel`).

mod evaluation;
mod expressions;
mod type_names;
mod variables;

pub use evaluation::{
    AdmissionEvaluation, AdmissionEvaluationError, AdmissionInputs, EvaluationBudget,
};
pub use expressions::{AdmissionExpression, AdmissionExpressions};
pub use variables::{AdmissionSchemas, DeclaredAdmissionVariables};
