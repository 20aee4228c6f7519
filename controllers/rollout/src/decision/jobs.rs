//! Decides about the Jobs of stages. A Job is started once all clusters of its stage have ended, in
//! those that are done, and the stage ends when it has succeeded.
//!
//! The status names a Job before it is created. Its name is that of no other one, so that it runs
//! once, whoever creates it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karmada_api::rollout::{
    JobGate, ON_FAILURE_CONTINUE, RolloutPhase, RolloutStatus, StageJobState, StageJobStatus,
};
use machinery::time;
use sha2::{Digest, Sha256};

use super::clusters::{ClusterState, StageGates, api_time};
use super::input::{DecisionInput, JobOutcome};
use super::step::{NO_CLUSTER, RolloutStep};
use crate::hashed_name::hashed_name;

/// The characters of the name of the CronJob in the name of a Job, which has at most 63.
const MAX_NAME_PREFIX: usize = 42;
const HASH_BYTES: usize = 5;
const LATE: &str = "it has not completed within progressDeadline";
/// The message of a Job that a retry has named.
const RUNS_AGAIN: &str =
    "it runs again once the earlier stages and the clusters of its own have ended";

impl<'a> RolloutStep<'a> {
    /// The Jobs of the stages of a policy, which belong to one revision.
    pub(super) fn carried_over_jobs(
        input: &DecisionInput<'_>,
        previous: &RolloutStatus,
    ) -> Vec<Option<StageJobStatus>> {
        let is_same = previous.target_revision == input.target;
        let stages = input.policy.stages.iter();
        let job = stages.map(|stage| {
            stage.gates.job.as_ref().filter(|_| is_same)?;
            let mut before = previous.stages.iter();
            before.find(|other| other.name == stage.name)?.job.clone()
        });
        job.collect()
    }

    /// Moves the Jobs that run to their next state. A rollout that returns has no use for them.
    pub(super) fn observe_jobs(&mut self) {
        let now = self.input.now;
        let returns = self.goal() != self.input.target;
        let deadline = StageGates::new(self.input.policy, None).deadline;
        for slot in &mut self.jobs {
            let Some(job) = slot.as_mut().filter(|job| !job.state.is_final()) else {
                continue;
            };
            if returns {
                *slot = None;
                continue;
            }
            if !job.has_started() {
                continue;
            }
            let mut observations = self.input.jobs.iter();
            let observation = observations.find(|observation| observation.name == job.name);
            match observation.map(|observation| &observation.outcome) {
                Some(JobOutcome::Succeeded) => {
                    finish(job, StageJobState::Succeeded, "", &api_time(now));
                }
                Some(JobOutcome::Failed(reason)) => {
                    finish(job, StageJobState::Failed, reason, &api_time(now));
                }
                outcome if remaining(job, deadline, now).is_zero() => {
                    let reason = match outcome {
                        Some(JobOutcome::NotApplied(reason)) => format!("{LATE}: {reason}"),
                        _ => LATE.to_owned(),
                    };
                    finish(job, StageJobState::Failed, &reason, &api_time(now));
                }
                Some(JobOutcome::Running) => {
                    job.state = StageJobState::Running;
                    job.message.clear();
                }
                Some(JobOutcome::NotApplied(reason)) => {
                    job.state = StageJobState::Running;
                    job.message.clone_from(reason);
                }
                None => {}
            }
        }
    }

    /// Starts the Job of the first stage that has not ended, if only the Job is missing. With
    /// `Continue`, one without a cluster to run in has failed.
    pub(super) fn start_job(&mut self) {
        let stage = self.frontier();
        let has_ended = self.first_stage_with_open_clusters() != stage;
        if !self.has_open_job(stage) || !has_ended || self.lacks_cluster_for_job(stage) {
            return;
        }
        let named = self.jobs[stage].take();
        let mut job = named.or_else(|| self.named_job(stage));
        if let Some(job) = job.as_mut().filter(|job| !job.has_started()) {
            let members = self.done_members(stage);
            job.clusters = members.map(|c| c.status.name.clone()).collect();
            let now = api_time(self.input.now);
            match job.clusters.is_empty() {
                true => finish(job, StageJobState::Failed, NO_CLUSTER, &now),
                false => finish(job, StageJobState::Pending, "", &now),
            }
        }
        self.jobs[stage] = job;
    }

    /// A Job of a stage that has not been started, with the name of no other one.
    fn named_job(&mut self, stage: usize) -> Option<StageJobStatus> {
        let gate = self.job_gate(stage)?;
        self.started_jobs = self.started_jobs.saturating_add(1);
        let key = [
            self.input.rollout_uid,
            self.input.target,
            self.stage_name(stage),
        ];
        Some(StageJobStatus {
            name: job_name(&gate.cron_job, key, self.started_jobs),
            ..StageJobStatus::default()
        })
    }

