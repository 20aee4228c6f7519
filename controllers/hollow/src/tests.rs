//! Tests of the hollow cluster over a fake API server: which writes it makes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::{InformerFactory, ShutdownToken, TaskGroup};
use client_fake::{FakeApi, FakeCall};
use flotilla_runtime::{ControllerContext, EventRecorder};
use machinery::time::SystemClock;
use machinery::{Gvr, Status};
use serde_json::{Value, json};

use crate::controller::{DEPLOYMENTS, PODS, REPLICA_SETS};
use crate::{HollowCluster, HollowClusterOptions};

static EVENTS: Gvr = Gvr::from_static("", "v1", "events");

struct HollowFixture {
    fake: Arc<FakeApi>,
    tasks: TaskGroup,
    /// Informers stop when they are dropped.
    informers: InformerFactory,
}

impl HollowFixture {
    fn new() -> Self {
        let tasks = TaskGroup::new(ShutdownToken::new());
        Self {
            fake: FakeApi::new(),
            informers: InformerFactory::new(&tasks),
            tasks,
        }
    }

    /// Starts a cluster of one node with capacity for `pods` pods.
    async fn start(&mut self, pods: u32) {
        self.tasks = TaskGroup::new(ShutdownToken::new());
        let options = HollowClusterOptions {
            nodes: 1,
            pods_per_node: pods,
            ready_after: Duration::from_millis(10),
            ..HollowClusterOptions::default()
        };
        self.informers = InformerFactory::new(&self.tasks);
        let context = ControllerContext {
            control_plane: self.fake.clone(),
            informers: self.informers.clone(),
            clock: Arc::new(SystemClock),
            recorder: EventRecorder::disabled(),
            tasks: self.tasks.clone(),
        };
        HollowCluster::start(&context, options).await.unwrap();
    }

    fn deployment(&self, replicas: i64) {
        let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let body = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d", "namespace": "n", "uid": "d", "generation": 1},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "d"}}, "template": template}});
        self.fake.seed(&DEPLOYMENTS, body);
    }

    fn ready_replicas(&self, name: &str) -> i64 {
        let deployment = self.fake.get_object(&DEPLOYMENTS, "n", name);
        deployment.map_or(0, |d| d["status"]["readyReplicas"].as_i64().unwrap_or(0))
    }

    fn count_pods(&self, of: impl Fn(&Value) -> bool) -> usize {
        self.fake
            .list_objects(&PODS)
            .iter()
            .filter(|p| of(p))
            .count()
    }

    fn count_writes(&self, verb: &str, resource: &Gvr, subresource: &str) -> usize {
        let all = self.fake.writes();
        let same = all
            .iter()
            .filter(|w| w.verb == verb && w.resource == *resource && w.subresource == subresource);
        same.count()
    }
}

async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn unschedulable(pod: &Value) -> bool {
    pod["status"]["conditions"][0]["reason"] == "Unschedulable"
}

#[tokio::test]
async fn a_deployment_costs_few_writes_and_a_restart_none() {
    let mut fixture = HollowFixture::new();
    fixture.start(10).await;
    fixture.deployment(3);
    wait_until("all are ready", || fixture.ready_replicas("d") == 3).await;
    assert_eq!(fixture.count_writes("create", &PODS, ""), 3);
    assert_eq!(fixture.count_writes("create", &PODS, "binding"), 0);
    assert_eq!(fixture.count_writes("update", &PODS, "status"), 3);
    fixture.tasks.stop().await;
    fixture.fake.clear_writes();
    fixture.start(10).await;
    // The new object shows that the older ones have been reconciled.
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare", "namespace": "n", "uid": "bare"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    fixture.fake.seed(&PODS, pod);
    wait_until("the bare pod is bound", || {
        fixture.count_writes("create", &PODS, "binding") == 1
    })
    .await;
    assert_eq!(fixture.count_writes("create", &PODS, ""), 0);
    assert_eq!(fixture.count_writes("update", &DEPLOYMENTS, "status"), 0);
    assert_eq!(fixture.count_writes("update", &REPLICA_SETS, "status"), 0);
    fixture.tasks.stop().await;
}

