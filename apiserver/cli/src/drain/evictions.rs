//! Evicts bindings from a cluster, and waits until they have left it.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use anyhow::Context;
use client::{Api, ListOptions, ResourcePath, WatchEvent, WatchOptions, WriteOptions};
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, select_all};
use karmada_api::binding::GracefulEvictionTask;
use karmada_api::failover::PURGE_MODE_GRACEFULLY;
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS, WORKS};
use karmada_api::well_known_keys::{BINDING_ID, CLUSTER_BINDING_ID};
use karmada_api::{ResourceBinding, names};
use machinery::{Gvr, Object};
use serde_json::json;

use super::placements::DrainedTemplate;
use crate::conflicts::retry_on_conflict;
use crate::object_lists::list_all;
use crate::output;

/// How many remaining objects are named.
const MAX_NAMED: usize = 5;

/// How often the remaining objects are printed.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// A binding that leaves the cluster.
pub(super) struct EvictedBinding {
    /// `NAMESPACE/NAME`, or its name.
    key: String,
    /// The label value of its Works.
    permanent_id: String,
}

/// Removes a cluster from the targets of a binding, and has the binding leave it gracefully.
pub(super) async fn evict(
    api: &dyn Api,
    cluster: &str,
    template: &DrainedTemplate,
) -> anyhow::Result<EvictedBinding> {
    let (resource, label) = match template.namespace.as_str() {
        "" => (&CLUSTER_BINDINGS, CLUSTER_BINDING_ID),
        _ => (&BINDINGS, BINDING_ID),
    };
    let at = ResourcePath::object(resource, &template.namespace, &template.binding);
    retry_on_conflict(|| async {
        let object = api.get(at).await?;
        let evicted = EvictedBinding {
            key: object.meta().key(),
            permanent_id: object.meta().label(label).unwrap_or_default().to_owned(),
        };
        let mut spec = object.decode::<ResourceBinding>()?.spec.clone();
        let task = GracefulEvictionTask {
            from_cluster: cluster.to_owned(),
            purge_mode: PURGE_MODE_GRACEFULLY.to_owned(),
            reason: "ClusterDrained".to_owned(),
            producer: "Drain".to_owned(),
            ..GracefulEvictionTask::default()
        };
        if !spec.evict(task) {
            return Ok(evicted);
        }
        let mut body = object.value()?;
        body["spec"]["clusters"] = json!(spec.clusters);
        body["spec"]["gracefulEvictionTasks"] = json!(spec.graceful_eviction_tasks);
        api.update(at, body.into(), &WriteOptions::default())
            .await?;
        Ok(evicted)
    })
    .await
}

/// The bindings that are not placed in the cluster any more, and have not left it: evictions of
/// others or of an earlier drain go on, or a rollout keeps their replicas.
pub(super) async fn list_leaving(
    api: &dyn Api,
    cluster: &str,
) -> anyhow::Result<Vec<EvictedBinding>> {
    let works = list_all(api, &WORKS, &names::execution_space_name(cluster)).await?;
    let ids: HashSet<&str> = works.iter().filter_map(binding_id).collect();
    let mut leaving = Vec::new();
    for resource in [&BINDINGS, &CLUSTER_BINDINGS] {
        for binding in list_all(api, resource, "").await? {
            let spec = &binding.decode::<ResourceBinding>()?.spec;
            let is_placed = spec.targets().iter().any(|target| target.name == cluster);
            let id = binding_id(&binding).unwrap_or_default();
            if !is_placed && (spec.is_evicting(cluster) || ids.contains(id)) {
                leaving.push(EvictedBinding {
                    key: binding.meta().key(),
                    permanent_id: id.to_owned(),
                });
            }
        }
    }
    Ok(leaving)
}

/// The permanent id of a binding, or of that of a Work.
fn binding_id(object: &Object) -> Option<&str> {
    let meta = object.meta();
    meta.label(BINDING_ID).or(meta.label(CLUSTER_BINDING_ID))
}

/// Waits until the evicted bindings and their Works have left the cluster; the error names those
/// that have not.
pub(super) async fn wait_until_left(
    api: &dyn Api,
    cluster: &str,
    evicted: Vec<EvictedBinding>,
    timeout: Duration,
) -> anyhow::Result<()> {
    let mut remaining = RemainingObjects {
        cluster,
        evicted,
        keys: BTreeSet::new(),
    };
    let left = tokio::time::timeout(timeout, follow_until_left(api, &mut remaining)).await;
    left.with_context(|| {
        format!(
            "after {} s {cluster} still has {}; what was evicted goes on leaving: `flotilla why` says what a template waits for, and the same command waits again",
            timeout.as_secs_f64(),
            remaining.text()
        )
    })?
}

