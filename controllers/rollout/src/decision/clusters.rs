//! The state of one cluster in a rollout, and its phases.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karmada_api::rollout::{
    CLUSTER_UNREACHABLE, ClusterRolloutStatus, QueryGate, REMAINING_STAGE, RolloutPhase,
    RolloutPolicySpec, RolloutStage, RolloutStatus,
};
use machinery::{duration, time};

use super::departures::Departures;
use super::input::{DecisionInput, ObservedTarget};

const DEFAULT_PROGRESS_DEADLINE: Duration = Duration::from_secs(600);

/// How long clusters of a stage have to be healthy, and may take to become so.
pub(super) struct StageGates {
    pub(super) healthy_for: Duration,
    pub(super) deadline: Duration,
    pub(super) query: Option<QueryGate>,
}

impl StageGates {
    pub(super) fn new(policy: &RolloutPolicySpec, stage: Option<&RolloutStage>) -> Self {
        let healthy_for = stage.and_then(|stage| duration::parse(&stage.gates.healthy_for).ok());
        let deadline = duration::parse(&policy.progress_deadline);
        Self {
            healthy_for: healthy_for.unwrap_or_default(),
            deadline: deadline.unwrap_or(DEFAULT_PROGRESS_DEADLINE),
            query: stage.and_then(|stage| stage.gates.query.clone()),
        }
    }
}

pub(super) struct ClusterState<'a> {
    pub(super) stage: usize,
    pub(super) status: ClusterRolloutStatus,
    /// `None`: the cluster is no target any more.
    pub(super) observed: Option<&'a ObservedTarget>,
    /// Whether the next batch may begin.
    pub(super) has_passed_batch: bool,
}

/// A time of the API in whole seconds, rounded up: a duration that is counted from it is never
/// short.
pub(super) fn api_time(now: Timestamp) -> String {
    let seconds = now.as_second() + i64::from(now.subsec_nanosecond() > 0);
    time::rfc3339_seconds(Timestamp::from_second(seconds).unwrap_or(now))
}

/// The clusters of a status. With a new target, and with a changed policy, they are assigned to stages
/// anew. A new target forgets those that have left; otherwise they stay in their stage, also if they are
/// targets again.
pub(super) fn carried_over<'a>(
    input: &DecisionInput<'a>,
    previous: &RolloutStatus,
) -> Vec<ClusterState<'a>> {
    let is_new = previous.target_revision != input.target;
    let restages = is_new || previous.policy != input.policy_id;
    let targets: HashMap<&str, &ObservedTarget> =
        input.targets.iter().map(|t| (t.name.as_str(), t)).collect();
    let departures = Departures::new(input, previous);
    let mut all = Vec::new();
    for (stage, status) in previous.stages.iter().enumerate() {
        for cluster in &status.clusters {
            // A cluster that has left and is a target again joins anew.
            let has_left = cluster.phase == RolloutPhase::Skipped;
            let observed = targets.get(&*cluster.name).copied().filter(|_| !has_left);
            let assigned = match observed {
                Some(target) if restages => Some(target.stage),
                Some(_) => Some(stage),
                None if is_new => None,
                // A failure is not forgotten with its stage.
                None => stage_index(input.policy, &status.name)
                    .or_else(|| cluster.failed.then_some(input.policy.stages.len())),
            };
            let Some(assigned) = assigned else {
                continue;
            };
            let mut state = ClusterState {
                stage: assigned,
                status: cluster.clone(),
                observed,
                has_passed_batch: false,
            };
            if observed.is_none() && !has_left {
                let reason = departures.reason(stage, cluster);
                state.status.failed |= departures.has_failed(cluster);
                state.enter(RolloutPhase::Skipped, reason, input.now);
            }
            all.push(state);
        }
    }
    all
}

/// The index of a stage in a policy, which may have changed.
fn stage_index(policy: &RolloutPolicySpec, name: &str) -> Option<usize> {
    let index = policy.stages.iter().position(|stage| stage.name == name);
    index.or_else(|| (name == REMAINING_STAGE).then_some(policy.stages.len()))
}

