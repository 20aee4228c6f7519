//! Has the templates of a namespace placed anew when its gate changes; see
//! [`controller_context::NamespaceGates`].

use std::convert::Infallible;
use std::sync::Arc;

use client::TaskGroup;
use flotilla_runtime::{PriorityQueueLane, ReconcileAction, run_workers};

use crate::controller::{ResourceDetector, TemplateReconcileTrigger};

/// Templates between two yields to other tasks.
const YIELD_EVERY_TEMPLATES: usize = 256;

impl ResourceDetector {
    pub(crate) fn add_namespace_event_handlers(self: &Arc<Self>) {
        let queue = self.gated_namespaces.clone();
        self.namespace_gates
            .on_change(move |namespace| queue.add(namespace.to_owned()));
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

    /// Enqueues the templates of a namespace. One that was placed a moment ago may have no binding in the
    /// cache yet.
    async fn enqueue_namespace(&self, namespace: &str) {
        let trigger = TemplateReconcileTrigger {
            template_changed: false,
            by_karmada: false,
        };
        let keys = self.templates.list_keys_in_namespace(namespace);
        for chunk in keys.chunks(YIELD_EVERY_TEMPLATES) {
            for key in chunk {
                self.applied_policies.invalidate(key);
                self.enqueue(key.clone(), trigger, PriorityQueueLane::Low);
            }
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use controller_testing::{FederationFixture, NAMESPACES};
    use karmada_api::well_known_keys::{NAMESPACE_GATE, SKIP_AUTO_PROPAGATION};
    use serde_json::json;

    use crate::controller::tests::detector_without_workers;

    // proves: DET-namespace-gate
    #[tokio::test]
    async fn a_namespace_has_its_gate_although_it_is_not_cached_yet() {
        let mut plane = FederationFixture::new();
        let detector = detector_without_workers(&mut plane).await;
        let metadata = json!({"name": "n", "annotations": {NAMESPACE_GATE: "true"},
            "labels": {SKIP_AUTO_PROPAGATION: "true"}});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        plane.control_plane.seed(&NAMESPACES, namespace);
        let clusters = detector.namespace_gates.clusters_of("n").await;
        assert_eq!(clusters.unwrap(), Some(vec![]));
    }
}
