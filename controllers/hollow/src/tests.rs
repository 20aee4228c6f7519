//! Tests of the hollow cluster over a fake API server: which writes it makes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Api;
use client::fake::FakeApi;
use flotilla_runtime::{InformerFactory, ShutdownToken, TaskGroup};
use machinery::Gvr;
use machinery::time::SystemClock;
use serde_json::{Value, json};

use crate::controller::{DEPLOYMENTS, PODS, REPLICA_SETS};
use crate::{HollowCluster, HollowClusterOptions};

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
        let api: Arc<dyn Api> = self.fake.clone();
        self.informers = InformerFactory::new(&self.tasks);
        let started = HollowCluster::start(
            api,
            Arc::new(SystemClock),
            options,
            &self.informers,
            &self.tasks,
        );
        started.await.unwrap();
    }

    fn deployment(&self, replicas: i64) {
        let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let body = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d", "namespace": "n", "uid": "d", "generation": 1},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "d"}}, "template": template}});
        self.fake.seed(&DEPLOYMENTS, body);
    }

    fn ready_replicas(&self, name: &str) -> i64 {
        let found = self.fake.get_object(&DEPLOYMENTS, "n", name);
        found.map_or(0, |d| d["status"]["readyReplicas"].as_i64().unwrap_or(0))
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
    let mut lab = HollowFixture::new();
    lab.start(10).await;
    lab.deployment(3);
    wait_until("all are ready", || lab.ready_replicas("d") == 3).await;
    assert_eq!(lab.count_writes("create", &PODS, ""), 3);
    assert_eq!(lab.count_writes("create", &PODS, "binding"), 0);
    assert_eq!(lab.count_writes("update", &PODS, "status"), 3);
    lab.tasks.stop().await;
    lab.fake.clear_writes();
    lab.start(10).await;
    // The new object shows that the older ones have been reconciled.
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare", "namespace": "n", "uid": "bare"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    lab.fake.seed(&PODS, pod);
    wait_until("the bare pod is bound", || {
        lab.count_writes("create", &PODS, "binding") == 1
    })
    .await;
    assert_eq!(lab.count_writes("create", &PODS, ""), 0);
    assert_eq!(lab.count_writes("update", &DEPLOYMENTS, "status"), 0);
    assert_eq!(lab.count_writes("update", &REPLICA_SETS, "status"), 0);
    lab.tasks.stop().await;
}

#[tokio::test]
async fn unschedulable_pods_wait_for_capacity() {
    let mut lab = HollowFixture::new();
    lab.start(2).await;
    lab.deployment(3);
    wait_until("one pod is unschedulable", || {
        lab.count_pods(unschedulable) == 1
    })
    .await;
    wait_until("two are ready", || lab.ready_replicas("d") == 2).await;
    let placed = |p: &Value| p["spec"]["nodeName"].is_string();
    let all = lab.fake.list_objects(&PODS);
    let sitting = all.into_iter().find(placed).unwrap();
    let name = sitting["metadata"]["name"].as_str().unwrap();
    lab.fake.remove(&PODS, "n", name);
    wait_until("the capacity is used", || {
        lab.count_writes("create", &PODS, "binding") >= 1
    })
    .await;
    lab.tasks.stop().await;
}

#[tokio::test]
async fn a_replica_set_that_lost_its_owner_is_adopted() {
    let mut lab = HollowFixture::new();
    lab.start(10).await;
    lab.deployment(1);
    wait_until("it is ready", || lab.ready_replicas("d") == 1).await;
    let mut set = lab.fake.list_objects(&REPLICA_SETS).remove(0);
    lab.fake.remove(&DEPLOYMENTS, "n", "d");
    set["metadata"]["ownerReferences"] = json!([]);
    lab.fake.seed(&REPLICA_SETS, set);
    lab.deployment(1);
    wait_until("it is ready again", || lab.ready_replicas("d") == 1).await;
    assert_eq!(lab.fake.list_objects(&REPLICA_SETS).len(), 1);
    assert_eq!(lab.count_writes("create", &PODS, ""), 1);
    lab.tasks.stop().await;
}
