//! Rules of a Placement: where a policy lets its resources go.
//!
//! Enters: `spec.placement` of a policy. Leaves: field errors. Pure. Rules of
//! Karmada's `util/validation/validation.go`.

use std::collections::HashSet;

use machinery::FieldError;
use machinery::names::qualified_name;
use serde_json::Value;

use crate::affinity;
use crate::tree::{check, get, has, int, items, nth, text};

const BASE: &str = "spec.placement";

pub(crate) fn validate(placement: &Value, errors: &mut Vec<FieldError>) {
    if has(placement, "/clusterAffinity") && has(placement, "/clusterAffinities") {
        errors.push(FieldError::invalid(
            format!("{BASE}.clusterAffinities"),
            get(placement, "/clusterAffinities"),
            "clusterAffinities can not co-exist with clusterAffinity",
        ));
    }
    affinity::validate(
        &format!("{BASE}.clusterAffinity"),
        get(placement, "/clusterAffinity"),
        errors,
    );
    terms(placement, errors);
    spread(items(placement, "/spreadConstraints"), errors);
    tolerations(items(placement, "/clusterTolerations"), errors);
    workload_affinity(get(placement, "/workloadAffinity"), errors);
}

fn terms(placement: &Value, errors: &mut Vec<FieldError>) {
    let strategy = get(placement, "/replicaScheduling");
    let mut names = HashSet::new();
    for (i, term) in items(placement, "/clusterAffinities").iter().enumerate() {
        let field = nth(&format!("{BASE}.clusterAffinities"), i);
        term_name(&field, term, &mut names, errors);
        affinity::validate(&field, term, errors);
        let overflow = items(term, "/overflowAffinities");
        if overflow.is_empty() {
            continue;
        }
        let field = format!("{field}.overflowAffinities");
        if !may_overflow(strategy) {
            errors.push(FieldError::forbidden(
                &field,
                "overflowAffinities requires replicaSchedulingType Divided with replicaDivisionPreference Aggregated, or Weighted with dynamicWeight",
            ));
        }
        if affinity::is_empty(term) {
            errors.push(FieldError::invalid(
                &field,
                &Value::from(overflow),
                "overflowAffinities requires a non-empty cluster affinity in the term itself",
            ));
        }
        let mut own = HashSet::from([text(term, "/affinityName")]);
        for (j, tier) in overflow.iter().enumerate() {
            let field = nth(&field, j);
            term_name(&field, tier, &mut own, errors);
            affinity::validate(&field, tier, errors);
        }
    }
}

fn term_name<'a>(
    field: &str,
    term: &'a Value,
    seen: &mut HashSet<&'a str>,
    errors: &mut Vec<FieldError>,
) {
    let field = format!("{field}.affinityName");
    let name = text(term, "/affinityName");
    check(&field, name, qualified_name(name), errors);
    if !seen.insert(name) {
        errors.push(FieldError::invalid(
            &field,
            &name.into(),
            "each affinity term in a policy must have a unique name",
        ));
    }
}

fn may_overflow(strategy: &Value) -> bool {
    text(strategy, "/replicaSchedulingType") == "Divided"
        && match text(strategy, "/replicaDivisionPreference") {
            "Aggregated" => true,
            "Weighted" => !text(strategy, "/weightPreference/dynamicWeight").is_empty(),
            _ => false,
        }
}

fn spread(constraints: &[Value], errors: &mut Vec<FieldError>) {
    let base = format!("{BASE}.spreadConstraints");
    let mut by_field: Vec<&str> = Vec::new();
    for (i, constraint) in constraints.iter().enumerate() {
        let at = nth(&base, i);
        let field = text(constraint, "/spreadByField");
        if !field.is_empty() && !text(constraint, "/spreadByLabel").is_empty() {
            errors.push(FieldError::invalid(
                format!("{at}.spreadByLabel"),
                get(constraint, "/spreadByLabel"),
                "spreadByLabel should not co-exist with spreadByField",
            ));
        }
        let max = int(constraint, "/maxGroups").unwrap_or(0);
        let min = int(constraint, "/minGroups").unwrap_or(0);
        for (name, value) in [("maxGroups", max), ("minGroups", min)] {
            if value < 0 {
                errors.push(FieldError::invalid(
                    format!("{at}.{name}"),
                    &value.into(),
                    format!("{name} lower than 0 is not allowed"),
                ));
            }
        }
        if max > 0 && max < min {
            errors.push(FieldError::invalid(
                format!("{at}.maxGroups"),
                &max.into(),
                "maxGroups lower than minGroups is not allowed",
            ));
        }
        if !field.is_empty() {
            by_field.push(field);
        }
    }
    let distinct: HashSet<&str> = by_field.iter().copied().collect();
    let mut repeated: Vec<&str> = distinct
        .iter()
        .copied()
        .filter(|f| by_field.iter().filter(|g| *g == f).count() > 1)
        .collect();
    repeated.sort_unstable();
    for field in repeated {
        let why = format!("multiple {field} spread constraints are not allowed");
        errors.push(FieldError::invalid(&base, &Value::from(constraints), why));
    }
    if !distinct.is_empty() && !distinct.contains("cluster") {
        errors.push(FieldError::invalid(
            &base,
            &Value::from(constraints),
            "the cluster spread constraint must be enabled in one of the constraints in case of SpreadByField is enabled",
        ));
    }
}

fn tolerations(tolerations: &[Value], errors: &mut Vec<FieldError>) {
    for (i, toleration) in tolerations.iter().enumerate() {
        if matches!(text(toleration, "/operator"), "Lt" | "Gt") {
            errors.push(FieldError::not_supported(
                format!("{}.operator", nth(&format!("{BASE}.clusterTolerations"), i)),
                get(toleration, "/operator"),
                &["Equal", "Exists"],
            ));
        }
    }
}

fn workload_affinity(workload: &Value, errors: &mut Vec<FieldError>) {
    let key = |side: &str| get(workload, &format!("/{side}/groupByLabelKey"));
    for side in ["affinity", "antiAffinity"] {
        if has(workload, &format!("/{side}")) {
            let key = key(side).as_str().unwrap_or("");
            let field = format!("{BASE}.workloadAffinity.{side}.groupByLabelKey");
            check(field, key, qualified_name(key), errors);
        }
    }
    if !key("affinity").is_null() && key("affinity") == key("antiAffinity") {
        errors.push(FieldError::invalid(
            format!("{BASE}.workloadAffinity.antiAffinity.groupByLabelKey"),
            key("antiAffinity"),
            "affinity and antiAffinity must not use the same label key",
        ));
    }
}
