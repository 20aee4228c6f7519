//! Validates FederatedResourceQuota. Does no I/O. Rules of Karmada's
//! `webhook/federatedresourcequota`.

pub(crate) mod enforce;

use std::collections::HashSet;

use machinery::FieldError;
use machinery::Quantity;
use serde_json::Value;

use crate::cluster;
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
    }
    for (key, _) in entries(overall, "") {
        let sum: Quantity = assigned
            .iter()
            .map(|a| resources::amount(get(a, "/hard"), key))
            .sum();
        let limit = resources::amount(overall, key);
        if limit < sum {
            errors.push(FieldError::invalid(
                format!("spec.overall[{key}]"),
                &limit.to_string().into(),
                "overall is less than assignments",
            ));
        }
    }
    for (i, assignment) in assigned.iter().enumerate() {
        for (key, _) in entries(assignment, "/hard") {
            if overall.get(key).is_none() {
                errors.push(FieldError::invalid(
                    format!("{}.hard[{key}]", nth("spec.staticAssignments", i)),
                    &key.into(),
                    "assignment resourceName is not exist in overall",
                ));
            }
        }
    }
}

fn cluster_name(field: &str, entry: &Value, errors: &mut Vec<FieldError>) {
    let name = text(entry, "/clusterName");
    check(
        format!("{field}.clusterName"),
        name,
        cluster::name(name),
        errors,
    );
}

#[cfg(test)]
mod tests;
