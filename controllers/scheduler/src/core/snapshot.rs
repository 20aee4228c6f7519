//! All clusters as one decision sees them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use machinery::Object;
use openapi::karmada::{Cluster, ClusterFacts};

/// A cluster, made ready for many decisions.
#[derive(Clone, Debug)]
pub struct Member {
    pub object: Object,
    pub cluster: Arc<Cluster>,
    /// `group/version` → kinds.
    served: Arc<HashMap<String, HashSet<String>>>,
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
        Some(Self {
            object,
            cluster,
            served: Arc::new(served),
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
        self.served
            .get(api_version)
            .is_some_and(|kinds| kinds.contains(kind))
    }
}

/// The clusters, by name.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    members: Vec<Member>,
}

impl Snapshot {
    pub fn new(clusters: impl IntoIterator<Item = Object>) -> Self {
        clusters.into_iter().filter_map(Member::new).collect()
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
        Self { members }
    }
}
