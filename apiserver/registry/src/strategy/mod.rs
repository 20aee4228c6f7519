//! The strategies of kinds, for what differs between them in create, update and delete. Kinds
//! without an entry have the default one.
//!
//! Strategies work on JSON trees in the storage version. Sources:
//! `pkg/registry/*/*/strategy.go`.

mod custom_resource_definitions;
mod jobs;
mod namespaces;
mod pods;
mod rest_strategy;
mod secrets;
pub(crate) mod services;
mod workloads;

use std::time::Duration;

use karmada_api::{FLOTILLA_GROUPS, MULTICLUSTER_GROUP};
use rest_strategy::DEFAULT_STRATEGY;
use serde_json::{Map, Value};

pub(crate) use namespaces::UNDELETABLE as UNDELETABLE_NAMESPACES;
pub(crate) use rest_strategy::{GenerationPolicy, RestStrategy};

static BUILT_IN_DEFAULT: RestStrategy = DEFAULT_STRATEGY;
static CUSTOM: RestStrategy = RestStrategy {
    generation: GenerationPolicy::AllButMetadata,
    ..DEFAULT_STRATEGY
};
static CUSTOM_WITH_STATUS: RestStrategy = RestStrategy {
    generation: GenerationPolicy::AllButStatus,
    ..DEFAULT_STRATEGY
};
static CERTIFICATE_SIGNING_REQUEST: RestStrategy = RestStrategy {
    create: workloads::empty_status,
    update: keep_spec,
    status_depends_on_spec: true,
    ..DEFAULT_STRATEGY
};
static EVENT: RestStrategy = RestStrategy {
    ttl: Some(Duration::from_secs(3600)),
    ..DEFAULT_STRATEGY
};
static NODE: RestStrategy = RestStrategy {
    create: complete_node_status,
    keeps_created_status: true,
    ..DEFAULT_STRATEGY
};
static SPEC_GENERATION: RestStrategy = RestStrategy {
    generation: GenerationPolicy::Spec,
    ..DEFAULT_STRATEGY
};

/// The strategy of custom resources, and of built-in kinds with the same generation policy.
pub(crate) fn custom_resource_strategy(status: bool) -> &'static RestStrategy {
    if status { &CUSTOM_WITH_STATUS } else { &CUSTOM }
}

/// An update changes metadata only.
fn keep_spec(new: &mut Value, old: &Value) {
    if let (Some(new), Some(spec)) = (new.as_object_mut(), old.get("spec")) {
        new.insert("spec".into(), spec.clone());
    }
}

/// A Node is created with the status that its kubelet sends, and has the fields that its Go
/// types always have.
fn complete_node_status(new: &mut Value) {
    const SYSTEM_FIELDS: [&str; 10] = [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ];
    let mut complete = |path: &[&str], fields: &[&str], zero: Value| {
        let mut parent = Some(&mut *new);
        for name in path {
            parent = parent.and_then(Value::as_object_mut).map(|fields| {
                let field = fields.entry(*name).or_insert(Value::Null);
                if field.is_null() {
                    *field = Value::Object(Map::new());
                }
                field
            });
        }
        let Some(parent) = parent.and_then(Value::as_object_mut) else {
            return;
        };
        for field in fields {
            let field = parent.entry(*field).or_insert(Value::Null);
            if field.is_null() {
                field.clone_from(&zero);
            }
        }
    };
    let port = ["status", "daemonEndpoints", "kubeletEndpoint"];
    complete(&port, &["Port"], 0.into());
    complete(&["status", "nodeInfo"], &SYSTEM_FIELDS, "".into());
}

/// The strategy of a built-in kind.
pub(crate) fn built_in_strategy(
    group: &str,
    resource: &str,
    status: bool,
) -> &'static RestStrategy {
    match (group, resource) {
        ("", "namespaces") => &namespaces::STRATEGY,
        ("", "pods") => &pods::STRATEGY,
        ("", "nodes") => &NODE,
        ("", "events") => &EVENT,
        ("certificates.k8s.io", "certificatesigningrequests") => &CERTIFICATE_SIGNING_REQUEST,
        ("", "secrets") => &secrets::STRATEGY,
        ("", "services") => &services::STRATEGY,
        ("", "persistentvolumeclaims") => &workloads::PERSISTENT_VOLUME_CLAIM,
        ("apps", "deployments") => &workloads::DEPLOYMENT,
        ("apps", "replicasets") => &workloads::REPLICA_SET,
        ("apps", "statefulsets") => &workloads::STATEFUL_SET,
        ("apps", "daemonsets") => &workloads::DAEMON_SET,
        ("batch", "jobs") => &jobs::JOB,
        ("batch", "cronjobs") => &workloads::CRON_JOB,
        ("autoscaling", "horizontalpodautoscalers") => &workloads::HORIZONTAL_POD_AUTOSCALER,
        ("networking.k8s.io", "ingresses") => &workloads::INGRESS,
        ("policy", "poddisruptionbudgets") => &workloads::POD_DISRUPTION_BUDGET,
        ("", "persistentvolumes") => &workloads::PERSISTENT_VOLUME,
        ("", "replicationcontrollers") => &workloads::REPLICATION_CONTROLLER,
        ("", "resourcequotas") => &workloads::RESOURCE_QUOTA,
        ("storage.k8s.io", "volumeattachments") => &workloads::VOLUME_ATTACHMENT,
        ("flowcontrol.apiserver.k8s.io", _) => &workloads::FLOW_CONTROL,
        ("networking.k8s.io", "networkpolicies") => &SPEC_GENERATION,
        ("discovery.k8s.io", "endpointslices") | ("scheduling.k8s.io", "priorityclasses") => {
            &CUSTOM
        }
        ("admissionregistration.k8s.io", _) => custom_resource_strategy(status),
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            &custom_resource_definitions::STRATEGY
        }
        (MULTICLUSTER_GROUP, "clusterprofiles") => custom_resource_strategy(status),
        (group, _)
            if group.ends_with("karmada.io")
                || group.ends_with(".kubefed.io")
                || FLOTILLA_GROUPS.contains(&group) =>
        {
            custom_resource_strategy(status)
        }
        _ => &BUILT_IN_DEFAULT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn generation_follows_the_kind() {
        let old = json!({"metadata": {"annotations": {"a": "1"}}, "spec": {"x": 1}, "status": {}});
        let table = [
            (
                json!({"metadata": {"annotations": {"a": "1"}}, "spec": {"x": 2}, "status": {}}),
                [false, true, true, true, true],
            ),
            (
                json!({"metadata": {}, "spec": {"x": 1}, "status": {}}),
                [false, false, true, false, false],
            ),
            (
                json!({"metadata": {"annotations": {"a": "1"}}, "spec": {"x": 1}, "status": {"r": 1}}),
                [false, false, false, true, false],
            ),
            (
                json!({"metadata": {"annotations": {"a": "1"}}, "spec": {"x": 1}, "status": {}, "data": 1}),
                [false, false, false, true, true],
            ),
        ];
        let kinds = [
            GenerationPolicy::Absent,
            GenerationPolicy::Spec,
            GenerationPolicy::SpecOrAnnotations,
            GenerationPolicy::AllButMetadata,
            GenerationPolicy::AllButStatus,
        ];
        for (new, expected) in table {
            assert_eq!(kinds.map(|g| g.is_raised(&new, &old)), expected, "{new}");
        }
    }
}
