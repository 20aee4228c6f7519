//! Tests of WorkloadRebalancers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS, REBALANCERS};
use machinery::Status;
use machinery::time::{Clock, SystemClock, parse};
use serde_json::{Value, json};

use super::{PropagationFixture, wait_until};

const CREATED: &str = "2026-01-02T03:04:05Z";

fn workload(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "namespace": "n"})
}

fn rebalancer(generation: i64, workloads: Value) -> Value {
    json!({"apiVersion": "apps.karmada.io/v1alpha1", "kind": "WorkloadRebalancer",
        "metadata": {"name": "r", "creationTimestamp": CREATED, "generation": generation}, "spec": {"workloads": workloads}})
}

fn binding(name: &str, triggered: Option<&str>) -> Value {
    let mut binding = json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": format!("{name}-deployment"), "namespace": "n"},
        "spec": {"resource": workload("none"), "clusters": [{"name": "m1"}]}});
    if let Some(time) = triggered {
        binding["spec"]["rescheduleTriggeredAt"] = time.into();
    }
    binding
}

impl PropagationFixture {
    fn rebalancer(&self) -> Value {
        self.control_plane
            .get_object(&REBALANCERS, "", "r")
            .unwrap_or_default()
    }

    fn triggered_at(&self, name: &str) -> Value {
        let binding = self.binding(&format!("{name}-deployment")).unwrap();
        binding["spec"]["rescheduleTriggeredAt"].clone()
    }

    fn trigger_count(&self) -> usize {
        let writes = self.control_plane.writes().into_iter();
        let marks = |body: &Value| !body["spec"]["rescheduleTriggeredAt"].is_null();
        writes
            .filter(|w| w.verb == "patch" && marks(&w.body))
            .count()
    }
}

// proves: REB-marks, REB-later, REB-wide, REB-sorted, REB-once
#[tokio::test]
async fn bindings_are_triggered_once_with_the_creation_time_of_the_rebalancer() {
    let plane = PropagationFixture::new();
    let (earlier, later) = ("2026-01-02T03:04:04Z", "2026-01-02T03:04:06Z");
    for (name, triggered) in [
        ("new", None),
        ("old", Some(earlier)),
        ("ahead", Some(later)),
    ] {
        plane
            .control_plane
            .seed(&BINDINGS, binding(name, triggered));
    }
    let mut wide = binding("x", None);
    wide["metadata"] = json!({"name": "x-clusterrole"});
    wide["kind"] = "ClusterResourceBinding".into();
    plane.control_plane.seed(&CLUSTER_BINDINGS, wide);
    let plane = plane.started().await;
    let role =
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "x"});
    let first = json!([workload("old"), role, workload("new"), workload("ahead")]);
    plane.control_plane.seed(&REBALANCERS, rebalancer(1, first));
    wait_until("finished", || {
        plane.rebalancer()["status"]["finishTime"].is_string()
    })
    .await;
    assert_eq!(
        ["new", "old", "ahead"].map(|name| plane.triggered_at(name)),
        [CREATED, CREATED, later]
    );
    let wide = plane
        .control_plane
        .get_object(&CLUSTER_BINDINGS, "", "x-clusterrole");
    assert_eq!(wide.unwrap()["spec"]["rescheduleTriggeredAt"], CREATED);
    let item = |workload: Value| json!({"workload": workload, "result": "Successful"});
    assert_eq!(
        plane.rebalancer()["status"]["observedWorkloads"],
        json!([
            item(workload("ahead")),
            item(workload("new")),
            item(workload("old")),
            item(role)
        ])
    );
    assert_eq!(plane.trigger_count(), 3);

    // A workload is added: the others have been triggered already.
    plane.control_plane.seed(&BINDINGS, binding("more", None));
    let mut changed = plane.rebalancer();
    changed["spec"]["workloads"] = json!([workload("new"), workload("more")]);
    changed["metadata"]["generation"] = 2.into();
    plane.control_plane.seed(&REBALANCERS, changed);
    wait_until("looked at again", || {
        plane.rebalancer()["status"]["observedGeneration"] == 2
    })
    .await;
    assert_eq!(plane.triggered_at("more"), CREATED);
    assert_eq!(plane.trigger_count(), 4);
    plane.tasks.stop().await;
}

