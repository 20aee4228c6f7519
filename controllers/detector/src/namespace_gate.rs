//! Restricts what lies in a namespace to the clusters in which the namespace itself is placed, where
//! an annotation of the Namespace asks for it.
//!
//! The option is an annotation of the Namespace and not of policies: who may write policies in a
//! namespace must not go around it, and Karmada's clients see its schema unchanged.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use client::{InformerEvent, TaskGroup};
use controller_context::TemplateKey;
use flotilla_runtime::{ReconcileAction, run_workers};
use karmada_api::well_known_keys::{NAMESPACE_GATE, SKIP_AUTO_PROPAGATION};
use karmada_api::{ResourceBinding, names};
use machinery::Object;

use crate::controller::{ResourceDetector, TemplateReconcileTrigger, namespaced_name};

const NAMESPACE_KIND: &str = "Namespace";
/// Bindings between two yields to other tasks.
const YIELD_EVERY_BINDINGS: usize = 256;

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

impl ResourceDetector {
    /// The clusters to which the namespace of a template restricts it.
    pub(crate) fn namespace_gate(&self, template: &Object) -> Option<Vec<String>> {
        let name = template.namespace();
        if name.is_empty() {
            return None;
        }
        let namespace = self.namespaces.get("", name)?;
        let binding = names::binding_name(NAMESPACE_KIND, name);
        let binding = self.cluster_bindings.get("", &binding);
        gated_clusters(&namespace, binding.as_ref())
    }

    pub(crate) fn add_namespace_event_handlers(self: &Arc<Self>) {
        let queue = self.gated_namespaces.clone();
        self.namespaces.add_event_handler(move |change| {
            if is_gate_change(change) {
                queue.add(change.object().name().to_owned());
            }
        });
        let queue = self.gated_namespaces.clone();
        self.cluster_bindings.add_event_handler(move |change| {
            if let Some(namespace) = placed_namespace(change) {
                queue.add(namespace);
            }
        });
    }

    pub(crate) fn start_namespace_worker(self: &Arc<Self>, tasks: &TaskGroup) {
        let detector = Arc::clone(self);
        run_workers(
            tasks,
            "gated-namespaces",
            &self.gated_namespaces,
            1,
            move |name| {
                let detector = Arc::clone(&detector);
                async move {
                    detector.enqueue_namespace(&name).await;
                    Ok::<_, Infallible>(ReconcileAction::Done)
                }
            },
        );
    }

    /// Enqueues the templates of a namespace that have bindings.
    async fn enqueue_namespace(&self, namespace: &str) {
        let trigger = TemplateReconcileTrigger {
            template_changed: false,
            by_karmada: false,
        };
        let bindings = self.bindings.list_namespace(namespace);
        for chunk in bindings.chunks(YIELD_EVERY_BINDINGS) {
            for binding in chunk {
                let Ok(view) = binding.decode::<ResourceBinding>() else {
                    continue;
                };
                let of = &view.spec.resource;
                let mapper = &self.templates.rest_mapper;
                if let Some(served) = mapper.find(&of.api_version, &of.kind) {
                    let key = TemplateKey {
                        gvr: served.gvr.clone(),
                        name: namespaced_name(&of.namespace, &of.name),
                    };
                    self.applied_policies.invalidate(&key);
                    self.enqueue(key, trigger, true);
                }
            }
            tokio::task::yield_now().await;
        }
    }
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
