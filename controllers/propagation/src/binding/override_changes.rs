//! Finds the bindings that a change of an override policy affects. A worker uses an index for this,
//! so that the event handler does not iterate over bindings.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use machinery::Object;
use openapi::karmada::Binding;
use openapi::karmada::resource_group::{BY_RESOURCE_GROUP, ResourceGroup};
use parking_lot::Mutex;
use flotilla_runtime::{Action, Change, Queue, Tasks, run_workers};

use super::events::{concerns, says_otherwise};
use super::shell::BindingController;
use crate::overrides::may_select_in;
use crate::templates;

/// Bindings between two yields to other tasks.
const CHUNK: usize = 256;

/// The versions of changed override policies whose bindings are still to be found, by the
/// `namespace/name` of the policy or the name of a cluster override policy.
#[derive(Default)]
pub(super) struct OverrideChanges {
    queue: Queue<String>,
    versions: Mutex<HashMap<String, Vec<Object>>>,
}

impl OverrideChanges {
    /// Adds the old version too: what it selected has to be reconciled as well.
    fn add(&self, change: &Change<'_>) {
        let versions = [change.old, change.new].into_iter().flatten().cloned();
        let mut all = self.versions.lock();
        all.entry(change.key()).or_default().extend(versions);
        drop(all);
        self.queue.add(change.key());
    }
}

impl BindingController {
    pub(super) fn listen_to_overrides(self: &Arc<Self>, tasks: &Tasks) {
        let it = Arc::downgrade(self);
        self.overrides.on_change(move |change| {
            if let Some(it) = it.upgrade().filter(|_| says_otherwise(change)) {
                it.override_changes.add(change);
            }
        });
        let it = Arc::clone(self);
        let queue = self.override_changes.queue.clone();
        run_workers(tasks, "override-policies", &queue, 1, move |policy| {
            let it = Arc::clone(&it);
            async move {
                it.find_overridden(&policy).await;
                Ok::<_, Infallible>(Action::Done)
            }
        });
    }

    async fn find_overridden(&self, policy: &str) {
        let versions = self.override_changes.versions.lock().remove(policy);
        let versions = versions.unwrap_or_default();
        let of_namespace = policy.contains('/');
        // Policies of a namespace select by labels that cluster override policies may have changed.
        let relabelled = of_namespace && self.overrides.has_cluster_policies();
        let may_select = |key: &str| {
            let group = ResourceGroup::parse(key);
            group.is_some_and(|group| versions.iter().any(|policy| may_select_in(policy, &group)))
        };
        let informers = [&self.bindings, &self.cluster_bindings];
        for informer in &informers[..if of_namespace { 1 } else { 2 }] {
            for group in informer.index_keys(BY_RESOURCE_GROUP, may_select) {
                let bindings = informer.by_index(BY_RESOURCE_GROUP, &group);
                for chunk in bindings.chunks(CHUNK) {
                    for binding in chunk {
                        if self.is_overridden(binding, &versions, relabelled) {
                            self.queue.add_low(binding.head().key());
                        }
                    }
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// Whether any version of a policy selects the template of a binding.
    fn is_overridden(&self, binding: &Object, versions: &[Object], relabelled: bool) -> bool {
        let Ok(view) = binding.view::<Binding>() else {
            return false;
        };
        let of = &view.spec.resource;
        let Some(served) = self.templates.kinds.find(&of.api_version, &of.kind) else {
            return false;
        };
        let key = templates::Key {
            gvr: served.gvr.clone(),
            name: if of.namespace.is_empty() {
                of.name.clone()
            } else {
                format!("{}/{}", of.namespace, of.name)
            },
        };
        let template = self.templates.get(&key);
        template.is_some_and(|(_, template)| {
            concerns(versions, &served.gvk, template.head(), relabelled)
        })
    }
}
