//! ResourceBindings and ClusterResourceBindings, indexed by the clusters they are
//! scheduled to, and the writes that evict from clusters.
//!
//! A write is one merge patch of the difference, refused if the binding has changed
//! meanwhile.

use std::sync::Arc;

use client::{Api, At, Patch, Result, WriteOptions};
use machinery::Object;
use openapi::karmada::resource_group::BY_RESOURCE_GROUP;
use openapi::karmada::resources::{BINDINGS, CLUSTER_BINDINGS};
use openapi::karmada::{Binding, BindingSpec, resource_group};
use flotilla_runtime::{Change, IndexSweep, Informer, ObjectRef, Recorder, Select, Tasks};
use serde_json::{Value, json};

use crate::start::Deps;

/// The index of bindings by the clusters they are scheduled to. The clusters of
/// dependents (`requiredBy`) and of eviction tasks do not count.
const TARGETS: &str = "clusters/targets";

#[derive(Clone)]
pub(crate) struct Bindings {
    api: Arc<dyn Api>,
    informers: [Informer; 2],
}

impl Bindings {
    pub(crate) fn new(deps: &Deps) -> Self {
        let informer = |resource| deps.informers.get(&deps.control, &Select::all(resource));
        let informers = [informer(&BINDINGS), informer(&CLUSTER_BINDINGS)];
        for informer in &informers {
            informer.add_index(TARGETS, targets);
        }
        Self {
            api: Arc::clone(&deps.control),
            informers,
        }
    }

    pub(crate) async fn wait_synced(&self) {
        for informer in &self.informers {
            informer.wait_synced().await;
        }
    }

    /// Adds an event handler to both kinds of binding.
    pub(crate) fn on_change(&self, handler: impl Fn(&Change<'_>) + Clone + Send + Sync + 'static) {
        for informer in &self.informers {
            informer.on_change(handler.clone());
        }
    }

    pub(crate) fn add_index(&self, name: &'static str, keys: fn(&Object) -> Vec<String>) {
        for informer in &self.informers {
            informer.add_index(name, keys);
        }
    }

    /// A binding by `namespace/name`, or by name if it is a ClusterResourceBinding;
    /// `None` if it is terminating.
    pub(crate) fn get(&self, key: &str) -> Option<Object> {
        let [local, of_cluster] = &self.informers;
        let informer = if key.contains('/') { local } else { of_cluster };
        informer.get_key(key).filter(|b| !b.head().deleting)
    }

    pub(crate) fn placed_on(&self, cluster: &str) -> Vec<Object> {
        self.by_index(TARGETS, cluster)
    }

    /// Visits the bindings of resource groups, by an index.
    pub(crate) fn sweep(
        &self,
        tasks: &Tasks,
        name: &'static str,
        visit: impl Fn(&Object) + Clone + Send + Sync + 'static,
    ) -> IndexSweep {
        self.add_index(BY_RESOURCE_GROUP, resource_group::index_keys);
        let [local, of_cluster] = &self.informers;
        IndexSweep::start(tasks, name, &[local, of_cluster], BY_RESOURCE_GROUP, visit)
    }

    pub(crate) fn by_index(&self, index: &str, key: &str) -> Vec<Object> {
        let found = self.informers.iter().map(|i| i.by_index(index, key));
        found.flatten().collect()
    }

    /// Patches the clusters and eviction tasks that differ between the two specs, with
    /// `annotations` as a merge patch of the annotations; writes nothing if nothing
    /// differs.
    pub(crate) async fn write(
        &self,
        binding: &Object,
        old: &BindingSpec,
        new: &BindingSpec,
        annotations: Value,
    ) -> Result<()> {
        let mut patch = difference(old, new);
        if !annotations.is_null() {
            patch["metadata"]["annotations"] = annotations;
        }
        if patch == json!({}) {
            return Ok(());
        }
        patch["metadata"]["resourceVersion"] = binding.revision().to_string().into();
        let resource = match binding.namespace() {
            "" => &CLUSTER_BINDINGS,
            _ => &BINDINGS,
        };
        let (at, options) = (At::of(resource, binding), WriteOptions::default());
        let written = self.api.patch(at, Patch::Merge(patch), &options).await;
        written.map(drop)
    }
}

fn difference(old: &BindingSpec, new: &BindingSpec) -> Value {
    let mut patch = json!({});
    if old.clusters != new.clusters {
        patch["spec"]["clusters"] = list(&new.clusters);
    }
    if old.graceful_eviction_tasks != new.graceful_eviction_tasks {
        patch["spec"]["gracefulEvictionTasks"] = list(&new.graceful_eviction_tasks);
    }
    patch
}

/// An empty list is an absent field, as with Go's `omitempty`.
fn list<T: serde::Serialize>(items: &[T]) -> Value {
    match items {
        [] => Value::Null,
        items => json!(items),
    }
}

pub(crate) fn targets(binding: &Object) -> Vec<String> {
    let names = |b: Arc<Binding>| b.spec.clusters.iter().map(|t| t.name.clone()).collect();
    binding.view::<Binding>().map(names).unwrap_or_default()
}

/// Records an event on a binding and on its template: the eviction from a cluster
/// succeeded or failed.
pub(crate) fn tell_evicted(
    recorder: &Recorder,
    binding: &Object,
    spec: &BindingSpec,
    cluster: &str,
    succeeded: bool,
) {
    let of = &spec.resource;
    let template = ObjectRef {
        api_version: of.api_version.clone(),
        kind: of.kind.clone(),
        name: of.name.clone(),
        namespace: of.namespace.clone(),
        uid: of.uid.clone(),
        ..ObjectRef::default()
    };
    for about in [ObjectRef::of(binding), template] {
        if succeeded {
            let text = format!("Evict from cluster {cluster} succeed.");
            recorder.normal(&about, "EvictWorkloadFromClusterSucceed", text);
        } else {
            let text = format!("Evict from cluster {cluster} failed.");
            recorder.warning(&about, "EvictWorkloadFromClusterFailed", text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_have_only_differences_and_no_empty_lists() {
        let spec = |value: Value| serde_json::from_value::<BindingSpec>(value).unwrap();
        let check = |old: Value, new: Value, patch: Value| {
            assert_eq!(difference(&spec(old), &spec(new)), patch);
        };
        let on = |names: &[&str]| {
            names
                .iter()
                .map(|n| json!({"name": n}))
                .collect::<Vec<Value>>()
        };
        let task = json!([{"fromCluster": "a", "reason": "r", "producer": "p"}]);
        check(json!({}), json!({}), json!({}));
        check(
            json!({"clusters": on(&["a", "b"])}),
            json!({"clusters": on(&["b"]), "gracefulEvictionTasks": task}),
            json!({"spec": {"clusters": on(&["b"]), "gracefulEvictionTasks": task}}),
        );
        check(
            json!({"clusters": on(&["a"]), "gracefulEvictionTasks": task}),
            json!({"clusters": []}),
            json!({"spec": {"clusters": null, "gracefulEvictionTasks": null}}),
        );
    }
}
