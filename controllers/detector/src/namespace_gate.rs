//! Has the templates of a namespace placed anew when its gate changes; see
//! [`controller_context::NamespaceGates`].

use std::convert::Infallible;
use std::sync::Arc;

use client::TaskGroup;
use controller_context::TemplateKey;
use flotilla_runtime::{ReconcileAction, run_workers};
use karmada_api::ResourceBinding;

use crate::controller::{ResourceDetector, TemplateReconcileTrigger, namespaced_name};

/// Bindings between two yields to other tasks.
const YIELD_EVERY_BINDINGS: usize = 256;

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
