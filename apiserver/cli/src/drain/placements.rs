//! Where the templates of a cluster would go without it, by a simulation of the scheduler.

use std::sync::Arc;
use std::time::Instant;

use client::Api;
use karmada_api::binding::GracefulEvictionTask;
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS, CLUSTERS};
use karmada_api::{ResourceBinding, TargetCluster};
use machinery::Object;
use scheduler::SchedulingSimulation;
use scheduler::core::ClusterSnapshot;
use serde::Serialize;
use serde_json::json;

use crate::object_lists::list_all;
use crate::placement_text::format_clusters;
use crate::printers::format_table;
use crate::rollout::ListedRollouts;
use crate::scheduler_flags::SchedulerFlagValues;

/// The bindings that would move, and those that would stay.
#[derive(Debug, Serialize)]
pub struct DrainReport {
    pub cluster: String,
    pub templates: Vec<DrainedTemplate>,
}

/// A template in the cluster, with its present and its future placement.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainedTemplate {
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
    pub now: Vec<TargetCluster>,
    pub then: Vec<TargetCluster>,
    /// Why it has no other place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stays: Option<String>,
    /// The stages of its rollout that would lose their last cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip)]
    pub(super) binding: String,
    #[serde(skip)]
    is_namespace: bool,
}

/// Reads the bindings of a cluster, and simulates their scheduling without it.
pub(super) async fn simulate_without(
    api: &dyn Api,
    cluster: &str,
    scheduling: &SchedulerFlagValues,
) -> anyhow::Result<DrainReport> {
    let mut bindings = list_all(api, &BINDINGS, "").await?;
    bindings.extend(list_all(api, &CLUSTER_BINDINGS, "").await?);
    let clusters = list_all(api, &CLUSTERS, "").await?;
    let rollouts = ListedRollouts::list(api, "").await?;
    let snapshot = ClusterSnapshot::new(clusters).with_settings(scheduling.scheduling_settings);
    let mut simulation = SchedulingSimulation::new(Instant::now());
    let mut templates = Vec::new();
    for binding in &bindings {
        let view = binding.decode::<ResourceBinding>()?;
        if !view.spec.clusters.iter().any(|t| t.name == cluster) {
            continue;
        }
        let simulated = if is_namespace(&view) {
            Err("its removal would delete what the cluster has in it".to_owned())
        } else if view.spec.placement.is_none() {
            Err("it follows the templates that require it".to_owned())
        } else {
            simulate_binding(binding, &view, cluster, |evicted| {
                simulation
                    .simulate(evicted, &bindings, &scheduling.name, &snapshot)
                    .map_err(|e| e.to_string())
            })
        };
        templates.push(DrainedTemplate::new(binding, &view, simulated, &rollouts));
    }
    templates.sort_by(|a, b| a.key().cmp(&b.key()));
    Ok(DrainReport {
        cluster: cluster.to_owned(),
        templates,
    })
}

fn is_namespace(binding: &ResourceBinding) -> bool {
    let template = &binding.spec.resource;
    template.api_version == "v1" && template.kind == "Namespace"
}

/// The clusters of a binding after its eviction from `cluster`, or why it has none.
fn simulate_binding(
    binding: &Object,
    view: &ResourceBinding,
    cluster: &str,
    simulate: impl FnOnce(&Object) -> Result<scheduler::BindingSimulationResult, String>,
) -> Result<Vec<TargetCluster>, String> {
    let mut spec = view.spec.clone();
    spec.evict(GracefulEvictionTask {
        from_cluster: cluster.to_owned(),
        ..GracefulEvictionTask::default()
    });
    let mut evicted = binding.value().map_err(|e| e.to_string())?;
    evicted["spec"]["clusters"] = json!(spec.clusters);
    evicted["spec"]["gracefulEvictionTasks"] = json!(spec.graceful_eviction_tasks);
    let evicted = Object::from_value(&evicted).map_err(|e| e.to_string())?;
    let result = simulate(&evicted)?;
    if let Some(skipped) = result.skip_reason {
        return Err(skipped.to_string());
    }
    if let Some(failure) = result.failure {
        return Err(failure.to_string());
    }
    match result.clusters.is_empty() {
        true => Err("no other cluster is selected".to_owned()),
        false => Ok(result.clusters),
    }
}

