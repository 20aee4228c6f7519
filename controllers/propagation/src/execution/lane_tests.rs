//! Tests of the per-cluster queues and workers with fake members.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::Api;
use machinery::Gvr;
use openapi::karmada::labels;
use openapi::karmada::resources::{CLUSTERS, WORKS};
use parking_lot::{Condvar, Mutex};
use flotilla_runtime::{Informer, Select};
use serde_json::{Value, json};

use super::Execution;
use crate::access::{MemberAccess, OnConnect, OnObject};
use crate::flow_tests::{CONFIG_MAPS, Plane, cluster, until};
use crate::kinds::{Kinds, Skips};
use crate::works::Works;
use crate::{Deps, Options};

fn space(cluster: &str) -> String {
    format!("karmada-es-{cluster}")
}

/// A Work with one ConfigMap.
fn work(cluster: &str, uid: &str, data: &str) -> Value {
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": data},
        "metadata": {"name": "c", "namespace": "n", "labels": {labels::MANAGED: "true"},
            "annotations": {labels::WORK_NAMESPACE: space(cluster), labels::WORK_NAME: "w",
                            labels::CONFLICT_RESOLUTION: "overwrite"}}});
    json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": "w", "namespace": space(cluster), "uid": uid, "generation": 1},
        "spec": {"workload": {"manifests": [manifest]}}})
}

async fn execution(deps: &Deps, plane: &Plane) -> Arc<Execution> {
    let kinds = Arc::new(Kinds::new(Skips::new(&[]).unwrap()));
    kinds.refresh(&*deps.control).await.unwrap();
    let informer = deps.informers.get(&deps.control, &Select::all(&WORKS));
    informer.wait_synced().await;
    let works = Works::new(Arc::clone(&deps.control), informer);
    let memory = Arc::default();
    Execution::following(deps, &kinds, &works, &memory, &plane.tasks).await
}

impl Plane {
    fn data_in(&self, member: usize) -> Value {
        let map = self.members[member].object(&CONFIG_MAPS, "n", "c");
        map.unwrap_or_default()["data"]["k"].clone()
    }

    fn remove_work(&self, cluster: &str) {
        self.control.remove(&WORKS, &space(cluster), "w");
    }
}

#[tokio::test]
async fn the_workers_of_a_cluster_that_is_gone_end_and_come_again_with_it() {
    let mut plane = Plane::new();
    let deps = plane.deps(Options::default(), None);
    let it = execution(&deps, &plane).await;
    plane.control.seed(&WORKS, work("m1", "first", "1"));
    until("applied", || plane.data_in(0) == "1").await;
    plane.remove_work("m1");
    until("no work", || it.works_of("m1").is_empty()).await;
    assert!(it.lanes.get("m1").is_some(), "the cluster is there");
    plane.control.remove(&CLUSTERS, "", "m1");
    until("no lane", || it.lanes.get("m1").is_none()).await;
    plane.control.seed(&CLUSTERS, cluster("m1"));
    plane.control.seed(&WORKS, work("m1", "second", "2"));
    until("applied again", || plane.data_in(0) == "2").await;
    plane.tasks.stop().await;
}

/// The Work is deleted while a worker writes to the member. The handler forgets the Work before the
/// worker records its sync state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_work_that_replaces_one_that_was_being_applied_is_applied() {
    let mut plane = Plane::new();
    let deps = plane.deps(Options::default(), None);
    let it = execution(&deps, &plane).await;
    let (control, first, works) = (
        Arc::clone(&plane.control),
        AtomicBool::new(true),
        deps.informers.get(&deps.control, &Select::all(&WORKS)),
    );
    plane.members[0].on_call(move |call| {
        if call.verb == "create" && first.swap(false, Ordering::Relaxed) {
            control.remove(&WORKS, &space("m1"), "w");
            while !works.is_empty() {
                std::thread::yield_now();
            }
            // The handler runs right after the cache has changed.
            std::thread::park_timeout(Duration::from_millis(50));
        }
        None
    });
    plane.control.seed(&WORKS, work("m1", "first", "1"));
    until("applied", || plane.data_in(0) == "1").await;
    let key = format!("{}/w", space("m1"));
    let lane = it.lanes.get("m1").unwrap();
    until("the worker to end", || !lane.queue.has_others::<str>(None)).await;
    assert!(
        lane.in_order(&key).is_none(),
        "the sync state of a deleted Work is forgotten"
    );
    plane.control.seed(&WORKS, work("m1", "second", "2"));
    until("applied again", || plane.data_in(0) == "2").await;
    plane.tasks.stop().await;
}

/// Blocks the requests for one member's informer on demand.
struct Blocking {
    members: Arc<dyn MemberAccess>,
    blocked: Arc<(Mutex<bool>, Condvar)>,
    waits: Arc<AtomicBool>,
}

impl MemberAccess for Blocking {
    fn api(&self, cluster: &str) -> Result<Arc<dyn Api>, String> {
        self.members.api(cluster)
    }

    fn managed(&self, cluster: &str, resource: &Gvr) -> Result<Informer, String> {
        if cluster == "m1" {
            let (blocked, changed) = &*self.blocked;
            let mut blocked = blocked.lock();
            while *blocked {
                self.waits.store(true, Ordering::Relaxed);
                changed.wait(&mut blocked);
            }
        }
        self.members.managed(cluster, resource)
    }

    fn followed(&self, cluster: &str, resource: &Gvr) -> Option<Informer> {
        self.members.followed(cluster, resource)
    }

    fn unfollow(&self, cluster: &str, resource: &Gvr) {
        self.members.unfollow(cluster, resource);
    }

    fn on_object(&self, handler: OnObject) {
        self.members.on_object(handler);
    }

    fn on_connect(&self, handler: OnConnect) {
        self.members.on_connect(handler);
    }
}

/// A worker of one cluster hangs while it checks the sync state of a Work.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cluster_that_stands_still_holds_no_lock_that_another_needs() {
    let mut plane = Plane::new();
    let mut deps = plane.deps(Options::default(), None);
    let (blocked, waits) = (Arc::default(), Arc::new(AtomicBool::new(false)));
    deps.members = Arc::new(Blocking {
        members: Arc::clone(&deps.members),
        blocked: Arc::clone(&blocked),
        waits: Arc::clone(&waits),
    });
    let it = execution(&deps, &plane).await;
    for name in ["m1", "m2"] {
        plane.control.seed(&WORKS, work(name, name, "1"));
    }
    let in_order = |cluster: &str| {
        let lane = it.lanes.get(cluster);
        lane.is_some_and(|lane| lane.in_order(&format!("{}/w", space(cluster))).is_some())
    };
    until("both in order", || in_order("m1") && in_order("m2")).await;
    *blocked.0.lock() = true;
    // An edit of the first member's object and of the second member's Work.
    let mut edited = plane.members[0].object(&CONFIG_MAPS, "n", "c").unwrap();
    edited["metadata"]["labels"]["edited"] = "by hand".into();
    plane.members[0].seed(&CONFIG_MAPS, edited);
    until("the first to stand still", || waits.load(Ordering::Relaxed)).await;
    let mut next = work("m2", "m2", "2");
    next["metadata"]["generation"] = 2.into();
    plane.control.seed(&WORKS, next);
    let goes_on = tokio::time::timeout(
        Duration::from_secs(20),
        until("the second to go on", || plane.data_in(1) == "2"),
    );
    let goes_on = goes_on.await;
    *blocked.0.lock() = false;
    blocked.1.notify_all();
    goes_on.unwrap();
    plane.tasks.stop().await;
}
