//! Keeps the Works of a binding within the gate of its namespace. The detector restricts the
//! placements that policies ask for; clusters that others wrote into a binding end here.

use std::sync::Arc;

use controller_context::NamespaceGates;
use flotilla_runtime::IndexKeyWorkqueue;
use karmada_api::kind_in_namespace::KindInNamespace;
use karmada_api::{ResourceBinding, TargetCluster};

/// Reconciles the bindings of a namespace whose gate changes.
pub(crate) fn follow_gates(gates: &NamespaceGates, bindings: &Arc<IndexKeyWorkqueue>) {
    let bindings = Arc::clone(bindings);
    gates.on_change(move |namespace| {
        bindings.add(|key| {
            let group = KindInNamespace::parse(key);
            group.is_some_and(|group| group.namespace == namespace)
        });
    });
}

/// The binding without the clusters to which its namespace, by name, may not go; `gate` is `None`
/// if it may go to all.
pub(crate) fn within_gate(
    binding: Arc<ResourceBinding>,
    gate: Option<Vec<String>>,
) -> Arc<ResourceBinding> {
    let Some(gate) = gate else {
        return binding;
    };
    let is_inside = |target: &TargetCluster| gate.contains(&target.name);
    if binding.spec.targets().into_iter().all(is_inside) {
        return binding;
    }
    let mut restricted = (*binding).clone();
    restricted.spec.clusters.retain(is_inside);
    for dependent in &mut restricted.spec.required_by {
        dependent.clusters.retain(is_inside);
    }
    Arc::new(restricted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: BND-gate
    #[test]
    fn clusters_outside_of_the_gate_get_nothing() {
        let spec = json!({"clusters": [{"name": "a"}, {"name": "b"}],
            "requiredBy": [{"name": "r", "clusters": [{"name": "b"}, {"name": "c"}]}]});
        let binding: ResourceBinding = serde_json::from_value(json!({"spec": spec})).unwrap();
        let binding = Arc::new(binding);
        for (gate, expected) in [
            (None, vec!["a", "b", "c"]),
            (Some(vec!["a", "b", "c"]), vec!["a", "b", "c"]),
            (Some(vec!["a", "c"]), vec!["a", "c"]),
            (Some(vec!["d"]), vec![]),
            (Some(vec![]), vec![]),
        ] {
            let gate = gate.map(|names| names.into_iter().map(str::to_owned).collect());
            let restricted = within_gate(Arc::clone(&binding), gate);
            let targets = restricted.spec.targets().into_iter();
            let names: Vec<&str> = targets.map(|target| &*target.name).collect();
            assert_eq!(names, expected);
        }
    }
}
