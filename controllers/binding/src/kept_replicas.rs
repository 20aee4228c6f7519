//! Keeps the replicas that a Rollout does not release yet, whatever the binding says.

use std::collections::BTreeMap;
use std::sync::Arc;

use karmada_api::{ResourceBinding, TargetCluster};

/// The binding with at least the replicas that its clusters keep. Those that are no targets any more
/// are not added: their Works stay as they are.
pub(crate) fn with_kept_replicas(
    binding: Arc<ResourceBinding>,
    kept: &BTreeMap<String, i64>,
) -> Arc<ResourceBinding> {
    let missing = |target: &TargetCluster| {
        let kept = kept.get(&target.name).copied();
        kept.filter(|kept| *kept > target.replicas)
    };
    let targets = binding.spec.targets();
    if !targets.into_iter().any(|target| missing(target).is_some()) {
        return binding;
    }
    let mut raised = (*binding).clone();
    let dependents = raised.spec.required_by.iter_mut();
    let clusters = dependents.flat_map(|dependent| &mut dependent.clusters);
    for target in raised.spec.clusters.iter_mut().chain(clusters) {
        if let Some(kept) = missing(target) {
            target.replicas = kept;
        }
    }
    Arc::new(raised)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn clusters_have_at_least_what_they_keep() {
        let spec =
            json!({"clusters": [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 3}]});
        let binding: ResourceBinding = serde_json::from_value(json!({"spec": spec})).unwrap();
        let binding = Arc::new(binding);
        for (kept, expected) in [
            (vec![], [1, 3]),
            (vec![("a", 1), ("b", 2)], [1, 3]),
            (vec![("a", 4), ("b", 3), ("c", 9)], [4, 3]),
        ] {
            let kept = kept.into_iter().map(|(name, n)| (name.to_owned(), n));
            let raised = with_kept_replicas(Arc::clone(&binding), &kept.collect());
            let targets = raised.spec.targets().into_iter();
            let replicas: Vec<i64> = targets.map(|target| target.replicas).collect();
            assert_eq!(replicas, expected);
        }
    }
}
