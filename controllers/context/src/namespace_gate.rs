//! Restricts what lies in a namespace to the clusters in which the namespace itself is placed, where
//! an annotation of the Namespace asks for it.
//!
//! The option is an annotation of the Namespace and not of policies: who may write policies or
//! bindings in a namespace must not go around it, and Karmada's clients see its schema unchanged.

use std::collections::BTreeSet;
use std::sync::Arc;

use client::{Api, Informer, InformerEvent, ResourcePath, ignore_not_found};
use karmada_api::resources::CLUSTER_BINDINGS;
use karmada_api::well_known_keys::{NAMESPACE_GATE, SKIP_AUTO_PROPAGATION};
use karmada_api::{ResourceBinding, names};
use machinery::{Gvr, Object};

use crate::context::PropagationContext;

static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
const NAMESPACE_KIND: &str = "Namespace";

/// The gates of all namespaces. Clones share the informers.
#[derive(Clone)]
pub struct NamespaceGates {
    api: Arc<dyn Api>,
    namespaces: Informer,
    cluster_bindings: Informer,
}

impl NamespaceGates {
    pub fn new(context: &PropagationContext) -> Self {
        Self {
            api: Arc::clone(&context.controller.control_plane),
            namespaces: context.controller.informer(&NAMESPACES),
            cluster_bindings: context.controller.informer(&CLUSTER_BINDINGS),
        }
    }

    pub async fn wait_synced(&self) {
        self.namespaces.wait_for_cache_sync().await;
        self.cluster_bindings.wait_for_cache_sync().await;
    }

    /// The clusters to which a namespace restricts its contents, by name; `None` if it does not.
    ///
    /// A namespace is older than its contents. If the cache does not have it yet, the API server is
    /// asked: without its gate the contents would go to other clusters, and be deleted there later.
    pub async fn clusters_of(&self, namespace: &str) -> client::Result<Option<Vec<String>>> {
        if namespace.is_empty() {
            return Ok(None);
        }
        let object = match self.namespaces.get("", namespace) {
            Some(object) => Some(object),
            None => {
                let at = ResourcePath::object(&NAMESPACES, "", namespace);
                ignore_not_found(self.api.get(at).await)?
            }
        };
        let binding = names::binding_name(NAMESPACE_KIND, namespace);
        let binding = self.cluster_bindings.get("", &binding);
        Ok(object.and_then(|object| gated_clusters(&object, binding.as_ref())))
    }

    /// Calls `handler` with the name of a namespace whose contents may go elsewhere than before.
    pub fn on_change(&self, handler: impl Fn(&str) + Clone + Send + Sync + 'static) {
        let namespace_handler = handler.clone();
        self.namespaces.add_event_handler(move |change| {
            if is_gate_change(change) {
                namespace_handler(change.object().name());
            }
        });
        self.cluster_bindings.add_event_handler(move |change| {
            if let Some(namespace) = placed_namespace(change) {
                handler(&namespace);
            }
        });
    }
}

/// The clusters to which a Namespace restricts its contents, by name; `None` if it does not.
/// `binding`: the binding of the Namespace, if a policy places it.
pub fn gated_clusters(namespace: &Object, binding: Option<&Object>) -> Option<Vec<String>> {
    if !has_namespace_gate(namespace) {
        return None;
    }
    if let Some(binding) = binding.and_then(|o| o.decode::<ResourceBinding>().ok()) {
        let targets = binding.spec.targets().into_iter();
        let names: BTreeSet<String> = targets.map(|target| target.name.clone()).collect();
        return Some(names.into_iter().collect());
    }
    // Without a policy the namespace goes to every cluster, or to none.
    skips_propagation(namespace).then(Vec::new)
}

/// Whether a Namespace restricts its contents to its own clusters.
pub fn has_namespace_gate(namespace: &Object) -> bool {
    let annotations = namespace.annotations();
    annotations
        .get(NAMESPACE_GATE)
        .is_some_and(|value| value == "true")
}

