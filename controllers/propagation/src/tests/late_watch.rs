//! Tests in which a controller's own writes arrive late by the watch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use client::{Api, Error};
use controller_testing::{DEPLOYMENTS, NAMESPACES, deployment, policy, wait_until};
use karmada_api::ClusterAffinity;
use karmada_api::resources::{BINDINGS, POLICIES, WORKS};
use karmada_api::well_known_keys::{NAMESPACE_GATE, SKIP_AUTO_PROPAGATION};
use machinery::{Gvr, Status};
use serde_json::json;

use crate::tests::{PropagationFixture, condition};

/// A Work fails and is repaired before the watch delivers its failed condition. The cached Work
/// shows `Applied=True` all the while.
// proves: EXE-conditions, EXE-retry
#[tokio::test]
async fn a_recovery_is_written_though_the_cache_lacks_the_failure() {
    let plane = PropagationFixture::new();
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane.wait_until_applied("web").await;
    plane.control_plane.pause_watches(&WORKS);
    let full = Arc::new(AtomicBool::new(true));
    let refusing = Arc::clone(&full);
    plane.members[0].on_call(move |call| {
        let is_rejected = call.verb == "update" && refusing.load(Ordering::SeqCst);
        is_rejected.then(|| Error::from(Status::internal("no room")))
    });
    let mut drifted = plane.deployment_in_member(0, "web").unwrap();
    drifted["spec"]["replicas"] = 9.into();
    drifted["metadata"]["generation"] = 77.into();
    plane.members[0].seed(&DEPLOYMENTS, drifted);
    let says = |verdict: &str| {
        let work = plane.work("m1", "web");
        work.is_some_and(|w| condition(&w, "Applied")["status"] == verdict)
    };
    wait_until("the failure", || says("False")).await;
    full.store(false, Ordering::SeqCst);
    wait_until("the recovery", || says("True")).await;
    assert_eq!(
        plane.deployment_in_member(0, "web").unwrap()["spec"]["replicas"],
        4
    );
    plane.control_plane.resume_watches(&WORKS);
    plane.tasks.stop().await;
}

/// A template is scaled and scaled back before a watch delivers what was written for the first
/// scale. The cached copy is what the second one needs all the while.
async fn scale_and_scale_back_behind(paused: &Gvr) {
    let plane = PropagationFixture::new();
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane.wait_until_applied("web").await;
    let replicas = || {
        let (object, field) = match *paused == BINDINGS {
            true => (plane.binding("web-deployment"), "/spec/replicas"),
            false => (
                plane.work("m1", "web"),
                "/spec/workload/manifests/0/spec/replicas",
            ),
        };
        object.unwrap().pointer(field).cloned()
    };
    let before = replicas();
    plane.control_plane.pause_watches(paused);
    let scale = |count: i64| {
        plane.edit(&DEPLOYMENTS, "web", |web| {
            web["spec"]["replicas"] = count.into();
            let generation = web["metadata"]["generation"].as_i64().unwrap_or(1);
            web["metadata"]["generation"] = (generation + 1).into();
        });
    };
    scale(8);
    wait_until("the first scale", || replicas() != before).await;
    scale(4);
    wait_until("the second scale", || replicas() == before).await;
    plane.control_plane.resume_watches(paused);
    plane.tasks.stop().await;
}

// proves: DET-own-writes
#[tokio::test]
async fn a_binding_follows_a_template_that_changes_back() {
    scale_and_scale_back_behind(&BINDINGS).await;
}

// proves: WRK-own-writes
#[tokio::test]
async fn a_work_follows_a_binding_that_changes_back() {
    scale_and_scale_back_behind(&WORKS).await;
}

/// The gate of a namespace closes before the watch delivers a binding of the namespace.
// proves: DET-namespace-gate-changes
#[tokio::test]
async fn a_gate_applies_to_a_binding_that_the_cache_lacks() {
    let plane = PropagationFixture::new();
    let mut namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n",
        "labels": {SKIP_AUTO_PROPAGATION: "true"}}});
    plane.control_plane.seed(&NAMESPACES, namespace.clone());
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    let creations = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&creations);
    plane.control_plane.on_call(move |call| {
        if call.verb == "create" && call.resource == Some(&BINDINGS) {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        None
    });
    let plane = plane.started().await;
    plane.control_plane.pause_watches(&BINDINGS);
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let binding = || plane.binding("web-deployment");
    wait_until("the binding", || binding().is_some()).await;
    namespace["metadata"]["annotations"] = json!({NAMESPACE_GATE: "true"});
    plane.control_plane.seed(&NAMESPACES, namespace);
    // The template is applied again, though the cache has no binding.
    wait_until("another attempt", || creations.load(Ordering::SeqCst) > 1).await;
    plane.control_plane.resume_watches(&BINDINGS);
    let nowhere = serde_json::to_value(ClusterAffinity::nowhere()).unwrap();
    wait_until("no cluster", || {
        binding().unwrap()["spec"]["placement"]["clusterAffinity"] == nowhere
    })
    .await;
    plane.tasks.stop().await;
}

/// A binding leaves a cluster before the watch delivers the creation of its Work there.
// proves: BND-unseen-work
#[tokio::test]
async fn a_work_that_appears_after_its_binding_has_left_is_deleted() {
    let plane = PropagationFixture::new();
    let nowhere = json!({"clusterAffinity": {"clusterNames": ["m3"]}});
    let policy = policy(json!({"placement": nowhere}));
    plane.control_plane.seed(&POLICIES, policy);
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    wait_until("the binding", || plane.binding("web-deployment").is_some()).await;
    plane.control_plane.pause_watches(&WORKS);
    for cluster in ["m2", "m1"] {
        plane.edit(&BINDINGS, "web-deployment", |binding| {
            binding["spec"]["clusters"] = json!([{"name": cluster, "replicas": 4}]);
        });
        wait_until(cluster, || plane.work(cluster, "web").is_some()).await;
    }
    plane.control_plane.resume_watches(&WORKS);
    wait_until("the first one gone", || plane.work("m2", "web").is_none()).await;
    assert!(plane.work("m1", "web").is_some());
    plane.tasks.stop().await;
}

/// A late Work of a former leader, or of a reconciliation that ran while the binding was deleted.
// proves: BND-late-work
#[tokio::test]
async fn a_late_work_of_a_deleted_binding_is_deleted() {
    let plane = PropagationFixture::new();
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane.wait_until_applied("web").await;
    let mut late = plane.work("m1", "web").unwrap();
    let template = client::ResourcePath::object(&DEPLOYMENTS, "n", "web");
    let options = client::DeleteOptions::default();
    plane
        .control_plane
        .delete(template, &options)
        .await
        .unwrap();
    let all_deleted = || {
        plane.work("m1", "web").is_none()
            && plane.work("m2", "web").is_none()
            && plane.deployment_in_member(0, "web").is_none()
    };
    wait_until("all of it gone", all_deleted).await;
    for made_anew in ["uid", "resourceVersion"] {
        late["metadata"].as_object_mut().unwrap().remove(made_anew);
    }
    plane.control_plane.seed(&WORKS, late);
    wait_until("the late one gone", all_deleted).await;
    plane.tasks.stop().await;
}
