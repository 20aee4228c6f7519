//! Tests of the per-cluster queues and workers with fake members.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Api, Informer};
use controller_context::WorkClient;
use flotilla_runtime::RestMapper;
use karmada_api::FeatureGates;
use karmada_api::resources::{CLUSTERS, WORKS};
use karmada_api::well_known_keys;
use machinery::Gvr;
use members::{MemberAccess, MemberConnectionCallback, MemberObjectCallback};
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

use crate::controller::ExecutionController;
use crate::options::{ExecutionControllerOptions, ExecutionScope, MEMBER_CALL_TIMEOUT};
use controller_context::PropagationContext;
use controller_testing::{CONFIG_MAPS, FederationFixture, cluster, wait_until};

fn execution_namespace(cluster: &str) -> String {
    format!("karmada-es-{cluster}")
}

/// A Work with one ConfigMap.
fn work(cluster: &str, uid: &str, data: &str) -> Value {
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": data},
        "metadata": {"name": "c", "namespace": "n", "labels": {well_known_keys::MANAGED: "true"},
            "annotations": {well_known_keys::WORK_NAMESPACE: execution_namespace(cluster), well_known_keys::WORK_NAME: "w",
                            well_known_keys::CONFLICT_RESOLUTION: "overwrite"}}});
    json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": "w", "namespace": execution_namespace(cluster), "uid": uid, "generation": 1},
        "spec": {"workload": {"manifests": [manifest]}}})
}

async fn execution_controller(context: &PropagationContext) -> Arc<ExecutionController> {
    let rest_mapper = Arc::new(RestMapper::new(Arc::clone(
        &context.controller.control_plane,
    )));
    rest_mapper.refresh().await.unwrap();
    let informer = context.controller.informer(&WORKS);
    informer.wait_for_cache_sync().await;
    let works = WorkClient::new(Arc::clone(&context.controller.control_plane), informer);
    let options = ExecutionControllerOptions {
        rest_mapper,
        works,
        memory: Arc::default(),
        scope: ExecutionScope::PushClusters,
        call_timeout: MEMBER_CALL_TIMEOUT,
    };
    ExecutionController::with_event_handlers(context, options).await
}

fn data_in(plane: &FederationFixture, member: usize) -> Value {
    let map = plane.members[member].get_object(&CONFIG_MAPS, "n", "c");
    map.unwrap_or_default()["data"]["k"].clone()
}

fn remove_work(plane: &FederationFixture, cluster: &str) {
    plane
        .control_plane
        .remove(&WORKS, &execution_namespace(cluster), "w");
}

#[tokio::test]
async fn the_workers_of_a_deleted_cluster_end_and_start_again_with_it() {
    let mut plane = FederationFixture::new();
    let context = plane.context(FeatureGates::default(), None);
    let controller = execution_controller(&context).await;
    plane.control_plane.seed(&WORKS, work("m1", "first", "1"));
    wait_until("applied", || data_in(&plane, 0) == "1").await;
    remove_work(&plane, "m1");
    wait_until("no work", || controller.list_works("m1").is_empty()).await;
    assert!(
        controller.executors.get("m1").is_some(),
        "the cluster is there"
    );
    plane.control_plane.remove(&CLUSTERS, "", "m1");
    wait_until("no executor", || controller.executors.get("m1").is_none()).await;
    plane.control_plane.seed(&CLUSTERS, cluster("m1"));
    plane.control_plane.seed(&WORKS, work("m1", "second", "2"));
    wait_until("applied again", || data_in(&plane, 0) == "2").await;
    plane.tasks.stop().await;
}

