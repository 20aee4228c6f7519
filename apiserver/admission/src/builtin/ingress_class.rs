//! Validates IngressClass.

use machinery::FieldError;
use machinery::names::validate_dns1123_label;
use serde_json::Value;

use super::references::{validate_domain_prefixed_path, validate_typed_reference};
use crate::unstructured::{get, report_invalid, text, validate_immutable_field};

const MAX_CONTROLLER_BYTES: usize = 250;

pub(super) fn validate_ingress_class(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    if let Some(old) = old {
        validate_immutable_field(new, old, "spec.controller", errors);
    }
    let (field, controller) = ("spec.controller", text(new, "/spec/controller"));
    if controller.len() > MAX_CONTROLLER_BYTES {
        errors.push(FieldError::too_long(field, MAX_CONTROLLER_BYTES));
    }
    validate_domain_prefixed_path(field, controller, errors);
    let parameters = get(new, "/spec/parameters");
    if !parameters.is_null() {
        validate_typed_reference("spec.parameters", parameters, errors);
        validate_scope(parameters, errors);
    }
}

fn validate_scope(parameters: &Value, errors: &mut Vec<FieldError>) {
    let namespace = get(parameters, "/namespace");
    let field = "spec.parameters.namespace";
    let scope = get(parameters, "/scope");
    match (scope.as_str(), namespace.as_str()) {
        (Some("Namespace"), None) => errors.push(FieldError::required(
            field,
            "`parameters.scope` is set to 'Namespace'",
        )),
        (Some("Namespace"), Some(name)) => {
            report_invalid(field, name, validate_dns1123_label(name), errors);
        }
        (Some("Cluster"), Some(_)) => errors.push(FieldError::forbidden(
            field,
            "`parameters.scope` is set to 'Cluster'",
        )),
        (None | Some("Cluster"), _) => {}
        _ => errors.push(FieldError::not_supported(
            "spec.parameters.scope",
            scope,
            &["Cluster", "Namespace"],
        )),
    }
}
