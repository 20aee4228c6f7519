//! Validates where a pod may run: node selector, affinity, tolerations, topology spread.

use std::collections::HashSet;

use machinery::names::{validate_dns1123_label, validate_label_value, validate_qualified_name};
use machinery::{FieldError, LabelSelector};
use serde_json::Value;

use crate::metadata;
use crate::unstructured::{get, has, index_path, int, items, report_invalid, text, texts};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const TOLERATION_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn validate(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    let selector = get(spec, "/nodeSelector");
    metadata::validate_labels(&format!("{field}.nodeSelector"), selector, errors);
    validate_node_affinity(field, get(spec, "/affinity/nodeAffinity"), errors);
    for side in ["podAffinity", "podAntiAffinity"] {
        let affinity = get(spec, &format!("/affinity/{side}"));
        validate_pod_affinity(&format!("{field}.affinity.{side}"), affinity, errors);
    }
    for (i, toleration) in items(spec, "/tolerations").iter().enumerate() {
        let at = index_path(&format!("{field}.tolerations"), i);
        validate_toleration(&at, toleration, errors);
    }
    validate_topology_spread(field, items(spec, "/topologySpreadConstraints"), errors);
}

fn validate_node_affinity(field: &str, affinity: &Value, errors: &mut Vec<FieldError>) {
    let field = format!("{field}.affinity.nodeAffinity");
    if has(affinity, &format!("/{REQUIRED}")) {
        let selector = get(affinity, &format!("/{REQUIRED}"));
        validate_node_selector(&format!("{field}.{REQUIRED}"), selector, errors);
    }
    for (i, term) in items(affinity, &format!("/{PREFERRED}")).iter().enumerate() {
        let at = index_path(&format!("{field}.{PREFERRED}"), i);
        validate_weight(&at, term, errors);
        let preference = get(term, "/preference");
        validate_node_selector_term(&format!("{at}.preference"), preference, errors);
    }
}

/// Validates a `v1.NodeSelector`.
pub(super) fn validate_node_selector(field: &str, selector: &Value, errors: &mut Vec<FieldError>) {
    let field = format!("{field}.nodeSelectorTerms");
    let terms = items(selector, "/nodeSelectorTerms");
    if terms.is_empty() {
        let why = "must have at least one node selector term";
        errors.push(FieldError::required(&field, why));
    }
    for (i, term) in terms.iter().enumerate() {
        validate_node_selector_term(&index_path(&field, i), term, errors);
    }
}

fn validate_node_selector_term(field: &str, term: &Value, errors: &mut Vec<FieldError>) {
    for (i, expression) in items(term, "/matchExpressions").iter().enumerate() {
        let at = index_path(&format!("{field}.matchExpressions"), i);
        let values = items(expression, "/values");
        let operator = text(expression, "/operator");
        match operator {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                format!("{at}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.push(FieldError::forbidden(
                    format!("{at}.values"),
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                ));
            }
            "Gt" | "Lt" if values.len() != 1 => errors.push(FieldError::required(
                format!("{at}.values"),
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            _ => errors.push(FieldError::invalid(
                format!("{at}.operator"),
                &operator.into(),
                "not a valid selector operator",
            )),
        }
        let key = text(expression, "/key");
        report_invalid(
            format!("{at}.key"),
            key,
            validate_qualified_name(key),
            errors,
        );
    }
}

fn validate_weight(field: &str, term: &Value, errors: &mut Vec<FieldError>) {
    let weight = int(term, "/weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(
            format!("{field}.weight"),
            &weight.into(),
            "must be in the range 1-100",
        ));
    }
}

fn validate_pod_affinity(field: &str, affinity: &Value, errors: &mut Vec<FieldError>) {
    for (i, term) in items(affinity, &format!("/{REQUIRED}")).iter().enumerate() {
        validate_pod_affinity_term(&index_path(&format!("{field}.{REQUIRED}"), i), term, errors);
    }
    for (i, term) in items(affinity, &format!("/{PREFERRED}")).iter().enumerate() {
        let at = index_path(&format!("{field}.{PREFERRED}"), i);
        validate_weight(&at, term, errors);
        let term = get(term, "/podAffinityTerm");
        validate_pod_affinity_term(&format!("{at}.podAffinityTerm"), term, errors);
    }
}