/// The Work is deleted while a worker writes to the member. The handler forgets the Work before the
/// worker records its sync state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_work_that_replaces_one_in_progress_is_applied() {
    let mut plane = FederationFixture::new();
    let context = plane.context(FeatureGates::default(), None);
    let controller = execution_controller(&context).await;
    let (control, first, works) = (
        Arc::clone(&plane.control_plane),
        AtomicBool::new(true),
        context.controller.informer(&WORKS),
    );
    plane.members[0].on_call(move |call| {
        if call.verb == "create" && first.swap(false, Ordering::Relaxed) {
            // By another thread: a task that this worker wakes may wait behind it forever.
            let control = Arc::clone(&control);
            let removal = move || control.remove(&WORKS, &execution_namespace("m1"), "w");
            std::thread::spawn(removal).join().unwrap();
            while !works.is_empty() {
                std::thread::yield_now();
            }
            // The handler runs right after the cache has changed.
            std::thread::park_timeout(Duration::from_millis(50));
        }
        None
    });
    plane.control_plane.seed(&WORKS, work("m1", "first", "1"));
    wait_until("applied", || data_in(&plane, 0) == "1").await;
    let key = format!("{}/w", execution_namespace("m1"));
    let executor = controller.executors.get("m1").unwrap();
    wait_until("the worker to end", || {
        !executor.queue.has_other_keys::<str>(None)
    })
    .await;
    assert!(
        executor.synced_works.get(&key).is_none(),
        "the sync state of a deleted Work is forgotten"
    );
    plane.control_plane.seed(&WORKS, work("m1", "second", "2"));
    wait_until("applied again", || data_in(&plane, 0) == "2").await;
    plane.tasks.stop().await;
}

/// Blocks the requests for one member's informer on demand.
struct BlockableMembers {
    members: Arc<dyn MemberAccess>,
    blocked: Arc<(Mutex<bool>, Condvar)>,
    is_waiting: Arc<AtomicBool>,
}

impl MemberAccess for BlockableMembers {
    fn api(&self, cluster: &str) -> Result<Arc<dyn Api>, String> {
        self.members.api(cluster)
    }

    fn managed_informer(&self, cluster: &str, resource: &Gvr) -> Result<Informer, String> {
        if cluster == "m1" {
            let (blocked, changed) = &*self.blocked;
            let mut blocked = blocked.lock();
            while *blocked {
                self.is_waiting.store(true, Ordering::Relaxed);
                changed.wait(&mut blocked);
            }
        }
        self.members.managed_informer(cluster, resource)
    }

    fn find_managed_informer(&self, cluster: &str, resource: &Gvr) -> Option<Informer> {
        self.members.find_managed_informer(cluster, resource)
    }

    fn stop_managed_informer(&self, cluster: &str, resource: &Gvr) {
        self.members.stop_managed_informer(cluster, resource);
    }

    fn on_managed_object(&self, handler: MemberObjectCallback) {
        self.members.on_managed_object(handler);
    }

    fn on_connection_change(&self, handler: MemberConnectionCallback) {
        self.members.on_connection_change(handler);
    }
}

/// A worker of one cluster hangs while it checks the sync state of a Work.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hanging_cluster_holds_no_lock_that_another_needs() {
    let mut plane = FederationFixture::new();
    let mut context = plane.context(FeatureGates::default(), None);
    let (blocked, waits) = (Arc::default(), Arc::new(AtomicBool::new(false)));
    context.members = Arc::new(BlockableMembers {
        members: Arc::clone(&context.members),
        blocked: Arc::clone(&blocked),
        is_waiting: Arc::clone(&waits),
    });
    let controller = execution_controller(&context).await;
    for name in ["m1", "m2"] {
        plane.control_plane.seed(&WORKS, work(name, name, "1"));
    }
    let in_order = |cluster: &str| {
        let executor = controller.executors.get(cluster);
        executor.is_some_and(|executor| {
            let key = format!("{}/w", execution_namespace(cluster));
            executor.synced_works.get(&key).is_some()
        })
    };
    wait_until("both in order", || in_order("m1") && in_order("m2")).await;
    *blocked.0.lock() = true;
    // An edit of the first member's object and of the second member's Work.
    let mut edited = plane.members[0].get_object(&CONFIG_MAPS, "n", "c").unwrap();
    edited["metadata"]["labels"]["edited"] = "by hand".into();
    plane.members[0].seed(&CONFIG_MAPS, edited);
    wait_until("the first to stand still", || waits.load(Ordering::Relaxed)).await;
    let mut next = work("m2", "m2", "2");
    next["metadata"]["generation"] = 2.into();
    plane.control_plane.seed(&WORKS, next);
    let goes_on = tokio::time::timeout(
        Duration::from_secs(20),
        wait_until("the second to go on", || data_in(&plane, 1) == "2"),
    );
    let goes_on = goes_on.await;
    *blocked.0.lock() = false;
    blocked.1.notify_all();
    goes_on.unwrap();
    plane.tasks.stop().await;
}
