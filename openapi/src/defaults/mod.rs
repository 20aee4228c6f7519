//! Sets the defaults of built-in kinds that depend on other fields, or that Kubernetes'
//! published schemas do not contain (contract F1.5; Kubernetes `pkg/apis/*/v1/defaults.go`
//! and the conversions beside them).
//!
//! Runs after [`Schema::apply_defaults`](crate::Schema::apply_defaults), which sets value
//! structs. The result is what Kubernetes would store, except for fields that the registry
//! allocates (addresses, ports, names, uids). Idempotent.

mod admission_policies;
mod admission_webhooks;
mod autoscaling;
mod canonical;
mod cluster;
mod flow_control;
mod network;
mod object_fields;
mod pod;
mod storage;
mod workload;
mod zero_value;

#[cfg(test)]
mod tests;

use machinery::Gvk;
use serde_json::Value;

use crate::catalog::catalog;
use crate::model::{KindInfo, SchemaType};
use object_fields::{
    JsonObjectMap, for_each_object, is_empty, is_true, is_unset, set_default, set_default_number,
    string_field, with_object, with_object_or_create,
};

pub use workload::generate_job_selector;
pub use zero_value::zero_value;

/// Whether API servers hold the kind as a Go struct: the built-in kinds, and those of
/// Karmada's aggregated API servers.
pub fn has_go_type(kind: &KindInfo) -> bool {
    kind.protobuf || matches!(&*kind.gvk.group, "cluster.karmada.io" | "search.karmada.io")
}

/// Brings an object of a Go type into the form in which Go's encoder writes it. Leaves other
/// objects, and what cannot be parsed, as they are.
pub fn canonicalize(gvk: &Gvk, object: &mut Value) {
    let catalog = catalog();
    if let Some(kind) = catalog.kind(gvk).filter(|kind| has_go_type(kind))
        && let Some(id) = catalog.definitions().id(&kind.definition)
    {
        canonical::canonicalize(catalog.definitions(), &SchemaType::Ref(id), object, 0);
    }
}

/// Sets the defaults of `gvk` in `object`, and brings objects of Go types into canonical
/// form. Leaves values that are not objects to validation.
pub fn apply(gvk: &Gvk, object: &mut Value) {
    canonicalize(gvk, object);
    let Some(object) = object.as_object_mut() else {
        return;
    };
    match (&*gvk.group, &*gvk.kind) {
        ("", kind) => set_defaults_core(kind, object),
        ("apps", "Deployment") => workload::set_defaults_deployment(object),
        ("apps", "ReplicaSet") => workload::set_defaults_replica_set(object),
        ("apps", "StatefulSet") => workload::set_defaults_stateful_set(object),
        ("apps", "DaemonSet") => workload::set_defaults_daemon_set(object),
        ("batch", "Job") => workload::set_defaults_job(object),
        ("batch", "CronJob") => workload::set_defaults_cron_job(object),
        ("autoscaling", "HorizontalPodAutoscaler") => {
            autoscaling::set_defaults_horizontal_pod_autoscaler(&gvk.version, object)
        }
        ("discovery.k8s.io", "EndpointSlice") => network::set_defaults_endpoint_slice(object),
        ("networking.k8s.io", "IngressClass") => network::set_defaults_ingress_class(object),
        ("networking.k8s.io", "NetworkPolicy") => network::set_defaults_network_policy(object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            cluster::set_defaults_role_binding(object);
        }
        ("scheduling.k8s.io", "PriorityClass") => {
            set_default(object, "preemptionPolicy", "PreemptLowerPriority");
        }
        ("storage.k8s.io", "StorageClass") => storage::set_defaults_storage_class(object),
        ("storage.k8s.io", "CSIDriver") => storage::set_defaults_csi_driver(object),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => {
            flow_control::set_defaults_flow_schema(object);
        }
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
            flow_control::set_defaults_priority_level_configuration(object);
        }
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => admission_webhooks::set_defaults_webhook_configuration(&gvk.kind, object),
        ("admissionregistration.k8s.io", _) => admission_policies::set_defaults(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            cluster::set_defaults_custom_resource_definition(object);
        }
        ("authentication.k8s.io", "TokenRequest") => {
            with_object(object, "spec", |spec| {
                set_default(spec, "expirationSeconds", 3600)
            });
        }
        _ => {}
    }
}

fn set_defaults_core(kind: &str, object: &mut JsonObjectMap) {
    match kind {
        "Pod" => pod::set_defaults_pod(object),
        "PodTemplate" => with_object(object, "template", pod::set_defaults_pod_template),
        "ReplicationController" => workload::set_defaults_replication_controller(object),
        "Service" => network::set_defaults_service(object),
        "Endpoints" => network::set_defaults_endpoints(object),
        "Namespace" => cluster::set_defaults_namespace(object),
        "Node" => cluster::set_defaults_node(object),
        "Secret" => storage::set_defaults_secret(object),
        "PersistentVolumeClaim" => storage::set_defaults_persistent_volume_claim(object),
        "PersistentVolume" => storage::set_defaults_persistent_volume(object),
        "LimitRange" => cluster::set_defaults_limit_range(object),
        _ => {}
    }
}