fn validate_pod_affinity_term(field: &str, term: &Value, errors: &mut Vec<FieldError>) {
    for selector in ["labelSelector", "namespaceSelector"] {
        let value = get(term, &format!("/{selector}"));
        if !value.is_null()
            && let Err(why) = LabelSelector::from_value(value)
        {
            errors.push(FieldError::invalid(
                format!("{field}.{selector}"),
                value,
                why,
            ));
        }
    }
    for namespace in texts(term, "/namespaces") {
        let result = validate_dns1123_label(namespace);
        report_invalid(format!("{field}.namespace"), namespace, result, errors);
    }
    validate_topology_key(field, term, errors);
}

fn validate_topology_key(field: &str, term: &Value, errors: &mut Vec<FieldError>) {
    let key = text(term, "/topologyKey");
    let field = format!("{field}.topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(field, "can not be empty"));
    } else {
        report_invalid(field, key, validate_qualified_name(key), errors);
    }
}

pub(super) fn validate_toleration(field: &str, toleration: &Value, errors: &mut Vec<FieldError>) {
    let (key, value) = (text(toleration, "/key"), text(toleration, "/value"));
    let (operator, effect) = (text(toleration, "/operator"), text(toleration, "/effect"));
    let at_operator = format!("{field}.operator");
    if !key.is_empty() {
        report_invalid(
            format!("{field}.key"),
            key,
            validate_qualified_name(key),
            errors,
        );
    } else if operator != "Exists" {
        errors.push(FieldError::invalid(
            &at_operator,
            &operator.into(),
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        ));
    }
    if has(toleration, "/tolerationSeconds") && effect != "NoExecute" {
        errors.push(FieldError::invalid(
            format!("{field}.effect"),
            &effect.into(),
            "effect must be 'NoExecute' when `tolerationSeconds` is set",
        ));
    }
    match operator {
        "" | "Equal" => report_invalid(&at_operator, value, validate_label_value(value), errors),
        "Exists" if !value.is_empty() => errors.push(FieldError::invalid(
            &at_operator,
            toleration,
            "value must be empty when `operator` is 'Exists'",
        )),
        // Comparisons are behind a feature gate that clusters may have enabled.
        "Exists" | "Lt" | "Gt" => {}
        _ => errors.push(FieldError::not_supported(
            &at_operator,
            &operator.into(),
            &["Equal", "Exists"],
        )),
    }
    if !effect.is_empty() && !TOLERATION_EFFECTS.contains(&effect) {
        errors.push(FieldError::not_supported(
            format!("{field}.effect"),
            &effect.into(),
            &TOLERATION_EFFECTS,
        ));
    }
}

fn validate_topology_spread(field: &str, constraints: &[Value], errors: &mut Vec<FieldError>) {
    let mut visited = HashSet::new();
    for (i, constraint) in constraints.iter().enumerate() {
        let at = index_path(&format!("{field}.topologySpreadConstraints"), i);
        let when = text(constraint, "/whenUnsatisfiable");
        for number in ["maxSkew", "minDomains"] {
            let value = int(constraint, &format!("/{number}"));
            let value = value.or_else(|| (number == "maxSkew").then_some(0));
            if let Some(value) = value.filter(|value| *value <= 0) {
                let why = "must be greater than zero";
                errors.push(FieldError::invalid(
                    format!("{at}.{number}"),
                    &value.into(),
                    why,
                ));
            }
        }
        validate_topology_key(&at, constraint, errors);
        if !matches!(when, "DoNotSchedule" | "ScheduleAnyway") {
            errors.push(FieldError::not_supported(
                format!("{at}.whenUnsatisfiable"),
                &when.into(),
                &["DoNotSchedule", "ScheduleAnyway"],
            ));
        }
        if has(constraint, "/minDomains") && when == "ScheduleAnyway" {
            errors.push(FieldError::invalid(
                format!("{at}.minDomains"),
                get(constraint, "/minDomains"),
                "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
            ));
        }
        let key = text(constraint, "/topologyKey");
        if !visited.insert((key, when)) {
            errors.push(FieldError::duplicate(
                format!("{at}.{{topologyKey, whenUnsatisfiable}}"),
                &format!("{{{key}, {when}}}").into(),
            ));
        }
    }
}
