//! Actions on a cluster: cordon, uncordon and drain.

use anyhow::ensure;
use async_trait::async_trait;
use client::ResourcePath;
use flotilla_cli::cordon::{is_cordoned, set_unschedulable};
use flotilla_cli::drain::{DrainReport, begin_drain, plan_drain};
use karmada_api::Cluster;
use karmada_api::resources::CLUSTERS;
use maud::{Markup, html};
use serde_json::json;

use super::placement_table::drain_table;
use super::planned_action::{ActionPlan, ActionSubject, PlannedAction};
use crate::console::Console;
use crate::pages::{Navigation, cluster_path, counted};
use crate::session::text_digest;

fn subject(cluster: &str) -> ActionSubject {
    ActionSubject {
        navigation: Navigation::Fleet,
        path: cluster_path(cluster, &[], &[]),
        name: cluster.to_owned(),
    }
}

/// Marks a cluster as unschedulable, or as schedulable again.
pub(super) struct Cordon {
    pub(super) cluster: String,
    pub(super) unschedulable: bool,
}

#[async_trait]
impl PlannedAction for Cordon {
    fn name(&self) -> &'static str {
        match self.unschedulable {
            true => "cordon",
            false => "uncordon",
        }
    }

    fn title(&self, _console: &Console) -> String {
        match self.unschedulable {
            true => format!("Cordon {}", self.cluster),
            false => format!("Uncordon {}", self.cluster),
        }
    }

    fn subject(&self, _console: &Console) -> ActionSubject {
        subject(&self.cluster)
    }

    async fn plan<'a>(&'a self, console: &'a Console) -> anyhow::Result<Option<ActionPlan<'a>>> {
        let at = ResourcePath::object(&CLUSTERS, "", &self.cluster);
        let object = console.api.get(at).await?;
        let is_cordoned = is_cordoned(&object.decode::<Cluster>()?.spec.taints);
        ensure!(
            is_cordoned != self.unschedulable,
            "{} is already {}ed",
            self.cluster,
            self.name()
        );
        let state = json!([self.name(), object.uid()]);
        Ok(Some(ActionPlan {
            version: text_digest(&state.to_string()),
            effect: html! {
                @if self.unschedulable {
                    p { "Nothing new is placed on " strong { (self.cluster) } ". What is there stays." }
                } @else {
                    p { "The scheduler may place templates on " strong { (self.cluster) } " again." }
                }
            },
            warnings: Vec::new(),
            write: Box::pin(async move {
                let api = &*console.api;
                set_unschedulable(api, &self.cluster, self.unschedulable, false).await?;
                Ok(())
            }),
            done: cluster_path(&self.cluster, &[], &[("done", self.name())]),
        }))
    }
}

/// Moves what runs in a cluster to others, as far as it has another place.
pub(super) struct Drain {
    pub(super) cluster: String,
}

#[async_trait]
impl PlannedAction for Drain {
    fn name(&self) -> &'static str {
        "drain"
    }

    fn title(&self, _console: &Console) -> String {
        format!("Drain {}", self.cluster)
    }

    fn subject(&self, _console: &Console) -> ActionSubject {
        subject(&self.cluster)
    }

    async fn plan<'a>(&'a self, console: &'a Console) -> anyhow::Result<Option<ActionPlan<'a>>> {
        let at = ResourcePath::object(&CLUSTERS, "", &self.cluster);
        let object = console.api.get(at).await?;
        let report = plan_drain(&*console.api, &self.cluster).await?;
        let state = json!([object.uid(), report]);
        Ok(Some(ActionPlan {
            version: text_digest(&state.to_string()),
            effect: drain_effect(&report),
            warnings: Vec::new(),
            write: Box::pin(async move { begin_drain(&*console.api, &report).await }),
            done: cluster_path(&self.cluster, &[], &[("done", "drain")]),
        }))
    }
}

fn drain_effect(report: &DrainReport) -> Markup {
    let leaving = report.leaving().count();
    html! {
        p {
            strong { (report.cluster) } " is cordoned, so that nothing new is placed on it. "
            (counted(leaving, "template")) " can leave it, "
            (counted(report.staying(), "template")) " cannot. Each stays until its replacement is healthy."
        }
        @if !report.templates.is_empty() { (drain_table(report)) }
    }
}
