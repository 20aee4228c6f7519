//! Reads MultiClusterServices and the clusters that they name, and writes their conditions.

use std::collections::BTreeSet;

use client::{Api, Error, InvolvedObject, Patch, ResourcePath, WriteOptions};
use flotilla_runtime::Informer;
use machinery::Object;
use machinery::conditions::set_json_condition;
use machinery::time::{Clock, rfc3339_seconds};
use openapi::karmada::Cluster;
use openapi::karmada::cluster::ApiEnablementStatus;
use openapi::karmada::resources::MULTI_CLUSTER_SERVICES;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::slice_fields::MULTI_CLUSTER_SERVICE_KIND;

pub(super) const API_VERSION: &str = "networking.karmada.io/v1alpha1";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MultiClusterService {
    spec: MultiClusterServiceSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MultiClusterServiceSpec {
    types: Vec<String>,
    provider_clusters: Vec<ClusterSelector>,
    consumer_clusters: Vec<ClusterSelector>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClusterSelector {
    name: String,
}

/// The named clusters, or all.
fn selected(named: &[ClusterSelector], clusters: &Informer) -> BTreeSet<String> {
    match named.is_empty() {
        true => {
            let all = clusters.list_where(|cluster| !cluster.meta().deleting);
            all.iter().map(|c| c.name().to_owned()).collect()
        }
        false => named.iter().map(|c| c.name.clone()).collect(),
    }
}

impl MultiClusterService {
    /// Whether it makes its Service available across clusters.
    pub(super) fn is_cross_cluster(&self) -> bool {
        self.spec.types.iter().any(|t| t == "CrossCluster")
    }

    pub(super) fn providers(&self, clusters: &Informer) -> BTreeSet<String> {
        selected(&self.spec.provider_clusters, clusters)
    }

    pub(super) fn consumers(&self, clusters: &Informer) -> BTreeSet<String> {
        selected(&self.spec.consumer_clusters, clusters)
    }
}

/// What is known of a cluster with endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterState {
    Available,
    NotFound,
    NotReady,
    /// It does not serve EndpointSlices.
    NoEndpointSlices,
}

impl ClusterState {
    pub(super) fn of(cluster: Option<&Object>) -> Self {
        let Some(cluster) = cluster.filter(|cluster| !cluster.meta().deleting) else {
            return Self::NotFound;
        };
        let decoded = cluster.decode::<Cluster>();
        let Ok(decoded) = decoded.as_ref() else {
            return Self::NotReady;
        };
        let enablement = decoded.api_enablement("discovery.k8s.io/v1", "EndpointSlice");
        match (decoded.is_ready(), enablement) {
            (false, _) => Self::NotReady,
            (true, ApiEnablementStatus::Disabled) => Self::NoEndpointSlices,
            (true, _) => Self::Available,
        }
    }

    /// The reason and the message of the event about it; `what` is not propagated to `role`.
    pub(super) fn warning(
        self,
        role: &str,
        cluster: &str,
        what: &str,
    ) -> Option<(&'static str, String)> {
        let about = format!("{role} cluster {cluster}");
        match self {
            Self::Available => None,
            Self::NotFound => Some(("ClusterNotFound", format!("{about} is not found"))),
            Self::NotReady => Some((
                "SyncServiceFailed",
                format!("{about} is not ready, skip to propagate {what}"),
            )),
            Self::NoEndpointSlices => Some((
                "APIIncompatible",
                format!("{about} does not support EndpointSlice"),
            )),
        }
    }
}

pub(super) fn involved(service: &Object) -> InvolvedObject {
    InvolvedObject::new(API_VERSION, MULTI_CLUSTER_SERVICE_KIND, service)
}

/// Sets a condition of a MultiClusterService; returns whether it was another one.
pub(super) async fn set_condition(
    api: &dyn Api,
    clock: &dyn Clock,
    service: &Object,
    condition_type: &str,
    (status, reason, message): (&str, &str, &str),
) -> Result<bool, Error> {
    let at = ResourcePath::of_object(&MULTI_CLUSTER_SERVICES, service);
    let mut conditions = service.value()?["status"]["conditions"].take();
    let is_same = |c: &Value| {
        c["type"] == condition_type
            && c["status"] == status
            && c["reason"] == reason
            && c["message"] == message
    };
    if conditions
        .as_array()
        .is_some_and(|all| all.iter().any(is_same))
    {
        return Ok(false);
    }
    let condition = json!({"type": condition_type, "status": status, "reason": reason,
        "message": message, "lastTransitionTime": rfc3339_seconds(clock.now())});
    set_json_condition(&mut conditions, condition);
    let patch = json!({"metadata": {"resourceVersion": service.revision().to_string()},
        "status": {"conditions": conditions}});
    let options = WriteOptions::default();
    let at = at.subresource("status");
    api.patch(at, Patch::Merge(patch), &options).await?;
    Ok(true)
}
