//! Mutates and validates Kubernetes' built-in kinds. Does no I/O.
//!
//! Rules and error texts of `pkg/apis/*/validation`, as far as clients and controllers
//! rely on them; the schema checks types, required fields and enumerations.

mod autoscaling;
mod config;
mod containers;
mod cron;
mod definition;
mod disruption;
mod ingress;
mod pods;
mod quota;
mod rbac;
mod scheduling;
mod service;
mod workloads;

pub(crate) use autoscaling::{behavior, metrics, replicas, scale_target};
pub(crate) use cron::schedule;
pub(crate) use ingress::validate as ingress;
pub(crate) use scheduling::rival_default;

use machinery::{FieldError, Gvk, Status};
use serde_json::Value;

use crate::attributes::Attributes;
use crate::tree::int;

pub(crate) fn mutate(
    attributes: &Attributes<'_>,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    match (&*attributes.gvk.group, &*attributes.gvk.kind) {
        ("", "Secret") => config::readable_secret(new),
        ("", "Service") => {
            service::mutate(new, old);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Validates an object of a built-in kind beyond its schema; no errors for other kinds.
pub fn validate(gvk: &Gvk, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let e = &mut errors;
    match (&*gvk.group, &*gvk.kind) {
        ("", "ConfigMap") => config::configmap(new, old, e),
        ("", "Secret") => config::secret(new, old, e),
        ("", "Service") => service::validate(new, old, e),
        ("", "Pod") => pods::pod(new, old, e),
        ("", "PersistentVolumeClaim") => config::claim(new, old, e),
        ("", "Event") => config::event(new, e),
        ("", "ResourceQuota") => quota::quota(new, old, e),
        ("", "LimitRange") => quota::limits(new, e),
        ("apps", "Deployment") => workloads::deployment(new, old, e),
        ("apps", "ReplicaSet") => workloads::replica_set(new, old, e),
        ("apps", "DaemonSet") => workloads::daemon_set(new, old, e),
        ("apps", "StatefulSet") => workloads::stateful_set(new, old, e),
        ("batch", "Job") => workloads::job(new, old, e),
        ("batch", "CronJob") => workloads::cron_job(new, e),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition::validate(new, old, e),
        ("rbac.authorization.k8s.io", kind) => rbac::validate(kind, new, old, e),
        ("coordination.k8s.io", "Lease") => lease(new, e),
        ("networking.k8s.io", "Ingress") => ingress::validate(new, e),
        ("policy", "PodDisruptionBudget") => disruption::validate(new, e),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::validate(&gvk.version, new, e),
        ("scheduling.k8s.io", "PriorityClass") => scheduling::priority_class(new, old, e),
        ("storage.k8s.io", "StorageClass") => scheduling::storage_class(new, old, e),
        _ => {}
    }
    errors
}

fn lease(lease: &Value, errors: &mut Vec<FieldError>) {
    if let Some(seconds) = int(lease, "/spec/leaseDurationSeconds")
        && seconds <= 0
    {
        errors.push(FieldError::invalid(
            "spec.leaseDurationSeconds",
            &seconds.into(),
            "must be greater than 0",
        ));
    }
    not_negative(lease, "spec.leaseTransitions", errors);
}

/// Requires the number at a dotted path to be at least 0.
fn not_negative(object: &Value, field: &str, errors: &mut Vec<FieldError>) {
    if let Some(n) = int(object, &crate::tree::pointer(field))
        && n < 0
    {
        errors.push(FieldError::invalid(
            field,
            &n.into(),
            "must be greater than or equal to 0",
        ));
    }
}

/// Requires a valid port number.
pub(crate) fn port(field: impl Into<String>, port: i64, errors: &mut Vec<FieldError>) {
    if !(1..=65_535).contains(&port) {
        errors.push(FieldError::invalid(
            field,
            &port.into(),
            "must be between 1 and 65535, inclusive",
        ));
    }
}

#[cfg(test)]
mod tests;
