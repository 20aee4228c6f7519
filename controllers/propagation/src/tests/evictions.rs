//! Tests of evicted copies and their replacements.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use client::Error;
use karmada_api::KarmadaFeature;
use karmada_api::resources::{BINDINGS, POLICIES};
use machinery::Status;
use serde_json::json;

use super::{DEPLOYMENTS, PropagationFixture, deployment, policy, wait_until};

// proves: BND-directly-waits, WRK-preserved-labels
#[tokio::test]
async fn a_replacement_waits_for_the_deletion_of_the_old_copy_and_gets_its_state() {
    let plane = PropagationFixture::new();
    let one = json!({"placement": {"clusterAffinity": {"clusterNames": ["m1"]}}});
    plane.control_plane.seed(&POLICIES, policy(one));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane
        .started_with_gates(&[KarmadaFeature::StatefulFailoverInjection])
        .await;
    wait_until("the copy", || {
        plane.deployment_in_member(0, "web").is_some()
    })
    .await;
    // The number of deletions that are still rejected.
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    let refusing = Arc::clone(&left);
    plane.members[0].on_call(move |call| {
        let is_rejected = call.verb == "delete" && refusing.load(Ordering::SeqCst) > 0;
        is_rejected.then(|| {
            refusing.fetch_sub(1, Ordering::SeqCst);
            Error::from(Status::internal("not now"))
        })
    });
    evict_to_m2(&plane);
    let leaving = || {
        let work = plane.work("m1", "web");
        work.is_some_and(|w| w["metadata"]["deletionTimestamp"].is_string())
    };
    wait_until("the old copy's work to be deleted", leaving).await;
    let again = || left.load(Ordering::SeqCst) < usize::MAX - 1;
    wait_until("its deletion to be tried again", again).await;
    assert!(leaving() && plane.work("m2", "web").is_none());
    left.store(0, Ordering::SeqCst);
    wait_until("the replacement", || {
        plane.deployment_in_member(1, "web").is_some()
    })
    .await;
    assert!(plane.deployment_in_member(0, "web").is_none());
    let labels = plane.deployment_in_member(1, "web").unwrap()["metadata"]["labels"].clone();
    assert_eq!(labels["state"], "from-m1");
    plane.tasks.stop().await;
}

// proves: WRK-preserved-gate
#[tokio::test]
async fn state_is_preserved_only_with_its_feature_gate() {
    let plane = PropagationFixture::new();
    let one = json!({"placement": {"clusterAffinity": {"clusterNames": ["m1"]}}});
    plane.control_plane.seed(&POLICIES, policy(one));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    wait_until("the copy", || {
        plane.deployment_in_member(0, "web").is_some()
    })
    .await;
    evict_to_m2(&plane);
    wait_until("the replacement", || {
        plane.deployment_in_member(1, "web").is_some()
    })
    .await;
    let labels = plane.deployment_in_member(1, "web").unwrap()["metadata"]["labels"].clone();
    assert_eq!(labels.get("state"), None);
    plane.tasks.stop().await;
}

/// Moves the Deployment from m1 to m2 with its preserved state.
fn evict_to_m2(plane: &PropagationFixture) {
    let task = json!({"fromCluster": "m1", "purgeMode": "Directly", "clustersBeforeFailover": ["m1"],
        "reason": "ApplicationFailure", "producer": "p", "preservedLabelState": {"state": "from-m1"}});
    plane.edit(&BINDINGS, "web-deployment", |b| {
        b["spec"]["clusters"] = json!([{"name": "m2", "replicas": 4}]);
        b["spec"]["gracefulEvictionTasks"] = json!([task]);
    });
}
