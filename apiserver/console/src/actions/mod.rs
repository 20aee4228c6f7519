//! Actions. Each shows its plan first; the form of the plan has a digest of the change and of the state
//! that it is about, and nothing else is done.
//!
//! request ──► [`Action`] ──► [`planned_action::PlannedAction::plan`] ──► page with the plan ──form──► the same plan again ──► write

mod cluster_actions;
mod move_workload;
mod placement_table;
mod planned_action;
mod policy_change;
mod rollout_decision;
mod scale;
mod undo_move;
mod undo_rollout;

use anyhow::{Context, ensure};
use flotilla_cli::conflicts::retry_on_conflict;
use http::StatusCode;
use maud::{Markup, html};

use crate::pages::{PageContext, action_layout, notice, object_key};
use crate::query::QueryParameters;
use cluster_actions::{Cordon, Drain};
use move_workload::MoveWorkload;
use planned_action::{ActionPlan, PlannedAction};
use policy_change::PolicyChange;
use rollout_decision::{DecisionKind, RolloutDecision};
use scale::Scale;
use undo_move::UndoMove;
use undo_rollout::UndoRollout;

/// A change that a path and its parameters name.
pub(crate) struct Action(Box<dyn PlannedAction>);

impl Action {
    pub(crate) fn parse(path: &[&str], parameters: &QueryParameters) -> Option<Self> {
        Some(Self(match *path {
            ["workloads", namespace, name, action] => {
                let key = object_key(namespace, name);
                let decision = |kind| Box::new(RolloutDecision::new(key.clone(), kind));
                match action {
                    "approve" => {
                        decision(DecisionKind::Approve(parameters.get("stage").to_owned()))
                    }
                    "pause" => decision(DecisionKind::Pause),
                    "resume" => decision(DecisionKind::Resume),
                    "scale" => Box::new(Scale::new(key, parameters.get("replicas"))),
                    "move" => Box::new(MoveWorkload::new(key, parameters)),
                    "undo" => Box::new(UndoMove { key }),
                    "rollback" => Box::new(UndoRollout::new(key, parameters.get("revision"))),
                    _ => return None,
                }
            }
            ["clusters", cluster, action] => {
                let cluster = cluster.to_owned();
                match action {
                    "cordon" | "uncordon" => Box::new(Cordon {
                        cluster,
                        unschedulable: action == "cordon",
                    }),
                    "drain" => Box::new(Drain { cluster }),
                    _ => return None,
                }
            }
            ["policies", "new"] => Box::new(PolicyChange::new(None, parameters)),
            ["policies", namespace, name, "change"] => {
                let key = object_key(namespace, name);
                Box::new(PolicyChange::new(Some(key), parameters))
            }
            _ => return None,
        }))
    }

    /// The page with the plan, and the form that executes it.
    pub(crate) async fn plan_page(&self, context: &PageContext<'_>) -> (StatusCode, Markup) {
        let plan = self.0.plan(context.console).await;
        let status = match plan {
            Ok(_) => StatusCode::OK,
            Err(_) => StatusCode::CONFLICT,
        };
        (status, self.page(context, plan).await)
    }

    /// Executes the plan of a form, and returns the address of the page that shows it, or a page that
    /// says why nothing was written. A form without a plan gets its plan.
    pub(crate) async fn execute(
        &self,
        form: &QueryParameters,
        context: &PageContext<'_>,
    ) -> Result<String, (StatusCode, Markup)> {
        let version = form.get("version");
        if version.is_empty() {
            return Err(self.plan_page(context).await);
        }
        match retry_on_conflict(|| self.write(version, context)).await {
            Ok(path) => {
                let (action, subject) = (self.0.name(), self.0.subject(context.console).name);
                let user = context.console.user_name.as_deref();
                tracing::info!(action, subject, user, "an action was executed");
                Ok(path)
            }
            Err(error) => Err((StatusCode::CONFLICT, self.page(context, Err(error)).await)),
        }
    }

    async fn write(&self, version: &str, context: &PageContext<'_>) -> anyhow::Result<String> {
        let plan = self.0.plan(context.console).await?;
        let plan = plan.context("there is nothing to do")?;
        ensure!(
            plan.version == version,
            "it has changed since the plan was shown; look at the plan again"
        );
        plan.write.await?;
        Ok(plan.done)
    }

    async fn page(
        &self,
        context: &PageContext<'_>,
        plan: anyhow::Result<Option<ActionPlan<'_>>>,
    ) -> Markup {
        let subject = self.0.subject(context.console);
        let title = self.0.title(context.console);
        let input = self.0.input(context).await;
        let content = html! {
            p .back { a href=(subject.path) { "Back to " (subject.name) } }
            @match &plan {
                Ok(Some(plan)) => {
                    section aria-labelledby="plan" {
                        h2 #plan { "What will happen" }
                        (plan.effect)
                        @for warning in &plan.warnings { (notice("warn", "Note", warning)) }
                    }
                    form .confirm method="post" {
                        input type="hidden" name="token" value=(context.session.form_token);
                        input type="hidden" name="version" value=(plan.version);
                        @for (name, value) in self.0.fields() {
                            input type="hidden" name=(name) value=(value);
                        }
                        button #confirm .primary type="submit" { (self.0.verb(context.console)) }
                        a .button href=(subject.path) { "Cancel" }
                    }
                }
                Ok(None) => {}
                Err(error) => (notice("bad", "This cannot be done", &format!("{error:#}"))),
            }
            @match input {
                Ok(input) => (input),
                Err(error) => (notice("bad", "This cannot be shown", &format!("{error:#}"))),
            }
        };
        action_layout(context, subject.navigation, &title, &content)
    }
}
