//! CEL as Kubernetes uses it: validation rules of custom resources, and expressions of
//! admission policies and webhooks.
//!
//! ```text
//! text -> syntax -> checker (types of the schema) -> cost estimate -> Program
//! Program + values borrowed from JSON -> interpreter (pays for each step) -> value
//! ```
//!
//! Expressions come from clients and are hostile until proven otherwise: their depth is bounded
//! when they are parsed, their estimated cost when they are stored, and their cost and work when
//! they run. Nothing here does I/O or reads a clock.

mod admission;
mod authorization;
mod checked_names;
mod checker;
mod cost;
mod declarations;
mod declared_types;
mod elements;
mod environment;
mod equality;
mod error;
mod escaping;
mod from_json;
mod function;
mod interpreter;
mod library;
mod meter;
mod named_format;
mod node;
mod overloads;
mod program;
mod rules;
mod selections;
mod semantic_version;
mod syntax;
#[cfg(test)]
mod tests;
mod time_text;
mod to_json;
mod types;
mod unescaped;
mod url_value;
mod value;

pub use admission::{
    AdmissionEvaluation, AdmissionEvaluationError, AdmissionExpression, AdmissionExpressions,
    AdmissionInputs, AdmissionSchemas, DeclaredAdmissionVariables, EvaluationBudget,
};
pub use authorization::{
    AuthorizationCheck, AuthorizationDecision, AuthorizationDecisions, CheckedResource,
    CheckedTarget, CheckedUser,
};
pub use environment::Environment;
pub use error::EvalError;
pub use escaping::is_reserved_name;
pub use program::{Evaluation, OutputType, PER_CALL_LIMIT, Program};
pub use rules::{RuleOutcome, RuleValidator, SchemaRules, validate_schema_rules};
