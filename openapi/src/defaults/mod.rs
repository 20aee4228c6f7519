//! Sets the defaults of built-in kinds that depend on other fields, or that Kubernetes'
//! published schemas do not contain (contract F1.5; Kubernetes `pkg/apis/*/v1/defaults.go`
//! and the conversions beside them).
//!
//! Runs after [`Schema::apply_defaults`](crate::Schema::apply_defaults), which sets value
//! structs. The result is what Kubernetes would store, except for fields that the registry
//! allocates (addresses, ports, names, uids). Idempotent.

mod autoscaling;
mod canonical;
mod cluster;
mod network;
mod pod;
mod storage;
mod workload;

#[cfg(test)]
mod tests;

use machinery::Gvk;
use serde_json::{Map, Value};

use crate::catalog::catalog;
use crate::model::Type;

pub use workload::job_selector;

type Fields = Map<String, Value>;

/// Whether API servers hold the kind as a Go struct: the built-in kinds, and those of
/// Karmada's aggregated API servers.
fn has_go_type(gvk: &Gvk, proto: bool) -> bool {
    proto || matches!(&*gvk.group, "cluster.karmada.io" | "search.karmada.io")
}

/// Sets the defaults of `gvk` in `object`, and brings objects of Go types into canonical
/// form. Leaves values that are not objects to validation.
pub fn apply(gvk: &Gvk, object: &mut Value) {
    let catalog = catalog();
    if let Some(kind) = catalog
        .kind(gvk)
        .filter(|kind| has_go_type(gvk, kind.proto))
        && let Some(id) = catalog.definitions().id(&kind.definition)
    {
        canonical::write(catalog.definitions(), &Type::Ref(id), object, 0);
    }
    let Some(object) = object.as_object_mut() else {
        return;
    };
    match (&*gvk.group, &*gvk.kind) {
        ("", kind) => core(kind, object),
        ("apps", "Deployment") => workload::deployment(object),
        ("apps", "ReplicaSet") => workload::replica_set(object),
        ("apps", "StatefulSet") => workload::stateful_set(object),
        ("apps", "DaemonSet") => workload::daemon_set(object),
        ("batch", "Job") => workload::job(object),
        ("batch", "CronJob") => workload::cron_job(object),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::autoscaler(&gvk.version, object),
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice(object),
        ("networking.k8s.io", "IngressClass") => network::ingress_class(object),
        ("networking.k8s.io", "NetworkPolicy") => network::network_policy(object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            cluster::role_binding(object);
        }
        ("scheduling.k8s.io", "PriorityClass") => {
            fill(object, "preemptionPolicy", "PreemptLowerPriority");
        }
        ("storage.k8s.io", "StorageClass") => storage::storage_class(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            cluster::custom_resource_definition(object);
        }
        ("authentication.k8s.io", "TokenRequest") => {
            within(object, "spec", |spec| fill(spec, "expirationSeconds", 3600));
        }
        _ => {}
    }
}

fn core(kind: &str, object: &mut Fields) {
    match kind {
        "Pod" => pod::pod(object),
        "PodTemplate" => within(object, "template", pod::template),
        "ReplicationController" => workload::replication_controller(object),
        "Service" => network::service(object),
        "Endpoints" => network::endpoints(object),
        "Namespace" => cluster::namespace(object),
        "Node" => cluster::node(object),
        "Secret" => storage::secret(object),
        "PersistentVolumeClaim" => storage::claim(object),
        "PersistentVolume" => storage::volume(object),
        "LimitRange" => cluster::limit_range(object),
        _ => {}
    }
}

/// Absent as for Go: no value, or the empty string.
fn unset(fields: &Fields, name: &str) -> bool {
    match fields.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        _ => false,
    }
}

/// Sets a field that is unset.
fn fill(fields: &mut Fields, name: &str, value: impl Into<Value>) {
    if unset(fields, name) {
        fields.insert(name.to_owned(), value.into());
    }
}

/// As [`set_default`], for numbers whose zero means unset.
fn fill_number(fields: &mut Fields, name: &str, value: i64) {
    if fields.get(name).and_then(Value::as_i64) == Some(0) {
        fields.remove(name);
    }
    fill(fields, name, value);
}

fn text<'a>(fields: &'a Fields, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn is_true(fields: &Fields, name: &str) -> bool {
    fields.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn is_empty(fields: &Fields, name: &str) -> bool {
    match fields.get(name) {
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(inner)) => inner.is_empty(),
        _ => unset(fields, name),
    }
}

/// Calls `work` with an object-valued field, if it is present.
fn within(fields: &mut Fields, name: &str, work: impl FnOnce(&mut Fields)) {
    if let Some(Value::Object(inner)) = fields.get_mut(name) {
        work(inner);
    }
}

/// As [`with_object`], and creates the field first if it is unset.
fn within_new(fields: &mut Fields, name: &str, work: impl FnOnce(&mut Fields)) {
    fill(fields, name, Fields::new());
    within(fields, name, work);
}

/// Calls `work` with every object of a list-valued field.
fn each(fields: &mut Fields, name: &str, mut work: impl FnMut(&mut Fields)) {
    if let Some(Value::Array(items)) = fields.get_mut(name) {
        items
            .iter_mut()
            .filter_map(Value::as_object_mut)
            .for_each(&mut work);
    }
}
