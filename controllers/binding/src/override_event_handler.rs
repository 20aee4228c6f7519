//! Finds the bindings that a change of an override policy affects. A worker uses an index for this,
//! so that the event handler does not iterate over bindings.

use std::convert::Infallible;
use std::sync::Arc;

use client::{Informer, TaskGroup};
use controller_context::TemplateKey;
use flotilla_runtime::{ReconcileAction, run_workers};
use karmada_api::kind_in_namespace::{KindInNamespace, RESOURCE_GROUP_INDEX};
use karmada_api::{ResourceBinding, names};
use machinery::Object;
use overrides::{SelectableObjects, selectable_objects};

use crate::controller::BindingController;
use crate::event_filter::{any_version_selects, is_spec_change};

/// Bindings between two yields to other tasks.
const YIELD_EVERY_BINDINGS: usize = 256;

impl BindingController {
    pub(crate) fn add_override_event_handlers(self: &Arc<Self>, tasks: &TaskGroup) {
        let controller = Arc::downgrade(self);
        self.overrides.add_event_handler(move |change| {
            if let Some(controller) = controller.upgrade().filter(|_| is_spec_change(change)) {
                controller.override_changes.add(change);
            }
        });
        let controller = Arc::clone(self);
        let queue = self.override_changes.queue.clone();
        run_workers(tasks, "override-policies", &queue, 1, move |policy| {
            let controller = Arc::clone(&controller);
            async move {
                controller.enqueue_overridden(&policy).await;
                Ok::<_, Infallible>(ReconcileAction::Done)
            }
        });
    }

    async fn enqueue_overridden(&self, policy: &str) {
        let versions = self.override_changes.versions.lock().remove(policy);
        let versions = versions.unwrap_or_default();
        let of_namespace = policy.contains('/');
        // Policies of a namespace select by labels that cluster override policies may have changed.
        let relabelled = of_namespace && self.overrides.has_cluster_policies();
        let may_select = |key: &str| {
            let group = KindInNamespace::parse(key);
            group.is_some_and(|group| !selectable_objects(&versions, &group).is_empty())
        };
        let informers = [&self.bindings, &self.cluster_bindings];
        for informer in &informers[..if of_namespace { 1 } else { 2 }] {
            for group in informer.index_keys(RESOURCE_GROUP_INDEX, may_select) {
                let bindings = selectable_bindings(informer, &group, &versions);
                for chunk in bindings.chunks(YIELD_EVERY_BINDINGS) {
                    for binding in chunk {
                        if self.is_affected_by_override(binding, &versions, relabelled) {
                            self.queue.add_low(binding.meta().key());
                        }
                    }
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// Whether any version of a policy selects the template of a binding, or may select it: a
    /// template that is not cached was read from the server, and may be cached only later.
    fn is_affected_by_override(
        &self,
        binding: &Object,
        versions: &[Object],
        relabelled: bool,
    ) -> bool {
        let Ok(view) = binding.decode::<ResourceBinding>() else {
            return false;
        };
        let of = &view.spec.resource;
        let Some(served) = self.templates.rest_mapper.find(&of.api_version, &of.kind) else {
            return true;
        };
        let key = TemplateKey {
            gvr: served.gvr.clone(),
            name: if of.namespace.is_empty() {
                of.name.clone()
            } else {
                format!("{}/{}", of.namespace, of.name)
            },
        };
        let template = self.templates.get(&key);
        template.is_none_or(|(_, template)| {
            any_version_selects(versions, &served.gvk, template.meta(), relabelled)
        })
    }
}

/// The bindings of the templates of a group that policies may select. Those of named templates are
/// read by their names: a namespace may have as many policies as templates.
fn selectable_bindings(informer: &Informer, group: &str, policies: &[Object]) -> Vec<Object> {
    let Some(kind) = KindInNamespace::parse(group) else {
        return Vec::new();
    };
    match selectable_objects(policies, &kind) {
        SelectableObjects::All => informer.by_index(RESOURCE_GROUP_INDEX, group),
        SelectableObjects::Named(templates) => {
            let names = templates.iter();
            let names = names.map(|template| names::binding_name(kind.kind, template));
            names
                .filter_map(|name| informer.get(kind.namespace, &name))
                .collect()
        }
    }
}
