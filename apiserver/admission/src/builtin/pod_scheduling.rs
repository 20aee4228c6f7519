//! Validates where a pod may run: node selector, affinity, tolerations, topology spread.

use machinery::FieldError;
use machinery::names::{
    validate_dns1123_label, validate_dns1123_subdomain, validate_label_value,
    validate_qualified_name,
};
use serde_json::Value;

use super::label_selectors::{SelectorValues, validate_label_selector};
use super::topology_spread;
use super::validated_pod_spec::ValidatedPodSpec;
use crate::metadata;
use crate::unstructured::{get, has, index_path, int, items, report_invalid, text, texts};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const TOLERATION_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn validate(pod_spec: ValidatedPodSpec<'_>, errors: &mut Vec<FieldError>) {
    let ValidatedPodSpec { field, spec, .. } = pod_spec;
    let selector = get(spec, "/nodeSelector");
    metadata::validate_labels(&format!("{field}.nodeSelector"), selector, errors);
    validate_node_affinity(pod_spec, errors);
    for side in ["podAffinity", "podAntiAffinity"] {
        validate_pod_affinity(pod_spec, side, errors);
    }
    topology_spread::validate(pod_spec, errors);
    validate_tolerations(
        &pod_spec.at("tolerations"),
        items(spec, "/tolerations"),
        errors,
    );
}

fn validate_node_affinity(pod_spec: ValidatedPodSpec<'_>, errors: &mut Vec<FieldError>) {
    let affinity = get(pod_spec.spec, "/affinity/nodeAffinity");
    let field = pod_spec.at("affinity.nodeAffinity");
    if has(affinity, &format!("/{REQUIRED}")) {
        let path = format!("/affinity/nodeAffinity/{REQUIRED}");
        let values = LabelValues::of_old(get(pod_spec.old, &path));
        let selector = get(affinity, &format!("/{REQUIRED}"));
        validate_node_selector(&format!("{field}.{REQUIRED}"), selector, values, errors);
    }
    for (i, term) in items(affinity, &format!("/{PREFERRED}")).iter().enumerate() {
        let term_path = index_path(&format!("{field}.{PREFERRED}"), i);
        validate_weight(&term_path, term, errors);
        let preference = get(term, "/preference");
        let term_path = format!("{term_path}.preference");
        validate_node_selector_term(&term_path, preference, LabelValues::Any, errors);
    }
}

/// The values that an expression of a node selector may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LabelValues {
    Valid,
    /// Accepts values that no label can have.
    Any,
}

impl LabelValues {
    /// A selector may keep invalid values if it already has some.
    pub(super) fn of_old(selector: &Value) -> Self {
        let terms = items(selector, "/nodeSelectorTerms").iter();
        let expressions = terms.flat_map(|term| items(term, "/matchExpressions"));
        let mut values = expressions.flat_map(|expression| texts(expression, "/values"));
        match values.all(|value| validate_label_value(value).is_ok()) {
            true => Self::Valid,
            false => Self::Any,
        }
    }
}

/// Validates a `v1.NodeSelector`.
pub(super) fn validate_node_selector(
    field: &str,
    selector: &Value,
    values: LabelValues,
    errors: &mut Vec<FieldError>,
) {
    let field = format!("{field}.nodeSelectorTerms");
    let terms = items(selector, "/nodeSelectorTerms");
    if terms.is_empty() {
        let detail = "must have at least one node selector term";
        errors.push(FieldError::required(&field, detail));
    }
    for (i, term) in terms.iter().enumerate() {
        validate_node_selector_term(&index_path(&field, i), term, values, errors);
    }
}

fn validate_node_selector_term(
    field: &str,
    term: &Value,
    allowed: LabelValues,
    errors: &mut Vec<FieldError>,
) {
    for (i, expression) in items(term, "/matchExpressions").iter().enumerate() {
        let path = index_path(&format!("{field}.matchExpressions"), i);
        validate_operator(&path, expression, errors);
        let key = text(expression, "/key");
        let result = validate_qualified_name(key);
        report_invalid(format!("{path}.key"), key, result, errors);
        for (j, value) in texts(expression, "/values").enumerate() {
            if allowed == LabelValues::Valid {
                let result = validate_label_value(value);
                report_invalid(format!("{path}.values[{j}]"), value, result, errors);
            }
        }
    }
    for (i, expression) in items(term, "/matchFields").iter().enumerate() {
        let path = index_path(&format!("{field}.matchFields"), i);
        validate_node_field(&path, expression, errors);
    }
}

fn validate_operator(field: &str, expression: &Value, errors: &mut Vec<FieldError>) {
    let values = items(expression, "/values");
    let operator = text(expression, "/operator");
    let path = format!("{field}.values");
    match operator {
        "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
            path,
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
            path,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        "Gt" | "Lt" if values.len() != 1 => errors.push(FieldError::required(
            path,
            "must be specified single value when `operator` is 'Lt' or 'Gt'",
        )),
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        _ => errors.push(FieldError::invalid(
            format!("{field}.operator"),
            &operator.into(),
            "not a valid selector operator",
        )),
    }
}

