//! A cluster as it is shown.

use std::sync::Arc;

use karmada_api::cluster::Taint;
use karmada_api::well_known_keys::AGENT_TUNNEL_CONDITION;
use karmada_api::{Cluster, ClusterAttributes};
use machinery::object::Label;
use machinery::{Object, Quantity};

use crate::clipped_text::clipped;

#[derive(Debug)]
pub(crate) struct ClusterRow {
    pub(crate) name: String,
    pub(crate) is_ready: bool,
    /// Why it is not ready.
    pub(crate) remark: String,
    pub(crate) is_deleting: bool,
    pub(crate) version: String,
    pub(crate) is_pull: bool,
    /// Whether its agent has a tunnel, as the agent reports it.
    pub(crate) tunnel: Option<ReportedState>,
    /// Whether its credentials, and those of its agent, are valid for long.
    pub(crate) credentials: Option<ReportedState>,
    pub(crate) agent_certificate: Option<ReportedState>,
    pub(crate) provider: String,
    pub(crate) region: String,
    pub(crate) zones: Vec<String>,
    pub(crate) labels: Arc<[Label]>,
    pub(crate) taints: Vec<Taint>,
    /// Ready nodes and all of them.
    pub(crate) nodes: Option<(i64, i64)>,
    pub(crate) cpu: Option<ResourceShare>,
    pub(crate) memory: Option<ResourceShare>,
    pub(crate) pods: Option<ResourceShare>,
}

/// The state that a condition reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportedState {
    pub(crate) is_true: bool,
    /// RFC 3339.
    pub(crate) since: String,
    pub(crate) message: String,
}

impl ReportedState {
    /// `None`: there is no such condition, or it is not known.
    fn of(cluster: &Cluster, kind: &str) -> Option<Self> {
        let condition = cluster.condition(kind)?;
        let is_known = matches!(&*condition.status, "True" | "False");
        is_known.then(|| Self {
            is_true: condition.status == "True",
            since: clipped(&condition.last_transition_time),
            message: clipped(&condition.message),
        })
    }
}

/// The amount of a resource that pods request, and the one that there is for them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ResourceShare {
    pub(crate) allocated: Quantity,
    pub(crate) allocatable: Quantity,
}

impl ResourceShare {
    /// From 0 to 100; a cluster may have more requests than resources.
    pub(crate) fn percent(&self) -> u8 {
        let all = self.allocatable.milli_value();
        if all <= 0 {
            return 0;
        }
        let percent = self.allocated.milli_value().saturating_mul(100) / all;
        u8::try_from(percent.clamp(0, 100)).unwrap_or(100)
    }
}

impl ClusterRow {
    pub(super) fn new(object: &Object) -> Option<Self> {
        let cluster = object.decode::<Cluster>().ok()?;
        let (spec, status) = (&cluster.spec, &cluster.status);
        let ready = cluster.condition("Ready");
        let remark = match ready {
            Some(ready) if ready.status == "True" => String::new(),
            Some(ready) => clipped(&format!("{}: {}", ready.reason, ready.message)),
            None => "it has no condition Ready yet".to_owned(),
        };
        let share = |resource: &str| {
            let summary = status.resource_summary.as_ref()?;
            Some(ResourceShare {
                allocatable: *summary.allocatable.get(resource)?,
                allocated: summary.allocated.get(resource).copied().unwrap_or_default(),
            })
        };
        Some(Self {
            name: object.name().to_owned(),
            is_ready: cluster.is_ready(),
            remark,
            is_deleting: object.meta().deleting,
            version: clipped(&status.kubernetes_version),
            is_pull: spec.sync_mode == "Pull",
            tunnel: ReportedState::of(&cluster, AGENT_TUNNEL_CONDITION),
            credentials: ReportedState::of(&cluster, "CredentialsValid"),
            agent_certificate: ReportedState::of(&cluster, "AgentCertificateValid"),
            provider: spec.provider.clone(),
            region: spec.region.clone(),
            zones: spec.zones.clone(),
            labels: Arc::clone(&object.meta().labels),
            taints: spec.taints.clone(),
            nodes: status
                .node_summary
                .map(|nodes| (nodes.ready_num, nodes.total_num)),
            cpu: share("cpu"),
            memory: share("memory"),
            pods: share("pods"),
        })
    }

    /// The fields that affinities match.
    pub(crate) fn attributes(&self) -> ClusterAttributes<'_> {
        ClusterAttributes {
            name: &self.name,
            labels: &self.labels,
            provider: &self.provider,
            region: &self.region,
            zones: &self.zones,
        }
    }
}
