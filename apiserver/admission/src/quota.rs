//! FederatedResourceQuota.
//!
//! Enters: a quota. Leaves: field errors. Pure. Rules of Karmada's
//! `webhook/federatedresourcequota`.

pub(crate) mod enforce;

use std::collections::HashSet;

use machinery::FieldError;
use machinery::Quantity;
use machinery::names::dns1123_label;
use serde_json::Value;

use crate::resources::{self, Place};
use crate::tree::{check, entries, get, items, nth, text};

const MAX_NAME: usize = 63;

pub(crate) fn validate(quota: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text(quota, "/metadata/name").len() > MAX_NAME {
        errors.push(FieldError::invalid(
            "metadata.name",
            get(quota, "/metadata/name"),
            format!("must be no more than {MAX_NAME} characters"),
        ));
    }
    let list = |path: &str, errors: &mut Vec<FieldError>| {
        let field = path[1..].replace('/', ".");
        resources::list(Place::Quota, &field, get(quota, path), errors);
    };
    list("/spec/overall", &mut errors);
    assignments(quota, &mut errors);
    list("/status/overall", &mut errors);
    list("/status/overallUsed", &mut errors);
    for (i, cluster) in items(quota, "/status/aggregatedStatus").iter().enumerate() {
        let field = nth("status.aggregatedStatus", i);
        cluster_name(&field, cluster, &mut errors);
        for part in ["hard", "used"] {
            resources::list(
                Place::Quota,
                &format!("{field}.{part}"),
                get(cluster, &format!("/{part}")),
                &mut errors,
            );
        }
    }
    errors
}

fn assignments(quota: &Value, errors: &mut Vec<FieldError>) {
    let overall = get(quota, "/spec/overall");
    let assigned = items(quota, "/spec/staticAssignments");
    let mut clusters = HashSet::new();
    for (i, assignment) in assigned.iter().enumerate() {
        let field = nth("spec.staticAssignments", i);
        cluster_name(&field, assignment, errors);
        let cluster = text(assignment, "/clusterName");
        if !clusters.insert(cluster) {
            errors.push(FieldError::duplicate(
                format!("{field}.clusterName"),
                &cluster.into(),
            ));
        }
        let hard = get(assignment, "/hard");
        resources::list(Place::Quota, &format!("{field}.hard"), hard, errors);
        for (key, _) in entries(hard, "") {
            if overall.get(key).is_none() {
                errors.push(FieldError::invalid(
                    format!("{field}.hard[{key}]"),
                    &key.into(),
                    "resource name does not exist in overall",
                ));
            }
        }
    }
    for (key, value) in entries(overall, "") {
        let sum: Quantity = assigned
            .iter()
            .map(|a| resources::amount(get(a, "/hard"), key))
            .sum();
        if resources::amount(overall, key) < sum {
            errors.push(FieldError::invalid(
                format!("spec.overall[{key}]"),
                value,
                "overall is less than assignments",
            ));
        }
    }
}

fn cluster_name(field: &str, entry: &Value, errors: &mut Vec<FieldError>) {
    let name = text(entry, "/clusterName");
    check(
        format!("{field}.clusterName"),
        name,
        dns1123_label(name),
        errors,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: ADM-quota
    #[test]
    fn assignments_fit_into_the_whole() {
        let with = |cluster: &str, hard: Value| {
            json!({"metadata": {"name": "q"}, "spec": {"overall": {"cpu": "10", "pods": "5"},
            "staticAssignments": [{"clusterName": "m1", "hard": {"cpu": "6"}}, {"clusterName": cluster, "hard": hard}]}})
        };
        let long = json!({"metadata": {"name": "q".repeat(64)}, "spec": {"overall": {"cpu": "1"}}});
        let status = json!({"metadata": {"name": "q"}, "status": {"aggregatedStatus": [{"clusterName": "m", "used": {"cpu": "x"}}]}});
        let table = [
            (with("m2", json!({"cpu": "4"})), vec![]),
            (
                with("m2", json!({"cpu": "4500m"})),
                vec!["spec.overall[cpu]"],
            ),
            (
                with("m2", json!({"memory": "1Gi"})),
                vec!["spec.staticAssignments[1].hard[memory]"],
            ),
            (
                with("M2", json!({"cpu": "1"})),
                vec!["spec.staticAssignments[1].clusterName"],
            ),
            (
                with("m1", json!({})),
                vec!["spec.staticAssignments[1].clusterName"],
            ),
            (
                with("m2", json!({"pods": "1500m"})),
                vec!["spec.staticAssignments[1].hard[pods]"],
            ),
            (long, vec!["metadata.name"]),
            (status, vec!["status.aggregatedStatus[0].used[cpu]"]),
        ];
        for (quota, expect) in table {
            let errors = validate(&quota);
            let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
            assert_eq!(fields, expect, "{quota}");
        }
    }
}
