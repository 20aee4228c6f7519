//! Decides whether the host cluster that holds the templates runs workloads itself.
//!
//! A host without Nodes runs nothing; its workload controllers may even be absent. A host
//! with Nodes creates pods for a Deployment that was meant for the members, and writes
//! its status. The decision follows the Nodes of the host.

use std::sync::Arc;

use client::{Api, Informer, InformerFactory, ListWatchSelector};
use machinery::{Gvk, Gvr, Object};
use serde_json::Value;

static NODES: Gvr = Gvr::from_static("", "v1", "nodes");

/// Kinds from which workload controllers create pods, and pods.
const WORKLOAD_KINDS: [(&str, &str); 8] = [
    ("", "Pod"),
    ("", "ReplicationController"),
    ("apps", "DaemonSet"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("batch", "CronJob"),
    ("batch", "Job"),
];

/// Further kinds whose status other controllers of such a host keep writing.
const HOST_STATUS_KINDS: [(&str, &str); 4] = [
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("autoscaling", "HorizontalPodAutoscaler"),
    ("policy", "PodDisruptionBudget"),
];

/// Decides whether workload templates are propagated, given the Nodes of the host. Clones
/// share one informer. The default is for a host without Nodes.
#[derive(Clone, Default)]
pub struct HostWorkloadFilter {
    nodes: Option<Informer>,
    propagate: bool,
}

impl HostWorkloadFilter {
    /// Watches the Nodes of `host`. `propagate`: workload templates are propagated to the
    /// members even when the host has Nodes.
    pub fn watch(host: &Arc<dyn Api>, informers: &InformerFactory, propagate: bool) -> Self {
        let nodes =
            informers.get_with_transform(host, &ListWatchSelector::all(&NODES), without_status);
        Self {
            nodes: Some(nodes),
            propagate,
        }
    }

    /// Waits until the Nodes of the host have been listed.
    pub async fn wait_for_cache_sync(&self) {
        if let Some(nodes) = &self.nodes {
            nodes.wait_for_cache_sync().await;
        }
    }

    /// Whether another API server stores the templates.
    pub fn is_behind_host(&self) -> bool {
        self.nodes.is_some()
    }

    /// Whether the host has Nodes.
    pub fn has_nodes(&self) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| !nodes.is_empty())
    }

    /// Whether workload controllers act on a kind, in any version.
    pub fn is_workload(kind: &Gvk) -> bool {
        contains_kind(&WORKLOAD_KINDS, kind)
    }

    /// Whether templates of a kind are excluded from propagation.
    pub fn is_excluded(&self, kind: &Gvk) -> bool {
        !self.propagate && Self::is_workload(kind) && self.has_nodes()
    }

    /// Whether the host's controllers own the status of templates of a kind.
    pub fn owns_status(&self, kind: &Gvk) -> bool {
        (Self::is_workload(kind) || contains_kind(&HOST_STATUS_KINDS, kind)) && self.has_nodes()
    }

    /// Calls `handler` when the first Node appears and when the last one is gone.
    pub fn on_has_nodes_change(&self, handler: impl Fn() + Send + Sync + 'static) {
        let Some(nodes) = &self.nodes else { return };
        let informer = nodes.clone();
        nodes.add_event_handler(move |change| {
            let first = change.old.is_none() && informer.len() == 1;
            let last = change.new.is_none() && informer.is_empty();
            if first || last {
                handler();
            }
        });
    }
}

fn contains_kind(kinds: &[(&str, &str)], kind: &Gvk) -> bool {
    kinds.contains(&(&*kind.group, &*kind.kind))
}

/// Drops the status of a Node: Nodes are only counted, and most of their bytes are status.
fn without_status(node: Object) -> Object {
    let slim = || {
        let mut value = node.value().ok()?;
        value.as_object_mut()?.insert("status".into(), Value::Null);
        Object::from_value(&value).ok()
    };
    slim().unwrap_or(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::{ShutdownToken, TaskGroup};
    use client_fake::FakeApi;
    use serde_json::json;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    const DEPLOYMENT: Gvk = Gvk::from_static("apps", "v1", "Deployment");
    const OLD_JOB: Gvk = Gvk::from_static("batch", "v1beta1", "CronJob");
    const POD_DISRUPTION_BUDGET: Gvk = Gvk::from_static("policy", "v1beta1", "PodDisruptionBudget");
    const CONFIG_MAP: Gvk = Gvk::from_static("", "v1", "ConfigMap");

    #[tokio::test(start_paused = true)]
    async fn a_host_with_nodes_keeps_its_workloads() {
        let fake = FakeApi::new();
        let api: Arc<dyn Api> = fake.clone();
        let tasks = TaskGroup::new(ShutdownToken::new());
        let informers = InformerFactory::new(&tasks);
        let strict = HostWorkloadFilter::watch(&api, &informers, false);
        let lenient = HostWorkloadFilter::watch(&api, &informers, true);
        strict.wait_for_cache_sync().await;
        let (turns, counted) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let count = Arc::clone(&counted);
        strict.on_has_nodes_change(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let expect = async |nodes: bool| {
            turns.fetch_add(1, Ordering::SeqCst);
            while counted.load(Ordering::SeqCst) < turns.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            for (kind, workload, tended) in [
                (&DEPLOYMENT, true, true),
                (&OLD_JOB, true, true),
                (&POD_DISRUPTION_BUDGET, false, true),
                (&CONFIG_MAP, false, false),
            ] {
                assert_eq!(strict.is_excluded(kind), workload && nodes, "{kind}");
                assert!(!lenient.is_excluded(kind), "{kind}");
                assert_eq!(lenient.owns_status(kind), tended && nodes, "{kind}");
            }
            assert!(!HostWorkloadFilter::default().is_excluded(&DEPLOYMENT));
        };
        for node in ["a", "b"] {
            fake.seed(
                &NODES,
                json!({"metadata": {"name": node}, "status": {"images": []}}),
            );
        }
        expect(true).await;
        fake.remove(&NODES, "", "a");
        fake.remove(&NODES, "", "b");
        expect(false).await;
        tasks.stop().await;
    }
}
