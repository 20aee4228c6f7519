//! A snapshot of all clusters for one decision.

use std::sync::{Arc, LazyLock};

use ahash::AHashSet;
use karmada_api::{Cluster, ClusterAttributes};
use machinery::{Object, Quantity};

use super::SchedulingSettings;
use super::resource_models::ModeledNodes;
use super::resource_request::ResourceName;

/// A cluster, prepared for many decisions.
#[derive(Clone, Debug)]
pub struct ClusterInfo {
    pub object: Object,
    pub cluster: Arc<Cluster>,
    derived: Arc<DerivedClusterInfo>,
}

/// The hash of an API version and kind, so that checking a thousand clusters compares no
/// texts. The hash key is random per process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApiKindHash(u64);

impl ApiKindHash {
    pub(crate) fn new(api_version: &str, kind: &str) -> Self {
        static HASHER: LazyLock<ahash::RandomState> = LazyLock::new(ahash::RandomState::new);
        Self(HASHER.hash_one((api_version, kind)))
    }
}

/// Values derived from a cluster once.
#[derive(Debug)]
struct DerivedClusterInfo {
    served: AHashSet<ApiKindHash>,
    available_resources: Option<AvailableResources>,
    nodes: Option<ModeledNodes>,
}

/// The free capacity by the cluster's summary: allocatable minus allocated and allocating.
#[derive(Debug)]
pub(crate) struct AvailableResources {
    pub(crate) pods: i64,
    /// Each in its unit.
    amounts: Vec<(ResourceName, i64)>,
}

impl AvailableResources {
    fn from_cluster(cluster: &Cluster) -> Option<Self> {
        let summary = cluster.status.resource_summary.as_ref()?;
        let used = |name: &str| {
            let of = [&summary.allocated, &summary.allocating];
            of.iter()
                .filter_map(|amounts| amounts.get(name).copied())
                .sum::<Quantity>()
        };
        let amounts = summary.allocatable.iter().map(|(name, amount)| {
            let resource = ResourceName::from_name(name);
            let free = resource.units(*amount - used(name));
            (resource, free)
        });
        let allocatable = summary.allocatable.get("pods").copied().unwrap_or_default();
        let pods = (allocatable - used("pods")).value();
        Some(Self {
            pods: pods.clamp(i64::MIN.into(), i32::MAX.into()) as i64,
            amounts: amounts.collect(),
        })
    }

    /// `None`: the cluster has no such resource.
    pub(crate) fn amount(&self, resource: &ResourceName) -> Option<i64> {
        let mut amounts = self.amounts.iter();
        amounts
            .find(|(of, _)| of == resource)
            .map(|(_, free)| *free)
    }
}

impl ClusterInfo {
    /// Decodes a Cluster; `None` if that fails.
    pub fn new(object: Object) -> Option<Self> {
        let cluster: Arc<Cluster> = object.decode().ok()?;
        let enablements = cluster.status.api_enablements.iter();
        let served = enablements.flat_map(|enablement| {
            let kinds = enablement.resources.iter();
            kinds.map(|r| ApiKindHash::new(&enablement.group_version, &r.kind))
        });
        let facts = DerivedClusterInfo {
            served: served.collect(),
            available_resources: AvailableResources::from_cluster(&cluster),
            nodes: ModeledNodes::from_cluster(&cluster),
        };
        Some(Self {
            object,
            cluster,
            derived: Arc::new(facts),
        })
    }

    pub fn name(&self) -> &str {
        self.object.name()
    }

    pub fn is_terminating(&self) -> bool {
        self.object.meta().deleting
    }

    /// The properties that affinities match.
    pub fn attributes(&self) -> ClusterAttributes<'_> {
        self.cluster.attributes(&self.object)
    }

    pub(crate) fn serves(&self, kind: ApiKindHash) -> bool {
        self.derived.served.contains(&kind)
    }

    pub(crate) fn available_resources(&self) -> Option<&AvailableResources> {
        self.derived.available_resources.as_ref()
    }

    /// Its modeled nodes, if it reports them.
    pub(crate) fn nodes(&self) -> Option<&ModeledNodes> {
        self.derived.nodes.as_ref()
    }
}

/// The clusters by name, and the settings of decisions about them.
#[derive(Clone, Debug, Default)]
pub struct ClusterSnapshot {
    members: Vec<ClusterInfo>,
    settings: SchedulingSettings,
}

impl ClusterSnapshot {
    pub fn new(clusters: impl IntoIterator<Item = Object>) -> Self {
        clusters.into_iter().filter_map(ClusterInfo::new).collect()
    }

    /// The same clusters with other settings.
    #[must_use]
    pub fn with_settings(self, settings: SchedulingSettings) -> Self {
        Self { settings, ..self }
    }

    pub fn settings(&self) -> SchedulingSettings {
        self.settings
    }

    pub fn members(&self) -> &[ClusterInfo] {
        &self.members
    }

    pub fn get(&self, name: &str) -> Option<&ClusterInfo> {
        let at = self.members.binary_search_by(|m| m.name().cmp(name)).ok()?;
        Some(&self.members[at])
    }
}

impl FromIterator<ClusterInfo> for ClusterSnapshot {
    fn from_iter<I: IntoIterator<Item = ClusterInfo>>(members: I) -> Self {
        let mut members: Vec<ClusterInfo> = members.into_iter().collect();
        members.sort_by(|a, b| a.name().cmp(b.name()));
        Self {
            members,
            settings: SchedulingSettings::default(),
        }
    }
}
