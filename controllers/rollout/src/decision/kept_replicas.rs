//! Keeps replicas available while a template moves: a cluster loses those of an earlier placement only
//! when the others have `minAvailable` without them, or at the deadline.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karmada_api::rollout::{ClusterReplicas, ClusterRolloutStatus};
use machinery::time;

use super::availability::settled_replicas;
use super::batches::Batch;
use super::clusters::api_time;
use super::earliest;
use super::input::ObservedTarget;
use super::step::RolloutStep;

/// The replicas that clusters keep.
#[derive(Default)]
pub(super) struct KeptReplicas {
    /// By name.
    pub(super) clusters: Vec<ClusterReplicas>,
    /// When the next deadline passes.
    pub(super) next: Option<Duration>,
    /// The clusters whose deadline has passed, with what is missing.
    pub(super) given_up: Vec<String>,
}

/// A cluster with the replicas that it has by the placement, and by the status before.
struct ReplicaHolder<'a> {
    target: &'a ObservedTarget,
    kept: u64,
    /// Since when it has kept more than it should have, by the status before.
    since: Option<String>,
    /// Of the Work.
    batch: Batch,
    /// Available replicas that no change of a revision takes.
    settled: u64,
}

impl ReplicaHolder<'_> {
    fn counted(&self) -> u64 {
        self.settled.min(self.kept)
    }

    fn desired(&self) -> u64 {
        self.target.replicas.desired
    }

    /// Whether the replicas beyond those that it should have are not available anyway.
    fn has_nothing_to_lose(&self) -> bool {
        let available = self.target.replicas.available.unwrap_or(0);
        !self.target.reachable || available.min(self.kept) <= self.desired()
    }

    fn entry(&self, replicas: u64, since: String, message: String) -> ClusterReplicas {
        // Of others the stages say it.
        let has_own_revision = self.desired() == 0 || self.batch.percent != 0;
        ClusterReplicas {
            cluster: self.target.name.clone(),
            replicas: i64::try_from(replicas).unwrap_or(i64::MAX),
            revision: match has_own_revision {
                true => self.target.work_revision.clone(),
                false => String::new(),
            },
            batch: self.batch.number,
            batch_percent: self.batch.percent,
            since,
            message,
        }
    }
}

fn remaining_time(since: &str, deadline: Duration, now: Timestamp) -> Option<Duration> {
    let since = time::parse(since).ok()?;
    let left = SignedDuration::try_from(deadline).ok()? - now.duration_since(since);
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}

impl<'a> RolloutStep<'a> {
    /// Decides by the revisions that the clusters have after this step: one that begins in it keeps
    /// none of its replicas available.
    pub(super) fn keep_replicas(&self) -> KeptReplicas {
        let Some((required, total)) = self.required_replicas() else {
            return KeptReplicas::default();
        };
        // More than all can never be available.
        let (required, now) = (required.min(total), self.input.now);
        let deadline = self.gates(self.stage_count()).deadline;
        let mut kept = KeptReplicas::default();
        let holders = self.replica_holders();
        let counted = holders.iter().map(ReplicaHolder::counted);
        let mut available = counted.fold(0, u64::saturating_add);
        for holder in &holders {
            let after = holder.settled.min(holder.desired());
            let remaining = available.saturating_sub(holder.counted()) + after;
            let is_free = remaining >= required || holder.has_nothing_to_lose();
            let since = holder.since.clone().unwrap_or_else(|| api_time(now));
            let left = remaining_time(&since, deadline, now);
            let message = format!(
                "{required} of {total} replicas have to stay available, and {remaining} would"
            );
            if !is_free && left.is_some() {
                kept.next = earliest(kept.next, left);
                kept.clusters
                    .push(holder.entry(holder.kept, since, message));
                continue;
            }
            if !is_free {
                let name = &holder.target.name;
                kept.given_up.push(format!("cluster {name}: {message}"));
            }
            available = remaining;
            let entry = holder.entry(holder.desired(), String::new(), String::new());
            kept.clusters.push(entry);
        }
        kept.clusters.retain(|cluster| cluster.replicas > 0);
        kept
    }

