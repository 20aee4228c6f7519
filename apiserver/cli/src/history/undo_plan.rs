//! Decides how the last move of a template is undone, or why it cannot be. Pure.

use anyhow::{Context, bail, ensure};
use karmada_api::history::{HistoryEntry, HistoryEntryType, TemplateHistory};
use karmada_api::well_known_keys::REPLICA_PREFERENCE;
use karmada_api::{Cluster, Placement, ResourceBinding, TargetCluster};

/// A changed policy moves templates under this reason.
const POLICY_CHANGED: &str = "PolicyChanged";

/// The state before the last move.
#[derive(Debug, PartialEq)]
pub(super) struct UndoPlan {
    pub(super) clusters: Vec<TargetCluster>,
    /// The placement of the policy, if its change has moved the template.
    pub(super) placement: Option<Placement>,
}

/// A Cluster, and whether it is being deleted.
pub(super) struct UndoCluster {
    pub(super) name: String,
    pub(super) is_ready: bool,
    pub(super) is_leaving: bool,
}

impl UndoCluster {
    pub(super) fn new(name: &str, cluster: &Cluster, is_leaving: bool) -> Self {
        Self {
            name: name.to_owned(),
            is_ready: cluster.is_ready(),
            is_leaving,
        }
    }
}

/// The last move of a history.
pub fn last_move(history: &TemplateHistory) -> Option<&HistoryEntry> {
    let mut entries = history.entries.iter();
    entries.find(|entry| entry.entry_type == HistoryEntryType::Placement)
}

/// How a move is undone. The error says why it cannot be.
pub(super) fn plan_undo(
    entry: &HistoryEntry,
    binding: &ResourceBinding,
    clusters: &[UndoCluster],
) -> anyhow::Result<UndoPlan> {
    let spec = &binding.spec;
    ensure!(
        !entry.incomplete,
        "the last move has not ended: replicas are without a cluster"
    );
    ensure!(
        !entry.truncated,
        "the last move changed more clusters than its record names"
    );
    ensure!(
        spec.components.is_empty(),
        "the record does not have the components of a workload"
    );
    let annotations = &binding.metadata.annotations;
    ensure!(
        !annotations.contains_key(REPLICA_PREFERENCE),
        "a ReplicaSchedulingPreference divides the replicas; it would move them again"
    );
    let placement = former_placement(entry)?;
    let mut restored = spec.clone();
    restored.placement = placement.clone().or(restored.placement);
    ensure!(
        placement.is_some() || restored.is_divided(),
        "the clusters are decided anew at every change, so that the former ones would not stay; change the policy or the clusters"
    );
    let targets = former_clusters(entry, &spec.clusters)?;
    ensure!(
        restored.assigns_all_replicas(&targets),
        "the former clusters have not {} replicas: the template was scaled since",
        spec.replicas
    );
    for change in &entry.changes {
        if change.from.is_some() {
            check_cluster(&change.cluster, binding, clusters)?;
        }
    }
    Ok(UndoPlan {
        clusters: targets,
        placement,
    })
}

/// The placement before a move that a changed policy caused.
fn former_placement(entry: &HistoryEntry) -> anyhow::Result<Option<Placement>> {
    if entry.reason != POLICY_CHANGED {
        return Ok(None);
    }
    if !entry.former_policy.is_empty() {
        bail!(
            "{} has replaced {}; restore the former policy instead",
            entry.cause,
            entry.former_policy
        );
    }
    ensure!(
        !entry.former_placement.is_empty(),
        "the former placement was too long to be recorded"
    );
    let placement = machinery::json::from_str(&entry.former_placement);
    Ok(Some(
        placement.context("the record of the placement is no JSON")?,
    ))
}

/// The clusters before a move, if they are still those after it.
fn former_clusters(
    entry: &HistoryEntry,
    current: &[TargetCluster],
) -> anyhow::Result<Vec<TargetCluster>> {
    let mut clusters = current.to_vec();
    for change in &entry.changes {
        let index = clusters.iter().position(|c| c.name == change.cluster);
        let replicas = index.map(|index| clusters[index].replicas);
        ensure!(
            replicas == change.to,
            "cluster {} no longer has what the last recorded move gave it: the template was scaled or moved since",
            change.cluster
        );
        match (index, change.from) {
            (Some(index), Some(from)) => clusters[index].replicas = from,
            (Some(index), None) => drop(clusters.remove(index)),
            (None, Some(from)) => clusters.push(TargetCluster {
                name: change.cluster.clone(),
                replicas: from,
                ..TargetCluster::default()
            }),
            (None, None) => {}
        }
    }
    Ok(clusters)
}