#[tokio::test]
async fn unschedulable_pods_wait_for_capacity() {
    let mut fixture = HollowFixture::new();
    fixture.start(2).await;
    fixture.deployment(3);
    wait_until("one pod is unschedulable", || {
        fixture.count_pods(unschedulable) == 1
    })
    .await;
    wait_until("two are ready", || fixture.ready_replicas("d") == 2).await;
    let placed = |p: &Value| p["spec"]["nodeName"].is_string();
    let all = fixture.fake.list_objects(&PODS);
    let sitting = all.into_iter().find(placed).unwrap();
    let name = sitting["metadata"]["name"].as_str().unwrap();
    fixture.fake.remove(&PODS, "n", name);
    wait_until("the capacity is used", || {
        fixture.count_writes("create", &PODS, "binding") >= 1
    })
    .await;
    fixture.tasks.stop().await;
}

// proves: HOL-pod-limit
#[tokio::test]
async fn a_workload_beyond_all_measure_costs_a_bounded_number_of_pods() {
    let mut fixture = HollowFixture::new();
    fixture.start(2).await;
    fixture.deployment(i32::MAX.into());
    let event = || {
        let events = fixture.fake.list_objects(&EVENTS);
        events.into_iter().find(|e| e["reason"] == "FailedCreate")
    };
    wait_until("an event", || event().is_some()).await;
    let message = event().unwrap()["message"].to_string();
    assert!(
        message.contains("a simulated cluster of this size has at most 502 pods"),
        "{message}"
    );
    assert_eq!(fixture.count_pods(|_| true), 502);
    wait_until("two are ready", || fixture.ready_replicas("d") == 2).await;
    fixture.tasks.stop().await;
}

#[tokio::test]
async fn pods_that_cannot_be_created_are_an_event_and_a_condition() {
    let mut fixture = HollowFixture::new();
    let over_quota = Arc::new(AtomicBool::new(true));
    let is_over = Arc::clone(&over_quota);
    let refuse = move |call: &FakeCall<'_>| {
        let is_refused = call.verb == "create" && call.resource == Some(&PODS);
        (is_refused && is_over.load(Ordering::Relaxed))
            .then(|| Status::forbidden(&PODS, "x", "exceeded quota: q").into())
    };
    fixture.fake.on_call(refuse);
    fixture.start(10).await;
    fixture.deployment(2);
    let condition = || {
        let status = fixture.fake.get_object(&DEPLOYMENTS, "n", "d")?["status"].take();
        let all = status["conditions"].as_array()?.iter();
        all.into_iter()
            .find(|c| c["type"] == "ReplicaFailure")
            .cloned()
    };
    wait_until("the condition", || condition().is_some()).await;
    let condition_text = condition().unwrap().to_string();
    assert!(
        condition_text.contains("exceeded quota: q"),
        "{condition_text}"
    );
    let events = || fixture.fake.list_objects(&EVENTS);
    wait_until("an event", || !events().is_empty()).await;
    let event = events().remove(0);
    assert_eq!(event["reason"], "FailedCreate");
    assert_eq!(event["involvedObject"]["kind"], "ReplicaSet");
    assert_eq!(event["source"]["component"], "replicaset-controller");
    let message = event["message"].as_str().unwrap();
    assert!(
        message.starts_with("Error creating: pods \"x\" is forbidden"),
        "{message}"
    );
    over_quota.store(false, Ordering::Relaxed);
    wait_until("all are ready", || fixture.ready_replicas("d") == 2).await;
    wait_until("the condition is gone", || condition().is_none()).await;
    fixture.tasks.stop().await;
}

#[tokio::test]
async fn a_replica_set_that_lost_its_owner_is_adopted() {
    let mut fixture = HollowFixture::new();
    fixture.start(10).await;
    fixture.deployment(1);
    wait_until("it is ready", || fixture.ready_replicas("d") == 1).await;
    let mut set = fixture.fake.list_objects(&REPLICA_SETS).remove(0);
    fixture.fake.remove(&DEPLOYMENTS, "n", "d");
    set["metadata"]["ownerReferences"] = json!([]);
    fixture.fake.seed(&REPLICA_SETS, set);
    fixture.deployment(1);
    wait_until("it is ready again", || fixture.ready_replicas("d") == 1).await;
    assert_eq!(fixture.fake.list_objects(&REPLICA_SETS).len(), 1);
    assert_eq!(fixture.count_writes("create", &PODS, ""), 1);
    fixture.tasks.stop().await;
}
