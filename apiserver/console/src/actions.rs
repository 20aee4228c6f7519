//! Actions on a workload. Each shows its plan first; the form of the plan has a digest of the change and of
//! the state that it is about, and nothing else is done.

use anyhow::{Context, ensure};
use client::{Patch, ResourcePath, WriteOptions};
use flotilla_cli::conflicts::retry_on_conflict;
use flotilla_cli::plan::{self, report::TemplatePlacementReport};
use flotilla_cli::rollout::decisions::{RolloutChange, StagedTemplate};
use flotilla_cli::rollout::patch_rollout;
use http::StatusCode;
use karmada_api::TargetCluster;
use karmada_api::rollout::{RolloutPhase, RolloutStatus};
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::inventory::ObjectKey;
use crate::pages::{PageContext, WorkloadView, action_layout, notice, object_key, workload_path};
use crate::query::QueryParameters;
use crate::session::text_digest;

const MAX_REPLICAS: i64 = i32::MAX as i64;

#[derive(Clone, Debug, PartialEq, Eq)]
enum ActionKind {
    Approve {
        stage: String,
    },
    Pause,
    Resume,
    /// `None`: a number that cannot be read.
    Scale {
        replicas: Option<i64>,
    },
}

/// An action on a workload, as its path and parameters name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Action {
    key: ObjectKey,
    kind: ActionKind,
}

/// The effect that an action would have.
struct ActionPlan {
    /// The digest of the change and of the state that it is about.
    version: String,
    effect: Markup,
    warning: Option<String>,
}

impl Action {
    pub(crate) fn parse(path: &[&str], parameters: &QueryParameters) -> Option<Self> {
        let ["workloads", namespace, name, action] = *path else {
            return None;
        };
        let kind = match action {
            "approve" => ActionKind::Approve {
                stage: parameters.get("stage").to_owned(),
            },
            "pause" => ActionKind::Pause,
            "resume" => ActionKind::Resume,
            "scale" => ActionKind::Scale {
                replicas: parameters
                    .get("replicas")
                    .parse()
                    .ok()
                    .filter(|replicas| (0..=MAX_REPLICAS).contains(replicas)),
            },
            _ => return None,
        };
        Some(Self {
            key: object_key(namespace, name),
            kind,
        })
    }

