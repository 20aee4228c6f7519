//! ResourceBindings and ClusterResourceBindings, indexed by the clusters they are
//! scheduled to, and the writes that evict from clusters.
//!
//! A write is one merge patch of the difference, refused if the binding has changed
//! meanwhile.

use std::sync::Arc;

use client::{
    Api, Informer, InformerEvent, InvolvedObject, Patch, ResourcePath, Result, TaskGroup,
    WriteOptions,
};
use flotilla_runtime::{ControllerContext, EventRecorder, IndexKeyWorkqueue};
use karmada_api::kind_in_namespace::RESOURCE_GROUP_INDEX;
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS};
use karmada_api::{ResourceBinding, ResourceBindingSpec, kind_in_namespace};
use machinery::Object;
use serde_json::{Value, json};

/// The index of bindings by the clusters they are scheduled to. The clusters of
/// dependents (`requiredBy`) and of eviction tasks do not count.
const SCHEDULED_CLUSTERS_INDEX: &str = "clusters/targets";

#[derive(Clone)]
pub(crate) struct BindingClient {
    api: Arc<dyn Api>,
    informers: [Informer; 2],
}

impl BindingClient {
    pub(crate) fn new(context: &ControllerContext) -> Self {
        let informers = [
            context.informer(&BINDINGS),
            context.informer(&CLUSTER_BINDINGS),
        ];
        for informer in &informers {
            informer.add_index(SCHEDULED_CLUSTERS_INDEX, scheduled_clusters);
        }
        Self {
            api: Arc::clone(&context.control_plane),
            informers,
        }
    }

    pub(crate) async fn wait_for_cache_sync(&self) {
        for informer in &self.informers {
            informer.wait_for_cache_sync().await;
        }
    }

    /// Adds an event handler to both kinds of binding.
    pub(crate) fn add_event_handler(
        &self,
        handler: impl Fn(&InformerEvent<'_>) + Clone + Send + Sync + 'static,
    ) {
        for informer in &self.informers {
            informer.add_event_handler(handler.clone());
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
        informer.get_by_key(key).filter(|b| !b.meta().deleting)
    }

    pub(crate) fn scheduled_to(&self, cluster: &str) -> Vec<Object> {
        self.by_index(SCHEDULED_CLUSTERS_INDEX, cluster)
    }

    /// Visits the bindings of resource groups, by an index.
    pub(crate) fn start_index_key_workqueue(
        &self,
        tasks: &TaskGroup,
        name: &'static str,
        visit: impl Fn(&Object) + Clone + Send + Sync + 'static,
    ) -> IndexKeyWorkqueue {
        self.add_index(RESOURCE_GROUP_INDEX, kind_in_namespace::index_keys);
        let [local, of_cluster] = &self.informers;
        IndexKeyWorkqueue::start(
            tasks,
            name,
            &[local, of_cluster],
            RESOURCE_GROUP_INDEX,
            visit,
        )
    }

    pub(crate) fn by_index(&self, index: &str, key: &str) -> Vec<Object> {
        let objects = self.informers.iter().map(|i| i.by_index(index, key));
        objects.flatten().collect()
    }

    /// Patches the clusters and eviction tasks that differ between the two specs, with
    /// `annotations` as a merge patch of the annotations; writes nothing if nothing
    /// differs.
    pub(crate) async fn patch_spec(
        &self,
        binding: &Object,
        old: &ResourceBindingSpec,
        new: &ResourceBindingSpec,
        annotations: Value,
    ) -> Result<()> {
        let mut patch = spec_patch(old, new);
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
        let (at, options) = (
            ResourcePath::of_object(resource, binding),
            WriteOptions::default(),
        );
        let written = self.api.patch(at, Patch::Merge(patch), &options).await;
        written.map(drop)
    }
}

fn spec_patch(old: &ResourceBindingSpec, new: &ResourceBindingSpec) -> Value {
    let mut patch = json!({});
    if old.clusters != new.clusters {
        patch["spec"]["clusters"] = list_or_null(&new.clusters);
    }
    if old.graceful_eviction_tasks != new.graceful_eviction_tasks {
        patch["spec"]["gracefulEvictionTasks"] = list_or_null(&new.graceful_eviction_tasks);
    }
    patch
}

/// An empty list is an absent field, as with Go's `omitempty`.
fn list_or_null<T: serde::Serialize>(items: &[T]) -> Value {
    match items {
        [] => Value::Null,
        items => json!(items),
    }
}

pub(crate) fn scheduled_clusters(binding: &Object) -> Vec<String> {
    let names = |b: Arc<ResourceBinding>| b.spec.clusters.iter().map(|t| t.name.clone()).collect();
    binding
        .decode::<ResourceBinding>()
        .map(names)
        .unwrap_or_default()
}

/// Records an event on a binding and on its template: the eviction from a cluster
/// succeeded or failed.
pub(crate) fn record_eviction(
    recorder: &EventRecorder,
    binding: &Object,
    spec: &ResourceBindingSpec,
    cluster: &str,
    succeeded: bool,
) {
    let of = &spec.resource;
    let template = InvolvedObject {
        api_version: of.api_version.clone(),
        kind: of.kind.clone(),
        name: of.name.clone(),
        namespace: of.namespace.clone(),
        uid: of.uid.clone(),
        ..InvolvedObject::default()
    };
    for about in [InvolvedObject::from_object(binding), template] {
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
        let spec = |value: Value| serde_json::from_value::<ResourceBindingSpec>(value).unwrap();
        let check = |old: Value, new: Value, patch: Value| {
            assert_eq!(spec_patch(&spec(old), &spec(new)), patch);
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
