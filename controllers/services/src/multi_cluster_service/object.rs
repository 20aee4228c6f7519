//! Reads MultiClusterServices and the clusters that they name.

use std::collections::{BTreeMap, BTreeSet};

use client::Informer;
use karmada_api::Cluster;
use karmada_api::cluster::ApiEnablementStatus;
use machinery::Object;
use serde::Deserialize;

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

/// The facts about a cluster with endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterState {
    Available,
    NotFound,
    NotReady,
    /// It does not serve EndpointSlices.
    NoEndpointSlices,
}

/// The states of clusters by their names.
pub(super) type ClusterStates = BTreeMap<String, ClusterState>;

pub(super) fn cluster_states(names: &BTreeSet<String>, clusters: &Informer) -> ClusterStates {
    let state = |name: &String| ClusterState::of(clusters.get("", name).as_ref());
    names
        .iter()
        .map(|name| (name.clone(), state(name)))
        .collect()
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