impl DrainedTemplate {
    fn new(
        binding: &Object,
        view: &Arc<ResourceBinding>,
        simulated: Result<Vec<TargetCluster>, String>,
        rollouts: &ListedRollouts,
    ) -> Self {
        let of = &view.spec.resource;
        let (then, stays) = match simulated {
            Ok(then) => (then, None),
            Err(reason) => (view.spec.clusters.clone(), Some(reason)),
        };
        Self {
            kind: of.kind.clone(),
            namespace: binding.namespace().to_owned(),
            name: of.name.clone(),
            now: view.spec.clusters.clone(),
            warnings: rollouts.lost_stages(&binding.meta().key(), &then),
            then,
            stays,
            binding: binding.name().to_owned(),
            is_namespace: is_namespace(view),
        }
    }

    fn key(&self) -> (&str, &str, &str) {
        (&self.namespace, &self.kind, &self.name)
    }

    /// Why it stays, or what its leaving does.
    pub fn note(&self) -> String {
        match &self.stays {
            Some(reason) => reason.clone(),
            None => self.warnings.join("; "),
        }
    }

    /// `Deployment default/web`.
    pub(super) fn text(&self) -> String {
        match self.namespace.as_str() {
            "" => format!("{} {}", self.kind, self.name),
            namespace => format!("{} {namespace}/{}", self.kind, self.name),
        }
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let then = match self.stays {
            Some(_) => "stays".to_owned(),
            None => format_clusters(&self.then, wide),
        };
        vec![
            self.text(),
            format_clusters(&self.now, wide),
            then,
            self.note(),
        ]
    }
}

impl DrainReport {
    /// The number of templates that cannot leave the cluster, without the namespaces, which stay
    /// in any case.
    pub fn staying(&self) -> usize {
        let staying = self.templates.iter().filter(|t| t.stays.is_some());
        staying.filter(|t| !t.is_namespace).count()
    }

    pub fn leaving(&self) -> impl Iterator<Item = &DrainedTemplate> {
        self.templates.iter().filter(|t| t.stays.is_none())
    }

    /// The report as text, without a line feed at its end.
    pub(super) fn lines(&self, wide: bool) -> String {
        if self.templates.is_empty() {
            return format!("Nothing is placed on {}.", self.cluster);
        }
        let rows: Vec<_> = self.templates.iter().map(|t| t.cells(wide)).collect();
        let table = format_table(&["TEMPLATE", "NOW", "THEN", "NOTE"], &rows);
        let moving = self.leaving().count();
        let all = moving + self.staying();
        format!(
            "{table}\n{moving} of {all} templates can leave {}.",
            self.cluster
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: DRN-namespaces
    #[test]
    fn namespaces_stay_and_do_not_count() {
        let template = |api_version: &str, kind: &str, simulated| {
            let binding = json!({"metadata": {"name": "b"}, "spec": {
                "resource": {"apiVersion": api_version, "kind": kind, "name": "x"},
                "clusters": [{"name": "m1"}]}});
            let binding = Object::from_value(&binding).unwrap();
            let view = binding.decode::<ResourceBinding>().unwrap();
            DrainedTemplate::new(&binding, &view, simulated, &ListedRollouts::default())
        };
        let stays = || Err("it stays".to_owned());
        let mut report = DrainReport {
            cluster: "m1".to_owned(),
            templates: vec![
                template("v1", "Namespace", stays()),
                template(
                    "rbac.authorization.k8s.io/v1",
                    "ClusterRole",
                    Ok(Vec::new()),
                ),
            ],
        };
        assert_eq!((report.staying(), report.leaving().count()), (0, 1));
        let lines = report.lines(false);
        assert!(lines.ends_with("1 of 1 templates can leave m1."), "{lines}");
        assert!(lines.contains("Namespace x"), "{lines}");
        let other = template("example.org/v1", "Namespace", stays());
        report.templates.push(other);
        assert_eq!(report.staying(), 1);
    }
}
