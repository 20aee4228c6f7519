//! Finds the orphan Works of a binding, and decides whether new Works have to wait for their
//! deletion. Source: Karmada's `pkg/util/helper/binding.go`.

use karmada_api::names::cluster_of_execution_space;
use karmada_api::{ResourceBinding, ResourceBindingSpec};
use machinery::Object;

/// The Works of a binding to delete, and whether creating new Works has to wait.
#[derive(Debug, Default)]
pub(crate) struct WorkCleanupDecision<'a> {
    /// Works in clusters that the binding no longer targets.
    pub(crate) orphans: Vec<&'a Object>,
    /// A copy that has to be deleted before new ones are created still exists.
    pub(crate) must_wait: bool,
}

/// Whether a Work appears after its binding has left the cluster, or during its deletion.
pub(crate) fn is_late(work: &Object, binding: &Object) -> bool {
    let cluster = cluster_of_execution_space(work.namespace());
    let (Some(cluster), Ok(view)) = (cluster, binding.decode::<ResourceBinding>()) else {
        return false;
    };
    // The Works of a binding with many clusters appear one by one.
    let is_target = view.spec.clusters.iter().any(|t| t.name == cluster)
        || view.spec.existing_clusters().contains(cluster);
    binding.meta().deleting || !is_target
}

/// Ignores Works outside of execution namespaces. `keeps_replicas`: whether a cluster has replicas
/// that the Rollout does not release yet.
pub(crate) fn plan_cleanup<'a>(
    spec: &ResourceBindingSpec,
    works: &'a [Object],
    keeps_replicas: impl Fn(&str) -> bool,
) -> WorkCleanupDecision<'a> {
    let (existing, purged) = (spec.existing_clusters(), spec.purged_clusters());
    let mut decision = WorkCleanupDecision::default();
    for work in works {
        let Some(cluster) = cluster_of_execution_space(work.namespace()) else {
            continue;
        };
        decision.must_wait |= purged.contains(cluster);
        if !existing.contains(cluster) && !keeps_replicas(cluster) {
            decision.orphans.push(work);
        }
    }
    decision
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Checks which clusters' Works are orphans, and whether new Works wait.
    fn check(spec: Value, orphans: &[&str], waits: bool) {
        let work = |namespace: &str| {
            let metadata = json!({"name": "w", "namespace": namespace});
            Object::from_value(&json!({"metadata": metadata})).unwrap()
        };
        let works = ["karmada-es-a", "karmada-es-b", "default"].map(work);
        let parsed: ResourceBindingSpec = serde_json::from_value(spec.clone()).unwrap();
        let actual = plan_cleanup(&parsed, &works, |_| false);
        let found_orphans: Vec<_> = actual.orphans.iter().map(|w| w.namespace()).collect();
        assert_eq!(
            (found_orphans.as_slice(), actual.must_wait),
            (orphans, waits),
            "{spec}"
        );
    }

    // proves: BND-orphans, BND-required-kept, BND-graceful-kept, BND-directly-gone, BND-directly-waits
    #[test]
    fn purge_modes_and_targets() {
        let (a, b) = ("karmada-es-a", "karmada-es-b");
        let evicted = |mode: &str, clusters: Value| json!({"clusters": clusters, "gracefulEvictionTasks": [{"fromCluster": "a", "purgeMode": mode}]});
        let on = |clusters: &[&str]| {
            clusters
                .iter()
                .map(|c| json!({"name": c}))
                .collect::<Value>()
        };
        check(json!({}), &[a, b], false);
        check(json!({"clusters": on(&["a", "b", "c"])}), &[], false);
        check(json!({"clusters": on(&["b"])}), &[a], false);
        check(
            json!({"clusters": on(&["a"]), "requiredBy": [{"name": "r", "clusters": on(&["b"])}]}),
            &[],
            false,
        );
        check(evicted("Gracefully", on(&["b"])), &[], false);
        check(evicted("Never", on(&["b"])), &[], false);
        check(evicted("Directly", on(&["b"])), &[a], true);
        // The cluster is a target again: its Work is no orphan, but new Works wait anyway.
        check(evicted("Directly", on(&["a", "b"])), &[], true);
        let elsewhere = json!({"clusters": on(&["a", "b"]), "gracefulEvictionTasks": [{"fromCluster": "c", "purgeMode": "Directly"}]});
        check(elsewhere, &[], false);
    }
}