/// The only field of a node that can be selected is its name.
fn validate_node_field(field: &str, expression: &Value, errors: &mut Vec<FieldError>) {
    let (key, operator) = (text(expression, "/key"), text(expression, "/operator"));
    if !matches!(operator, "In" | "NotIn") {
        errors.push(FieldError::invalid(
            format!("{field}.operator"),
            &operator.into(),
            "not a valid selector operator",
        ));
    } else if items(expression, "/values").len() != 1 {
        let detail =
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
        errors.push(FieldError::required(format!("{field}.values"), detail));
    }
    if key != "metadata.name" {
        let detail = "not a valid field selector key";
        errors.push(FieldError::invalid(
            format!("{field}.key"),
            &key.into(),
            detail,
        ));
        return;
    }
    for (i, name) in texts(expression, "/values").enumerate() {
        let result = validate_dns1123_subdomain(name);
        report_invalid(format!("{field}.values[{i}]"), name, result, errors);
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

fn validate_pod_affinity(pod_spec: ValidatedPodSpec<'_>, side: &str, errors: &mut Vec<FieldError>) {
    let affinity = get(pod_spec.spec, &format!("/affinity/{side}"));
    let field = pod_spec.at(&format!("affinity.{side}"));
    let values = SelectorValues::of_old(old_selectors(pod_spec.old));
    for (i, term) in items(affinity, &format!("/{REQUIRED}")).iter().enumerate() {
        let path = index_path(&format!("{field}.{REQUIRED}"), i);
        validate_pod_affinity_term(&path, term, values, errors);
    }
    for (i, term) in items(affinity, &format!("/{PREFERRED}")).iter().enumerate() {
        let path = index_path(&format!("{field}.{PREFERRED}"), i);
        validate_weight(&path, term, errors);
        let term = get(term, "/podAffinityTerm");
        validate_pod_affinity_term(&format!("{path}.podAffinityTerm"), term, values, errors);
    }
}

/// The label selectors in the affinities of a pod spec.
fn old_selectors(spec: &Value) -> Vec<&Value> {
    let sides =
        ["podAffinity", "podAntiAffinity"].map(|side| get(spec, &format!("/affinity/{side}")));
    let required = sides
        .iter()
        .flat_map(|side| items(side, &format!("/{REQUIRED}")));
    let preferred = sides
        .iter()
        .flat_map(|side| items(side, &format!("/{PREFERRED}")));
    let terms = required.chain(preferred.map(|term| get(term, "/podAffinityTerm")));
    terms
        .flat_map(|term| [get(term, "/labelSelector"), get(term, "/namespaceSelector")])
        .collect()
}

fn validate_pod_affinity_term(
    field: &str,
    term: &Value,
    values: SelectorValues,
    errors: &mut Vec<FieldError>,
) {
    for name in ["labelSelector", "namespaceSelector"] {
        let selector = get(term, &format!("/{name}"));
        validate_label_selector(&format!("{field}.{name}"), selector, values, errors);
    }
    for namespace in texts(term, "/namespaces") {
        let result = validate_dns1123_label(namespace);
        report_invalid(format!("{field}.namespace"), namespace, result, errors);
    }
    validate_label_keys(field, term, errors);
    let key = text(term, "/topologyKey");
    let field = format!("{field}.topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(&field, "can not be empty"));
    }
    report_invalid(field, key, validate_qualified_name(key), errors);
}

/// Validates the label keys whose values are taken from the pod itself.
fn validate_label_keys(field: &str, term: &Value, errors: &mut Vec<FieldError>) {
    for list in ["matchLabelKeys", "mismatchLabelKeys"] {
        let path = format!("{field}.{list}");
        let keys: Vec<&str> = texts(term, &format!("/{list}")).collect();
        if !keys.is_empty() && !has(term, "/labelSelector") {
            let detail = "must not be specified when labelSelector is not set";
            errors.push(FieldError::forbidden(path, detail));
            continue;
        }
        for (i, key) in keys.into_iter().enumerate() {
            report_invalid(
                index_path(&path, i),
                key,
                validate_qualified_name(key),
                errors,
            );
        }
    }
    for (i, key) in texts(term, "/matchLabelKeys").enumerate() {
        if texts(term, "/mismatchLabelKeys").any(|other| other == key) {
            let path = format!("{field}.matchLabelKeys[{i}]");
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.push(FieldError::invalid(path, &key.into(), detail));
        }
    }
}

/// Validates the tolerations of a pod.
pub(super) fn validate_tolerations(
    field: &str,
    tolerations: &[Value],
    errors: &mut Vec<FieldError>,
) {
    for (i, toleration) in tolerations.iter().enumerate() {
        validate_toleration(&index_path(field, i), toleration, errors);
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
            &value.into(),
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
