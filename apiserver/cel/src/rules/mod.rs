//! The rules of a CustomResourceDefinition (`x-kubernetes-validations`): checked when the
//! definition is written, evaluated when its custom resources are.

mod correlation;
mod field_path;
mod rule;
mod schema_rules;
#[cfg(test)]
mod tests;
mod validator;

pub use schema_rules::{SchemaRules, validate_schema_rules};
pub use validator::{RuleOutcome, RuleValidator};
