//! Validates the Placement of a policy. Does no I/O. Rules of Karmada's
//! `util/validation/validation.go`.

use std::collections::{HashMap, HashSet};

use machinery::FieldError;
use machinery::names::qualified_name;
use openapi::karmada::placement::{AffinityTerm, OverflowTerm, Placement, SpreadConstraint};
use serde_json::Value;

use crate::affinity;
use crate::tree::{check, get, has, int, items, nth, shown, text};

const BASE: &str = "spec.placement";
const TERMS: &str = "spec.placement.clusterAffinities";

pub(crate) fn validate(placement: &Value, errors: &mut Vec<FieldError>) {
    if has(placement, "/clusterAffinity") && has(placement, "/clusterAffinities") {
        errors.push(FieldError::invalid_shown(
            BASE,
            &shown::<Placement>(placement),
            "clusterAffinities cannot co-exist with clusterAffinity",
        ));
    }
    let all = items(placement, "/clusterAffinities");
    if !may_overflow(get(placement, "/replicaScheduling")) {
        for (i, term) in all.iter().enumerate() {
            if has(term, "/overflowAffinities") {
                errors.push(FieldError::invalid_shown(
                    format!("{}.overflowAffinities", nth(TERMS, i)),
                    &shown::<Vec<OverflowTerm>>(get(term, "/overflowAffinities")),
                    "overflowAffinities can only be used together with dynamic weight or aggregated scheduling",
                ));
            }
        }
    }
    affinity::validate(
        &format!("{BASE}.clusterAffinity"),
        get(placement, "/clusterAffinity"),
        errors,
    );
    terms(all, errors);
    spread(items(placement, "/spreadConstraints"), errors);
    workload_affinity(get(placement, "/workloadAffinity"), errors);
    tolerations(items(placement, "/clusterTolerations"), errors);
}

fn terms(all: &[Value], errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for (i, term) in all.iter().enumerate() {
        let field = nth(TERMS, i);
        let name = text(term, "/affinityName");
        check(&field, name, qualified_name(name), errors);
        if !names.insert(name) {
            errors.push(FieldError::invalid_shown(
                TERMS,
                &shown::<Vec<AffinityTerm>>(&Value::from(all)),
                "each affinity term in a policy must have a unique name",
            ));
        }
        affinity::validate(&field, term, errors);
        overflow(&field, name, term, errors);
    }
}

fn overflow(field: &str, primary: &str, term: &Value, errors: &mut Vec<FieldError>) {
    if !has(term, "/overflowAffinities") {
        return;
    }
    let field = format!("{field}.overflowAffinities");
    if affinity::is_empty(term) {
        errors.push(FieldError::invalid_shown(
            &field,
            &shown::<Vec<OverflowTerm>>(get(term, "/overflowAffinities")),
            "overflowAffinities can only be used together with the inline ClusterAffinity",
        ));
    }
    let mut names = HashSet::from([primary]);
    for (i, tier) in items(term, "/overflowAffinities").iter().enumerate() {
        let at = nth(&field, i);
        let name = text(tier, "/affinityName");
        let named = format!("{at}.affinityName");
        check(&named, name, qualified_name(name), errors);
        if !names.insert(name) {
            errors.push(FieldError::invalid(
                named,
                &name.into(),
                "overflow affinity name must be unique and must not duplicate the primary group's affinityName",
            ));
        }
        affinity::validate(&at, tier, errors);
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
    let all = || shown::<Vec<SpreadConstraint>>(&Value::from(constraints));
    // Number of constraints per spreadByField.
    let mut by_field: HashMap<&str, usize> = HashMap::new();
    for (i, constraint) in constraints.iter().enumerate() {
        let field = text(constraint, "/spreadByField");
        let max = int(constraint, "/maxGroups").unwrap_or(0);
        let min = int(constraint, "/minGroups").unwrap_or(0);
        let both = !field.is_empty() && !text(constraint, "/spreadByLabel").is_empty();
        let rules = [
            (both, "spreadByLabel should not co-exist with spreadByField"),
            (min < 0, "minGroups lower than 0 is not allowed"),
            (max < 0, "maxGroups lower than 0 is not allowed"),
            (
                max > 0 && max < min,
                "maxGroups lower than minGroups is not allowed",
            ),
        ];
        for (_, why) in rules.into_iter().filter(|(broken, _)| *broken) {
            let value = shown::<SpreadConstraint>(constraint);
            errors.push(FieldError::invalid_shown(nth(&base, i), &value, why));
        }
        if !field.is_empty() {
            let times = by_field.entry(field).or_default();
            *times += 1;
            if *times == 2 {
                let why = format!("multiple {field} spread constraints are not allowed");
                errors.push(FieldError::invalid_shown(&base, &all(), why));
            }
        }
    }
    if !by_field.is_empty() && !by_field.contains_key("cluster") {
        errors.push(FieldError::invalid_shown(
            &base,
            &all(),
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
                &["", "Exists", "Equal"],
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
            format!("{BASE}.workloadAffinity"),
            workload,
            "affinity and antiAffinity must not use the same groupByLabelKey",
        ));
    }
}

#[cfg(test)]
mod tests;
