//! Tests of the cluster status controller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use client::Error;
use machinery::{Gvr, Status};
use openapi::karmada::resources::CLUSTERS;
use serde_json::json;

use crate::lab::{HANGING, Lab, condition, ready, taints};

static NODES: Gvr = Gvr::constant("", "v1", "nodes");

fn unreachable() -> Error {
    Error::Transport {
        host: "m".into(),
        message: "gone".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_cluster_is_ready_at_once() {
    let fixture = Lab::start();
    fixture.member.seed(
        &NODES,
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
               "status": {"allocatable": {"cpu": "4", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    fixture.join("m1");
    let done = fixture.until("m1", |c| ready(c).0 == "True").await;
    assert!(fixture.began.elapsed() < Duration::from_millis(100));
    assert_eq!(ready(&done), ("True", "ClusterReady"));
    assert_eq!(
        condition(&done, "CompleteAPIEnablements"),
        ("True", "Complete")
    );
    assert_eq!(done["status"]["kubernetesVersion"], "v1.36.0");
    assert_eq!(
        done["status"]["apiEnablements"],
        json!([{"groupVersion": "v1", "resources": [{"name": "pods", "kind": "Pod"}]}])
    );
    let summed = fixture
        .until("m1", |c| c["status"]["nodeSummary"].is_object())
        .await;
    assert!(fixture.began.elapsed() < Duration::from_millis(500));
    assert_eq!(
        summed["status"]["nodeSummary"],
        json!({"totalNum": 1, "readyNum": 1})
    );
    assert_eq!(
        summed["status"]["resourceSummary"]["allocatable"],
        json!({"cpu": "4", "pods": "110"})
    );
    // An unchanged status is not written again.
    fixture.settle().await;
    assert_eq!(taints(&fixture.cluster("m1")), [""; 0]);
    fixture.host.clear_writes();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(fixture.host.writes(), []);
    fixture.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_is_not_reported() {
    let fixture = Lab::start();
    let (down, discoveries) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (is_down, asked) = (Arc::clone(&down), Arc::clone(&discoveries));
    fixture.member.on_call(move |call| {
        if call.verb == "resources" {
            asked.fetch_add(1, Ordering::SeqCst);
        }
        (call.verb == "raw" && is_down.load(Ordering::SeqCst)).then(unreachable)
    });
    fixture.join("m1");
    fixture
        .until("m1", |c| ready(c).0 == "True" && taints(c).is_empty())
        .await;
    fixture.settle().await;

    down.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(ready(&fixture.cluster("m1")), ("True", "ClusterReady"));
    down.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(ready(&fixture.cluster("m1")), ("True", "ClusterReady"));

    down.store(true, Ordering::SeqCst);
    let gone = fixture.until("m1", |c| ready(c).0 == "False").await;
    assert_eq!(ready(&gone), ("False", "ClusterNotReachable"));
    assert!(
        gone["status"]["apiEnablements"].is_array(),
        "the last known APIs stay"
    );
    fixture.until("m1", |c| taints(c) == ["not-ready"]).await;

    let before = discoveries.load(Ordering::SeqCst);
    down.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(ready(&fixture.cluster("m1")).0, "False");
    fixture
        .until("m1", |c| ready(c).0 == "True" && taints(c).is_empty())
        .await;
    fixture.settle().await;
    assert!(discoveries.load(Ordering::SeqCst) > before);
    fixture.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_badly_is_not_ready() {
    let fixture = Lab::start();
    fixture.member.on_call(|call| {
        let failing = call.verb == "raw" && call.name == "/readyz";
        failing.then(|| Status::failure(500, "InternalError", "no").into())
    });
    fixture.join("m1");
    let told = fixture.until("m1", |c| ready(c).0 == "False").await;
    assert_eq!(ready(&told), ("False", "ClusterNotReady"));
    fixture.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_older_server_has_healthz_only() {
    let fixture = Lab::start();
    fixture.member.serve_raw("/healthz", "ok");
    fixture.member.on_call(|call| {
        let unknown = call.verb == "raw" && call.name == "/readyz";
        unknown.then(|| Status::no_such_path().into())
    });
    fixture.join("m1");
    fixture
        .until("m1", |c| ready(c) == ("True", "ClusterReady"))
        .await;
    fixture.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_secret_is_reported_and_recovers_at_once() {
    let fixture = Lab::start();
    fixture
        .host
        .seed(&CLUSTERS, crate::lab::cluster("m1", "Push"));
    let told = fixture.until("m1", |c| ready(c).0 == "False").await;
    assert_eq!(ready(&told).1, "StatusCollectionFailed");
    let text = told["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(text.contains("secret \"kc/m1\""), "{text}");
    let since = fixture.began.elapsed();
    fixture.seed_secret("m1");
    fixture.until("m1", |c| ready(c).0 == "True").await;
    assert!(fixture.began.elapsed() - since < Duration::from_millis(100));
    fixture.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn foreign_parts_of_the_status_stay() {
    let fixture = Lab::start();
    fixture.seed_secret("m1");
    let mut with = crate::lab::cluster("m1", "Push");
    let foreign = json!({"type": "ServiceDomainNameResolutionReady", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    with["status"] = json!({"remedyActions": ["TrafficControl"], "conditions": [foreign]});
    fixture.host.seed(&CLUSTERS, with);
    let done = fixture.until("m1", |c| ready(c).0 == "True").await;
    assert_eq!(done["status"]["conditions"][0], foreign);
    assert_eq!(done["status"]["remedyActions"], json!(["TrafficControl"]));
    fixture.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_a_secret_is_not_collected() {
    let fixture = Lab::start();
    let mut other = crate::lab::cluster("m1", "Push");
    other["spec"]["secretRef"] = serde_json::Value::Null;
    fixture.host.seed(&CLUSTERS, other);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(ready(&fixture.cluster("m1")), ("", ""));
    fixture.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_crd_created_in_a_member_is_reported_soon() {
    static CRDS: Gvr = Gvr::constant("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let fixture = Lab::start();
    fixture.join("m1");
    fixture.until("m1", |c| ready(c).0 == "True").await;
    fixture.settle().await;
    fixture.members.get("m1").unwrap().managed(&CRDS);
    fixture
        .member
        .serve(crate::lab::served("example.com", "v1", "foos", "Foo"));
    let since = fixture.began.elapsed();
    fixture.member.seed(
        &CRDS,
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
               "metadata": {"name": "foos.example.com", "labels": {"karmada.io/managed": "true"}}}),
    );
    fixture
        .until("m1", |c| {
            c["status"]["apiEnablements"][0]["groupVersion"] == "example.com/v1"
        })
        .await;
    assert!(fixture.began.elapsed() - since < Duration::from_secs(1));
    fixture.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hanging_member_delays_no_other_and_no_shutdown() {
    let fixture = Lab::start();
    for n in 0..10 {
        fixture.join(&format!("{HANGING}-{n}"));
    }
    fixture.join("m1");
    fixture.until("m1", |c| ready(c).0 == "True").await;
    assert!(fixture.began.elapsed() < Duration::from_millis(100));
    let told = fixture
        .until(&format!("{HANGING}-3"), |c| ready(c).0 == "False")
        .await;
    assert_eq!(ready(&told).1, "ClusterNotReachable");
    let before = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(11)).await;
    fixture.tasks.stop().await;
    assert!(before.elapsed() < Duration::from_secs(12));
}

/// A member does not announce a group that it serves since the last discovery: one of an
/// aggregated API server, or of a CRD without an informer.
#[tokio::test(start_paused = true)]
async fn new_apis_are_reported_within_the_status_period() {
    let fixture = Lab::start();
    fixture.join("m1");
    fixture.until("m1", |c| ready(c).0 == "True").await;
    fixture.settle().await;
    let serves = |c: &serde_json::Value| {
        let groups = c["status"]["apiEnablements"].as_array();
        let mut groups = groups.into_iter().flatten();
        groups.any(|g| g["groupVersion"] == "example.com/v1")
    };
    let foos = crate::lab::served("example.com", "v1", "foos", "Foo");
    for _ in 0..3 {
        let since = fixture.began.elapsed();
        fixture.member.serve(foos.clone());
        fixture.until("m1", serves).await;
        assert!(fixture.began.elapsed() - since <= Duration::from_secs(11));
        let since = fixture.began.elapsed();
        fixture.member.unserve(&foos.resource);
        fixture.until("m1", |c| !serves(c)).await;
        assert!(fixture.began.elapsed() - since <= Duration::from_secs(11));
    }
    fixture.tasks.stop().await;
}
