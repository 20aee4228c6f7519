//! One step of a rollout: the clusters, which of them begin, and why others do not.

use std::time::Duration;

use jiff::Timestamp;
use karmada_api::rollout::{
    ON_FAILURE_CONTINUE, REMAINING_STAGE, RolloutPhase, RolloutStage, StageApproval, StageJobState,
    StageJobStatus,
};

use super::amounts::amount_rounded_up;
use super::clusters::{ClusterState, StageGates, carried_over};
use super::input::{DecisionInput, ObservedTarget};
use super::windows::{self, WindowState, window_state};

/// Why a query that names no Service has no result.
pub(crate) const NO_PROMETHEUS: &str =
    "the query names no Service, and the control plane has no --rollout-prometheus-url";

/// The reason of a cluster whose stage has not begun.
pub(super) const WAITING_FOR_STAGE: &str = "WaitingForStage";

/// Why the Job of a stage has not run.
pub(super) const NO_CLUSTER: &str = "no cluster of the stage is done, in which its Job could run";

/// Why no cluster of a stage begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StageHold {
    Paused,
    AwaitingApproval,
    FailureBudgetExceeded,
    /// The Job of the stage.
    JobFailed,
    /// In which the Job of the stage could run.
    AwaitingCluster,
    /// All clusters of the stage have left before their part of it had ended.
    LostClusters,
    AwaitingAvailability,
    /// Nothing answers the query of the stage.
    NoPrometheus,
    /// No window is open; with the time when the next one opens.
    OutsideWindow(Option<Timestamp>),
}

impl StageHold {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Paused => "Paused",
            Self::AwaitingApproval => "AwaitingApproval",
            Self::FailureBudgetExceeded => "FailureBudgetExceeded",
            Self::JobFailed => "JobFailed",
            Self::AwaitingCluster | Self::LostClusters => "AwaitingCluster",
            Self::AwaitingAvailability => "AwaitingAvailability",
            Self::NoPrometheus => "NoPrometheus",
            Self::OutsideWindow(_) => "OutsideWindow",
        }
    }

    /// What the reason alone does not say.
    pub(super) fn message(self) -> String {
        match self {
            Self::OutsideWindow(next) => windows::message(next),
            Self::NoPrometheus => NO_PROMETHEUS.to_owned(),
            Self::AwaitingCluster => NO_CLUSTER.to_owned(),
            _ => String::new(),
        }
    }

    /// After how long time alone ends the hold.
    pub(super) fn wake(self, now: Timestamp) -> Option<Duration> {
        match self {
            Self::OutsideWindow(next) => Duration::try_from(next?.duration_since(now)).ok(),
            _ => None,
        }
    }
}

/// A step that is being decided.
pub(super) struct RolloutStep<'a> {
    pub(super) input: DecisionInput<'a>,
    pub(super) stable: String,
    /// The stable revision before that one.
    pub(super) former: String,
    pub(super) rejected: String,
    /// Whether the template has been in a cluster.
    pub(super) was_placed: bool,
    /// Of how many clusters a percentage of the failure budget is.
    pub(super) budget_base: i64,
    /// By stage, then by name.
    pub(super) clusters: Vec<ClusterState<'a>>,
    /// By stage of the policy.
    pub(super) jobs: Vec<Option<StageJobStatus>>,
    pub(super) started_jobs: i64,
}

impl<'a> RolloutStep<'a> {
    pub(super) fn begin(input: DecisionInput<'a>) -> Self {
        let Some(previous) = input.previous else {
            return Self::recover(input);
        };
        let is_new = previous.target_revision != input.target;
        // A template that was never anywhere has no revision to keep.
        let mut stages = previous.stages.iter();
        let was_nowhere = !previous.placed
            && previous.replicas.is_empty()
            && stages.all(|stage| stage.clusters.is_empty());
        let mut step = Self {
            input,
            stable: match is_new && was_nowhere {
                true => input.target.to_owned(),
                false => previous.stable_revision.clone(),
            },
            former: match is_new && was_nowhere {
                true => String::new(),
                false => previous.former_revision.clone(),
            },
            rejected: match is_new {
                true => String::new(),
                false => previous.rejected_revision.clone(),
            },
            was_placed: previous.placed,
            budget_base: input.number_of_targets(),
            clusters: carried_over(&input, previous),
            jobs: Self::carried_over_jobs(&input, previous),
            started_jobs: previous.started_jobs,
        };
        if is_new {
            for cluster in &mut step.clusters {
                cluster.restart(input.now);
            }
        }
        step.join_clusters();
        if !is_new {
            step.budget_base = step.next_budget_base(previous);
        }
        step
    }

