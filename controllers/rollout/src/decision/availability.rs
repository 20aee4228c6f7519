//! Keeps replicas available over the whole fleet: a cluster begins only if the others would keep
//! `minAvailable` of them should it lose all of its own.

use super::amounts::amount_rounded_up;
use super::clusters::ClusterState;
use super::step::{RolloutStep, StageHold};

/// The available replicas that no change of a revision takes away, of which clusters that begin
/// spend their own.
pub(super) struct AvailabilityBudget {
    required: u64,
    total: u64,
    remaining: u64,
}

impl AvailabilityBudget {
    /// Takes the replicas of a cluster that begins, or of its next batch; returns why it may not.
    pub(super) fn spend(&mut self, cluster: &ClusterState<'_>) -> Result<(), String> {
        let remaining = self.remaining.saturating_sub(counted_replicas(cluster));
        if remaining >= self.required || has_nothing_to_lose(cluster) {
            self.remaining = remaining;
            return Ok(());
        }
        Err(format!(
            "{} of {} replicas have to stay available, and the other clusters have {remaining}",
            self.required, self.total
        ))
    }
}

impl RolloutStep<'_> {
    /// `None` if the policy has no `minAvailable`, or the template no replicas.
    pub(super) fn availability(&self) -> Option<AvailabilityBudget> {
        let (required, total) = self.required_replicas()?;
        let counted = self.clusters.iter().map(counted_replicas);
        Some(AvailabilityBudget {
            required,
            total,
            remaining: counted.fold(0, u64::saturating_add),
        })
    }

    /// How many replicas have to stay available, of how many; `None` as above. While no cluster fits a
    /// template, those count that clusters keep.
    pub(super) fn required_replicas(&self) -> Option<(u64, u64)> {
        let min_available = self.input.policy.min_available.as_ref()?;
        let desired = self.input.targets.iter().map(|t| t.replicas.desired);
        let kept = self.input.previous.into_iter().flat_map(|p| &p.replicas);
        let kept = kept.filter(|_| self.input.is_unplaced);
        let kept = kept.map(|kept| u64::try_from(kept.replicas).unwrap_or(0));
        let total = desired.chain(kept).fold(0, u64::saturating_add);
        let amount = usize::try_from(total).unwrap_or(usize::MAX);
        let required = amount_rounded_up(min_available, amount);
        (total > 0).then(|| (u64::try_from(required).unwrap_or(u64::MAX), total))
    }

    /// Why nothing goes on, if only missing replicas hold it.
    pub(super) fn availability_hold(&self) -> Option<StageHold> {
        let (hold, goal) = (StageHold::AwaitingAvailability, self.goal());
        let is_held = |c: &ClusterState<'_>| c.status.reason == hold.reason();
        let mut in_flight = self.clusters.iter().filter(|c| c.is_in_flight(goal));
        let goes_on = in_flight.any(|c| !is_held(c));
        (!goes_on && self.clusters.iter().any(is_held)).then_some(hold)
    }
}

/// The settled replicas of a cluster, no more than it should have.
fn counted_replicas(cluster: &ClusterState<'_>) -> u64 {
    let desired = cluster.observed.map(|target| target.replicas.desired);
    settled_replicas(cluster).min(desired.unwrap_or(0))
}

/// The available replicas of a cluster of which its revision takes no more: it has the revision in
/// all that may have it. Those of others may be lost at any time.
pub(super) fn settled_replicas(cluster: &ClusterState<'_>) -> u64 {
    let Some(target) = cluster.observed else {
        return 0;
    };
    let revision = &cluster.status.revision;
    let has_settled = target.reachable
        && target.work_revision == *revision
        && target.reported_revision == *revision
        && match cluster.is_divided() {
            true => cluster.has_updated_batch(target),
            false => target.replicas.are_updated,
        };
    match target.replicas.available {
        Some(available) if has_settled => available,
        _ => 0,
    }
}

/// Whether a cluster has no available replica. A fleet in which too few are available can be
/// repaired only there.
fn has_nothing_to_lose(cluster: &ClusterState<'_>) -> bool {
    let target = cluster.observed;
    target.is_some_and(|target| target.reachable && target.replicas.available == Some(0))
}
