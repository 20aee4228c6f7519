//! Decides what a pause, a resumption or an approval writes into a Rollout. Pure.

use anyhow::{Context, bail, ensure};
use karmada_api::Rollout;
use karmada_api::rollout::{RolloutStatus, StageApproval};
use machinery::Object;
use serde_json::{Value, json};

/// The state of a rollout that waits for an approval.
pub const AWAITING_APPROVAL: &str = "AwaitingApproval";

/// A template whose changes are staged, as it was read.
#[derive(Clone, Copy)]
pub struct StagedTemplate<'a> {
    /// The template as the user names it.
    pub text: &'a str,
    pub template: &'a Object,
    pub rollout: &'a Object,
}

/// A change of a Rollout.
pub struct RolloutChange {
    /// The line about it once it is made.
    pub outcome: String,
    /// A merge patch of the Rollout as it was read.
    pub patch: Value,
}

impl StagedTemplate<'_> {
    /// Lets no further cluster begin, or lets them begin again.
    pub fn pausing(&self, paused: bool) -> anyhow::Result<RolloutChange> {
        let view = self.rollout.decode::<Rollout>()?;
        let (verb, reason) = match paused {
            true => ("paused", "is already paused"),
            false => ("resumed", "is not paused"),
        };
        if view.spec.paused == paused {
            bail!("{} {reason}", self.text);
        }
        Ok(RolloutChange {
            outcome: format!("{} {verb}", self.text),
            patch: self.spec_patch(&json!({"paused": paused})),
        })
    }

    /// Approves a stage, by default the one that waits; approvals of other revisions have no use
    /// any more, and are dropped.
    pub fn approval(&self, stage: Option<&str>) -> anyhow::Result<RolloutChange> {
        let view = self.rollout.decode::<Rollout>()?;
        let status = self.current_status(&view)?;
        let stage = match stage {
            Some(stage) => stage,
            None if status.state == AWAITING_APPROVAL => &status.stage,
            None => bail!(
                "no stage of {} waits for an approval; name one with --stage",
                self.text
            ),
        };
        let mut stages = status.stages.iter();
        ensure!(
            stages.any(|other| other.name == stage),
            "{} has no stage {stage:?}",
            self.text
        );
        let approval = StageApproval {
            stage: stage.to_owned(),
            revision: status.target_revision.clone(),
        };
        let mut approvals = view.spec.approvals.clone();
        approvals.retain(|other| other.revision == approval.revision && *other != approval);
        approvals.push(approval);
        Ok(RolloutChange {
            outcome: format!("{} approved for stage {stage}", self.text),
            patch: self.spec_patch(&json!({"approvals": approvals})),
        })
    }

    /// A change with the state of the Rollout that it is about.
    pub fn content_of(&self, change: &RolloutChange) -> anyhow::Result<String> {
        let rollout = self.rollout.value()?;
        let status = &rollout["status"];
        let state = ["state", "stage", "targetRevision"].map(|field| &status[field]);
        let (uid, before) = (self.rollout.uid(), &rollout["spec"]);
        Ok(json!([uid, before, state, change.patch["spec"]]).to_string())
    }

    fn spec_patch(&self, spec: &Value) -> Value {
        let version = self.rollout.revision().to_string();
        json!({"metadata": {"resourceVersion": version}, "spec": spec})
    }

    /// The status, which must be about the last change of the template.
    pub(super) fn current_status<'v>(
        &self,
        view: &'v Rollout,
    ) -> anyhow::Result<&'v RolloutStatus> {
        let status = status_of(view)?;
        ensure!(
            self.is_current(status),
            "the rollout of {} does not have its last change yet; run the command again",
            self.text
        );
        Ok(status)
    }

    /// Whether a status is about the template as it was read: one of an earlier generation, or of an
    /// earlier template of the name, says nothing about its last change.
    pub fn is_current(&self, status: &RolloutStatus) -> bool {
        let owner = self.rollout.meta().controller();
        owner.is_some_and(|owner| *owner.uid == *self.template.uid())
            && status.observed_template_generation >= self.template.meta().generation
    }
}

pub(super) fn status_of(view: &Rollout) -> anyhow::Result<&RolloutStatus> {
    let status = view.status.as_ref();
    status.context("the rollout has no status yet; run the command again")
}
