//! The commands `flotilla rollout status|history|pause|resume|approve|retry|abort|restart|undo`, which
//! read and decide about the Rollout of a template.

mod cluster_details;
pub mod decisions;
mod lost_stages;
mod requests;
mod restart;
pub(crate) mod revision_differences;
mod template_rollout;
mod tree;
mod undo;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use client::{ResourcePath, ShutdownToken, TaskGroup, WatchEvent, WatchOptions};
use futures_util::StreamExt;
use karmada_api::resources::BINDINGS;
use karmada_api::rollout::{ROLLOUTS, RolloutPhase, RolloutPolicySpec, RolloutStatus};
use karmada_api::{ResourceBinding, Rollout};
use machinery::Object;

use crate::conflicts::retry_on_conflict;
use crate::output::{self, RedrawnText};
use crate::printers::{format_table, single_line};
pub(crate) use cluster_details::{BEING_DELETED, batch_text, reason_text};
pub use cluster_details::{cluster_details, job_details};
use decisions::{ApprovalTarget, RolloutChange, StagedTemplate, awaits_decision, status_of};
pub(crate) use lost_stages::ListedRollouts;
pub use revision_differences::{ClustersByRevision, RevisionDifference, revision_differences};
pub(crate) use template_rollout::TemplateArgs;
pub use template_rollout::TemplateRollout;
pub use template_rollout::patch_rollout;
use tree::format_tree;
use undo::undo;

/// Follow and steer how a change of a template goes through its clusters.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla rollout status deployment/api\n  flotilla rollout pause deployment/api"
)]
pub struct RolloutArgs {
    #[command(subcommand)]
    command: RolloutCommand,
}

#[derive(Subcommand)]
enum RolloutCommand {
    /// Show the stages and clusters of a rollout.
    #[command(after_help = "Example:\n  flotilla rollout status deployment/api")]
    Status(StatusArgs),
    /// Show the revisions of a template.
    #[command(after_help = "Example:\n  flotilla rollout history deployment/api")]
    History(TemplateArgs),
    /// Let no further cluster begin; those that have begun continue.
    #[command(after_help = "Example:\n  flotilla rollout pause deployment/api")]
    Pause(TemplateArgs),
    /// Let clusters begin again.
    #[command(after_help = "Example:\n  flotilla rollout resume deployment/api")]
    Resume(TemplateArgs),
    /// Approve a stage for the revision that is rolled out.
    ///
    /// A stage whose clusters have all left before they had ended, such as a canary that was drained,
    /// is not passed unless it is approved with --without-clusters.
    #[command(
        after_help = "Example:\n  flotilla rollout approve deployment/api --stage everywhere"
    )]
    Approve(ApproveArgs),
    /// Let the clusters that have failed begin again, or a rollout that was rolled back.
    ///
    /// Each of them has the whole progress deadline again.
    #[command(after_help = "Example:\n  flotilla rollout retry deployment/api")]
    Retry(TemplateArgs),
    /// Return all clusters to the revision before, until the template changes.
    ///
    /// They return at once, as after a failure with `onFailure: Rollback`. The template stays as it
    /// is; `flotilla rollout retry` lets it begin again.
    #[command(after_help = "Example:\n  flotilla rollout abort deployment/api")]
    Abort(TemplateArgs),
    /// Restart the pods of a template, in one stage after the other.
    ///
    /// Writes the annotation `kubectl.kubernetes.io/restartedAt` into the pod template, as kubectl
    /// rollout restart does.
    #[command(after_help = "Example:\n  flotilla rollout restart deployment/api")]
    Restart(TemplateArgs),
    /// Write the template back from one of its revisions, with its present replicas.
    ///
    /// The template then goes through its clusters as after any change; a return to the revision
    /// that has gone through all stages last goes to all at once. Override policies stay as they
    /// are. A GitOps tool that owns the template will write it again.
    #[command(
        after_help = "Examples:\n  flotilla rollout undo deployment/api\n  flotilla rollout undo deployment/api --to-revision 2"
    )]
    Undo(UndoArgs),
}

