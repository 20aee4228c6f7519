//! Mutates and validates Kubernetes' built-in kinds. Does no I/O.
//!
//! Rules and error texts of `pkg/apis/*/validation`, as far as clients and controllers
//! rely on them; the schema checks types, required fields and enumerations.

mod admission_webhooks;
mod autoscaling;
mod autoscaling_metrics;
mod certificate_signing_request;
mod config_keys;
mod container_resources;
mod containers;
mod core_resources;
mod cron_jobs;
mod cron_names;
mod cron_schedule;
mod csi;
mod custom_resource_definition;
mod endpoints;
mod env;
mod flow_control;
mod ingress;
mod ingress_class;
mod ip_addresses;
mod job_policies;
mod job_schedule;
mod job_updates;
mod jobs;
mod label_selectors;
mod leases;
mod match_conditions;
mod mutating_policies;
mod network_policy;
mod node;
mod numbers;
mod persistent_volume;
mod persistent_volume_claim;
mod pod_annotations;
mod pod_disruption_budget;
mod pod_object;
mod pod_resources;
mod pod_scheduling;
mod pod_security;
mod pod_systems;
mod pods;
mod policy_validation;
mod ports;
mod priority_class;
mod probes;
mod projected_volumes;
mod rbac;
mod references;
mod resource_claims;
mod resource_quota;
mod runtime_class;
mod service;
mod service_addresses;
mod service_traffic;
mod service_updates;
mod storage_class;
mod topology_spread;
mod validated_pod_spec;
mod validating_policies;
mod volume_files;
mod volume_mounts;
mod volume_paths;
mod volume_sources;
mod volumes;
mod warnings;
mod windows_options;
mod workloads;

pub(crate) use autoscaling::{validate_behavior, validate_replica_bounds, validate_scale_target};
pub(crate) use autoscaling_metrics::{MetricRules, validate_metrics};
pub(crate) use certificate_signing_request::{certificate_request, mutate_status, validate_status};
pub(crate) use cron_schedule::validate_schedule;
pub use flow_control::bootstrap_objects as flow_control_bootstrap_objects;
pub(crate) use ingress::validate_spec as ingress;
pub(crate) use label_selectors::{SelectorValues, validate_label_selector};
pub(crate) use numbers::{
    int_or_percent, validate_at_most_100_percent, validate_int_or_percent, validate_port,
};
pub(crate) use priority_class::conflicting_global_default;
pub(crate) use warnings::warnings;

use machinery::{FieldError, FieldErrorType, Gvk, Status};
use serde_json::Value;

use crate::attributes::{AdmissionAttributes, AdmissionOperation};

