//! Decisions about a staged rollout: approve a stage, pause, resume.

use anyhow::Context;
use async_trait::async_trait;
use flotilla_cli::rollout::decisions::{ApprovalTarget, StagedTemplate};
use flotilla_cli::rollout::{
    ClustersByRevision, RevisionDifference, patch_rollout, revision_differences,
};
use karmada_api::rollout::{ClusterRolloutStatus, RolloutPhase, RolloutStatus};
use maud::{Markup, html};

use super::planned_action::{ActionPlan, ActionSubject, PlannedAction};
use crate::clipped_text::clipped;
use crate::console::Console;
use crate::inventory::ObjectKey;
use crate::pages::{WorkloadView, counted, notice, workload_path};
use crate::session::text_digest;

/// Revisions with which the target is compared.
const MAX_REVISIONS: usize = 5;
/// Clusters of a revision that are named.
const MAX_NAMED_CLUSTERS: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DecisionKind {
    /// The name of a stage.
    Approve(String),
    Pause,
    Resume,
}

pub(super) struct RolloutDecision {
    key: ObjectKey,
    kind: DecisionKind,
}

impl RolloutDecision {
    pub(super) fn new(key: ObjectKey, kind: DecisionKind) -> Self {
        Self { key, kind }
    }

    async fn effect(&self, console: &Console, status: &RolloutStatus) -> Markup {
        match &self.kind {
            DecisionKind::Approve(stage) => {
                let differences = self.differences(console, status, stage).await;
                approval_effect(status, stage, differences)
            }
            kind => pause_effect(status, *kind == DecisionKind::Pause),
        }
    }

    /// The differences of the target revision from those of the waiting clusters of a stage.
    async fn differences(
        &self,
        console: &Console,
        status: &RolloutStatus,
        stage: &str,
    ) -> anyhow::Result<Vec<RevisionDifference>> {
        let (namespace, binding) = &self.key;
        let (target, revisions) = (&status.target_revision, present_revisions(status, stage));
        revision_differences(&*console.api, (namespace, binding), target, revisions).await
    }

    fn warnings(&self, status: &RolloutStatus) -> Vec<String> {
        match &self.kind {
            DecisionKind::Approve(stage) if status.stage != *stage => vec![format!(
                "the rollout is in stage {}; this stage begins later",
                status.stage
            )],
            _ => Vec::new(),
        }
    }
}

#[async_trait]
impl PlannedAction for RolloutDecision {
    fn name(&self) -> &'static str {
        match self.kind {
            DecisionKind::Approve(_) => "approve",
            DecisionKind::Pause => "pause",
            DecisionKind::Resume => "resume",
        }
    }

    fn title(&self, console: &Console) -> String {
        let name = console.inventory.template_name(&self.key);
        match &self.kind {
            DecisionKind::Approve(stage) => format!("Approve stage {stage} of {name}"),
            DecisionKind::Pause => format!("Pause the rollout of {name}"),
            DecisionKind::Resume => format!("Resume the rollout of {name}"),
        }
    }

    fn subject(&self, console: &Console) -> ActionSubject {
        ActionSubject::workload(console, &self.key)
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        match &self.kind {
            DecisionKind::Approve(stage) => vec![("stage", stage.clone())],
            DecisionKind::Pause | DecisionKind::Resume => Vec::new(),
        }
    }

    async fn plan<'a>(&'a self, console: &'a Console) -> anyhow::Result<Option<ActionPlan<'a>>> {
        let view = WorkloadView::read(console, &self.key).await?;
        let status = view.rollout_status();
        let status = status.context("the rollout has no status yet")?;
        let rollout = view.inputs.rollout;
        let rollout =
            rollout.context("its changes are not staged, or you may not read its rollout")?;
        let staged = StagedTemplate {
            text: &view.report.template.name,
            template: &view.inputs.template,
            rollout: &rollout,
        };
        let change = match &self.kind {
            DecisionKind::Approve(stage) => staged.approval(ApprovalTarget {
                stage: Some(stage),
                without_clusters: false,
            })?,
            kind => staged.pausing(*kind == DecisionKind::Pause)?,
        };
        let done = match self.kind {
            DecisionKind::Approve(_) => "approved",
            DecisionKind::Pause => "paused",
            DecisionKind::Resume => "resumed",
        };
        Ok(Some(ActionPlan {
            version: text_digest(&staged.content_of(&change)?),
            effect: self.effect(console, &status).await,
            warnings: self.warnings(&status),
            write: Box::pin(async move {
                Ok(patch_rollout(&*console.api, &rollout, change.patch).await?)
            }),
            done: workload_path(&self.key, &[], &[("done", done)]),
        }))
    }
}

