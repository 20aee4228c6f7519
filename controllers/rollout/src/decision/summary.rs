//! Makes the status of a step: the phases of the stages, the columns and the conditions.

use karmada_api::binding::Condition;
use karmada_api::rollout::{
    ClusterRolloutStatus, RolloutPhase, RolloutStatus, StageJobState, StageRolloutStatus,
};
use machinery::bounded_text::truncated;
use machinery::conditions::set_status_condition;

use super::clusters::api_time;
use super::input::ObservedTarget;
use super::step::{RolloutStep, StageHold};
use crate::cluster_names::cluster_names;

const DEGRADED: &str = "Degraded";
/// The reason of Degraded while clusters have a revision that is not used.
pub(crate) const REVISION_UNUSABLE: &str = "RevisionUnusable";
/// The bytes of the sentence about them.
const MAX_UNUSABLE_BYTES: usize = 1024;

/// Why a rollout is held in which no cluster is left to begin.
const PAUSED_END: &str = "no cluster is left to begin, and it ends once it is resumed";
/// Why a rollout is in no stage.
const AT_ONCE: &str = "clusters get this revision at once, and not through the stages";

/// Where a rollout is, from which its columns and conditions follow.
struct RolloutPosition {
    /// The index of the first stage that has not ended.
    frontier: usize,
    has_ended: bool,
    is_rolled_back: bool,
    has_failures: bool,
    /// The clusters get the revision without the stages.
    is_at_once: bool,
    hold: Option<StageHold>,
}

impl RolloutPosition {
    fn is_held(&self) -> bool {
        self.hold.is_some() && !self.has_ended
    }

    fn is_progressing(&self) -> bool {
        !self.has_ended && !self.is_held() && !self.is_rolled_back
    }

    fn state(&self) -> &'static str {
        match self.hold {
            _ if self.is_rolled_back => "RolledBack",
            _ if self.has_ended && self.has_failures => "Degraded",
            _ if self.has_ended => "Completed",
            Some(hold) => hold.reason(),
            None => "Progressing",
        }
    }
}

