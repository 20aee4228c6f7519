//! Validates match conditions of webhooks and of admission policies.

use std::collections::HashSet;

use kubernetes_cel::{AdmissionExpressions, DeclaredAdmissionVariables, OutputType};
use machinery::FieldError;
use machinery::names::validate_qualified_name;
use serde_json::Value;

use crate::unstructured::{index_path, items, report_invalid, text};

const MAX_MATCH_CONDITIONS: usize = 64;

/// Validates the field `matchConditions` of `owner`, which is at `field`. Expressions cannot
/// use the variables that a policy composes.
pub(super) fn validate_match_conditions(
    field: &str,
    owner: &Value,
    has_params: bool,
    errors: &mut Vec<FieldError>,
) {
    let conditions = items(owner, "/matchConditions");
    if conditions.is_empty() {
        return;
    }
    if conditions.len() > MAX_MATCH_CONDITIONS {
        let error = FieldError::too_many(field, conditions.len(), MAX_MATCH_CONDITIONS);
        errors.push(error);
    }
    let expressions = AdmissionExpressions::new();
    let declared = DeclaredAdmissionVariables {
        params: has_params,
        authorizer: true,
        patch_types: false,
    };
    let mut names = HashSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let path = index_path(field, i);
        let expression = text(condition, "/expression").trim();
        if expression.is_empty() {
            errors.push(FieldError::required(format!("{path}.expression"), ""));
        } else {
            let compiled = expressions.compile(expression, OutputType::Bool, declared);
            report_expression(
                &format!("{path}.expression"),
                expression,
                compiled.error(),
                errors,
            );
        }
        let name = text(condition, "/name");
        let path = format!("{path}.name");
        if name.is_empty() {
            errors.push(FieldError::required(&path, ""));
            continue;
        }
        report_invalid(&path, name, validate_qualified_name(name), errors);
        if !names.insert(name) {
            errors.push(FieldError::duplicate(&path, &name.into()));
        }
    }
}

/// Reports an expression that does not compile.
pub(super) fn report_expression(
    field: &str,
    expression: &str,
    error: Option<&str>,
    errors: &mut Vec<FieldError>,
) {
    if let Some(detail) = error {
        errors.push(FieldError::invalid(field, &expression.into(), detail));
    }
}