    /// The replicas that a cluster keeps when it returns. A Work beyond them may be on its way out.
    pub(super) fn kept_replicas_of(&self, target: &ObservedTarget) -> Option<&'a ClusterReplicas> {
        let has_work = !target.work_revision.is_empty();
        let is_kept = self.input.policy.min_available.is_some() && has_work;
        let previous = self.input.previous.filter(|_| is_kept)?;
        let mut recorded = previous.replicas.iter();
        recorded.find(|recorded| recorded.cluster == target.name)
    }

    /// The batch of the Work of a cluster that has left: as it was recorded, or, if the Work has got its
    /// revision since, as the status says with which the cluster left.
    pub(super) fn batch_of_departed(
        &self,
        target: &ObservedTarget,
        recorded: Option<&ClusterReplicas>,
    ) -> Batch {
        if let Some(batch) = recorded_batch(target, recorded) {
            return batch;
        }
        let departed = self.clusters.iter().filter(|c| c.observed.is_none());
        let mut statuses = departed.map(|cluster| &cluster.status);
        let divided = statuses.find(|status| {
            status.name == target.name
                && status.is_divided()
                && status.revision == target.work_revision
        });
        divided.map(batch_of).unwrap_or_default()
    }

    /// The targets and the clusters that are leaving, by name.
    fn replica_holders(&self) -> Vec<ReplicaHolder<'a>> {
        let recorded = self.input.previous.into_iter().flat_map(|p| &p.replicas);
        let recorded: HashMap<&str, &ClusterReplicas> =
            recorded.map(|r| (r.cluster.as_str(), r)).collect();
        let staged = self.clusters.iter().filter_map(|cluster| {
            let target = cluster.observed?;
            let recorded = recorded.get(target.name.as_str()).copied();
            let batch = batch_of_target(target, &cluster.status, recorded);
            Some((
                target,
                target.replicas.desired,
                settled_replicas(cluster),
                batch,
            ))
        });
        // The Work may have more than was decided last, if the cluster left before it followed.
        let leaving = self.input.leaving.iter().map(|target| {
            let replicas = target.replicas.in_manifest.unwrap_or(0);
            let recorded = recorded.get(target.name.as_str()).copied();
            let batch = self.batch_of_departed(target, recorded);
            (target, replicas, settled_while_leaving(target), batch)
        });
        let holder = |(target, least, settled, batch): (&'a ObservedTarget, u64, u64, _)| {
            let recorded = recorded.get(target.name.as_str());
            let replicas = recorded.map_or(0, |r| u64::try_from(r.replicas).unwrap_or(0));
            ReplicaHolder {
                target,
                kept: replicas.max(least),
                since: recorded.map(|r| r.since.clone()).filter(|s| !s.is_empty()),
                batch,
                settled,
            }
        };
        let mut holders: Vec<ReplicaHolder<'a>> = staged.chain(leaving).map(holder).collect();
        holders.sort_by(|a, b| a.target.name.cmp(&b.target.name));
        holders
    }
}

/// The batch of the Work of a target, whose revision may be another than the one that the cluster may have
/// now; none if all of its replicas may have it.
fn batch_of_target(
    target: &ObservedTarget,
    status: &ClusterRolloutStatus,
    recorded: Option<&ClusterReplicas>,
) -> Batch {
    match status.revision == target.work_revision {
        true if status.is_divided() => batch_of(status),
        true => Batch::default(),
        false => recorded_batch(target, recorded).unwrap_or_default(),
    }
}

fn batch_of(status: &ClusterRolloutStatus) -> Batch {
    Batch {
        number: status.batch,
        percent: status.batch_percent,
    }
}

/// The recorded batch, if it is one of the revision that the Work has.
fn recorded_batch(target: &ObservedTarget, recorded: Option<&ClusterReplicas>) -> Option<Batch> {
    let recorded = recorded.filter(|recorded| recorded.revision == target.work_revision)?;
    Some(Batch {
        number: recorded.batch,
        percent: recorded.batch_percent,
    })
}

/// The Work of a cluster that is leaving keeps its revision.
fn settled_while_leaving(target: &ObservedTarget) -> u64 {
    let has_settled = target.reachable
        && !target.work_revision.is_empty()
        && target.work_revision == target.reported_revision
        && target.replicas.are_updated;
    match target.replicas.available {
        Some(available) if has_settled => available,
        _ => 0,
    }
}
