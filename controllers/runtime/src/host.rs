//! Decides whether the host cluster that holds the templates runs workloads itself.
//!
//! A host without Nodes runs nothing; its workload controllers may even be absent. A host
//! with Nodes creates pods for a Deployment that was meant for the members, and writes
//! its status. The decision follows the Nodes of the host.

use std::sync::Arc;

use client::{Api, Informer, Informers, Select};
use machinery::{Gvk, Gvr, Object};
use serde_json::Value;

static NODES: Gvr = Gvr::constant("", "v1", "nodes");

/// Kinds from which workload controllers create pods, and pods.
const WORKLOADS: [(&str, &str); 8] = [
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
const TENDED: [(&str, &str); 4] = [
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("autoscaling", "HorizontalPodAutoscaler"),
    ("policy", "PodDisruptionBudget"),
];

/// How workload templates are treated on a host that may run them. Clones share one
/// informer; the default is a host that runs nothing.
#[derive(Clone, Default)]
pub struct HostWorkloads {
    nodes: Option<Informer>,
    propagate: bool,
}

impl HostWorkloads {
    /// Watches the Nodes of `host`. `propagate`: workload templates are propagated to the
    /// members even when the host has Nodes.
    pub fn follow(host: &Arc<dyn Api>, informers: &Informers, propagate: bool) -> Self {
        let nodes = informers.get_with(host, &Select::all(&NODES), without_status);
        Self {
            nodes: Some(nodes),
            propagate,
        }
    }

    /// Waits until the Nodes of the host have been listed.
    pub async fn wait_synced(&self) {
        if let Some(nodes) = &self.nodes {
            nodes.wait_synced().await;
        }
    }

    /// Whether the host has Nodes.
    pub fn runs(&self) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| !nodes.is_empty())
    }

    /// Whether workload controllers act on a kind, in any version.
    pub fn concerns(kind: &Gvk) -> bool {
        is_among(&WORKLOADS, kind)
    }

    /// Whether templates of a kind are excluded from propagation.
    pub fn refuses(&self, kind: &Gvk) -> bool {
        !self.propagate && Self::concerns(kind) && self.runs()
    }

    /// Whether the host's controllers own the status of templates of a kind.
    pub fn keeps_status(&self, kind: &Gvk) -> bool {
        (Self::concerns(kind) || is_among(&TENDED, kind)) && self.runs()
    }

    /// Calls `handler` when the first Node appears and when the last one is gone.
    pub fn on_turn(&self, handler: impl Fn() + Send + Sync + 'static) {
        let Some(nodes) = &self.nodes else { return };
        let informer = nodes.clone();
        nodes.on_change(move |change| {
            let first = change.old.is_none() && informer.len() == 1;
            let last = change.new.is_none() && informer.is_empty();
            if first || last {
                handler();
            }
        });
    }
}

fn is_among(kinds: &[(&str, &str)], kind: &Gvk) -> bool {
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
    use client::fake::FakeApi;
    use client::{Shutdown, Tasks};
    use serde_json::json;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    const DEPLOYMENT: Gvk = Gvk::constant("apps", "v1", "Deployment");
    const OLD_JOB: Gvk = Gvk::constant("batch", "v1beta1", "CronJob");
    const BUDGET: Gvk = Gvk::constant("policy", "v1beta1", "PodDisruptionBudget");
    const MAP: Gvk = Gvk::constant("", "v1", "ConfigMap");

    #[tokio::test(start_paused = true)]
    async fn a_host_with_nodes_keeps_its_workloads() {
        let fake = FakeApi::new();
        let api: Arc<dyn Api> = fake.clone();
        let tasks = Tasks::new(Shutdown::new());
        let informers = Informers::new(&tasks);
        let strict = HostWorkloads::follow(&api, &informers, false);
        let lenient = HostWorkloads::follow(&api, &informers, true);
        strict.wait_synced().await;
        let (turns, counted) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let count = Arc::clone(&counted);
        strict.on_turn(move || {
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
                (&BUDGET, false, true),
                (&MAP, false, false),
            ] {
                assert_eq!(strict.refuses(kind), workload && nodes, "{kind}");
                assert!(!lenient.refuses(kind), "{kind}");
                assert_eq!(lenient.keeps_status(kind), tended && nodes, "{kind}");
            }
            assert!(!HostWorkloads::default().refuses(&DEPLOYMENT));
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
