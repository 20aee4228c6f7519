//! Undoes the last move of a workload.

use std::sync::Arc;

use async_trait::async_trait;
use flotilla_cli::history::MovedTemplate;
use maud::html;

use super::placement_table::replica_table;
use super::planned_action::{ActionPlan, ActionSubject, PlannedAction};
use crate::console::Console;
use crate::inventory::ObjectKey;
use crate::pages::{WorkloadView, workload_path};
use crate::session::text_digest;

pub(super) struct UndoMove {
    pub(super) key: ObjectKey,
}

#[async_trait]
impl PlannedAction for UndoMove {
    fn name(&self) -> &'static str {
        "undo a move"
    }

    fn title(&self, console: &Console) -> String {
        let name = console.inventory.template_name(&self.key);
        format!("Undo the last move of {name}")
    }

    fn subject(&self, console: &Console) -> ActionSubject {
        ActionSubject::workload(console, &self.key)
    }

    async fn plan<'a>(&'a self, console: &'a Console) -> anyhow::Result<Option<ActionPlan<'a>>> {
        let inputs = WorkloadView::read(console, &self.key).await?.inputs;
        let api = Arc::clone(&console.api);
        let template = MovedTemplate::of_template(api, &inputs.api_resource, inputs.template);
        let template = template.await?;
        let planned = template.plan_undo().await?;
        let policy = template.undo(&planned, true).await?;
        let warnings = policy.iter().map(|name| {
            format!("the policy {name} gets its former placement; a GitOps tool that owns it writes its own again")
        });
        Ok(Some(ActionPlan {
            version: text_digest(&planned.content()),
            effect: html! {
                p { "It returns to the clusters and replicas that it had before its last move:" }
                (replica_table(planned.clusters_before(), planned.clusters_after()))
            },
            warnings: warnings.collect(),
            write: Box::pin(async move {
                template.undo(&planned, false).await?;
                Ok(())
            }),
            done: workload_path(&self.key, &[], &[("done", "moved-back")]),
        }))
    }
}