// proves: REB-retry
#[tokio::test]
async fn other_failures_are_retried_before_the_rebalancer_finishes() {
    let plane = PropagationFixture::new();
    plane.control_plane.seed(&BINDINGS, binding("a", None));
    plane.control_plane.seed(&BINDINGS, binding("b", None));
    let plane = plane.started().await;
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    let refusing = Arc::clone(&left);
    plane.control_plane.on_call(move |call| {
        let is_rejected = call.verb == "patch"
            && call.name == "a-deployment"
            && refusing.load(Ordering::SeqCst) > 0;
        is_rejected.then(|| {
            refusing.fetch_sub(1, Ordering::SeqCst);
            Status::internal("not now").into()
        })
    });
    let workloads = json!([workload("a"), workload("b")]);
    plane
        .control_plane
        .seed(&REBALANCERS, rebalancer(1, workloads));
    let status = || plane.rebalancer()["status"].clone();
    wait_until("tried again", || {
        left.load(Ordering::SeqCst) < usize::MAX - 1
    })
    .await;
    let pending =
        json!([{"workload": workload("a")}, {"workload": workload("b"), "result": "Successful"}]);
    assert_eq!(status()["observedWorkloads"], pending);
    assert!(status()["finishTime"].is_null());
    left.store(0, Ordering::SeqCst);
    wait_until("finished", || status()["finishTime"].is_string()).await;
    assert_eq!(plane.triggered_at("a"), CREATED);
    plane.tasks.stop().await;
}

// proves: REB-ttl
#[tokio::test]
async fn a_finished_rebalancer_is_deleted_after_its_ttl() {
    let plane = PropagationFixture::new().started().await;
    let mut short = rebalancer(1, json!([workload("none")]));
    short["spec"]["ttlSecondsAfterFinished"] = 1.into();
    plane.control_plane.seed(&REBALANCERS, short);
    let finish_time = || {
        let writes = plane.control_plane.writes();
        let mut times = writes
            .iter()
            .map(|write| &write.body["status"]["finishTime"]);
        times.find_map(|time| time.as_str().map(str::to_owned))
    };
    // Times are in whole seconds: a rebalancer may be gone right after it has finished.
    wait_until("finished", || finish_time().is_some()).await;
    let finished = parse(&finish_time().unwrap()).unwrap();
    wait_until("gone", || plane.rebalancer().is_null()).await;
    let kept = SystemClock.now().duration_since(finished);
    assert!(kept.as_secs() >= 1, "{kept:?}");
    plane.tasks.stop().await;
}

// proves: REB-missing, REB-kept, REB-ttl
#[tokio::test]
async fn finished_rebalancers_keep_results_and_expire() {
    let plane = PropagationFixture::new().started().await;
    plane.control_plane.seed(&BINDINGS, binding("b", None));
    let workloads = json!([workload("missing"), workload("b")]);
    plane
        .control_plane
        .seed(&REBALANCERS, rebalancer(1, workloads));
    let current = || plane.rebalancer();
    let status = || current()["status"].clone();
    wait_until("finished", || !status()["finishTime"].is_null()).await;
    let done = json!({"workload": workload("b"), "result": "Successful"});
    let missing = json!({"workload": workload("missing"), "result": "Failed", "reason": "ReferencedBindingNotFound"});
    assert_eq!(status()["observedWorkloads"], json!([done, missing]));
    assert_eq!(plane.triggered_at("b"), CREATED);

    // A failure is not retried, and a success is kept although its workload was removed from the
    // spec.
    plane
        .control_plane
        .seed(&BINDINGS, binding("missing", None));
    let mut changed = current();
    changed["spec"]["workloads"] = json!([workload("missing"), workload("other")]);
    changed["metadata"]["generation"] = 2.into();
    plane.control_plane.seed(&REBALANCERS, changed);
    wait_until("looked at again", || status()["observedGeneration"] == 2).await;
    let other = json!({"workload": workload("other"), "result": "Failed", "reason": "ReferencedBindingNotFound"});
    assert_eq!(status()["observedWorkloads"], json!([done, missing, other]));

    let mut kept = current();
    kept["spec"]["ttlSecondsAfterFinished"] = 0.into();
    kept["metadata"]["generation"] = 3.into();
    plane.control_plane.seed(&REBALANCERS, kept);
    wait_until("gone", || current().is_null()).await;
    plane.tasks.stop().await;
}

// proves: REB-unchanged
#[tokio::test]
async fn a_rebalancer_that_changed_meanwhile_is_not_deleted() {
    let plane = PropagationFixture::new().started().await;
    let mut ended = rebalancer(1, json!([workload("none")]));
    ended["spec"]["ttlSecondsAfterFinished"] = 0.into();
    let (host, raced) = (
        Arc::downgrade(&plane.control_plane),
        Arc::new(AtomicUsize::new(0)),
    );
    let times = Arc::clone(&raced);
    // Another writer removes the TTL just before the deletion.
    plane.control_plane.on_call(move |call| {
        if call.verb == "delete" && call.name == "r" && times.fetch_add(1, Ordering::SeqCst) == 0 {
            let host = host.upgrade()?;
            let mut kept = host.get_object(&REBALANCERS, "", "r")?;
            kept["spec"]["ttlSecondsAfterFinished"] = Value::Null;
            kept["metadata"]["generation"] = 2.into();
            host.seed(&REBALANCERS, kept);
        }
        None
    });
    plane.control_plane.seed(&REBALANCERS, ended);
    wait_until("looked at again", || {
        plane.rebalancer()["status"]["observedGeneration"] == 2
    })
    .await;
    assert_eq!(raced.load(Ordering::SeqCst), 1);
    plane.tasks.stop().await;
}
