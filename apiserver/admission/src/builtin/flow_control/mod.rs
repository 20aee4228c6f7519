//! Validates FlowSchemas and PriorityLevelConfigurations (Kubernetes
//! `pkg/apis/flowcontrol/validation`), and defines the objects with which a server starts.

mod bootstrap;
mod flow_schema;
mod priority_level;
#[cfg(test)]
mod tests;

pub use bootstrap::bootstrap_objects;
pub(super) use flow_schema::validate_flow_schema;
pub(super) use priority_level::validate_priority_level_configuration;

use machinery::FieldError;
use serde_json::Value;

use crate::unstructured::{get, items, text};

/// The spec that a mandatory object of this kind and name must have.
fn mandatory_spec(kind: &str, name: &str) -> Option<Value> {
    let object = bootstrap::mandatory_objects()
        .into_iter()
        .find(|object| text(object, "/kind") == kind && text(object, "/metadata/name") == name)?;
    Some(get(&object, "/spec").clone())
}

/// Conditions have a type each, and no two the same.
fn validate_conditions(new: &Value, errors: &mut Vec<FieldError>) {
    let conditions = items(new, "/status/conditions");
    for (i, condition) in conditions.iter().enumerate() {
        let field = format!("status.conditions[{i}].type");
        let kind = text(condition, "/type");
        if conditions[..i].iter().any(|c| text(c, "/type") == kind) {
            errors.push(FieldError::duplicate(&field, &kind.into()));
        }
        if kind.is_empty() {
            errors.push(FieldError::required(&field, "must not be empty"));
        }
    }
}
