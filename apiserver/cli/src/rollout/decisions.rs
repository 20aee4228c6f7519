//! Decides what a pause, a resumption or an approval writes into a Rollout. Pure.

use anyhow::{Context, bail, ensure};
use karmada_api::Rollout;
use karmada_api::rollout::{RolloutStatus, StageApproval, StageRolloutStatus};
use machinery::Object;
use serde_json::{Value, json};

/// The state of a rollout that waits for an approval.
pub const AWAITING_APPROVAL: &str = "AwaitingApproval";

/// A stage that a user approves.
#[derive(Clone, Copy, Default)]
pub struct ApprovalTarget<'a> {
    /// By default the one that waits.
    pub stage: Option<&'a str>,
    /// Whether it passes though all of its clusters have left before they had ended.
    pub without_clusters: bool,
}

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
    /// any more, and are dropped. A stage that has lost its clusters is approved without them, or not
    /// at all.
    pub fn approval(&self, target: ApprovalTarget<'_>) -> anyhow::Result<RolloutChange> {
        let view = self.rollout.decode::<Rollout>()?;
        let status = self.current_status(&view)?;
        let stage = match target.stage {
            Some(stage) => stage,
            None if awaits_decision(status) => &status.stage,
            None => bail!(
                "no stage of {} waits for an approval; name one with --stage",
                self.text
            ),
        };
        let mut stages = status.stages.iter();
        let stage_status = stages.find(|other| other.name == stage);
        let stage_status =
            stage_status.with_context(|| format!("{} has no stage {stage:?}", self.text))?;
        match (stage_status.has_lost_clusters(), target.without_clusters) {
            (true, false) => bail!(
                "all clusters of stage {stage} of {} have left before they had ended: flotilla rollout approve with --stage {stage} --without-clusters lets it pass without them",
                self.text
            ),
            (false, true) => bail!(
                "stage {stage} of {} has not lost its clusters; approve it without --without-clusters",
                self.text
            ),
            _ => {}
        }
        let revision = &status.target_revision;
        let mut approvals = view.spec.approvals.clone();
        let is_same = |other: &StageApproval| other.stage == stage && other.revision == *revision;
        // An earlier decision about the stage stays.
        let has_passed = approvals.iter().any(|a| is_same(a) && a.without_clusters);
        approvals.retain(|other| other.revision == *revision && !is_same(other));
        approvals.push(StageApproval {
            stage: stage.to_owned(),
            revision: revision.clone(),
            without_clusters: target.without_clusters || has_passed,
        });
        let without = match target.without_clusters {
            true => " without its clusters",
            false => "",
        };
        Ok(RolloutChange {
            outcome: format!("{} approved for stage {stage}{without}", self.text),
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

/// Whether the first stage that has not ended waits for the decision of a user.
pub(super) fn awaits_decision(status: &RolloutStatus) -> bool {
    let mut stages = status.stages.iter();
    let stage = stages.find(|stage| stage.name == status.stage);
    status.state == AWAITING_APPROVAL || stage.is_some_and(StageRolloutStatus::has_lost_clusters)
}

pub(super) fn status_of(view: &Rollout) -> anyhow::Result<&RolloutStatus> {
    let status = view.status.as_ref();
    status.context("the rollout has no status yet; run the command again")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The approvals after a decision, or why it is refused. The stage `canary` has lost its clusters.
    fn approvals(target: ApprovalTarget<'_>, before: &Value) -> Result<Value, String> {
        let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u",
            "controller": true});
        let left =
            json!({"name": "a", "revision": "2", "phase": "Skipped", "reason": "LeftBeforeEnd"});
        let waits = json!({"name": "b", "revision": "1", "phase": "Pending"});
        let rollout = json!({"metadata": {"name": "r", "namespace": "n", "ownerReferences": [owner]},
            "spec": {"approvals": before},
            "status": {"state": "AwaitingCluster", "stage": "canary", "targetRevision": "2", "stages": [
                {"name": "canary", "clusters": [left]}, {"name": "rest", "clusters": [waits]}]}});
        let template = json!({"metadata": {"name": "web", "namespace": "n", "uid": "u"}});
        let (rollout, template) = (
            Object::from_value(&rollout).unwrap(),
            Object::from_value(&template).unwrap(),
        );
        let staged = StagedTemplate {
            text: "deployment/web",
            template: &template,
            rollout: &rollout,
        };
        let change = staged.approval(target).map_err(|error| error.to_string())?;
        Ok(change.patch["spec"]["approvals"].clone())
    }

    // proves: CLI-rollout-without-clusters
    #[test]
    fn a_stage_that_has_lost_its_clusters_is_approved_without_them_alone() {
        let target = |stage: Option<&'static str>, without_clusters: bool| ApprovalTarget {
            stage,
            without_clusters,
        };
        let plain = json!({"stage": "canary", "revision": "2"});
        let without = json!({"stage": "canary", "revision": "2", "withoutClusters": true});
        let rest = json!({"stage": "rest", "revision": "2"});
        let old = json!({"stage": "rest", "revision": "1"});
        // One entry is left of each stage, and what it says is not taken back.
        for (stage, is_without, before, expected) in [
            (None, true, json!([]), json!([without])),
            (
                Some("canary"),
                true,
                json!([plain, rest, old]),
                json!([rest, without]),
            ),
            (Some("canary"), true, json!([without]), json!([without])),
            (
                Some("rest"),
                false,
                json!([without, rest]),
                json!([without, rest]),
            ),
        ] {
            let result = approvals(target(stage, is_without), &before);
            assert_eq!(result, Ok(expected));
        }
        for (stage, is_without, expected) in [
            (
                None,
                false,
                "with --stage canary --without-clusters lets it pass",
            ),
            (
                Some("canary"),
                false,
                "with --stage canary --without-clusters lets it pass",
            ),
            (
                Some("rest"),
                true,
                "stage rest of deployment/web has not lost its clusters",
            ),
            (Some("no"), true, "has no stage \"no\""),
        ] {
            let error = approvals(target(stage, is_without), &json!([])).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
