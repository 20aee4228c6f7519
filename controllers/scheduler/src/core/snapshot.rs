//! A snapshot of all clusters for one decision.

use std::sync::{Arc, LazyLock};

use ahash::AHashSet;
use machinery::{Object, Quantity};
use openapi::karmada::{Cluster, ClusterFacts};

use super::Rules;
use super::demand::Resource;
use super::models::Nodes;

/// A cluster, prepared for many decisions.
#[derive(Clone, Debug)]
pub struct Member {
    pub object: Object,
    pub cluster: Arc<Cluster>,
    facts: Arc<Facts>,
}

/// The hash of an API version and kind, so that checking a thousand clusters compares no
/// texts. The hash key is random per process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApiKey(u64);

impl ApiKey {
    pub(crate) fn new(api_version: &str, kind: &str) -> Self {
        static HASHER: LazyLock<ahash::RandomState> = LazyLock::new(ahash::RandomState::new);
        Self(HASHER.hash_one((api_version, kind)))
    }
}

/// Values derived from a cluster once.
#[derive(Debug)]
struct Facts {
    served: AHashSet<ApiKey>,
    room: Option<Room>,
    nodes: Option<Nodes>,
}

/// The free capacity by the cluster's summary: allocatable minus allocated and allocating.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) pods: i64,
    /// Each in its unit.
    amounts: Vec<(Resource, i64)>,
}

impl Room {
    fn of(cluster: &Cluster) -> Option<Self> {
        let summary = cluster.status.resource_summary.as_ref()?;
        let taken = |name: &str| {
            let of = [&summary.allocated, &summary.allocating];
            of.iter()
                .filter_map(|amounts| amounts.get(name).copied())
                .sum::<Quantity>()
        };
        let amounts = summary.allocatable.iter().map(|(name, amount)| {
            let resource = Resource::named(name);
            let free = resource.units(*amount - taken(name));
            (resource, free)
        });
        let allocatable = summary.allocatable.get("pods").copied().unwrap_or_default();
        let pods = (allocatable - taken("pods")).value();
        Some(Self {
            pods: pods.clamp(i64::MIN.into(), i32::MAX.into()) as i64,
            amounts: amounts.collect(),
        })
    }

    /// `None`: the cluster has no such resource.
    pub(crate) fn amount(&self, resource: &Resource) -> Option<i64> {
        let mut amounts = self.amounts.iter();
        amounts
            .find(|(of, _)| of == resource)
            .map(|(_, free)| *free)
    }
}

impl Member {
    /// Decodes a Cluster; `None` if that fails.
    pub fn new(object: Object) -> Option<Self> {
        let cluster: Arc<Cluster> = object.view().ok()?;
        let enablements = cluster.status.api_enablements.iter();
        let served = enablements.flat_map(|enablement| {
            let kinds = enablement.resources.iter();
            kinds.map(|r| ApiKey::new(&enablement.group_version, &r.kind))
        });
        let facts = Facts {
            served: served.collect(),
            room: Room::of(&cluster),
            nodes: Nodes::of(&cluster),
        };
        Some(Self {
            object,
            cluster,
            facts: Arc::new(facts),
        })
    }

    pub fn name(&self) -> &str {
        self.object.name()
    }

    pub fn is_terminating(&self) -> bool {
        self.object.head().deleting
    }

    /// The properties that affinities match.
    pub fn facts(&self) -> ClusterFacts<'_> {
        self.cluster.facts(&self.object)
    }

    pub(crate) fn serves(&self, kind: ApiKey) -> bool {
        self.facts.served.contains(&kind)
    }

    pub(crate) fn room(&self) -> Option<&Room> {
        self.facts.room.as_ref()
    }

    /// Its modeled nodes, if it reports them.
    pub(crate) fn nodes(&self) -> Option<&Nodes> {
        self.facts.nodes.as_ref()
    }
}

/// The clusters by name, and the rules of decisions about them.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    members: Vec<Member>,
    rules: Rules,
}

impl Snapshot {
    pub fn new(clusters: impl IntoIterator<Item = Object>) -> Self {
        clusters.into_iter().filter_map(Member::new).collect()
    }

    /// The same clusters with other rules.
    #[must_use]
    pub fn under(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    pub fn rules(&self) -> Rules {
        self.rules
    }

    pub fn members(&self) -> &[Member] {
        &self.members
    }

    pub fn get(&self, name: &str) -> Option<&Member> {
        let at = self.members.binary_search_by(|m| m.name().cmp(name)).ok()?;
        Some(&self.members[at])
    }
}

impl FromIterator<Member> for Snapshot {
    fn from_iter<I: IntoIterator<Item = Member>>(members: I) -> Self {
        let mut members: Vec<Member> = members.into_iter().collect();
        members.sort_by(|a, b| a.name().cmp(b.name()));
        Self {
            members,
            rules: Rules::default(),
        }
    }
}