    /// The clusters of a stage that are done.
    fn done_members(&self, stage: usize) -> impl Iterator<Item = &ClusterState<'a>> {
        let goal = self.goal();
        let members = self.clusters.iter().filter(move |c| c.stage == stage);
        members.filter(move |c| c.has(goal) && c.status.phase == RolloutPhase::Done)
    }

    fn job_gate(&self, stage: usize) -> Option<&'a JobGate> {
        self.stage(stage)?.gates.job.as_ref()
    }

    /// Whether a stage awaits its Job, also while none of its clusters is done, in which it could run.
    /// Once the rollout has ended, that is only a Job that a retry has named and that can run.
    fn has_open_job(&self, stage: usize) -> bool {
        let goal = self.goal();
        let mut members = self.clusters.iter().filter(|c| c.stage == stage);
        if self.job_gate(stage).is_none() || !members.any(|c| c.has(goal)) {
            return false;
        }
        match self.jobs[stage].as_ref() {
            None => self.is_staged(),
            Some(job) => match job.state {
                StageJobState::Succeeded => false,
                StageJobState::Failed => self.is_staged() && !self.continues(),
                StageJobState::Pending | StageJobState::Running => {
                    self.is_staged() || job.has_started() || self.has_done_members(stage)
                }
            },
        }
    }

    /// Whether the Job of a stage waits for a cluster in which it could run: all have failed within
    /// the budget.
    pub(super) fn lacks_cluster_for_job(&self, stage: usize) -> bool {
        let job = self.jobs.get(stage).and_then(Option::as_ref);
        let is_to_start = self.has_open_job(stage) && !job.is_some_and(StageJobStatus::has_started);
        is_to_start
            && !self.continues()
            && !self.has_done_members(stage)
            && self.first_stage_with_open_clusters() != stage
    }

    fn has_done_members(&self, stage: usize) -> bool {
        self.done_members(stage).next().is_some()
    }

    pub(super) fn continues(&self) -> bool {
        self.input.policy.on_failure == ON_FAILURE_CONTINUE
    }

    pub(super) fn job_state(&self, stage: usize) -> Option<StageJobState> {
        let job = self.jobs.get(stage)?.as_ref()?;
        Some(job.state)
    }

    /// The first stage that awaits its Job; the number of stages if none does.
    pub(super) fn first_stage_with_open_job(&self) -> usize {
        let mut stages = 0..self.jobs.len();
        let first = stages.find(|stage| self.has_open_job(*stage));
        first.unwrap_or(self.stage_count())
    }

    pub(super) fn has_failed_job(&self) -> bool {
        let mut jobs = self.jobs.iter().flatten();
        jobs.any(|job| job.state == StageJobState::Failed)
    }

    /// Names anew the Jobs that have failed: they run again once the clusters of their stages have
    /// ended.
    pub(super) fn restart_failed_jobs(&mut self) {
        for stage in 0..self.jobs.len() {
            if self.job_state(stage) == Some(StageJobState::Failed) {
                let named = self.named_job(stage);
                self.jobs[stage] = named.map(|job| StageJobStatus {
                    message: RUNS_AGAIN.to_owned(),
                    ..job
                });
            }
        }
    }

    /// After how long the first Job that runs is late.
    pub(super) fn job_wake(&self) -> Option<Duration> {
        let deadline = StageGates::new(self.input.policy, None).deadline;
        let running = self.jobs.iter().flatten();
        let running = running.filter(|job| job.has_started() && !job.state.is_final());
        running
            .map(|job| remaining(job, deadline, self.input.now))
            .min()
    }
}

fn finish(job: &mut StageJobStatus, state: StageJobState, message: &str, since: &str) {
    job.state = state;
    message.clone_into(&mut job.message);
    since.clone_into(&mut job.since);
}

/// How long a Job may still run.
fn remaining(job: &StageJobStatus, deadline: Duration, now: Timestamp) -> Duration {
    let since = time::parse(&job.since);
    let elapsed = since.map_or(SignedDuration::ZERO, |since| now.duration_since(since));
    let deadline = SignedDuration::try_from(deadline).unwrap_or(SignedDuration::MAX);
    Duration::try_from(deadline.saturating_sub(elapsed)).unwrap_or_default()
}

/// The name of the Job with a number, for a Rollout, a revision and a stage.
fn job_name(cron_job: &str, key: [&str; 3], number: i64) -> String {
    let hash = Sha256::digest(format!("{}/{number}", key.join("/")).as_bytes());
    hashed_name(cron_job, MAX_NAME_PREFIX, &hash[..HASH_BYTES])
}
