//! Validates ValidatingAdmissionPolicies and their bindings
//! (`pkg/apis/admissionregistration/validation/validation.go`).

use std::collections::HashSet;

use machinery::FieldError;
use serde_json::Value;

use super::policy_validation::{
    PolicyValidation, validate_match_resources, validate_param_ref, validate_policy_name,
};
use crate::unstructured::{get, index_path, items, text};

const MAX_AUDIT_ANNOTATIONS: usize = 20;
const VALIDATION_ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

pub(super) fn validate_validating_policy(
    policy: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let spec = get(policy, "/spec");
    let mut validation =
        PolicyValidation::begin(spec, old, !items(spec, "/variables").is_empty(), errors);
    let (validations, annotations) = (
        items(spec, "/validations"),
        items(spec, "/auditAnnotations"),
    );
    if validations.is_empty() && annotations.is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        for field in ["spec.validations", "spec.auditAnnotations"] {
            validation.errors.push(FieldError::required(field, detail));
        }
        return;
    }
    for (i, written) in validations.iter().enumerate() {
        validation.validation(&index_path("spec.validations", i), written);
    }
    if annotations.len() > MAX_AUDIT_ANNOTATIONS {
        let detail = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        let error = FieldError::invalid(
            "spec.auditAnnotations",
            get(spec, "/auditAnnotations"),
            detail,
        );
        validation.errors.push(error);
    }
    let mut keys = HashSet::new();
    for (i, annotation) in annotations.iter().enumerate() {
        let path = index_path("spec.auditAnnotations", i);
        validation.audit_annotation(&path, text(policy, "/metadata/name"), annotation);
        let key = text(annotation, "/key");
        if !keys.insert(key) {
            let error = FieldError::duplicate(format!("{path}.key"), &key.into());
            validation.errors.push(error);
        }
    }
}

pub(super) fn validate_validating_binding(binding: &Value, errors: &mut Vec<FieldError>) {
    let spec = get(binding, "/spec");
    validate_policy_name(spec, errors);
    validate_param_ref(get(spec, "/paramRef"), errors);
    validate_match_resources("spec.matchResources", get(spec, "/matchResources"), errors);
    let field = "spec.validationActions";
    let actions = items(spec, "/validationActions");
    let mut distinct = HashSet::new();
    for (i, action) in actions.iter().enumerate() {
        let path = index_path(field, i);
        if !VALIDATION_ACTIONS.iter().any(|distinct| action == distinct) {
            errors.push(FieldError::not_supported(
                &path,
                action,
                &VALIDATION_ACTIONS,
            ));
        }
        if !distinct.insert(action.as_str().unwrap_or_default()) {
            errors.push(FieldError::duplicate(&path, action));
        }
    }
    if distinct.contains("Deny") && distinct.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.push(FieldError::invalid(
            field,
            get(spec, "/validationActions"),
            detail,
        ));
    }
    if distinct.is_empty() {
        errors.push(FieldError::required(
            field,
            "at least one validation action is required",
        ));
    }
}
