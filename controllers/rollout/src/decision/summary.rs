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

    pub(super) fn into_status(self, hold: Option<StageHold>) -> RolloutStatus {
        let (frontier, goal) = (self.frontier(), self.goal().to_owned());
        let has_ended = frontier == self.stage_count() && !self.is_staged();
        let (failed, has_failed_job) = (self.failed(), self.has_failed_job());
        let is_rolled_back = self.rejected == self.input.target;
        let state = match hold {
            _ if is_rolled_back => "RolledBack",
            _ if has_ended && (failed > 0 || has_failed_job) => "Degraded",
            _ if has_ended => "Completed",
            Some(hold) => hold.reason(),
            None => "Progressing",
        };
        let targets = self.clusters.iter().filter(|c| c.observed.is_some());
        let done = targets
            .clone()
            .filter(|c| c.has(self.input.target) && c.status.phase == RolloutPhase::Done);
        let progress = format!("{}/{}", done.count(), targets.count());
        let mut conditions = self
            .input
            .previous
            .map(|p| p.conditions.clone())
            .unwrap_or_default();
        let is_held = hold.is_some() && !has_ended;
        let mut message = format!("{progress} clusters are done, {failed} have failed");
        // Without the stages: as a first revision, a return, or clusters that begin after the end.
        let awaits_job = self.first_stage_with_open_job() < self.stage_count();
        let is_at_once = !has_ended && !self.is_staged() && !is_rolled_back && !awaits_job;
        let hold_message = match hold.filter(|_| is_held) {
            Some(StageHold::LostClusters) => self.lost_clusters_text(frontier),
            Some(StageHold::FailureBudgetExceeded) => self.failures_text(),
            Some(StageHold::Paused) if frontier == self.stage_count() => PAUSED_END.to_owned(),
            Some(hold) => hold.message(),
            None if is_at_once => AT_ONCE.to_owned(),
            None => String::new(),
        };
        if !hold_message.is_empty() {
            message = format!("{message}; {hold_message}");
        }
        let unusable = self.unusable_text();
        for (condition_type, holds) in [
            ("Progressing", !has_ended && !is_held && !is_rolled_back),
            ("Paused", is_held),
            ("Completed", has_ended && !is_rolled_back),
            (
                DEGRADED,
                failed > 0 || has_failed_job || is_rolled_back || !unusable.is_empty(),
            ),
        ] {
            let (reason, message) = match condition_type {
                DEGRADED if !unusable.is_empty() => (REVISION_UNUSABLE, &unusable),
                _ => (state, &message),
            };
            let condition = Condition {
                condition_type: condition_type.to_owned(),
                status: if holds { "True" } else { "False" }.to_owned(),
                last_transition_time: api_time(self.input.now),
                reason: reason.to_owned(),
                message: message.clone(),
                ..Condition::default()
            };
            set_status_condition(&mut conditions, condition);
        }
        let stage = match has_ended || is_at_once {
            true => String::new(),
            false if frontier == self.stage_count() => {
                self.stage_name(self.last_stage()).to_owned()
            }
            false => self.stage_name(frontier).to_owned(),
        };
        let is_somewhere = self.clusters.iter().any(|c| c.observed.is_some());
        RolloutStatus {
            policy: self.input.policy_id.to_owned(),
            target_revision: self.input.target.to_owned(),
            state: state.to_owned(),
            stage,
            message: [hold_message, unusable]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join("; "),
            progress,
            conditions,
            stages: self.stages(&goal),
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
