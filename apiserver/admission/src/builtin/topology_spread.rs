//! Validates how the pods of a workload spread over nodes and zones.

use machinery::FieldError;
use machinery::names::validate_qualified_name;
use serde_json::Value;

use super::label_selectors::{SelectorValues, validate_label_selector};
use super::validated_pod_spec::ValidatedPodSpec;
use crate::unstructured::{get, has, index_path, int, items, report_invalid, text, texts};

const ACTIONS: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];
const NODE_POLICIES: [&str; 2] = ["Honor", "Ignore"];

pub(super) fn validate(pod_spec: ValidatedPodSpec<'_>, errors: &mut Vec<FieldError>) {
    let constraints = items(pod_spec.spec, "/topologySpreadConstraints");
    let old = items(pod_spec.old, "/topologySpreadConstraints");
    let had_invalid_selector = old.iter().any(has_invalid_selector);
    for (i, constraint) in constraints.iter().enumerate() {
        let constraint_path = index_path(&pod_spec.at("topologySpreadConstraints"), i);
        validate_constraint(&constraint_path, constraint, errors);
        let is_duplicate = |other: &Value| {
            ["/topologyKey", "/whenUnsatisfiable"]
                .iter()
                .all(|path| text(other, path) == text(constraint, path))
        };
        if constraints[i + 1..].iter().any(is_duplicate) {
            let key = text(constraint, "/topologyKey");
            let action = text(constraint, "/whenUnsatisfiable");
            errors.push(FieldError::duplicate(
                format!("{constraint_path}.{{topologyKey, whenUnsatisfiable}}"),
                &format!("{{{key}, {action}}}").into(),
            ));
        }
        validate_label_keys(
            &format!("{constraint_path}.matchLabelKeys"),
            constraint,
            errors,
        );
        if !had_invalid_selector {
            validate_selector(&constraint_path, constraint, errors);
        }
    }
}

fn validate_selector(field: &str, constraint: &Value, errors: &mut Vec<FieldError>) {
    let selector = get(constraint, "/labelSelector");
    let field = format!("{field}.labelSelector");
    validate_label_selector(&field, selector, SelectorValues::Strict, errors);
}

fn has_invalid_selector(constraint: &Value) -> bool {
    let mut errors = Vec::new();
    validate_selector("", constraint, &mut errors);
    !errors.is_empty()
}

fn validate_constraint(field: &str, constraint: &Value, errors: &mut Vec<FieldError>) {
    let skew = int(constraint, "/maxSkew").unwrap_or(0);
    let not_positive = "must be greater than zero";
    if skew <= 0 {
        let path = format!("{field}.maxSkew");
        errors.push(FieldError::invalid(path, &skew.into(), not_positive));
    }
    if text(constraint, "/topologyKey").is_empty() {
        let path = format!("{field}.topologyKey");
        errors.push(FieldError::required(path, "can not be empty"));
    }
    let action = text(constraint, "/whenUnsatisfiable");
    if !ACTIONS.contains(&action) {
        let path = format!("{field}.whenUnsatisfiable");
        errors.push(FieldError::not_supported(path, &action.into(), &ACTIONS));
    }
    if let Some(domains) = int(constraint, "/minDomains") {
        let path = format!("{field}.minDomains");
        if domains <= 0 {
            errors.push(FieldError::invalid(&path, &domains.into(), not_positive));
        }
        if action != "DoNotSchedule" {
            errors.push(FieldError::invalid(
                path,
                &domains.into(),
                format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"),
            ));
        }
    }
    for name in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        let policy = text(constraint, &format!("/{name}"));
        if has(constraint, &format!("/{name}")) && !NODE_POLICIES.contains(&policy) {
            let path = format!("{field}.{name}");
            errors.push(FieldError::not_supported(
                path,
                &policy.into(),
                &NODE_POLICIES,
            ));
        }
    }
}

fn validate_label_keys(field: &str, constraint: &Value, errors: &mut Vec<FieldError>) {
    for (i, key) in texts(constraint, "/matchLabelKeys").enumerate() {
        if i == 0 && !has(constraint, "/labelSelector") {
            let detail = "must not be specified when labelSelector is not set";
            errors.push(FieldError::forbidden(field, detail));
        }
        report_invalid(
            index_path(field, i),
            key,
            validate_qualified_name(key),
            errors,
        );
    }
}
