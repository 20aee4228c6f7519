//! A move of a workload from a cluster to another one: a change of the policy that names its clusters.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use async_trait::async_trait;
use flotilla_cli::plan::{plan_policy, policy_document};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::planned_action::{ActionPlan, ActionSubject, PlannedAction};
use super::policy_change::policy_plan;
use crate::console::Console;
use crate::inventory::ObjectKey;
use crate::pages::{PageContext, WorkloadView, workload_path};
use crate::query::QueryParameters;

/// Clusters to choose from.
const MAX_CHOICES: usize = 500;

pub(super) struct MoveWorkload {
    key: ObjectKey,
    from: String,
    to: String,
}

impl MoveWorkload {
    pub(super) fn new(key: ObjectKey, parameters: &QueryParameters) -> Self {
        Self {
            key,
            from: parameters.get("from").to_owned(),
            to: parameters.get("to").to_owned(),
        }
    }
}

fn cluster_choice<'a>(
    name: &str,
    label: &str,
    chosen: &str,
    clusters: impl Iterator<Item = &'a str>,
) -> Markup {
    html! {
        label {
            (label) " "
            select name=(name) required {
                option value="" { "choose a cluster" }
                @for cluster in clusters.take(MAX_CHOICES) {
                    option value=(cluster) selected[cluster == chosen] { (cluster) }
                }
            }
        }
    }
}

#[async_trait]
impl PlannedAction for MoveWorkload {
    fn name(&self) -> &'static str {
        "move"
    }

    fn title(&self, console: &Console) -> String {
        format!("Move {}", console.inventory.template_name(&self.key))
    }

    fn verb(&self, console: &Console) -> String {
        format!("{} to {}", self.title(console), self.to)
    }

    fn subject(&self, console: &Console) -> ActionSubject {
        ActionSubject::workload(console, &self.key)
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        vec![("from", self.from.clone()), ("to", self.to.clone())]
    }

    async fn input(&self, context: &PageContext<'_>) -> anyhow::Result<Markup> {
        let inventory = &context.console.inventory;
        let row = inventory.workload(&self.key);
        let targets = row.iter().flat_map(|row| &row.targets);
        let clusters = inventory.clusters();
        Ok(html! {
            form .filter.again method="get" {
                (cluster_choice("from", "From", &self.from, targets.map(|(name, _)| &**name)))
                (cluster_choice("to", "To", &self.to, clusters.iter().map(|cluster| &*cluster.name)))
                button #plan-move type="submit" { "Plan" }
            }
        })
    }

    async fn plan<'a>(&'a self, console: &'a Console) -> anyhow::Result<Option<ActionPlan<'a>>> {
        if self.from.is_empty() || self.to.is_empty() {
            return Ok(None);
        }
        ensure!(self.from != self.to, "choose two different clusters");
        let view = WorkloadView::read(console, &self.key).await?;
        let reference = view.report.claim.policy.as_ref();
        let reference = reference.context("no policy places it")?;
        let mut policies = view.inputs.policies.iter();
        let policy = policies.find(|policy| {
            (policy.namespace(), policy.name()) == (&*reference.namespace, &*reference.name)
        });
        let policy = policy.with_context(|| format!("{reference} is not there any more"))?;
        let mut document = policy_document(policy)?;
        if replace_cluster(&mut document["spec"]["placement"], &self.from, &self.to) == 0 {
            bail!(
                "{reference} does not name the cluster {}; change the policy on its page instead",
                self.from
            );
        }
        let planned = plan_policy(Arc::clone(&console.api), document).await?;
        let done = workload_path(&self.key, &[], &[("done", "moved")]);
        policy_plan(planned, done).map(Some)
    }
}

/// Replaces a cluster in each `clusterNames` of a placement, and returns how many had it.
fn replace_cluster(placement: &mut Value, from: &str, to: &str) -> usize {
    match placement {
        Value::Array(elements) => elements
            .iter_mut()
            .map(|element| replace_cluster(element, from, to))
            .sum(),
        Value::Object(fields) => fields
            .iter_mut()
            .map(|(name, field)| match field {
                Value::Array(names) if name == "clusterNames" => replace_name(names, from, to),
                field => replace_cluster(field, from, to),
            })
            .sum(),
        _ => 0,
    }
}

fn replace_name(names: &mut Vec<Value>, from: &str, to: &str) -> usize {
    let count = names.len();
    let has_target = names.iter().any(|name| name == to);
    if has_target {
        names.retain(|name| name != from);
        return usize::from(names.len() != count);
    }
    let mut replaced = 0;
    for name in names.iter_mut().filter(|name| **name == from) {
        *name = json!(to);
        replaced += 1;
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: CON-move
    #[test]
    fn a_cluster_is_replaced_wherever_it_is_named() {
        for (before, after, count) in [
            (
                json!({"clusterAffinity": {"clusterNames": ["a", "b"]}}),
                json!({"clusterAffinity": {"clusterNames": ["c", "b"]}}),
                1,
            ),
            (
                json!({"clusterAffinity": {"clusterNames": ["a", "c"]}}),
                json!({"clusterAffinity": {"clusterNames": ["c"]}}),
                1,
            ),
            (
                json!({"clusterAffinity": {"exclude": ["a"]}}),
                json!({"clusterAffinity": {"exclude": ["a"]}}),
                0,
            ),
            (
                json!({"clusterAffinities": [{"clusterNames": ["b"]}, {"clusterNames": ["a"]}],
                    "replicaScheduling": {"weightPreference": {"staticWeightList": [{"targetCluster": {"clusterNames": ["a"]}, "weight": 1}]}}}),
                json!({"clusterAffinities": [{"clusterNames": ["b"]}, {"clusterNames": ["c"]}],
                    "replicaScheduling": {"weightPreference": {"staticWeightList": [{"targetCluster": {"clusterNames": ["c"]}, "weight": 1}]}}}),
                2,
            ),
            (json!(null), json!(null), 0),
        ] {
            let mut placement = before;
            assert_eq!(replace_cluster(&mut placement, "a", "c"), count);
            assert_eq!(placement, after);
        }
    }
}
