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
        let at = index_path(&pod_spec.at("topologySpreadConstraints"), i);
        validate_constraint(&at, constraint, errors);
        let same = |other: &Value| {
            ["/topologyKey", "/whenUnsatisfiable"]
                .iter()
                .all(|path| text(other, path) == text(constraint, path))
        };
        if constraints[i + 1..].iter().any(same) {
            let key = text(constraint, "/topologyKey");
            let when = text(constraint, "/whenUnsatisfiable");
            errors.push(FieldError::duplicate(
                format!("{at}.{{topologyKey, whenUnsatisfiable}}"),
                &format!("{{{key}, {when}}}").into(),
            ));
        }
        validate_label_keys(&format!("{at}.matchLabelKeys"), constraint, errors);
        if !had_invalid_selector {
            validate_selector(&at, constraint, errors);
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
        let at = format!("{field}.maxSkew");
        errors.push(FieldError::invalid(at, &skew.into(), not_positive));
    }
    if text(constraint, "/topologyKey").is_empty() {
        let at = format!("{field}.topologyKey");
        errors.push(FieldError::required(at, "can not be empty"));
    }
    let when = text(constraint, "/whenUnsatisfiable");
    if !ACTIONS.contains(&when) {
        let at = format!("{field}.whenUnsatisfiable");
        errors.push(FieldError::not_supported(at, &when.into(), &ACTIONS));
    }
    if let Some(domains) = int(constraint, "/minDomains") {
        let at = format!("{field}.minDomains");
        if domains <= 0 {
            errors.push(FieldError::invalid(&at, &domains.into(), not_positive));
        }
        if when != "DoNotSchedule" {
            errors.push(FieldError::invalid(
                at,
                &domains.into(),
                format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}"),
            ));
        }
    }
    for name in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        let policy = text(constraint, &format!("/{name}"));
        if has(constraint, &format!("/{name}")) && !NODE_POLICIES.contains(&policy) {
            let at = format!("{field}.{name}");
            errors.push(FieldError::not_supported(
                at,
                &policy.into(),
                &NODE_POLICIES,
            ));
        }
    }
}

fn validate_label_keys(field: &str, constraint: &Value, errors: &mut Vec<FieldError>) {
    for (i, key) in texts(constraint, "/matchLabelKeys").enumerate() {
        if i == 0 && !has(constraint, "/labelSelector") {
            let why = "must not be specified when labelSelector is not set";
            errors.push(FieldError::forbidden(field, why));
        }
        report_invalid(
            index_path(field, i),
            key,
            validate_qualified_name(key),
            errors,
        );
    }
}
