//! Prints the built-in kinds as Kubernetes' API server does
//! (`pkg/printers/internalversion/printers.go`): names, types and priorities of columns,
//! and cells.

use jiff::Timestamp;
use openapi::KindInfo;
use serde_json::Value;

use super::TableColumnDefinition;
use column_descriptions::column_description;
use print_handler::{ColumnHeader, PrintHandler};

mod admission_policies;
mod batch;
mod cluster;
mod column_descriptions;
mod flow_control;
mod network;
mod pod;
mod print_handler;
mod printer_input;
mod storage;
mod workload;

#[cfg(test)]
mod tests;

use printer_input::PrinterInput;

pub(super) fn columns(kind: &KindInfo) -> Option<Vec<TableColumnDefinition>> {
    let table = print_handler(&kind.gvk.group, &kind.gvk.kind)?;
    let header = |(name, ty): &ColumnHeader| TableColumnDefinition {
        name: (*name).into(),
        ty: (*ty).into(),
        format: if *name == "Name" && !table.wide_columns.contains(name) {
            "name".into()
        } else {
            String::new()
        },
        description: column_description(name).into(),
        priority: i32::from(table.wide_columns.contains(name)),
    };
    Some(table.columns.iter().map(header).collect())
}

pub(super) fn cells(kind: &KindInfo, object: &Value, now: Timestamp) -> Option<Vec<Value>> {
    let table = print_handler(&kind.gvk.group, &kind.gvk.kind)?;
    Some((table.cells)(&PrinterInput { object, now }))
}

fn print_handler(group: &str, kind: &str) -> Option<&'static PrintHandler> {
    Some(match (group, kind) {
        ("", "Pod") => &pod::POD,
        ("", "PodTemplate") => &workload::POD_TEMPLATE,
        ("", "ReplicationController") => &workload::REPLICATION_CONTROLLER,
        ("apps", "Deployment") => &workload::DEPLOYMENT,
        ("apps", "ReplicaSet") => &workload::REPLICA_SET,
        ("apps", "StatefulSet") => &workload::STATEFUL_SET,
        ("apps", "DaemonSet") => &workload::DAEMON_SET,
        ("apps", "ControllerRevision") => &workload::CONTROLLER_REVISION,
        ("autoscaling", "HorizontalPodAutoscaler") => &workload::HORIZONTAL_POD_AUTOSCALER,
        ("policy", "PodDisruptionBudget") => &workload::POD_DISRUPTION_BUDGET,
        ("batch", "Job") => &batch::JOB,
        ("batch", "CronJob") => &batch::CRON_JOB,
        ("", "Service") => &network::SERVICE,
        ("", "Endpoints") => &network::ENDPOINTS,
        ("discovery.k8s.io", "EndpointSlice") => &network::ENDPOINT_SLICE,
        ("networking.k8s.io", "Ingress") => &network::INGRESS,
        ("networking.k8s.io", "IngressClass") => &network::INGRESS_CLASS,
        ("networking.k8s.io", "NetworkPolicy") => &network::NETWORK_POLICY,
        ("", "PersistentVolume") => &storage::PERSISTENT_VOLUME,
        ("", "PersistentVolumeClaim") => &storage::PERSISTENT_VOLUME_CLAIM,
        ("storage.k8s.io", "StorageClass") => &storage::STORAGE_CLASS,
        ("storage.k8s.io", "CSIDriver") => &storage::CSI_DRIVER,
        ("storage.k8s.io", "CSINode") => &storage::CSI_NODE,
        ("storage.k8s.io", "VolumeAttachment") => &storage::VOLUME_ATTACHMENT,
        ("node.k8s.io", "RuntimeClass") => &cluster::RUNTIME_CLASS,
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => &flow_control::FLOW_SCHEMA,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
            &flow_control::PRIORITY_LEVEL_CONFIGURATION
        }
        ("", "ConfigMap") => &storage::CONFIG_MAP,
        ("", "Secret") => &storage::SECRET,
        ("", "Namespace") => &cluster::NAMESPACE,
        ("", "Node") => &cluster::NODE,
        ("" | "events.k8s.io", "Event") => &cluster::EVENT,
        ("", "ServiceAccount") => &cluster::SERVICE_ACCOUNT,
        ("", "ResourceQuota") => &cluster::RESOURCE_QUOTA,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            &cluster::ROLE_BINDING
        }
        ("", "LimitRange")
        | ("rbac.authorization.k8s.io", "Role" | "ClusterRole")
        | ("apiextensions.k8s.io", "CustomResourceDefinition") => &cluster::CREATED_AT,
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            &cluster::CERTIFICATE_SIGNING_REQUEST
        }
        ("", "ComponentStatus") => &cluster::COMPONENT_STATUS,
        ("coordination.k8s.io", "Lease") => &cluster::LEASE,
        ("scheduling.k8s.io", "PriorityClass") => &cluster::PRIORITY_CLASS,
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => &cluster::WEBHOOK_CONFIGURATION,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            &admission_policies::VALIDATING_POLICY
        }
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => {
            &admission_policies::MUTATING_POLICY
        }
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding",
        ) => &admission_policies::BINDING,
        _ => return None,
    })
}