    /// Begins without a status: the first revision goes everywhere. If Works carry other revisions,
    /// the Rollout was deleted, and their clusters keep them until their turn.
    pub(super) fn recover(input: DecisionInput<'a>) -> Self {
        let carried = |target: &'a ObservedTarget| {
            Some(&*target.work_revision).filter(|revision| !revision.is_empty())
        };
        let others = input.targets.iter().filter_map(carried);
        let others: Vec<&str> = others
            .filter(|revision| *revision != input.target)
            .collect();
        let count = |revision: &str| others.iter().filter(|other| **other == revision).count();
        let stable = others
            .iter()
            .max_by_key(|revision| (count(revision), **revision));
        let stable = stable.map_or(input.target, |revision| *revision);
        let state = |target: &'a ObservedTarget| {
            let revision = carried(target).unwrap_or(stable);
            ClusterState::joined(target, (revision, 0), input.target, input.now)
        };
        let mut clusters: Vec<ClusterState<'a>> = input.targets.iter().map(state).collect();
        clusters.sort_by(|a, b| a.order().cmp(&b.order()));
        Self {
            input,
            stable: stable.to_owned(),
            former: String::new(),
            rejected: String::new(),
            was_placed: false,
            budget_base: input.number_of_targets(),
            clusters,
            jobs: vec![None; input.policy.stages.len()],
            started_jobs: 0,
        }
    }

    /// The revision to which the clusters go.
    pub(super) fn goal(&self) -> &str {
        match self.rejected == self.input.target {
            true => &self.stable,
            false => self.input.target,
        }
    }

    /// Whether the goal goes through the stages. A return to the revision that has gone through all
    /// stages does not.
    pub(super) fn is_staged(&self) -> bool {
        self.goal() != self.stable
    }

    /// The number of stages, with that of the remaining clusters.
    pub(super) fn stage_count(&self) -> usize {
        self.input.policy.stages.len() + 1
    }

    pub(super) fn stage(&self, index: usize) -> Option<&'a RolloutStage> {
        self.input.policy.stages.get(index)
    }

    pub(super) fn stage_name(&self, index: usize) -> &'a str {
        self.stage(index)
            .map_or(REMAINING_STAGE, |stage| &stage.name)
    }

    pub(super) fn gates(&self, index: usize) -> StageGates {
        StageGates::new(self.input.policy, self.stage(index))
    }

    /// Moves the clusters that have begun between their phases.
    pub(super) fn observe(&mut self) {
        let goal = self.goal().to_owned();
        let settles = !self.is_staged();
        for i in 0..self.clusters.len() {
            let gates = self.gates(self.clusters[i].stage);
            let cluster = &mut self.clusters[i];
            // A rollout that has ended is not judged again.
            let has_ended = settles && cluster.status.phase == RolloutPhase::Done;
            if cluster.has_begun(&goal) && !has_ended {
                cluster.observe(&goal, &gates, self.input.now);
            }
        }
    }

    /// The first stage that has not ended; the number of stages if all have.
    pub(super) fn frontier(&self) -> usize {
        self.first_stage_with_open_clusters()
            .min(self.first_stage_with_open_job())
            .min(self.first_lost_stage().unwrap_or(self.stage_count()))
    }

    pub(super) fn first_stage_with_open_clusters(&self) -> usize {
        let goal = self.goal();
        let open = self
            .clusters
            .iter()
            .filter(|c| c.observed.is_some() && !c.has_ended(goal));
        open.map(|c| c.stage).min().unwrap_or(self.stage_count())
    }

    fn is_held_by_job(&self, stage: usize) -> bool {
        self.job_state(stage) == Some(StageJobState::Failed)
            && self.input.policy.on_failure != ON_FAILURE_CONTINUE
    }

    /// Why nobody begins, in whatever stage, and the rollout does not end.
    pub(super) fn general_hold(&self) -> Option<StageHold> {
        if self.is_paused() {
            Some(StageHold::Paused)
        } else if self.is_held_by_failures() {
            Some(StageHold::FailureBudgetExceeded)
        } else {
            None
        }
    }

    pub(super) fn is_held(&self) -> bool {
        self.general_hold().is_some()
    }

    fn is_paused(&self) -> bool {
        self.input.spec.paused || self.input.policy.paused
    }

    /// Why the Job of a rollout that has ended does not run again yet.
    pub(super) fn rerun_hold(&self) -> Option<StageHold> {
        let awaits_job = self.first_stage_with_open_job() < self.stage_count();
        (awaits_job && self.is_paused()).then_some(StageHold::Paused)
    }

    fn lacks_prometheus(&self, stage: usize) -> bool {
        let query = self
            .stage(stage)
            .and_then(|stage| stage.gates.query.as_ref());
        !self.input.has_prometheus && query.is_some_and(|query| query.prometheus.is_none())
    }

    /// The approvals of a stage for the target.
    pub(super) fn approvals_of(&self, stage: usize) -> impl Iterator<Item = &'a StageApproval> {
        let (name, target) = (self.stage_name(stage), self.input.target);
        let approvals = self.input.spec.approvals.iter();
        approvals.filter(move |a| a.stage == name && a.revision == target)
    }

    pub(super) fn hold(&self, stage: usize) -> Option<StageHold> {
        let needs_approval = self.stage(stage).is_some_and(|stage| stage.gates.approval);
        let hold = self.general_hold();
        if hold.is_some() {
            hold
        } else if self.first_lost_stage() == Some(stage) {
            Some(StageHold::LostClusters)
        } else if self.is_held_by_job(stage) {
            Some(StageHold::JobFailed)
        } else if self.lacks_cluster_for_job(stage) {
            Some(StageHold::AwaitingCluster)
        } else if self.lacks_prometheus(stage) {
            Some(StageHold::NoPrometheus)
        } else if needs_approval && self.approvals_of(stage).next().is_none() {
            Some(StageHold::AwaitingApproval)
        } else {
            match window_state(&self.input.policy.windows, self.input.now) {
                WindowState::Open => None,
                WindowState::Closed(next) => Some(StageHold::OutsideWindow(next)),
            }
        }
    }

    /// Lets clusters of the first stage that has not ended begin; returns why none may.
    pub(super) fn advance(&mut self) -> Option<StageHold> {
        let (frontier, goal, now) = (self.frontier(), self.goal().to_owned(), self.input.now);
        let hold = self.hold(frontier);
        let members = self
            .clusters
            .iter()
            .filter(|c| c.stage == frontier && c.observed.is_some());
        let size = members.clone().count();
        let limit = self
            .stage(frontier)
            .and_then(|stage| stage.max_concurrency.as_ref());
        let limit = limit.map_or(size, |limit| amount_rounded_up(limit, size).max(1));
        let mut availability = self.availability();
        let mut in_flight = members.clone().filter(|c| c.is_in_flight(&goal)).count();
        // A closed window holds only those that would begin now.
        let would_begin = in_flight < limit && members.clone().any(|c| !c.has_begun(&goal));
        let hold = hold.filter(|hold| would_begin || !matches!(hold, StageHold::OutsideWindow(_)));
        for i in 0..self.clusters.len() {
            if self.clusters[i].observed.is_none() || self.clusters[i].has_begun(&goal) {
                continue;
            }
            if self.clusters[i].stage != frontier {
                self.clusters[i].wait(RolloutPhase::Pending, WAITING_FOR_STAGE, now);
            } else if let Some(hold) = hold {
                self.clusters[i].wait(RolloutPhase::Blocked, hold.reason(), now);
                self.clusters[i].status.message = hold.message();
            } else if self.is_held_by_failures() {
                let reason = StageHold::FailureBudgetExceeded.reason();
                self.clusters[i].wait(RolloutPhase::Blocked, reason, now);
            } else if in_flight >= limit {
                self.clusters[i].wait(RolloutPhase::Pending, "WaitingForOthers", now);
            } else if let Some(availability) = &mut availability
                && let Err(reason) = availability.spend(&self.clusters[i])
            {
                self.clusters[i].wait_for_availability(reason, now);
            } else {
                self.begin_cluster(i, &goal);
                in_flight += usize::from(self.clusters[i].is_in_flight(&goal));
            }
        }
        hold
    }

    /// Rejects the target: the clusters return to the stable revision.
    pub(super) fn reject(&mut self) {
        self.input.target.clone_into(&mut self.rejected);
        self.forget_failures();
    }

    /// Makes the target the stable revision once it has gone through all stages. While a template is
    /// nowhere, nothing goes through them. A rollout that is held does not end by those who leave: they
    /// would come back to the target.
    pub(super) fn complete(&mut self) {
        let is_somewhere = !self.input.targets.is_empty();
        let has_ended = self.frontier() == self.stage_count();
        if is_somewhere && self.is_staged() && has_ended && !self.is_held() {
            self.former = std::mem::replace(&mut self.stable, self.input.target.to_owned());
        }
    }

    /// When time alone allows the next step.
    pub(super) fn wake(&self) -> Option<Duration> {
        let wakes = self.clusters.iter();
        let wakes = wakes.filter_map(|c| c.wake(&self.gates(c.stage), self.input.now));
        wakes.chain(self.job_wake()).min()
    }

    /// Gives the goal to all clusters at once, as far as enough replicas stay available.
    pub(super) fn assign_all(&mut self) {
        let (goal, now) = (self.goal().to_owned(), self.input.now);
        // A retry of a target that was rolled back has to know who has left.
        let is_rejected = self.rejected == self.input.target;
        self.clusters
            .retain(|c| c.observed.is_some() || is_rejected);
        let mut availability = self.availability();
        for cluster in &mut self.clusters {
            if cluster.observed.is_none() || cluster.has_begun(&goal) {
                continue;
            }
            if let Some(availability) = &mut availability
                && let Err(reason) = availability.spend(cluster)
            {
                cluster.wait_for_availability(reason, now);
                continue;
            }
            cluster.undivide();
            cluster.assign(&goal, now);
        }
    }
}