    fn path(&self) -> &'static str {
        match self.kind {
            ActionKind::Approve { .. } => "approve",
            ActionKind::Pause => "pause",
            ActionKind::Resume => "resume",
            ActionKind::Scale { .. } => "scale",
        }
    }

    fn title(&self, context: &PageContext<'_>) -> String {
        let name = context.console.inventory.template_name(&self.key);
        match &self.kind {
            ActionKind::Approve { stage } => format!("Approve stage {stage} of {name}"),
            ActionKind::Pause => format!("Pause the rollout of {name}"),
            ActionKind::Resume => format!("Resume the rollout of {name}"),
            ActionKind::Scale { .. } => format!("Scale {name}"),
        }
    }

    /// The word for what was done, in the address of the workload's page.
    fn done(&self) -> &'static str {
        match self.kind {
            ActionKind::Approve { .. } => "approved",
            ActionKind::Pause => "paused",
            ActionKind::Resume => "resumed",
            ActionKind::Scale { .. } => "scaled",
        }
    }

    /// The page with the plan, and the form that executes it.
    pub(crate) async fn plan_page(&self, context: &PageContext<'_>) -> (StatusCode, Markup) {
        match Box::pin(self.plan(context)).await {
            Ok(plan) => (StatusCode::OK, self.plan_markup(context, &plan)),
            Err(error) => (StatusCode::CONFLICT, self.failure_page(context, &error)),
        }
    }

    fn plan_markup(&self, context: &PageContext<'_>, plan: &ActionPlan) -> Markup {
        let back = workload_path(&self.key, &[], &[]);
        let title = self.title(context);
        let content = html! {
            p .back { a href=(back) { "Back to " (context.console.inventory.template_name(&self.key)) } }
            @if let ActionKind::Scale { replicas } = &self.kind {
                form .filter method="get" {
                    label {
                        "Replicas "
                        input type="number" name="replicas" min="0" max=(MAX_REPLICAS) value=[*replicas] required;
                    }
                    button type="submit" { "Plan" }
                }
            }
            section aria-labelledby="plan" {
                h2 #plan { "What will happen" }
                (plan.effect)
                @if let Some(warning) = &plan.warning { (notice("warn", "Note", warning)) }
            }
            form .confirm method="post" {
                input type="hidden" name="token" value=(context.session.form_token);
                input type="hidden" name="version" value=(plan.version);
                @match &self.kind {
                    ActionKind::Approve { stage } => { input type="hidden" name="stage" value=(stage); }
                    ActionKind::Scale { replicas } => { input type="hidden" name="replicas" value=[*replicas]; }
                    ActionKind::Pause | ActionKind::Resume => {}
                }
                button #confirm .primary type="submit" { (title) }
                a .button href=(back) { "Cancel" }
            }
        };
        action_layout(context, &title, &content)
    }

    fn failure_page(&self, context: &PageContext<'_>, error: &anyhow::Error) -> Markup {
        let content = html! {
            (notice("bad", "This cannot be done", &format!("{error:#}")))
            p { a href=(workload_path(&self.key, &[], &[])) { "Back to " (context.console.inventory.template_name(&self.key)) } }
        };
        action_layout(context, &self.title(context), &content)
    }

    async fn plan(&self, context: &PageContext<'_>) -> anyhow::Result<ActionPlan> {
        let view = WorkloadView::read(context.console, &self.key).await?;
        match &self.kind {
            ActionKind::Approve { stage } => {
                let (staged, status) = staged(&view)?;
                Ok(ActionPlan {
                    version: self.rollout_change(&staged)?.1,
                    effect: approval_effect(&status, stage),
                    warning: (status.stage != *stage).then(|| {
                        format!(
                            "the rollout is in stage {}; this stage begins later",
                            status.stage
                        )
                    }),
                })
            }
            ActionKind::Pause | ActionKind::Resume => {
                let paused = self.kind == ActionKind::Pause;
                let (staged, status) = staged(&view)?;
                Ok(ActionPlan {
                    version: self.rollout_change(&staged)?.1,
                    effect: pause_effect(&status, paused),
                    warning: None,
                })
            }
            ActionKind::Scale { replicas } => {
                let replicas = replicas.context("the replicas must be a whole number from 0")?;
                Box::pin(plan_scale(context, &view, replicas)).await
            }
        }
    }

    /// Writes what the form's plan said, and returns the address of the workload's page, or a page that
    /// says why nothing was written.
    pub(crate) async fn execute(
        &self,
        form: &QueryParameters,
        context: &PageContext<'_>,
    ) -> Result<String, Markup> {
        let version = form.get("version");
        let written = retry_on_conflict(|| Box::pin(self.write(version, context)));
        match written.await {
            Ok(()) => {
                tracing::info!(action = self.path(), workload = %self.key.1, "an action was executed");
                Ok(workload_path(&self.key, &[], &[("done", self.done())]))
            }
            Err(error) => Err(self.failure_page(context, &error)),
        }
    }

    async fn write(&self, version: &str, context: &PageContext<'_>) -> anyhow::Result<()> {
        let view = WorkloadView::read(context.console, &self.key).await?;
        let check = |current: &str| {
            ensure!(
                current == version,
                "it has changed since the plan was shown; look at the plan again"
            );
            Ok(())
        };
        let api = &context.console.api;
        if let ActionKind::Scale { replicas } = &self.kind {
            let replicas = replicas.context("the replicas must be a whole number from 0")?;
            check(&scale_version(&view, replicas))?;
            let (at, patch) = scale_patch(&view, replicas)?;
            api.patch(at, patch, &WriteOptions::default()).await?;
            return Ok(());
        }
        let (staged, _) = staged(&view)?;
        let (change, current) = self.rollout_change(&staged)?;
        check(&current)?;
        Ok(patch_rollout(&**api, staged.rollout, change.patch).await?)
    }

    /// The change of a rollout, and the version of its plan.
    fn rollout_change(
        &self,
        staged: &StagedTemplate<'_>,
    ) -> anyhow::Result<(RolloutChange, String)> {
        let change = match &self.kind {
            ActionKind::Approve { stage } => staged.approval(Some(stage))?,
            kind => staged.pausing(*kind == ActionKind::Pause)?,
        };
        let version = text_digest(&staged.content_of(&change)?);
        Ok((change, version))
    }
}