/// Refuses a cluster from which the template would be taken again.
fn check_cluster(
    name: &str,
    binding: &ResourceBinding,
    clusters: &[UndoCluster],
) -> anyhow::Result<()> {
    let cluster = clusters.iter().find(|cluster| cluster.name == name);
    let cluster = cluster.with_context(|| format!("cluster {name} no longer exists"))?;
    ensure!(!cluster.is_leaving, "cluster {name} is leaving");
    ensure!(cluster.is_ready, "cluster {name} is not ready");
    let mut tasks = binding.spec.graceful_eviction_tasks.iter();
    ensure!(
        !tasks.any(|task| task.from_cluster == name),
        "the template is still being evicted from cluster {name}; run the command again later"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use karmada_api::history::ClusterChange;
    use serde_json::{Value, json};

    const DIVIDED: &str = r#"{"replicaScheduling":{"replicaSchedulingType":"Divided"}}"#;

    fn binding(clusters: Value) -> Value {
        let placement: Value = machinery::json::from_str(DIVIDED).unwrap();
        json!({"metadata": {}, "spec": {"replicas": 4, "placement": placement, "clusters": clusters}})
    }

    fn moved() -> HistoryEntry {
        let change = |cluster: &str, from, to| ClusterChange {
            cluster: cluster.to_owned(),
            from,
            to,
        };
        HistoryEntry {
            reason: "Rescheduled".to_owned(),
            changes: vec![
                change("a", Some(1), Some(2)),
                change("b", Some(3), None),
                change("c", None, Some(2)),
            ],
            ..HistoryEntry::default()
        }
    }

    fn plan(entry: &HistoryEntry, binding: &Value) -> anyhow::Result<UndoPlan> {
        let cluster = |name: &str| UndoCluster {
            name: name.to_owned(),
            is_ready: name != "sick",
            is_leaving: false,
        };
        let clusters = ["a", "b", "c", "sick"].map(cluster);
        let binding = serde_json::from_value(binding.clone()).unwrap();
        plan_undo(entry, &binding, &clusters)
    }

    // proves: HIS-undo
    #[test]
    fn the_former_clusters_and_replicas_return() {
        let current = binding(json!([{"name": "c", "replicas": 2}, {"name": "a", "replicas": 2}]));
        let expected: Vec<TargetCluster> = serde_json::from_value(
            json!([{"name": "a", "replicas": 1}, {"name": "b", "replicas": 3}]),
        )
        .unwrap();
        let undone = plan(&moved(), &current).unwrap();
        assert_eq!((&undone.clusters, undone.placement), (&expected, None));
        let by_policy = HistoryEntry {
            reason: POLICY_CHANGED.to_owned(),
            former_placement: DIVIDED.to_owned(),
            ..moved()
        };
        let undone = plan(&by_policy, &current).unwrap();
        assert_eq!(undone.clusters, expected);
        assert!(undone.placement.is_some());
    }

    // proves: HIS-undo-refused
    #[test]
    fn an_undo_that_would_not_hold_is_refused() {
        let current =
            || binding(json!([{"name": "c", "replicas": 2}, {"name": "a", "replicas": 2}]));
        let with = |pointer: &str, value: Value| {
            let mut changed = current();
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            changed.pointer_mut(parent).unwrap()[field] = value;
            changed
        };
        let entry = |change: fn(&mut HistoryEntry)| {
            let mut entry = moved();
            change(&mut entry);
            entry
        };
        let task = json!([{"fromCluster": "b", "reason": "r", "producer": "p"}]);
        let preference = json!({REPLICA_PREFERENCE: "{}"});
        for (entry, binding, message) in [
            (entry(|e| e.incomplete = true), current(), "has not ended"),
            (
                entry(|e| e.truncated = true),
                current(),
                "more clusters than",
            ),
            (
                moved(),
                with("/spec/components", json!([{"name": "x"}])),
                "components",
            ),
            (
                moved(),
                with("/metadata/annotations", preference),
                "ReplicaSchedulingPreference",
            ),
            (moved(), with("/spec/placement", json!({})), "decided anew"),
            (
                moved(),
                with("/spec/replicas", json!(6)),
                "was scaled since",
            ),
            (
                moved(),
                binding(json!([{"name": "a", "replicas": 4}])),
                "scaled or moved since",
            ),
            (
                moved(),
                with("/spec/gracefulEvictionTasks", task),
                "still being evicted",
            ),
            (
                entry(|e| e.reason = POLICY_CHANGED.to_owned()),
                current(),
                "too long to be recorded",
            ),
            (
                entry(|e| {
                    e.reason = POLICY_CHANGED.to_owned();
                    e.former_policy = "PropagationPolicy n/old".to_owned();
                }),
                current(),
                "has replaced PropagationPolicy n/old",
            ),
            (
                entry(|e| e.changes[1].cluster = "sick".to_owned()),
                current(),
                "cluster sick is not ready",
            ),
            (
                entry(|e| e.changes[1].cluster = "gone".to_owned()),
                current(),
                "cluster gone no longer exists",
            ),
        ] {
            let error = plan(&entry, &binding).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