fn clusters_in(status: &RolloutStatus, is_in: impl Fn(RolloutPhase) -> bool) -> Vec<&str> {
    let clusters = status.stages.iter().flat_map(|stage| &stage.clusters);
    let clusters = clusters.filter(|cluster| is_in(cluster.phase));
    clusters.map(|cluster| &*cluster.name).collect()
}

fn is_waiting(phase: RolloutPhase) -> bool {
    matches!(phase, RolloutPhase::Pending | RolloutPhase::Blocked)
}

fn is_running(phase: RolloutPhase) -> bool {
    matches!(phase, RolloutPhase::Updating | RolloutPhase::Soaking)
}

/// The clusters of a stage that have not begun.
fn waiting_clusters<'a>(status: &'a RolloutStatus, stage: &str) -> Vec<&'a ClusterRolloutStatus> {
    let stages = status.stages.iter().filter(|other| other.name == stage);
    let clusters = stages.flat_map(|stage| &stage.clusters);
    clusters.filter(|c| is_waiting(c.phase)).collect()
}

/// The first revisions that the waiting clusters of a stage have.
fn present_revisions(status: &RolloutStatus, stage: &str) -> ClustersByRevision {
    let mut revisions = ClustersByRevision::new();
    for cluster in waiting_clusters(status, stage) {
        let has_entry = revisions.contains_key(&cluster.revision);
        if !cluster.revision.is_empty() && (has_entry || revisions.len() < MAX_REVISIONS) {
            let clusters = revisions.entry(cluster.revision.clone()).or_default();
            clusters.push(cluster.name.clone());
        }
    }
    revisions
}

fn approval_effect(
    status: &RolloutStatus,
    stage: &str,
    differences: anyhow::Result<Vec<RevisionDifference>>,
) -> Markup {
    let waiting = waiting_clusters(status, stage).into_iter();
    let names: Vec<&str> = waiting.map(|cluster| &*cluster.name).collect();
    html! {
        p { "The revision " code { (status.target_revision) } " may go to these clusters of the stage " strong { (stage) } ":" }
        (cluster_list(&names))
        @match differences {
            Ok(differences) => { @for difference in &differences { (difference_list(difference, &status.target_revision)) } }
            Err(error) => (notice("warn", "What it changes cannot be shown", &clipped(&format!("{error:#}")))),
        }
    }
}

/// The differences that clusters with one revision get.
fn difference_list(difference: &RevisionDifference, target: &str) -> Markup {
    let named = difference.clusters.iter().take(MAX_NAMED_CLUSTERS);
    let named: Vec<&str> = named.map(String::as_str).collect();
    let further = difference.clusters.len() - named.len();
    html! {
        h3 {
            "In " (named.join(", "))
            @if further > 0 { " and " (counted(further, "further cluster")) }
            ", which " @if further + named.len() == 1 { "has " } @else { "have " }
            code { (difference.revision) }
        }
        @if !difference.fields.is_empty() {
            ul .differences { @for field in &difference.fields { li { code { (field) } } } }
        } @else if difference.revision == target {
            p .muted { "Its content stays the same." }
        } @else {
            p .muted { "Its content changes; in which fields is not known." }
        }
    }
}

fn pause_effect(status: &RolloutStatus, paused: bool) -> Markup {
    let waiting = clusters_in(status, is_waiting);
    html! {
        @if paused {
            p { "No further cluster begins. These clusters keep their revision until the rollout is resumed:" }
            (cluster_list(&waiting))
            p { "These have begun and continue:" }
            (cluster_list(&clusters_in(status, is_running)))
        } @else {
            p { "These clusters may begin again, in the order of the stages and after their gates:" }
            (cluster_list(&waiting))
        }
    }
}

fn cluster_list(names: &[&str]) -> Markup {
    html! {
        @if names.is_empty() {
            p .muted { "none" }
        } @else {
            ul .chips { @for name in names { li .chip { (name) } } }
        }
    }
}