async fn follow_until_left(
    api: &dyn Api,
    remaining: &mut RemainingObjects<'_>,
) -> anyhow::Result<()> {
    let space = names::execution_space_name(remaining.cluster);
    let mut watches = Vec::new();
    for (resource, namespace) in [(&BINDINGS, ""), (&CLUSTER_BINDINGS, ""), (&WORKS, &*space)] {
        watches.push(follow(api, resource, namespace, remaining).await?);
    }
    let mut events = select_all(watches);
    let mut progress = tokio::time::interval(PROGRESS_INTERVAL);
    progress.tick().await;
    while !remaining.keys.is_empty() {
        tokio::select! {
            event = events.next() => {
                let (resource, event) = event.context("the watches have ended; run the command again")?;
                match event? {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        remaining.update(resource, &object)?;
                    }
                    WatchEvent::Deleted(object) => remaining.remove(resource, &object),
                    WatchEvent::Bookmark { .. } => {}
                }
            }
            _ = progress.tick() => output::print_progress(format!(
                "waiting until these have left {}: {}",
                remaining.cluster,
                remaining.text()
            )),
        }
    }
    Ok(())
}

type ResourceEvents = BoxStream<'static, (&'static Gvr, Result<WatchEvent, client::Error>)>;

/// Lists a resource and follows its changes.
async fn follow(
    api: &dyn Api,
    resource: &'static Gvr,
    namespace: &str,
    remaining: &mut RemainingObjects<'_>,
) -> anyhow::Result<ResourceEvents> {
    let at = ResourcePath::collection(resource, namespace);
    let list = api.list(at, &ListOptions::default()).await?;
    for object in &list.items {
        remaining.update(resource, object)?;
    }
    let options = WatchOptions {
        resource_version: list.revision.to_string(),
        ..WatchOptions::default()
    };
    let events = api.watch(at, &options).await?;
    Ok(events.map(move |event| (resource, event)).boxed())
}

/// The objects that have not left the cluster yet.
struct RemainingObjects<'a> {
    cluster: &'a str,
    evicted: Vec<EvictedBinding>,
    /// Resource and key.
    keys: BTreeSet<(&'static str, String)>,
}

impl RemainingObjects<'_> {
    /// The first of them by name, and the number of the others.
    fn text(&self) -> String {
        let named = self.keys.iter().take(MAX_NAMED);
        let named: Vec<String> = named
            .map(|(resource, key)| format!("{resource} {key}"))
            .collect();
        match self.keys.len() - named.len() {
            0 => named.join(", "),
            others => format!("{} and {others} more", named.join(", ")),
        }
    }

    fn update(&mut self, resource: &'static Gvr, object: &Object) -> anyhow::Result<()> {
        let is_there = if *resource == WORKS {
            let id = binding_id(object);
            self.evicted.iter().any(|e| Some(&*e.permanent_id) == id)
        } else {
            let key = object.meta().key();
            let spec = &object.decode::<ResourceBinding>()?.spec;
            let placed = spec.clusters.iter().any(|t| t.name == self.cluster);
            self.evicted.iter().any(|e| e.key == key) && (placed || spec.is_evicting(self.cluster))
        };
        if is_there {
            self.keys.insert((&resource.resource, object.meta().key()));
        } else {
            self.remove(resource, object);
        }
        Ok(())
    }

    fn remove(&mut self, resource: &'static Gvr, object: &Object) {
        self.keys
            .remove(&(&*resource.resource, object.meta().key()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client_fake::FakeApi;

    // proves: DRN-waits
    #[tokio::test]
    async fn what_was_leaving_before_is_awaited_too() {
        let control = FakeApi::new();
        let binding = |name: &str, spec: serde_json::Value| {
            let labels = json!({BINDING_ID: name});
            let metadata = json!({"name": name, "namespace": "n", "labels": labels});
            control.seed(&BINDINGS, json!({"metadata": metadata, "spec": spec}));
        };
        let elsewhere = json!([{"name": "m2"}]);
        let task = json!({"fromCluster": "m1", "purgeMode": PURGE_MODE_GRACEFULLY});
        binding("placed", json!({"clusters": [{"name": "m1"}]}));
        binding("elsewhere", json!({"clusters": elsewhere}));
        binding("kept", json!({"clusters": elsewhere}));
        let evicted = json!({"clusters": elsewhere, "gracefulEvictionTasks": [task]});
        binding("evicted", evicted);
        for (id, space) in [
            ("placed", "karmada-es-m1"),
            ("kept", "karmada-es-m1"),
            ("elsewhere", "karmada-es-m2"),
        ] {
            let metadata = json!({"name": id, "namespace": space, "labels": {BINDING_ID: id}});
            control.seed(&WORKS, json!({"metadata": metadata}));
        }
        let leaving = list_leaving(&*control, "m1").await.unwrap();
        let mut keys: Vec<&str> = leaving.iter().map(|binding| &*binding.key).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["n/evicted", "n/kept"]);
    }

    // proves: DRN-waits
    #[test]
    fn what_has_not_left_is_named() {
        let mut remaining = RemainingObjects {
            cluster: "m1",
            evicted: Vec::new(),
            keys: BTreeSet::new(),
        };
        let work = |n: usize| ("works", format!("karmada-es-m1/w{n}"));
        remaining.keys.extend((0..2).map(work));
        let two = "works karmada-es-m1/w0, works karmada-es-m1/w1";
        assert_eq!(remaining.text(), two);
        remaining.keys.extend((0..8).map(work));
        assert!(remaining.text().starts_with(two));
        assert!(remaining.text().ends_with("w4 and 3 more"));
    }
}