#[derive(Args)]
struct StatusArgs {
    #[command(flatten)]
    template: TemplateArgs,
    /// Print each change, until the rollout has ended; on a terminal, a tree that is drawn again.
    #[arg(short, long)]
    watch: bool,
}

#[derive(Args)]
struct UndoArgs {
    #[command(flatten)]
    template: TemplateArgs,
    /// The number of the revision; by default of the last one before that has gone through all stages.
    #[arg(long, value_name = "NUMBER")]
    to_revision: Option<i64>,
}

#[derive(Args)]
struct ApproveArgs {
    #[command(flatten)]
    template: TemplateArgs,
    /// The stage; by default the one that waits.
    #[arg(long, value_name = "STAGE")]
    stage: Option<String>,
    /// Let a stage pass without the target, whose clusters have all left before they had ended.
    #[arg(long)]
    without_clusters: bool,
}

pub async fn run(arguments: RolloutArgs) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let done = Box::pin(run_command(&arguments.command, &tasks)).await;
    tasks.stop().await;
    done
}

async fn run_command(command: &RolloutCommand, tasks: &TaskGroup) -> anyhow::Result<()> {
    match command {
        RolloutCommand::Status(arguments) => {
            if arguments.watch {
                let rollout = TemplateRollout::read_or_await(&arguments.template, tasks).await?;
                return rollout.watch().await;
            }
            let rollout = TemplateRollout::read(&arguments.template, tasks).await?;
            output::print_line(rollout.status_text()?);
            Ok(())
        }
        RolloutCommand::History(arguments) => {
            let rollout = TemplateRollout::read(arguments, tasks).await?;
            rollout.print_history().await
        }
        RolloutCommand::Pause(arguments) => {
            let rollout = TemplateRollout::read(arguments, tasks).await?;
            rollout.pause(true).await
        }
        RolloutCommand::Resume(arguments) => {
            let rollout = TemplateRollout::read(arguments, tasks).await?;
            rollout.pause(false).await
        }
        RolloutCommand::Approve(arguments) => {
            let rollout = TemplateRollout::read(&arguments.template, tasks).await?;
            let target = ApprovalTarget {
                stage: arguments.stage.as_deref(),
                without_clusters: arguments.without_clusters,
            };
            rollout.approve(target).await
        }
        RolloutCommand::Retry(arguments) => {
            let rollout = TemplateRollout::read(arguments, tasks).await?;
            rollout.retry().await
        }
        RolloutCommand::Abort(arguments) => {
            let rollout = TemplateRollout::read(arguments, tasks).await?;
            rollout.abort().await
        }
        RolloutCommand::Restart(arguments) => {
            let rollout = TemplateRollout::read(arguments, tasks).await?;
            rollout.restart().await
        }
        RolloutCommand::Undo(arguments) => {
            let rollout = TemplateRollout::read(&arguments.template, tasks).await?;
            undo(&rollout, arguments.to_revision).await
        }
    }
}