/// The rollout of the workload, which must have a status.
fn staged(view: &WorkloadView) -> anyhow::Result<(StagedTemplate<'_>, RolloutStatus)> {
    let rollout = view.inputs.rollout.as_ref();
    let rollout = rollout.context("its changes are not staged, or you may not read its rollout")?;
    let status = view
        .rollout_status()
        .context("the rollout has no status yet")?;
    let staged = StagedTemplate {
        text: &view.report.template.name,
        template: &view.inputs.template,
        rollout,
    };
    Ok((staged, status))
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

fn approval_effect(status: &RolloutStatus, stage: &str) -> Markup {
    let stages = status.stages.iter().filter(|other| other.name == stage);
    let clusters = stages.flat_map(|stage| &stage.clusters);
    let waiting = clusters.filter(|cluster| is_waiting(cluster.phase));
    let waiting: Vec<&str> = waiting.map(|cluster| &*cluster.name).collect();
    html! {
        p { "The revision " code { (status.target_revision) } " may go to these clusters of the stage " strong { (stage) } ":" }
        (cluster_list(&waiting))
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

/// The version of a plan to scale: whatever else the status of the template says by then, it holds.
fn scale_version(view: &WorkloadView, replicas: i64) -> String {
    let template = &view.inputs.template;
    let state = json!([template.uid(), template.meta().generation, replicas]);
    text_digest(&state.to_string())
}

fn scale_patch(view: &WorkloadView, replicas: i64) -> anyhow::Result<(ResourcePath<'_>, Patch)> {
    ensure!(view.replicas().is_some(), "{} has no replicas", view.text());
    let template = &view.inputs.template;
    let at = ResourcePath::of_object(&view.inputs.api_resource.resource, template);
    let version = template.revision().to_string();
    let patch: Value =
        json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}});
    Ok((at, Patch::Merge(patch)))
}

/// Where the replicas would go, by the server's own functions, for the template as the server would
/// store it.
async fn plan_scale(
    context: &PageContext<'_>,
    view: &WorkloadView,
    replicas: i64,
) -> anyhow::Result<ActionPlan> {
    let api = &context.console.api;
    let (at, patch) = scale_patch(view, replicas)?;
    let options = WriteOptions {
        dry_run: true,
        ..WriteOptions::default()
    };
    let scaled = api.patch(at, patch, &options).await?;
    let kind = &view.inputs.api_resource;
    let placement = plan::plan_placement(&**api, kind, scaled).await?;
    let placement = placement.context("the plan is empty")?;
    let before = view.replicas().unwrap_or_default();
    Ok(ActionPlan {
        version: scale_version(view, replicas),
        warning: placement.held.clone().or_else(|| placement.failure.clone()),
        effect: html! {
            p { "The template gets " strong { (replicas) } " replicas instead of " (before) "." }
            (placement_table(&placement))
        },
    })
}

fn placement_table(placement: &TemplatePlacementReport) -> Markup {
    let replicas = |targets: &[TargetCluster], name: &str| {
        let target = targets.iter().find(|target| target.name == name);
        target.map(|target| target.replicas)
    };
    let mut names: Vec<&str> = placement.now.iter().map(|target| &*target.name).collect();
    names.extend(placement.then.iter().map(|target| &*target.name));
    names.sort_unstable();
    names.dedup();
    let text = |replicas: Option<i64>| replicas.map_or("–".to_owned(), |n| n.to_string());
    html! {
        table .plan {
            caption .visually-hidden { "Replicas by cluster" }
            thead {
                tr {
                    th scope="col" { "Cluster" }
                    th scope="col" .number { "Now" }
                    th scope="col" .number { "Then" }
                }
            }
            tbody {
                @for name in names {
                    @let (now, then) = (replicas(&placement.now, name), replicas(&placement.then, name));
                    tr .chosen[now != then] {
                        th scope="row" .name { (name) }
                        td .number { (text(now)) }
                        td .number { (text(then)) }
                    }
                }
            }
        }
    }
}
