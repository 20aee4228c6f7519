//! All clusters as one decision sees them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use machinery::{Object, Quantity};
use openapi::karmada::{Cluster, ClusterFacts};

use super::Rules;
use super::models::Nodes;

/// A cluster, made ready for many decisions.
#[derive(Clone, Debug)]
pub struct Member {
    pub object: Object,
    pub cluster: Arc<Cluster>,
    facts: Arc<Facts>,
}

/// What decisions ask of a cluster, computed once.
#[derive(Debug)]
struct Facts {
    /// `group/version` → kinds.
    served: HashMap<String, HashSet<String>>,
    room: Option<Room>,
    nodes: Option<Nodes>,
}

/// What a cluster's summary has left: allocatable, less what is taken and what is
/// about to be.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) pods: i64,
    /// In the order of names.
    amounts: Vec<(String, Quantity)>,
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
        let amounts: Vec<(String, Quantity)> = summary
            .allocatable
            .iter()
            .map(|(name, amount)| (name.clone(), *amount - taken(name)))
            .collect();
        let allocatable = summary.allocatable.get("pods").copied().unwrap_or_default();
        let pods = (allocatable - taken("pods")).value();
        Some(Self {
            pods: pods.clamp(i64::MIN.into(), i32::MAX.into()) as i64,
            amounts,
        })
    }

    /// `None`: the cluster has no such resource.
    pub(crate) fn amount(&self, name: &str) -> Option<Quantity> {
        let at = self
            .amounts
            .binary_search_by(|(n, _)| n.as_str().cmp(name))
            .ok()?;
        Some(self.amounts[at].1)
    }
}

impl Member {
    /// Reads a Cluster; one that cannot be read is not there.
    pub fn new(object: Object) -> Option<Self> {
        let cluster: Arc<Cluster> = object.view().ok()?;
        let mut served: HashMap<String, HashSet<String>> = HashMap::new();
        for enablement in &cluster.status.api_enablements {
            let kinds = served.entry(enablement.group_version.clone()).or_default();
            kinds.extend(enablement.resources.iter().map(|r| r.kind.clone()));
        }
        let facts = Facts {
            served,
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

    /// What affinities look at.
    pub fn facts(&self) -> ClusterFacts<'_> {
        self.cluster.facts(&self.object)
    }

    pub(crate) fn serves(&self, api_version: &str, kind: &str) -> bool {
        let kinds = self.facts.served.get(api_version);
        kinds.is_some_and(|kinds| kinds.contains(kind))
    }

    pub(crate) fn room(&self) -> Option<&Room> {
        self.facts.room.as_ref()
    }

    /// Its nodes by grade, where it tells them.
    pub(crate) fn nodes(&self) -> Option<&Nodes> {
        self.facts.nodes.as_ref()
    }
}

/// The clusters, by name, and the rules by which they are judged.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    members: Vec<Member>,
    rules: Rules,
}

impl Snapshot {
    pub fn new(clusters: impl IntoIterator<Item = Object>) -> Self {
        clusters.into_iter().filter_map(Member::new).collect()
    }

    /// The same clusters under other rules.
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