impl TemplateRollout {
    /// Decides about the Rollout and writes that, anew where its controller has written it meanwhile.
    /// Returns the outcome.
    pub(crate) async fn apply_decision(
        &self,
        decision: impl Fn(&StagedTemplate<'_>) -> anyhow::Result<RolloutChange>,
    ) -> anyhow::Result<String> {
        let at = ResourcePath::of_object(&ROLLOUTS, &self.object);
        retry_on_conflict(|| async {
            let rollout = self.api.get(at).await?;
            let change = decision(&StagedTemplate {
                rollout: &rollout,
                ..self.staged()
            })?;
            patch_rollout(&*self.api, &rollout, change.patch).await?;
            Ok(change.outcome)
        })
        .await
    }

    /// Approves a stage, by default the one that waits.
    async fn approve(&self, target: ApprovalTarget<'_>) -> anyhow::Result<()> {
        let view = self.object.decode::<Rollout>()?;
        let status = status_of(&view)?;
        if target.stage.is_none() && !awaits_decision(status) {
            let policy = self.policy(status).await.unwrap_or_default();
            bail!(no_waiting_stage(&self.text, &view, status, &policy));
        }
        let approved = self.apply_decision(|staged| staged.approval(target));
        output::print_line(approved.await?);
        Ok(())
    }

    async fn pause(&self, paused: bool) -> anyhow::Result<()> {
        let done = self.apply_decision(|staged| staged.pausing(paused));
        output::print_line(done.await?);
        Ok(())
    }

    /// Prints the status at each change, until all stages have ended: on a terminal as a tree in place
    /// of the last one, elsewhere as a line, unless it is the line before.
    async fn watch(&self) -> anyhow::Result<()> {
        let at = ResourcePath::of_object(&ROLLOUTS, &self.object);
        let options = WatchOptions {
            resource_version: self.object.revision().to_string(),
            ..WatchOptions::default()
        };
        let mut events = self.api.watch(at, &options).await?;
        let mut object = self.object.clone();
        let mut tree = RedrawnText::default();
        let mut last_line = String::new();
        loop {
            let view = object.decode::<Rollout>()?;
            let status = view.status.as_ref();
            let staged = StagedTemplate {
                rollout: &object,
                ..self.staged()
            };
            if let Some(status) = status.filter(|status| staged.is_current(status)) {
                let summary = summary(&self.text, &object, status);
                match RedrawnText::is_in_place() {
                    true => tree.print(&format_tree(&summary, status)),
                    false if summary == last_line => {}
                    false => output::print_line(&summary),
                }
                last_line = summary;
                match &*status.state {
                    "Completed" if self.awaits_placement(status).await? => {}
                    "Completed" => return Ok(()),
                    "Degraded" => bail!("{} has ended with failed clusters", self.text),
                    "RolledBack" => bail!("{} was rolled back", self.text),
                    _ => {}
                }
            }
            let event = events.next().await;
            match event.context("the watch has ended; run the command again")?? {
                WatchEvent::Added(next) | WatchEvent::Modified(next) => object = next,
                WatchEvent::Deleted(_) => bail!("the rollout was deleted"),
                WatchEvent::Bookmark { .. } => {}
            }
        }
    }

    /// Whether a rollout has no cluster yet, since its template has just been created or no cluster
    /// fits it.
    async fn awaits_placement(&self, status: &RolloutStatus) -> anyhow::Result<bool> {
        if status.stages.iter().any(|stage| !stage.clusters.is_empty()) {
            return Ok(false);
        }
        let at = ResourcePath::object(&BINDINGS, self.object.namespace(), self.object.name());
        let binding = self.api.get(at).await?;
        let placement = &binding.decode::<ResourceBinding>()?.spec.placement;
        Ok(placement
            .as_ref()
            .is_some_and(|placement| !placement.is_nowhere()))
    }

    /// A line about the rollout, and one for each cluster.
    pub(crate) fn status_text(&self) -> anyhow::Result<String> {
        let view = self.object.decode::<Rollout>()?;
        let status = status_of(&view)?;
        let mut rows = Vec::new();
        for stage in &status.stages {
            for cluster in &stage.clusters {
                let details = cluster_details(cluster, &status.target_revision);
                rows.push(vec![
                    stage.name.clone(),
                    cluster.name.clone(),
                    cluster.phase.as_str().to_owned(),
                    cluster.since.clone(),
                    cluster.revision.clone(),
                    details,
                ]);
            }
            if let Some(job) = &stage.job {
                rows.push(vec![
                    stage.name.clone(),
                    String::new(),
                    job.state.as_str().to_owned(),
                    job.since.clone(),
                    String::new(),
                    job_details(job),
                ]);
            }
        }
        let titles = ["STAGE", "CLUSTER", "PHASE", "SINCE", "REVISION", "DETAILS"];
        let summary = match self.staged().is_current(status) {
            true => summary(&self.text, &self.object, status),
            false => format!("{}: its last change is not in the rollout yet", self.text),
        };
        let table = format_table(&titles, &rows);
        Ok(format!("{summary}\n{}", table.trim_end()))
    }

    async fn print_history(&self) -> anyhow::Result<()> {
        let view = self.object.decode::<Rollout>()?;
        let status = status_of(&view)?;
        let clusters = |revision: &Object| {
            let clusters = status.stages.iter().flat_map(|stage| &stage.clusters);
            let clusters = clusters.filter(|c| c.phase != RolloutPhase::Skipped);
            clusters.filter(|c| c.revision == revision.name()).count()
        };
        let revisions = self.revisions().await?;
        let row = |(number, revision): &(i64, Object)| {
            let clusters = clusters(revision).to_string();
            vec![number.to_string(), revision.name().to_owned(), clusters]
        };
        let rows: Vec<Vec<String>> = revisions.iter().map(row).collect();
        output::print_line(format_table(&["REVISION", "NAME", "CLUSTERS"], &rows).trim_end());
        Ok(())
    }
}

/// Why no stage can be approved without its name, with those that have not begun and need an
/// approval.
fn no_waiting_stage(
    template: &str,
    view: &Rollout,
    status: &RolloutStatus,
    policy: &RolloutPolicySpec,
) -> String {
    let is_approved = |stage: &str| {
        let mut approvals = view.spec.approvals.iter();
        approvals.any(|a| a.stage == stage && a.revision == status.target_revision)
    };
    let stages = policy.stages.iter().filter(|stage| stage.gates.approval);
    let later = stages.filter(|stage| {
        let mut stages = status.stages.iter();
        let has_begun = stages.any(|other| {
            let mut clusters = other.clusters.iter();
            other.name == stage.name && clusters.any(|c| c.revision == status.target_revision)
        });
        !has_begun && !is_approved(&stage.name)
    });
    let names: Vec<&str> = later.map(|stage| &*stage.name).collect();
    match names.is_empty() {
        true => format!("no stage of {template} waits for an approval"),
        false => format!(
            "no stage of {template} waits for an approval yet; those that will are {}: name one with --stage",
            names.join(", ")
        ),
    }
}

/// One line about the rollout.
fn summary(template: &str, rollout: &Object, status: &RolloutStatus) -> String {
    let stage = match &*status.stage {
        "" => String::new(),
        stage => format!(" in stage {stage}"),
    };
    let message = match &*status.message {
        "" => String::new(),
        message => format!(": {message}"),
    };
    let deletion = match rollout.meta().deleting {
        true => format!("; {BEING_DELETED}"),
        false => String::new(),
    };
    single_line(&format!(
        "{template}: {}{stage}, {} clusters done{message}{deletion}",
        status.state, status.progress
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: CLI-rollout-message
    #[test]
    fn the_summary_says_what_the_rollout_waits_for_and_that_it_is_being_deleted() {
        let status = |message: &str| {
            let status = json!({"state": "AwaitingCluster", "stage": "canary", "progress": "0/1",
                "message": message});
            serde_json::from_value::<RolloutStatus>(status).unwrap()
        };
        let rollout = |deletion: Option<&str>| {
            let metadata = json!({"name": "r", "namespace": "n", "deletionTimestamp": deletion});
            Object::from_value(&json!({"metadata": metadata})).unwrap()
        };
        let begin = "web: AwaitingCluster in stage canary, 0/1 clusters done";
        let line = summary("web", &rollout(None), &status(""));
        assert_eq!(line, begin);
        let line = summary("web", &rollout(None), &status("no\ncluster"));
        assert_eq!(line, format!("{begin}: no cluster"));
        let line = summary("web", &rollout(Some("2026-01-01T00:00:00Z")), &status(""));
        assert_eq!(line, format!("{begin}; {BEING_DELETED}"));
    }
}