fn skips_propagation(namespace: &Object) -> bool {
    let skip = namespace.meta().label(SKIP_AUTO_PROPAGATION);
    skip.is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// Whether a change of a Namespace changes where its contents may go.
fn is_gate_change(change: &InformerEvent<'_>) -> bool {
    match (change.old, change.new) {
        (Some(old), Some(new)) => {
            has_namespace_gate(old) != has_namespace_gate(new)
                || (has_namespace_gate(new) && skips_propagation(old) != skips_propagation(new))
        }
        (None, Some(new)) => has_namespace_gate(new) && !change.in_initial_list,
        _ => false,
    }
}

/// The Namespace whose clusters a change of a ClusterResourceBinding changes.
fn placed_namespace(change: &InformerEvent<'_>) -> Option<String> {
    let view = change.object().decode::<ResourceBinding>().ok()?;
    let resource = &view.spec.resource;
    if change.in_initial_list || resource.api_version != "v1" || resource.kind != NAMESPACE_KIND {
        return None;
    }
    let targets = |binding: Option<&Object>| {
        let view = binding?.decode::<ResourceBinding>().ok()?;
        let targets = view.spec.targets().into_iter();
        Some(
            targets
                .map(|target| target.name.clone())
                .collect::<BTreeSet<_>>(),
        )
    };
    let is_moved = targets(change.old) != targets(change.new);
    is_moved.then(|| resource.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn namespace(gate: bool, skips: bool) -> Object {
        let mut metadata = json!({"name": "n"});
        if gate {
            metadata["annotations"] = json!({NAMESPACE_GATE: "true"});
        }
        if skips {
            metadata["labels"] = json!({SKIP_AUTO_PROPAGATION: "true"});
        }
        Object::from_value(&json!({"metadata": metadata})).unwrap()
    }

    fn binding(clusters: &[&str]) -> Object {
        let clusters: Value = clusters.iter().map(|name| json!({"name": name})).collect();
        let resource = json!({"apiVersion": "v1", "kind": "Namespace", "name": "n"});
        let spec = json!({"resource": resource, "clusters": clusters});
        Object::from_value(&json!({"metadata": {"name": "n-namespace"}, "spec": spec})).unwrap()
    }

    // proves: DET-namespace-gate
    #[test]
    fn a_gate_lets_contents_go_where_the_namespace_is() {
        let placed = binding(&["b", "a"]);
        for (gate, skips, binding, expected) in [
            (false, true, Some(&placed), None),
            (true, false, None, None),
            (true, true, None, Some(vec![])),
            (true, true, Some(&placed), Some(vec!["a", "b"])),
        ] {
            let actual = gated_clusters(&namespace(gate, skips), binding);
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(actual, expected, "{gate} {skips}");
        }
    }

    // proves: DET-namespace-gate-changes
    #[test]
    fn changes_of_the_gate_and_of_the_clusters_count() {
        let event = |old, new| InformerEvent {
            old,
            new,
            in_initial_list: false,
        };
        let (gated, open, skipped) = (
            namespace(true, false),
            namespace(false, false),
            namespace(true, true),
        );
        for (old, new, expected) in [
            (Some(&open), Some(&gated), true),
            (Some(&gated), Some(&open), true),
            (Some(&gated), Some(&skipped), true),
            (Some(&gated), Some(&gated), false),
            (None, Some(&gated), true),
            (None, Some(&open), false),
            (Some(&gated), None, false),
        ] {
            assert_eq!(
                is_gate_change(&event(old, new)),
                expected,
                "{old:?} {new:?}"
            );
        }
        let (one, other) = (binding(&["a"]), binding(&["b"]));
        for (old, new, expected) in [
            (None, Some(&one), true),
            (Some(&one), Some(&one), false),
            (Some(&one), Some(&other), true),
            (Some(&one), None, true),
        ] {
            let namespace = placed_namespace(&event(old, new));
            assert_eq!(namespace.is_some(), expected, "{old:?} {new:?}");
        }
    }
}
