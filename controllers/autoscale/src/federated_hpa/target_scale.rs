//! The scale of an object: from the object itself for workloads of Kubernetes, from its subresource for
//! other kinds.

use client::{Api, Error, ResourcePath, Result};
use machinery::{Gvr, LabelSelector, Object};
use serde::Deserialize;
use serde_json::Value;

/// The subresource `scale` of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TargetScale {
    pub(super) spec_replicas: i32,
    pub(super) status_replicas: i32,
    /// Empty if the target has none.
    pub(super) selector: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ScaleView {
    spec: ReplicasView,
    status: ScaleStatusView,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReplicasView {
    replicas: i32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ScaleStatusView {
    replicas: i32,
    selector: String,
}

/// The common parts of Deployments, ReplicaSets and StatefulSets.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WorkloadView {
    spec: WorkloadSpecView,
    status: ReplicasView,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WorkloadSpecView {
    replicas: Option<i32>,
    selector: Value,
}

/// The scale of a workload as its subresource would have it (`scaleFromDeployment` in
/// pkg/registry/apps/deployment/storage/storage.go). `None` for kinds that only their
/// server can convert.
pub(super) fn scale_of_workload(resource: &Gvr, object: &Object) -> Option<TargetScale> {
    let of_kubernetes = (&*resource.group, &*resource.version) == ("apps", "v1")
        && matches!(
            &*resource.resource,
            "deployments" | "replicasets" | "statefulsets"
        );
    if !of_kubernetes {
        return None;
    }
    let view = object.decode::<WorkloadView>().ok()?;
    let selector = LabelSelector::from_value(&view.spec.selector).ok()?;
    Some(TargetScale {
        spec_replicas: view.spec.replicas.unwrap_or(1),
        status_replicas: view.status.replicas,
        selector: selector.to_string(),
    })
}

/// Reads the scale of an object.
pub(super) async fn read_scale(
    api: &dyn Api,
    resource: &Gvr,
    namespace: &str,
    name: &str,
) -> Result<TargetScale> {
    let at = ResourcePath::object(resource, namespace, name).subresource("scale");
    let scale = api.get(at).await?;
    let view: ScaleView = serde_json::from_value(scale.value()?)
        .map_err(|e| Error::Protocol(format!("scale of {namespace}/{name}: {e}")))?;
    Ok(TargetScale {
        spec_replicas: view.spec.replicas,
        status_replicas: view.status.replicas,
        selector: view.status.selector,
    })
}
