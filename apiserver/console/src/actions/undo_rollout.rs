//! Writes a template back from one of its revisions.

use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use flotilla_cli::plan::plan_template;
use flotilla_cli::rollout::TemplateRollout;
use maud::{Markup, html};
use serde_json::json;

use super::planned_action::{ActionPlan, ActionSubject, PlannedAction};
use crate::console::Console;
use crate::inventory::ObjectKey;
use crate::pages::{PageContext, WorkloadView, workload_path};
use crate::session::text_digest;

/// Revisions to choose from, the newest first.
const MAX_CHOICES: usize = 50;

pub(super) struct UndoRollout {
    key: ObjectKey,
    /// The number of a revision; `None` until it is chosen.
    revision: Option<i64>,
}

impl UndoRollout {
    pub(super) fn new(key: ObjectKey, revision: &str) -> Self {
        Self {
            key,
            revision: revision.parse().ok(),
        }
    }

    async fn rollout(&self, console: &Console) -> anyhow::Result<TemplateRollout> {
        let inputs = WorkloadView::read(console, &self.key).await?.inputs;
        let rollout = inputs.rollout;
        let rollout =
            rollout.context("its changes are not staged, or you may not read its rollout")?;
        let api = Arc::clone(&console.api);
        Ok(TemplateRollout::new(
            api,
            inputs.api_resource,
            inputs.template,
            rollout,
        ))
    }
}

#[async_trait]
impl PlannedAction for UndoRollout {
    fn name(&self) -> &'static str {
        "undo a rollout"
    }

    fn title(&self, console: &Console) -> String {
        let name = console.inventory.template_name(&self.key);
        format!("Roll {name} back")
    }

    fn subject(&self, console: &Console) -> ActionSubject {
        ActionSubject::workload(console, &self.key)
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        let revision = self.revision.iter();
        revision
            .map(|number| ("revision", number.to_string()))
            .collect()
    }

    async fn input(&self, context: &PageContext<'_>) -> anyhow::Result<Markup> {
        let rollout = self.rollout(context.console).await?;
        let revisions = rollout.revisions().await?;
        let numbers = revisions.iter().rev().map(|(number, _)| *number);
        // The last one is what the template has.
        let chosen = self.revision.or_else(|| numbers.clone().nth(1));
        Ok(html! {
            form .filter.again method="get" {
                label {
                    "Revision "
                    select name="revision" required {
                        @for number in numbers.take(MAX_CHOICES) {
                            option value=(number) selected[Some(number) == chosen] { (number) }
                        }
                    }
                }
                button type="submit" { "Plan" }
            }
        })
    }

    async fn plan<'a>(&'a self, console: &'a Console) -> anyhow::Result<Option<ActionPlan<'a>>> {
        let Some(number) = self.revision else {
            return Ok(None);
        };
        let rollout = self.rollout(console).await?;
        let (_, content) = rollout.read_revision(Some(number)).await?;
        let template = rollout.revised(&content).await?;
        let template = template.with_context(|| format!("it already has revision {number}"))?;
        let lines = plan_template(&*console.api, template.clone()).await?;
        let metadata = &template["metadata"];
        let state = json!([metadata["uid"], metadata["generation"], number, content]);
        Ok(Some(ActionPlan {
            version: text_digest(&state.to_string()),
            effect: html! {
                p { "The template gets the content of revision " strong { (number) } ", and keeps its replicas." }
                pre .scroll tabindex="0" { (lines.join("\n")) }
            },
            warnings: Vec::new(),
            write: Box::pin(async move { rollout.write_template(template).await }),
            done: workload_path(&self.key, &[], &[("done", "rolled-back")]),
        }))
    }
}
