//! Validates the Placement of a policy. Does no I/O. Rules of Karmada's
//! `util/validation/validation.go`.

use std::collections::{HashMap, HashSet};

use karmada_api::placement::{
    ClusterAffinityTerm, OverflowClusterAffinityTerm, Placement, SpreadConstraint,
};
use machinery::FieldError;
use machinery::names::validate_qualified_name;
use serde_json::Value;

use crate::cluster_affinity;
use crate::unstructured::{get, go_json, has, index_path, int, items, report_invalid, text};

const PLACEMENT_FIELD: &str = "spec.placement";
const AFFINITY_TERMS_FIELD: &str = "spec.placement.clusterAffinities";

pub(crate) fn validate(placement: &Value, errors: &mut Vec<FieldError>) {
    if has(placement, "/clusterAffinity") && has(placement, "/clusterAffinities") {
        errors.push(FieldError::invalid_rendered(
            PLACEMENT_FIELD,
            &go_json::<Placement>(placement),
            "clusterAffinities cannot co-exist with clusterAffinity",
        ));
    }
    let all = items(placement, "/clusterAffinities");
    if !allows_overflow(get(placement, "/replicaScheduling")) {
        for (i, term) in all.iter().enumerate() {
            if has(term, "/overflowAffinities") {
                errors.push(FieldError::invalid_rendered(
                    format!("{}.overflowAffinities", index_path(AFFINITY_TERMS_FIELD, i)),
                    &go_json::<Vec<OverflowClusterAffinityTerm>>(get(term, "/overflowAffinities")),
                    "overflowAffinities can only be used together with dynamic weight or aggregated scheduling",
                ));
            }
        }
    }
    cluster_affinity::validate(
        &format!("{PLACEMENT_FIELD}.clusterAffinity"),
        get(placement, "/clusterAffinity"),
        errors,
    );
    validate_affinity_terms(all, errors);
    validate_spread_constraints(items(placement, "/spreadConstraints"), errors);
    validate_workload_affinity(get(placement, "/workloadAffinity"), errors);
    validate_tolerations(items(placement, "/clusterTolerations"), errors);
}

fn validate_affinity_terms(all: &[Value], errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for (i, term) in all.iter().enumerate() {
        let field = index_path(AFFINITY_TERMS_FIELD, i);
        let name = text(term, "/affinityName");
        report_invalid(&field, name, validate_qualified_name(name), errors);
        if !names.insert(name) {
            errors.push(FieldError::invalid_rendered(
                AFFINITY_TERMS_FIELD,
                &go_json::<Vec<ClusterAffinityTerm>>(&Value::from(all)),
                "each affinity term in a policy must have a unique name",
            ));
        }
        cluster_affinity::validate(&field, term, errors);
        validate_overflow_affinities(&field, name, term, errors);
    }
}

fn validate_overflow_affinities(
    field: &str,
    primary: &str,
    term: &Value,
    errors: &mut Vec<FieldError>,
) {
    if !has(term, "/overflowAffinities") {
        return;
    }
    let field = format!("{field}.overflowAffinities");
    if cluster_affinity::is_empty(term) {
        errors.push(FieldError::invalid_rendered(
            &field,
            &go_json::<Vec<OverflowClusterAffinityTerm>>(get(term, "/overflowAffinities")),
            "overflowAffinities can only be used together with the inline ClusterAffinity",
        ));
    }
    let mut names = HashSet::from([primary]);
    for (i, tier) in items(term, "/overflowAffinities").iter().enumerate() {
        let path = index_path(&field, i);
        let name = text(tier, "/affinityName");
        let name_path = format!("{path}.affinityName");
        report_invalid(&name_path, name, validate_qualified_name(name), errors);
        if !names.insert(name) {
            errors.push(FieldError::invalid(
                name_path,
                &name.into(),
                "overflow affinity name must be unique and must not duplicate the primary group's affinityName",
            ));
        }
        cluster_affinity::validate(&path, tier, errors);
    }
}

fn allows_overflow(strategy: &Value) -> bool {
    text(strategy, "/replicaSchedulingType") == "Divided"
        && match text(strategy, "/replicaDivisionPreference") {
            "Aggregated" => true,
            "Weighted" => !text(strategy, "/weightPreference/dynamicWeight").is_empty(),
            _ => false,
        }
}

fn validate_spread_constraints(constraints: &[Value], errors: &mut Vec<FieldError>) {
    let base = format!("{PLACEMENT_FIELD}.spreadConstraints");
    let all = || go_json::<Vec<SpreadConstraint>>(&Value::from(constraints));
    // Number of constraints per spreadByField.
    let mut by_field: HashMap<&str, usize> = HashMap::new();
    for (i, constraint) in constraints.iter().enumerate() {
        let field = text(constraint, "/spreadByField");
        let max = int(constraint, "/maxGroups").unwrap_or(0);
        let min = int(constraint, "/minGroups").unwrap_or(0);
        let has_both = !field.is_empty() && !text(constraint, "/spreadByLabel").is_empty();
        let rules = [
            (
                has_both,
                "spreadByLabel should not co-exist with spreadByField",
            ),
            (min < 0, "minGroups lower than 0 is not allowed"),
            (max < 0, "maxGroups lower than 0 is not allowed"),
            (
                max > 0 && max < min,
                "maxGroups lower than minGroups is not allowed",
            ),
        ];
        for (_, detail) in rules.into_iter().filter(|(broken, _)| *broken) {
            let value = go_json::<SpreadConstraint>(constraint);
            errors.push(FieldError::invalid_rendered(
                index_path(&base, i),
                &value,
                detail,
            ));
        }
        if !field.is_empty() {
            let times = by_field.entry(field).or_default();
            *times += 1;
            if *times == 2 {
                let detail = format!("multiple {field} spread constraints are not allowed");
                errors.push(FieldError::invalid_rendered(&base, &all(), detail));
            }
        }
    }
    if !by_field.is_empty() && !by_field.contains_key("cluster") {
        errors.push(FieldError::invalid_rendered(
            &base,
            &all(),
            "the cluster spread constraint must be enabled in one of the constraints in case of SpreadByField is enabled",
        ));
    }
}

fn validate_tolerations(tolerations: &[Value], errors: &mut Vec<FieldError>) {
    for (i, toleration) in tolerations.iter().enumerate() {
        if matches!(text(toleration, "/operator"), "Lt" | "Gt") {
            errors.push(FieldError::not_supported(
                format!(
                    "{}.operator",
                    index_path(&format!("{PLACEMENT_FIELD}.clusterTolerations"), i)
                ),
                get(toleration, "/operator"),
                &["", "Exists", "Equal"],
            ));
        }
    }
}

fn validate_workload_affinity(workload: &Value, errors: &mut Vec<FieldError>) {
    let key = |side: &str| get(workload, &format!("/{side}/groupByLabelKey"));
    for side in ["affinity", "antiAffinity"] {
        if has(workload, &format!("/{side}")) {
            let key = key(side).as_str().unwrap_or("");
            let field = format!("{PLACEMENT_FIELD}.workloadAffinity.{side}.groupByLabelKey");
            report_invalid(field, key, validate_qualified_name(key), errors);
        }
    }
    if !key("affinity").is_null() && key("affinity") == key("antiAffinity") {
        errors.push(FieldError::invalid(
            format!("{PLACEMENT_FIELD}.workloadAffinity"),
            workload,
            "affinity and antiAffinity must not use the same groupByLabelKey",
        ));
    }
}

#[cfg(test)]
mod tests;
