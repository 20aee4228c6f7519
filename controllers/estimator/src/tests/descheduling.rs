//! Tests of the descheduler over API servers in memory and estimators over gRPC.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::event::EVENTS;
use flotilla_runtime::{ControllerContext, EventRecorder};
use karmada_api::resources::BINDINGS;
use karmada_api::well_known_keys::APPLIED_PLACEMENT;
use machinery::Gvr;
use machinery::time::SystemClock;
use members::MemberTrackingOptions;
use serde_json::{Value, json};

use super::fake_estimator::{FakeEstimator, FakeEstimatorResponse};
use super::fixture::{EstimatorMembersFixture, PODS, SERVICES, wait_until};
use super::requests::{service, short_timeout_options};
use super::scheduling::{binding, dynamic_placement};
use crate::{Descheduler, DeschedulerOptions, DeschedulerSettings};

static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");
static REPLICA_SETS: Gvr = Gvr::from_static("apps", "v1", "replicasets");

fn start(fixture: &EstimatorMembersFixture) {
    let recorder = EventRecorder::new(
        fixture.host.clone(),
        "karmada-descheduler",
        Arc::new(SystemClock),
        &fixture.tasks,
    );
    let context = ControllerContext {
        recorder,
        ..fixture.context()
    };
    let options = DeschedulerOptions {
        connections: fixture.connect(short_timeout_options()),
        members: fixture.members.clone(),
        settings: DeschedulerSettings {
            interval: Duration::from_millis(20),
            unschedulable_threshold: Duration::from_secs(60),
        },
    };
    Descheduler::start(&context, options);
}

/// A binding of a Deployment whose copies have one ready replica each.
fn placed(name: &str, placement: &Value, clusters: &[(&str, i64)]) -> Value {
    let mut placed = binding(name, 6, placement);
    placed["metadata"]["annotations"] = json!({APPLIED_PLACEMENT: placement.to_string()});
    placed["spec"]["clusters"] = clusters
        .iter()
        .map(|(name, replicas)| json!({"name": name, "replicas": replicas}))
        .collect();
    placed["status"]["aggregatedStatus"] = clusters
        .iter()
        .map(|(name, _)| json!({"clusterName": name, "status": {"readyReplicas": 1}}))
        .collect();
    placed
}

/// A Deployment of the members with two pods that no node has room for since long.
fn seed_unschedulable_pods(fixture: &EstimatorMembersFixture, name: &str) {
    let owner = |kind: &str| {
        json!([{"apiVersion": "apps/v1", "kind": kind, "name": name,
                "uid": format!("{kind}-{name}"), "controller": true}])
    };
    let metadata = |name: &str, uid: &str, owners: Value| {
        json!({"name": name, "namespace": "n", "uid": uid, "labels": {"app": name},
               "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": owners})
    };
    let (of_set, of_deployment) = (format!("ReplicaSet-{name}"), format!("Deployment-{name}"));
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {}});
    let deployment = json!({"metadata": metadata(name, &of_deployment, json!([])),
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template}});
    let set = json!({"metadata": metadata(name, &of_set, owner("Deployment")),
        "spec": {"template": template}});
    fixture.member.seed(&DEPLOYMENTS, deployment);
    fixture.member.seed(&REPLICA_SETS, set);
    for pod in ["a", "b"] {
        let name = format!("{name}-{pod}");
        let condition = json!({"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let mut pod = json!({"metadata": metadata(&name, &name, owner("ReplicaSet")),
            "status": {"phase": "Pending", "conditions": [condition]}});
        pod["metadata"]["labels"] = json!({"app": name.rsplit_once('-').unwrap().0});
        fixture.member.seed(&PODS, pod);
    }
}

fn clusters(fixture: &EstimatorMembersFixture, name: &str) -> Value {
    let binding = fixture.host.get_object(&BINDINGS, "n", name).unwrap();
    binding["spec"]["clusters"].clone()
}

fn events(fixture: &EstimatorMembersFixture) -> Vec<String> {
    let events = fixture.host.list_objects(&EVENTS);
    let mut lines: Vec<String> = events
        .iter()
        .map(|event| {
            let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
            let about = &event["involvedObject"];
            let (kind, name) = (about["kind"].as_str(), about["name"].as_str());
            format!(
                "{} {} {}/{} {}: {}",
                event["source"]["component"].as_str().unwrap(),
                text("type"),
                kind.unwrap_or_default(),
                name.unwrap_or_default(),
                text("reason"),
                text("message")
            )
        })
        .collect();
    lines.sort();
    lines
}

// proves: DES-result, DES-events, DES-estimators
#[tokio::test]
async fn replicas_leave_the_clusters_that_cannot_run_them() {
    let fixture = EstimatorMembersFixture::new(MemberTrackingOptions::default());
    let peer = FakeEstimator::start("m1", FakeEstimatorResponse::Available(1), None).await;
    let broken = FakeEstimator::start("m3", FakeEstimatorResponse::Error, None).await;
    for (cluster, peer) in [("m1", &peer), ("m3", &broken)] {
        let to = service(cluster, "ExternalName", peer.address);
        fixture.host.seed(&SERVICES, to);
    }
    for name in ["m1", "m2", "m3"] {
        fixture.join(name, "Push", 4);
    }
    wait_until(async || fixture.members.get("m2").is_ok()).await;
    seed_unschedulable_pods(&fixture, "web");
    let all = [("m1", 3), ("m2", 2), ("m3", 2), ("m4", 1), ("gone", 2)];
    let mut web = placed("web", &dynamic_placement(), &all);
    web["kind"] = "ResourceBinding".into();
    web["apiVersion"] = "work.karmada.io/v1alpha2".into();
    fixture.host.seed(&BINDINGS, web);
    let duplicated = json!({"replicaScheduling": {"replicaSchedulingType": "Duplicated"}});
    let fixed = placed("fixed", &duplicated, &[("m1", 3)]);
    fixture.host.seed(&BINDINGS, fixed);
    let first = AtomicBool::new(true);
    fixture.host.on_call(move |call| {
        let is_refused = call.verb == "patch" && call.resource == Some(&BINDINGS);
        let is_rejected = is_refused && first.swap(false, Ordering::Relaxed);
        is_rejected.then(|| client::Error::Protocol("refused once".into()))
    });
    start(&fixture);
    // The estimator of m1 counts one more replica each time; its ready replica stays.
    let expected = json!([{"name": "m1", "replicas": 1}, {"name": "m2", "replicas": 1},
        {"name": "m3", "replicas": 2}, {"name": "m4", "replicas": 1},
        {"name": "gone", "replicas": 2}]);
    wait_until(async || clusters(&fixture, "web") == expected).await;
    let requests = peer.requests();
    assert_eq!(
        requests[0],
        "GetUnschedulableReplicas m1 kind=Deployment, name=n/web"
    );
    wait_until(async || events(&fixture).len() >= 4).await;
    let actual = events(&fixture);
    let text = "DescheduleBindingSucceed: Binding has been descheduled, \
                1 replica(s) in cluster(m1), 1 replica(s) in cluster(m2), 2 total descheduled replica(s)";
    for about in ["Deployment/web", "ResourceBinding/web"] {
        let line = format!("karmada-descheduler Normal {about} {text}");
        assert!(actual.contains(&line), "{line}: {actual:?}");
    }
    assert_eq!(clusters(&fixture, "fixed")[0]["replicas"], 3);
    let is_rejected =
        |event: &String| event.contains("Warning Deployment/web DescheduleBindingFailed");
    wait_until(async || events(&fixture).iter().any(is_rejected)).await;
    fixture.tasks.stop().await;
}
