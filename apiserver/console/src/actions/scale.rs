//! Scaling of a template.

use anyhow::Context;
use async_trait::async_trait;
use client::{Patch, ResourcePath, WriteOptions};
use flotilla_cli::plan;
use maud::{Markup, html};
use serde_json::json;

use super::placement_table::replica_table;
use super::planned_action::{ActionPlan, ActionSubject, PlannedAction};
use crate::console::Console;
use crate::inventory::ObjectKey;
use crate::pages::{PageContext, WorkloadView, workload_path};
use crate::session::text_digest;

const MAX_REPLICAS: i64 = i32::MAX as i64;

pub(super) struct Scale {
    key: ObjectKey,
    /// `None`: a number that cannot be read.
    replicas: Option<i64>,
}

impl Scale {
    pub(super) fn new(key: ObjectKey, replicas: &str) -> Self {
        let replicas = replicas.parse().ok();
        Self {
            key,
            replicas: replicas.filter(|replicas| (0..=MAX_REPLICAS).contains(replicas)),
        }
    }
}

#[async_trait]
impl PlannedAction for Scale {
    fn name(&self) -> &'static str {
        "scale"
    }

    fn title(&self, console: &Console) -> String {
        format!("Scale {}", console.inventory.template_name(&self.key))
    }

    fn subject(&self, console: &Console) -> ActionSubject {
        ActionSubject::workload(console, &self.key)
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        let replicas = self.replicas.iter();
        replicas
            .map(|number| ("replicas", number.to_string()))
            .collect()
    }

    async fn input(&self, _context: &PageContext<'_>) -> anyhow::Result<Markup> {
        Ok(html! {
            form .filter.again method="get" {
                label {
                    "Replicas "
                    input type="number" name="replicas" min="0" max=(MAX_REPLICAS) value=[self.replicas] required;
                }
                button type="submit" { "Plan" }
            }
        })
    }

    /// Where the replicas would go, by the server's own functions, for the template as the server
    /// would store it. Whatever else the status of the template says by then, the plan holds.
    async fn plan<'a>(&'a self, console: &'a Console) -> anyhow::Result<Option<ActionPlan<'a>>> {
        let view = WorkloadView::read(console, &self.key).await?;
        let replicas = self.replicas;
        let replicas = replicas.context("the replicas must be a whole number from 0")?;
        let before = view.replicas();
        let before = before.with_context(|| format!("{} has no replicas", view.text()))?;
        let (api_resource, template) = (view.inputs.api_resource, view.inputs.template);
        let patch = json!({"metadata": {"resourceVersion": template.revision().to_string()},
            "spec": {"replicas": replicas}});
        let at = ResourcePath::of_object(&api_resource.resource, &template);
        let options = WriteOptions {
            dry_run: true,
            ..WriteOptions::default()
        };
        let api = &console.api;
        let scaled = api.patch(at, Patch::Merge(patch.clone()), &options).await?;
        let placement = plan::plan_placement(&**api, &api_resource, scaled).await?;
        let placement = placement.context("the plan is empty")?;
        let state = json!([template.uid(), template.meta().generation, replicas]);
        Ok(Some(ActionPlan {
            version: text_digest(&state.to_string()),
            effect: html! {
                p { "The template gets " strong { (replicas) } " replicas instead of " (before) "." }
                (replica_table(&placement.now, &placement.then))
            },
            warnings: placement.held.or(placement.failure).into_iter().collect(),
            write: Box::pin(async move {
                let at = ResourcePath::of_object(&api_resource.resource, &template);
                api.patch(at, Patch::Merge(patch), &WriteOptions::default())
                    .await?;
                Ok(())
            }),
            done: workload_path(&self.key, &[], &[("done", "scaled")]),
        }))
    }
}