impl<'a> ClusterState<'a> {
    /// A cluster that has become a target, with a percentage of the replicas that have the revision from
    /// before; 0 for all of them.
    pub(super) fn joined(
        target: &'a ObservedTarget,
        (revision, percent): (&str, i64),
        goal: &str,
        now: Timestamp,
    ) -> Self {
        let mut state = Self {
            stage: target.stage,
            status: ClusterRolloutStatus {
                name: target.name.clone(),
                batch_percent: percent,
                ..ClusterRolloutStatus::default()
            },
            observed: Some(target),
            has_passed_batch: false,
        };
        state.assign(revision, now);
        if !state.has_begun(goal) {
            state.enter(RolloutPhase::Pending, "Joined", now);
        }
        state
    }

    pub(super) fn order(&self) -> (usize, &str, bool) {
        (self.stage, &self.status.name, self.observed.is_some())
    }

    pub(super) fn has(&self, revision: &str) -> bool {
        self.observed.is_some() && self.status.revision == revision
    }

    /// Whether the rollout has let the cluster have a revision: with a batch from before, it waits for its
    /// turn.
    pub(super) fn has_begun(&self, revision: &str) -> bool {
        self.has(revision) && !self.has_batch_from_before()
    }

    pub(super) fn is_in_flight(&self, goal: &str) -> bool {
        let phase = self.status.phase;
        self.has_begun(goal) && matches!(phase, RolloutPhase::Updating | RolloutPhase::Soaking)
    }

    pub(super) fn has_ended(&self, goal: &str) -> bool {
        let phase = self.status.phase;
        self.has_begun(goal) && matches!(phase, RolloutPhase::Done | RolloutPhase::Failed)
    }

    /// Enters a phase; the time stays if phase and reason stay.
    fn enter(&mut self, phase: RolloutPhase, reason: &str, now: Timestamp) {
        let status = &mut self.status;
        if status.phase != phase || status.reason != reason || status.since.is_empty() {
            status.since = api_time(now);
            // The last result is shown as long as it explains the phase.
            if !matches!(phase, RolloutPhase::Done | RolloutPhase::Failed) {
                status.query = None;
            }
        }
        status.phase = phase;
        reason.clone_into(&mut status.reason);
        status.message.clear();
    }

    /// The state at the start of another rollout.
    pub(super) fn restart(&mut self, now: Timestamp) {
        self.status.since.clear();
        self.status.failed = false;
        self.status.batch = 0;
        self.enter(RolloutPhase::Pending, "NewRevision", now);
    }

    pub(super) fn wait(&mut self, phase: RolloutPhase, reason: &str, now: Timestamp) {
        self.enter(phase, reason, now);
    }

    pub(super) fn wait_for_availability(&mut self, message: String, now: Timestamp) {
        self.enter(RolloutPhase::Blocked, "AwaitingAvailability", now);
        self.status.message = message;
    }

    /// Lets the cluster have a revision.
    pub(super) fn assign(&mut self, revision: &str, now: Timestamp) {
        revision.clone_into(&mut self.status.revision);
        self.status.since.clear();
        if self.observed.is_some_and(|target| !target.reachable) {
            self.enter(RolloutPhase::Failed, CLUSTER_UNREACHABLE, now);
        } else {
            self.enter(RolloutPhase::Updating, "", now);
        }
    }

    pub(super) fn elapsed(&self, now: Timestamp) -> SignedDuration {
        let since = time::parse(&self.status.since);
        since.map_or(SignedDuration::ZERO, |since| now.duration_since(since))
    }

