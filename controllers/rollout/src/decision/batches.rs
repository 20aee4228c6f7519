//! Updates the replicas of a cluster in batches: the partition of a workload lets a percentage of
//! them have the revision, until they are healthy with it.

use karmada_api::partition::replicas_of_batch;

use super::clusters::ClusterState;
use super::input::ObservedTarget;
use super::step::{RolloutStep, StageHold, WAITING_FOR_STAGE};

const PERCENT_OF_ALL: i64 = 100;

/// A percentage of the replicas of each cluster of a stage.
#[derive(Clone, Copy, Default)]
pub(super) struct Batch {
    /// From 1.
    pub(super) number: i64,
    pub(super) percent: i64,
}

impl RolloutStep<'_> {
    /// Lets a cluster have the goal, in the first batch of its stage, or in the one that it has from before.
    pub(super) fn begin_cluster(&mut self, index: usize, goal: &str) {
        let cluster = &self.clusters[index];
        let least = match cluster.has(goal) {
            true => cluster.status.batch_percent,
            false => 1,
        };
        let batch = self.batch_of_at_least(cluster.stage, least);
        let cluster = &mut self.clusters[index];
        if let Some(batch) = batch {
            cluster.set_batch(batch);
        } else {
            cluster.undivide();
        }
        cluster.assign(goal, self.input.now);
    }

    /// Lets the next batch of each cluster begin whose batch has been healthy for long enough; returns why
    /// none may.
    pub(super) fn advance_batches(&mut self) -> Option<StageHold> {
        let (goal, now) = (self.goal().to_owned(), self.input.now);
        let frontier = self.frontier();
        let mut availability = self.availability();
        let mut has_held = false;
        let hold = self.general_hold();
        for i in 0..self.clusters.len() {
            let cluster = &self.clusters[i];
            if !cluster.has_passed_batch || !cluster.has_begun(&goal) {
                continue;
            }
            has_held |= hold.is_some();
            let mut message = String::new();
            let mut reason = hold.map(StageHold::reason);
            // A changed policy may have put other stages first.
            if reason.is_none() && self.is_staged() && cluster.stage > frontier {
                reason = Some(WAITING_FOR_STAGE);
            }
            if reason.is_none()
                && let Some(availability) = &mut availability
                && let Err(missing) = availability.spend(cluster)
            {
                reason = Some(StageHold::AwaitingAvailability.reason());
                message = missing;
            }
            let least = cluster.status.batch_percent.saturating_add(1);
            let next = self
                .batch_of_at_least(cluster.stage, least)
                .unwrap_or(Batch {
                    number: cluster.status.batch.saturating_add(1),
                    percent: PERCENT_OF_ALL,
                });
            let cluster = &mut self.clusters[i];
            match reason {
                // The time since which the batch has been healthy stays.
                Some(reason) => {
                    reason.clone_into(&mut cluster.status.reason);
                    cluster.status.message = message;
                }
                None => {
                    cluster.set_batch(next);
                    cluster.assign(&goal, now);
                }
            }
        }
        hold.filter(|_| has_held)
    }

    /// The first batch of a stage with at least a percentage of the replicas. A stage without
    /// batches, and a template whose kind has no partition, have none.
    fn batch_of_at_least(&self, stage: usize, least: i64) -> Option<Batch> {
        if !self.input.has_partition {
            return None;
        }
        let batches = self.stage(stage)?.batches.iter();
        let percents = batches.map(|batch| batch.strip_suffix('%').and_then(|p| p.parse().ok()));
        let mut numbered = (1..).zip(percents);
        numbered.find_map(|(number, next)| {
            let percent: i64 = next?;
            let batch = Batch {
                number,
                percent: percent.min(PERCENT_OF_ALL),
            };
            (percent >= least).then_some(batch)
        })
    }
}

impl ClusterState<'_> {
    /// Whether only a part of the replicas may have the revision.
    pub(super) fn is_divided(&self) -> bool {
        self.status.is_divided()
    }

    /// Whether a part of the replicas may have the revision from before the rollout, or before the cluster
    /// came back.
    pub(super) fn has_batch_from_before(&self) -> bool {
        self.status.batch == 0 && self.is_divided()
    }

    pub(super) fn set_batch(&mut self, batch: Batch) {
        self.status.batch = batch.number;
        self.status.batch_percent = batch.percent;
    }

    /// Lets all replicas have the revision. Once the manifest has had a partition, it says that
    /// there is none any more.
    pub(super) fn undivide(&mut self) {
        let was_divided = self.status.batch_percent != 0;
        self.status.batch = 0;
        self.status.batch_percent = if was_divided { PERCENT_OF_ALL } else { 0 };
    }

    /// Whether as many replicas as the batch has are of the revision that the report names: it takes
    /// no more of them.
    pub(super) fn has_updated_batch(&self, target: &ObservedTarget) -> bool {
        let replicas = &target.replicas;
        let percent = u64::try_from(self.status.batch_percent).unwrap_or_default();
        let batch = replicas
            .in_manifest
            .map(|all| replicas_of_batch(all, percent));
        replicas.is_current && batch.is_some_and(|batch| replicas.updated >= batch)
    }

    /// Whether the batch is updated, and all replicas are available.
    pub(super) fn has_healthy_batch(&self, target: &ObservedTarget) -> bool {
        let (all, available) = (target.replicas.in_manifest, target.replicas.available);
        self.has_updated_batch(target) && available.is_some_and(|n| all.is_some_and(|all| n >= all))
    }
}