pub(crate) fn mutate(
    attributes: &AdmissionAttributes<'_>,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    match (&*attributes.gvk.group, &*attributes.gvk.kind) {
        ("", "Secret") => core_resources::check_secret_encoding(new),
        ("", "Service") => {
            service::mutate(new, old);
            Ok(())
        }
        ("certificates.k8s.io", "CertificateSigningRequest")
            if attributes.operation == AdmissionOperation::Create =>
        {
            certificate_signing_request::set_requester(new, attributes.user);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether Kubernetes has no such error of the schema of a built-in kind: it accepts the object,
/// or the rules of the kind report it at another path.
pub fn replaces_schema_error(gvk: &Gvk, error: &FieldError) -> bool {
    use FieldErrorType::{Duplicate, NotSupported, Required};
    let field = &*error.field;
    let is_condition = field.starts_with("status.conditions[");
    match (&*gvk.group, &*gvk.kind, error.error_type) {
        ("apiextensions.k8s.io", "CustomResourceDefinition", Required) => {
            custom_resource_definition::replaces_required(field)
        }
        ("apps" | "autoscaling" | "batch", _, Required | Duplicate) if is_condition => true,
        ("apps", "ControllerRevision", Required) => field == "revision",
        ("apps", "DaemonSet", Required) => field == "spec.selector",
        ("apps", _, NotSupported) => {
            matches!(field, "spec.strategy.type" | "spec.updateStrategy.type")
        }
        ("batch", _, Required) => field.ends_with(".podFailurePolicy.rules"),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema", Duplicate) => !is_condition,
        ("storage.k8s.io", "CSIDriver", Duplicate) => true,
        ("storage.k8s.io", "CSINode", Required) => field == "spec.drivers",
        _ => false,
    }
}

/// Validates an object of a built-in kind beyond its schema; no errors for other kinds.
pub fn validate_builtin(gvk: &Gvk, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let e = &mut errors;
    match (&*gvk.group, &*gvk.kind) {
        ("", "ConfigMap") => core_resources::validate_config_map(new, old, e),
        ("", "Secret") => core_resources::validate_secret(new, old, e),
        ("", "Service") => service::validate(new, old, e),
        ("", "Pod") => pod_object::validate_pod(new, old, e),
        ("", "Node") => node::validate(new, old, e),
        ("", "PersistentVolumeClaim") => {
            persistent_volume_claim::validate(new, old, e);
        }
        ("", "PersistentVolume") => persistent_volume::validate(new, old, e),
        ("", "Endpoints") => endpoints::validate_endpoints(new, old, e),
        ("discovery.k8s.io", "EndpointSlice") => endpoints::validate_endpoint_slice(new, old, e),
        ("networking.k8s.io", "NetworkPolicy") => {
            network_policy::validate_network_policy(new, old, e)
        }
        ("networking.k8s.io", "IngressClass") => ingress_class::validate_ingress_class(new, old, e),
        ("", "PodTemplate") => workloads::validate_pod_template_object(new, old, e),
        ("", "ReplicationController") => {
            workloads::validate_replication_controller(new, old, e);
        }
        ("", "Namespace") => core_resources::validate_namespace(new, e),
        ("", "Event") => core_resources::validate_event(new, e),
        ("", "ResourceQuota") => resource_quota::validate_resource_quota(new, old, e),
        ("", "LimitRange") => resource_quota::validate_limit_range(new, e),
        ("apps", "Deployment") => workloads::validate_deployment(new, old, e),
        ("apps", "ReplicaSet") => workloads::validate_replica_set(new, old, e),
        ("apps", "DaemonSet") => workloads::validate_daemon_set(new, old, e),
        ("apps", "StatefulSet") => workloads::validate_stateful_set(new, old, e),
        ("apps", "ControllerRevision") => workloads::validate_controller_revision(new, old, e),
        ("batch", "Job") => jobs::validate_job(new, old, e),
        ("batch", "CronJob") => cron_jobs::validate_cron_job(new, old, e),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            custom_resource_definition::validate(new, old, e)
        }
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => admission_webhooks::validate(new, old, e),
        ("admissionregistration.k8s.io", kind) => validate_admission_policy(kind, new, old, e),
        ("rbac.authorization.k8s.io", kind) => rbac::validate(kind, new, old, e),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            certificate_signing_request::validate(new, old, e)
        }
        ("coordination.k8s.io", "Lease") => leases::validate_lease(new, e),
        ("networking.k8s.io", "Ingress") => ingress::validate(new, old, e),
        ("policy", "PodDisruptionBudget") => pod_disruption_budget::validate(new, old, e),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::validate(new, old, e),
        ("scheduling.k8s.io", "PriorityClass") => {
            priority_class::validate_priority_class(new, old, e)
        }
        ("storage.k8s.io", "StorageClass") => storage_class::validate_storage_class(new, old, e),
        ("storage.k8s.io", "CSIDriver") => csi::validate_csi_driver(new, old, e),
        ("storage.k8s.io", "CSINode") => csi::validate_csi_node(new, old, e),
        ("storage.k8s.io", "CSIStorageCapacity") => csi::validate_csi_storage_capacity(new, old, e),
        ("storage.k8s.io", "VolumeAttachment") => csi::validate_volume_attachment(new, old, e),
        ("node.k8s.io", "RuntimeClass") => runtime_class::validate_runtime_class(new, old, e),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => {
            flow_control::validate_flow_schema(new, e)
        }
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
            flow_control::validate_priority_level_configuration(new, e)
        }
        _ => {}
    }
    errors
}

fn validate_admission_policy(
    kind: &str,
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    use mutating_policies::{validate_mutating_binding, validate_mutating_policy};
    use validating_policies::{validate_validating_binding, validate_validating_policy};
    match kind {
        "ValidatingAdmissionPolicy" => validate_validating_policy(new, old, errors),
        "ValidatingAdmissionPolicyBinding" => validate_validating_binding(new, errors),
        "MutatingAdmissionPolicy" => validate_mutating_policy(new, old, errors),
        "MutatingAdmissionPolicyBinding" => validate_mutating_binding(new, errors),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