    /// Moves a cluster that has begun to its next phase.
    pub(super) fn observe(&mut self, goal: &str, gates: &StageGates, now: Timestamp) {
        let Some(target) = self.observed else {
            return;
        };
        // Whatever takes a cluster away that was getting the target may come of the target.
        let has_begun = self.is_in_flight(goal) || self.status.has_failed_itself();
        self.status.failed |= !target.reachable && has_begun;
        let elapsed = self.elapsed(now);
        let has_passed =
            |limit: Duration| SignedDuration::try_from(limit).is_ok_and(|limit| elapsed >= limit);
        let is_divided = self.is_divided();
        // Only a report of the member about this very revision counts.
        let is_healthy = target.work_revision == goal
            && target.reported_revision == goal
            && target.message.is_empty()
            && match is_divided {
                true => self.has_healthy_batch(target),
                false => target.healthy,
            };
        let (phase, reason) = match self.status.phase {
            _ if !target.reachable => (RolloutPhase::Failed, CLUSTER_UNREACHABLE),
            RolloutPhase::Done if is_healthy => (RolloutPhase::Done, ""),
            RolloutPhase::Soaking if is_healthy => match has_passed(gates.healthy_for) {
                true => (RolloutPhase::Done, ""),
                false => (RolloutPhase::Soaking, ""),
            },
            _ if is_healthy && gates.healthy_for.is_zero() => (RolloutPhase::Done, ""),
            _ if is_healthy => (RolloutPhase::Soaking, ""),
            RolloutPhase::Failed if self.status.reason != CLUSTER_UNREACHABLE => {
                (RolloutPhase::Failed, "ProgressDeadlineExceeded")
            }
            RolloutPhase::Updating if has_passed(gates.deadline) => {
                (RolloutPhase::Failed, "ProgressDeadlineExceeded")
            }
            RolloutPhase::Soaking | RolloutPhase::Done => (RolloutPhase::Updating, "Unhealthy"),
            RolloutPhase::Updating => (RolloutPhase::Updating, &*self.status.reason.clone()),
            _ => (RolloutPhase::Updating, ""),
        };
        let query = gates.query.as_ref().filter(|_| is_healthy);
        let previous = query.map(|_| self.status.clone());
        let (phase, reason) = match query {
            Some(query) => self.judge_query(query, gates, (phase, reason), now),
            None => (phase, reason),
        };
        let (phase, reason) = match phase {
            // A healthy batch waits for the next one, with the reason why it does not begin. If its
            // query is not satisfied any more, it soaks anew.
            RolloutPhase::Done | RolloutPhase::Soaking if is_divided => {
                self.has_passed_batch = phase == RolloutPhase::Done;
                let is_soaking = self.status.phase == RolloutPhase::Soaking;
                let is_held = is_soaking && self.has_passed_batch;
                let reason = Some(self.status.reason.clone()).filter(|_| is_held);
                (RolloutPhase::Soaking, reason.unwrap_or_default())
            }
            phase => (phase, reason.to_owned()),
        };
        self.enter(phase, &reason, now);
        self.status.failed &= phase != RolloutPhase::Done && !self.has_passed_batch;
        if matches!(phase, RolloutPhase::Updating | RolloutPhase::Failed) {
            self.status.message.clone_from(&target.message);
        }
        if let (Some(query), Some(previous)) = (query, previous) {
            // Without a result since a restart, the last message stays.
            let stays = previous.phase == phase && previous.since == self.status.since;
            self.explain_query(query, stays.then_some(previous.message));
        }
    }

    /// After how long the cluster enters its next phase by time alone.
    pub(super) fn wake(&self, gates: &StageGates, now: Timestamp) -> Option<Duration> {
        let limit = match self.status.phase {
            // Time alone ends no hold.
            RolloutPhase::Soaking if !self.status.reason.is_empty() => return None,
            RolloutPhase::Soaking => gates.soak_limit(self.elapsed(now)),
            RolloutPhase::Updating => gates.deadline,
            _ => return None,
        };
        let limit = SignedDuration::try_from(limit).ok()?;
        Some(Duration::try_from(limit - self.elapsed(now)).unwrap_or_default())
    }
}