impl RolloutStep<'_> {
    /// Which clusters have a revision that is not used, why, and what helps; empty if none has.
    fn unusable_text(&self) -> String {
        let sentence = |(revision, reason): (&String, &String)| {
            let clusters = self.clusters.iter().filter(|c| c.has(revision));
            let (present, missing): (Vec<_>, Vec<_>) = clusters
                .filter_map(|c| c.observed)
                .partition(|target| target.has_work);
            let part = |targets: &[&ObservedTarget], verb: &str| {
                let names: Vec<&str> = targets.iter().map(|target| &*target.name).collect();
                let names = Some(names.join(", ")).filter(|names| !names.is_empty())?;
                Some(format!("the Works of {names} {verb}"))
            };
            let parts = [
                part(&present, "stay as they are"),
                part(&missing, "are gone and are not made"),
            ];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            let works = Some(parts.join(", ")).filter(|works| !works.is_empty())?;
            Some(format!(
                "{reason}; {works} until the template has this content again, or the clusters get another \
                revision; one that was replaced has to be deleted first"
            ))
        };
        let sentences = self.input.unusable_revisions.iter().filter_map(sentence);
        let text = sentences.collect::<Vec<_>>().join("; ");
        truncated(&text, MAX_UNUSABLE_BYTES).into_owned()
    }

    /// Which clusters have failed, also before they left or were not Ready, and what helps.
    fn failures_text(&self) -> String {
        let names = |condition: fn(&ClusterRolloutStatus) -> bool| {
            let clusters = self.clusters.iter().map(|c| &c.status);
            let failed: Vec<&str> = clusters
                .filter(|c| condition(c))
                .map(|c| &*c.name)
                .collect();
            Some(cluster_names(&failed)).filter(|_| !failed.is_empty())
        };
        let present = names(|c| c.has_failed_itself() && !c.failed).map(|names| {
            format!(
                "failed with this revision: {names}; flotilla rollout retry lets them begin again, flotilla rollout \
                abort lets all clusters return"
            )
        });
        let former = names(|c| c.failed).map(|names| {
            format!(
                "{names} had failed with this revision, which counts until flotilla rollout retry"
            )
        });
        let unreachable = names(|c| c.counts_as_failed() && !c.has_failed_itself() && !c.failed)
            .map(|names| format!("not Ready: {names}"));
        let parts = [present, former, unreachable];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// Where the rollout is after this step.
    fn position(&self, hold: Option<StageHold>) -> RolloutPosition {
        let frontier = self.frontier();
        let has_ended = frontier == self.stage_count() && !self.is_staged();
        let is_rolled_back = self.rejected == self.input.target;
        // Without the stages: as a first revision, a return, or clusters that begin after the end.
        let awaits_job = self.first_stage_with_open_job() < self.stage_count();
        RolloutPosition {
            frontier,
            has_ended,
            is_rolled_back,
            has_failures: self.failed() > 0 || self.has_failed_job(),
            is_at_once: !has_ended && !self.is_staged() && !is_rolled_back && !awaits_job,
            hold,
        }
    }

    /// Why the rollout does not go on, or goes past its stages; empty if neither.
    fn hold_text(&self, position: &RolloutPosition) -> String {
        match position.hold.filter(|_| position.is_held()) {
            Some(StageHold::LostClusters) => self.lost_clusters_text(position.frontier),
            Some(StageHold::FailureBudgetExceeded) => self.failures_text(),
            Some(StageHold::Paused) if position.frontier == self.stage_count() => {
                PAUSED_END.to_owned()
            }
            Some(hold) => hold.message(),
            None if position.is_at_once => AT_ONCE.to_owned(),
            None => String::new(),
        }
    }

    /// The clusters that are done, of all.
    fn progress(&self) -> String {
        let targets = self.clusters.iter().filter(|c| c.observed.is_some());
        let done = targets
            .clone()
            .filter(|c| c.has(self.input.target) && c.status.phase == RolloutPhase::Done);
        format!("{}/{}", done.count(), targets.count())
    }

    /// The name of the stage that is open; empty if none is.
    fn open_stage(&self, position: &RolloutPosition) -> String {
        if position.has_ended || position.is_at_once {
            return String::new();
        }
        let stage = match position.frontier == self.stage_count() {
            true => self.last_stage(),
            false => position.frontier,
        };
        self.stage_name(stage).to_owned()
    }

    /// The conditions, all with one message but for revisions that are not used.
    fn conditions(
        &self,
        position: &RolloutPosition,
        message: &str,
        unusable: &str,
    ) -> Vec<Condition> {
        let previous = self.input.previous.map(|p| p.conditions.clone());
        let mut conditions = previous.unwrap_or_default();
        for (condition_type, holds) in [
            ("Progressing", position.is_progressing()),
            ("Paused", position.is_held()),
            ("Completed", position.has_ended && !position.is_rolled_back),
            (
                DEGRADED,
                position.has_failures || position.is_rolled_back || !unusable.is_empty(),
            ),
        ] {
            let (reason, message) = match condition_type {
                DEGRADED if !unusable.is_empty() => (REVISION_UNUSABLE, unusable),
                _ => (position.state(), message),
            };
            let condition = Condition {
                condition_type: condition_type.to_owned(),
                status: if holds { "True" } else { "False" }.to_owned(),
                last_transition_time: api_time(self.input.now),
                reason: reason.to_owned(),
                message: message.to_owned(),
                ..Condition::default()
            };
            set_status_condition(&mut conditions, condition);
        }
        conditions
    }

    pub(super) fn into_status(self, hold: Option<StageHold>) -> RolloutStatus {
        let position = self.position(hold);
        let progress = self.progress();
        let hold_text = self.hold_text(&position);
        let unusable = self.unusable_text();
        let mut message = format!(
            "{progress} clusters are done, {} have failed",
            self.failed()
        );
        if !hold_text.is_empty() {
            message = format!("{message}; {hold_text}");
        }
        let is_somewhere = self.clusters.iter().any(|c| c.observed.is_some());
        RolloutStatus {
            policy: self.input.policy_id.to_owned(),
            target_revision: self.input.target.to_owned(),
            state: position.state().to_owned(),
            stage: self.open_stage(&position),
            conditions: self.conditions(&position, &message, &unusable),
            message: [hold_text, unusable]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join("; "),
            progress,
            stages: self.stages(self.goal()),
            started_jobs: self.started_jobs,
            budget_base: self.budget_base,
            placed: self.was_placed || is_somewhere,
            stable_revision: self.stable,
            former_revision: self.former,
            rejected_revision: self.rejected,
            ..RolloutStatus::default()
        }
    }

    /// The last stage that has a cluster: a rollout that is held there may have no other to go on with.
    fn last_stage(&self) -> usize {
        let targets = self.clusters.iter().filter(|c| c.observed.is_some());
        let last = targets.map(|c| c.stage).max();
        last.unwrap_or(self.input.policy.stages.len())
    }

    fn stages(&self, goal: &str) -> Vec<StageRolloutStatus> {
        let lost_stage = self.first_lost_stage();
        let stage = |index: usize| {
            let members = self.clusters.iter().filter(|c| c.stage == index);
            let phases = members.clone().filter(|c| c.observed.is_some());
            let phases: Vec<RolloutPhase> = phases.map(|c| c.status.phase).collect();
            let has_ended = members
                .clone()
                .all(|c| c.observed.is_none() || c.has_ended(goal));
            let job = self.jobs.get(index).cloned().flatten();
            let phase = match lost_stage == Some(index) {
                true => RolloutPhase::Blocked,
                false => stage_phase(&phases, has_ended, job.as_ref().map(|job| job.state)),
            };
            StageRolloutStatus {
                name: self.stage_name(index).to_owned(),
                phase,
                job,
                clusters: members.map(|c| c.status.clone()).collect(),
            }
        };
        (0..self.stage_count()).map(stage).collect()
    }
}

/// The phase of a stage from those of its clusters, and from the state of its Job.
fn stage_phase(
    phases: &[RolloutPhase],
    has_ended: bool,
    job: Option<StageJobState>,
) -> RolloutPhase {
    use RolloutPhase::{Blocked, Done, Failed, Pending, Skipped, Soaking, Updating};
    let has = |phase: RolloutPhase| phases.contains(&phase);
    match phases {
        [] => Skipped,
        _ if has_ended && has(Done) && job.is_some_and(|job| !job.is_final()) => Soaking,
        _ if has_ended && (has(Failed) || job == Some(StageJobState::Failed)) => Failed,
        _ if has_ended => Done,
        _ => [Updating, Soaking, Blocked, Pending]
            .into_iter()
            .find(|phase| has(*phase))
            .unwrap_or(Pending),
    }
}
