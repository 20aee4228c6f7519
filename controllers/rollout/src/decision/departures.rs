//! Says of clusters that leave whether their part of the stage had ended with the target.

use karmada_api::rollout::{
    ClusterRolloutStatus, LEFT_AFTER_END, LEFT_AFTER_FAILURE, LEFT_BEFORE_END, ON_FAILURE_CONTINUE,
    RolloutPhase, RolloutPolicySpec, RolloutStatus, StageJobState,
};

use super::amounts::failure_budget;
use super::input::DecisionInput;

/// Says of clusters that leave after a status whether their part of the stage had ended with the target.
pub(super) struct Departures<'a> {
    policy: &'a RolloutPolicySpec,
    previous: &'a RolloutStatus,
    target: &'a str,
    /// Whether failures are passed, since they are within the budget or the policy says so.
    passes_failures: bool,
}

impl<'a> Departures<'a> {
    pub(super) fn new(input: &DecisionInput<'a>, previous: &'a RolloutStatus) -> Self {
        let policy = input.policy;
        let clusters = previous.stages.iter().flat_map(|stage| &stage.clusters);
        let failed = clusters.filter(|c| c.counts_as_failed()).count();
        let budget = failure_budget(policy, previous.budget_base);
        let continues = policy.on_failure == ON_FAILURE_CONTINUE;
        Self {
            policy,
            previous,
            target: input.target,
            passes_failures: continues || failed <= budget,
        }
    }

    /// The reason of a cluster that leaves a stage.
    pub(super) fn reason(&self, stage: usize, cluster: &ClusterRolloutStatus) -> &'static str {
        let has_target = cluster.revision == self.target && self.has_passed_job(stage);
        match cluster.phase {
            RolloutPhase::Done if has_target => LEFT_AFTER_END,
            RolloutPhase::Failed if has_target && self.passes_failures => LEFT_AFTER_FAILURE,
            _ => LEFT_BEFORE_END,
        }
    }

    /// Whether a cluster that leaves has failed with the target: that it leaves, as failover lets it, says
    /// nothing better about the target.
    pub(super) fn has_failed(&self, cluster: &ClusterRolloutStatus) -> bool {
        cluster.has_failed_itself() && cluster.revision == self.target
    }

    fn has_passed_job(&self, stage: usize) -> bool {
        let stage = &self.previous.stages[stage];
        let mut stages = self.policy.stages.iter();
        let needs_job = stages.any(|s| s.name == stage.name && s.gates.job.is_some());
        let job = stage.job.as_ref();
        !needs_job
            || job.is_some_and(|job| match job.state {
                StageJobState::Succeeded => true,
                StageJobState::Failed => self.policy.on_failure == ON_FAILURE_CONTINUE,
                StageJobState::Pending | StageJobState::Running => false,
            })
    }
}
