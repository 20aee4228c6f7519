//! The feasible clusters of a decision and what the binding has on them already.

use std::cmp::Ordering;

use karmada_api::ResourceBindingSpec;

use super::estimate_source::EstimateSource;
use super::snapshot::ClusterInfo;

/// The present assignment of one cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurrentTarget {
    pub(crate) replicas: i64,
    /// Index in `spec.clusters`.
    pub(crate) position: usize,
}

/// The binding's present assignment, by cluster.
#[derive(Debug)]
pub(crate) struct CurrentTargets<'a>(Vec<(&'a str, CurrentTarget)>);

impl<'a> CurrentTargets<'a> {
    pub(super) fn from_spec(spec: &'a ResourceBindingSpec) -> Self {
        let targets = spec.clusters.iter().enumerate().map(|(position, target)| {
            let replicas = target.replicas;
            (target.name.as_str(), CurrentTarget { replicas, position })
        });
        let mut targets: Vec<_> = targets.collect();
        targets.sort_by_key(|(name, _)| *name);
        targets.dedup_by_key(|(name, _)| *name);
        Self(targets)
    }

    pub(crate) fn for_cluster(&self, member: &ClusterInfo) -> Option<CurrentTarget> {
        if self.0.is_empty() {
            return None;
        }
        self.get(member.name())
    }

    fn get(&self, cluster: &str) -> Option<CurrentTarget> {
        let at = self.0.binary_search_by(|(name, _)| (*name).cmp(cluster));
        Some(self.0[at.ok()?].1)
    }
}

/// A feasible cluster on its way through the steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterCandidate<'a> {
    pub(crate) member: &'a ClusterInfo,
    pub(crate) score: i64,
    /// Replicas it can take in addition.
    pub(crate) allocatable: i64,
    /// `allocatable` plus the replicas it has already.
    pub(crate) available: i64,
    /// Source of the estimate.
    pub(crate) source: EstimateSource,
    pub(crate) target: Option<CurrentTarget>,
    /// Index of the overflow tier; 0 for the affinity itself.
    pub(crate) tier: usize,
}

/// Orders candidates, best first.
pub(crate) fn compare_candidates(a: &ClusterCandidate<'_>, b: &ClusterCandidate<'_>) -> Ordering {
    let key = |c: &ClusterCandidate<'_>| (c.tier, -c.score, -c.available);
    let names = || a.member.name().cmp(b.member.name());
    key(a).cmp(&key(b)).then_with(names)
}
