//! The failure budget: how many clusters have failed, and of how many clusters a percentage of it is.

use std::collections::HashSet;

use karmada_api::rollout::{ON_FAILURE_CONTINUE, RolloutPhase, RolloutStatus};

use super::amounts::failure_budget;
use super::clusters::ClusterState;
use super::step::RolloutStep;

impl RolloutStep<'_> {
    /// Of how many clusters a percentage of the budget is: of those that were there at most at once since the
    /// target became the target, less those that have left without having failed. So one that takes the place
    /// of a failed one makes the budget no greater, and a failed one that leaves makes it no smaller.
    pub(super) fn next_budget_base(&self, previous: &RolloutStatus) -> i64 {
        let clusters = self.clusters.iter();
        let counted = clusters.filter(|c| c.observed.is_some() || c.status.failed);
        let counted: HashSet<&str> = counted.map(|c| c.status.name.as_str()).collect();
        let before = previous.stages.iter().flat_map(|stage| &stage.clusters);
        let before = before.filter(|c| c.phase != RolloutPhase::Skipped || c.failed);
        let lost: HashSet<&str> = before
            .map(|c| c.name.as_str())
            .filter(|name| !counted.contains(name))
            .collect();
        let lost = i64::try_from(lost.len()).unwrap_or(i64::MAX);
        let base = previous.budget_base.saturating_sub(lost);
        base.max(self.input.number_of_targets())
    }

    pub(super) fn failed(&self) -> usize {
        let failed = |c: &&ClusterState<'_>| c.status.counts_as_failed();
        self.clusters.iter().filter(failed).count()
    }

    pub(super) fn exceeds_budget(&self) -> bool {
        self.failed() > failure_budget(self.input.policy, self.budget_base)
    }

    /// Whether failures let no further cluster begin.
    pub(super) fn is_held_by_failures(&self) -> bool {
        self.exceeds_budget() && self.input.policy.on_failure != ON_FAILURE_CONTINUE
    }

    /// Lets no cluster count as failed that has left or was not Ready for a while.
    pub(super) fn forget_failures(&mut self) {
        for cluster in &mut self.clusters {
            let has_left = cluster.observed.is_none();
            self.budget_base -= i64::from(has_left && cluster.status.failed);
            cluster.status.failed = false;
        }
        self.budget_base = self.budget_base.max(self.input.number_of_targets());
    }
}
