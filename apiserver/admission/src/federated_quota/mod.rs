//! Validates FederatedResourceQuota. Does no I/O. Rules of Karmada's
//! `webhook/federatedresourcequota`.

pub(crate) mod quota_enforcement;

use std::collections::HashSet;

use machinery::FieldError;
use machinery::Quantity;
use quota::federated_resource_quota::is_requested_by_bindings;
use serde_json::Value;

use crate::cluster;
use crate::resource_list::{self, ResourceListKind};
use crate::unstructured::{entries, get, index_path, items, report_invalid, text};

const MAX_QUOTA_NAME_LENGTH: usize = 63;

pub(crate) fn validate(quota: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text(quota, "/metadata/name").len() > MAX_QUOTA_NAME_LENGTH {
        errors.push(FieldError::invalid(
            "metadata.name",
            get(quota, "/metadata/name"),
            format!("must be no more than {MAX_QUOTA_NAME_LENGTH} characters"),
        ));
    }
    let list = |path: &str, errors: &mut Vec<FieldError>| {
        let field = path[1..].replace('/', ".");
        resource_list::validate_resource_list(
            ResourceListKind::FederatedQuota,
            &field,
            get(quota, path),
            errors,
        );
    };
    list("/spec/overall", &mut errors);
    validate_static_assignments(quota, &mut errors);
    list("/status/overall", &mut errors);
    list("/status/overallUsed", &mut errors);
    for (i, cluster) in items(quota, "/status/aggregatedStatus").iter().enumerate() {
        let field = index_path("status.aggregatedStatus", i);
        validate_assignment_cluster(&field, cluster, &mut errors);
        for part in ["hard", "used"] {
            resource_list::validate_resource_list(
                ResourceListKind::FederatedQuota,
                &format!("{field}.{part}"),
                get(cluster, &format!("/{part}")),
                &mut errors,
            );
        }
    }
    errors
}

/// Rejects limits that would have no effect: no binding requests such a resource, and no static
/// assignment has it. An update may keep the limits that it does not change. Applies only to a
/// server that enforces quotas.
pub(crate) fn validate_enforceable(quota: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let before = old.map_or(&Value::Null, |old| get(old, "/spec/overall"));
    let assigned = items(quota, "/spec/staticAssignments");
    let is_assigned = |name: &str| assigned.iter().any(|a| get(a, "/hard").get(name).is_some());
    let limits = entries(get(quota, "/spec/overall"), "");
    let is_valid = |name: &str| {
        resource_list::validate_resource_name(ResourceListKind::FederatedQuota, name).is_ok()
    };
    let inert = limits.filter(|(name, _)| {
        let acts = is_requested_by_bindings(name) || is_assigned(name);
        !acts && is_valid(name) && before.get(name).is_none()
    });
    let errors = inert.map(|(name, _)| {
        FieldError::invalid(
            format!("spec.overall[{name}]"),
            &name.into(),
            "is not enforced: bindings say what their replicas request, not their limits or other resources; use cpu, memory, ephemeral-storage, hugepages-* or an extended resource, also with requests., or assign it in spec.staticAssignments",
        )
    });
    errors.collect()
}

fn validate_static_assignments(quota: &Value, errors: &mut Vec<FieldError>) {
    let overall = get(quota, "/spec/overall");
    let assigned = items(quota, "/spec/staticAssignments");
    let mut clusters = HashSet::new();
    for (i, assignment) in assigned.iter().enumerate() {
        let field = index_path("spec.staticAssignments", i);
        validate_assignment_cluster(&field, assignment, errors);
        let cluster = text(assignment, "/clusterName");
        if !clusters.insert(cluster) {
            errors.push(FieldError::duplicate(
                format!("{field}.clusterName"),
                &cluster.into(),
            ));
        }
        let hard = get(assignment, "/hard");
        resource_list::validate_resource_list(
            ResourceListKind::FederatedQuota,
            &format!("{field}.hard"),
            hard,
            errors,
        );
    }
    for (key, _) in entries(overall, "") {
        let sum: Quantity = assigned
            .iter()
            .map(|a| resource_list::resource_quantity(get(a, "/hard"), key))
            .sum();
        let limit = resource_list::resource_quantity(overall, key);
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
                    format!("{}.hard[{key}]", index_path("spec.staticAssignments", i)),
                    &key.into(),
                    "assignment resourceName is not exist in overall",
                ));
            }
        }
    }
}

fn validate_assignment_cluster(field: &str, entry: &Value, errors: &mut Vec<FieldError>) {
    let name = text(entry, "/clusterName");
    report_invalid(
        format!("{field}.clusterName"),
        name,
        cluster::validate_cluster_name(name),
        errors,
    );
}

#[cfg(test)]
mod tests;
