//! The status of a member, from its first answer to its silence and back.

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
    let lab = Lab::start();
    lab.member.seed(
        &NODES,
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
               "status": {"allocatable": {"cpu": "4", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    lab.join("m1");
    let done = lab.until("m1", |c| ready(c).0 == "True").await;
    assert!(lab.began.elapsed() < Duration::from_millis(100));
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
    let summed = lab
        .until("m1", |c| c["status"]["nodeSummary"].is_object())
        .await;
    assert!(lab.began.elapsed() < Duration::from_millis(500));
    assert_eq!(
        summed["status"]["nodeSummary"],
        json!({"totalNum": 1, "readyNum": 1})
    );
    assert_eq!(
        summed["status"]["resourceSummary"]["allocatable"],
        json!({"cpu": "4", "pods": "110"})
    );
    // Nothing new: nothing is written.
    lab.settle().await;
    assert_eq!(taints(&lab.cluster("m1")), [""; 0]);
    lab.host.clear_writes();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(lab.host.writes(), []);
    lab.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_short_absence_is_not_told() {
    let lab = Lab::start();
    let (down, discoveries) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (is_down, asked) = (Arc::clone(&down), Arc::clone(&discoveries));
    lab.member.on_call(move |call| {
        if call.verb == "resources" {
            asked.fetch_add(1, Ordering::SeqCst);
        }
        (call.verb == "raw" && is_down.load(Ordering::SeqCst)).then(unreachable)
    });
    lab.join("m1");
    lab.until("m1", |c| ready(c).0 == "True" && taints(c).is_empty())
        .await;
    lab.settle().await;

    down.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(ready(&lab.cluster("m1")), ("True", "ClusterReady"));
    down.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(ready(&lab.cluster("m1")), ("True", "ClusterReady"));

    down.store(true, Ordering::SeqCst);
    let gone = lab.until("m1", |c| ready(c).0 == "False").await;
    assert_eq!(ready(&gone), ("False", "ClusterNotReachable"));
    assert!(
        gone["status"]["apiEnablements"].is_array(),
        "what was known stays"
    );
    lab.until("m1", |c| taints(c) == ["not-ready"]).await;

    let before = discoveries.load(Ordering::SeqCst);
    down.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(ready(&lab.cluster("m1")).0, "False");
    lab.until("m1", |c| ready(c).0 == "True" && taints(c).is_empty())
        .await;
    lab.settle().await;
    assert!(discoveries.load(Ordering::SeqCst) > before);
    lab.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_badly_is_not_ready() {
    let lab = Lab::start();
    lab.member.on_call(|call| {
        let failing = call.verb == "raw" && call.name == "/readyz";
        failing.then(|| Status::failure(500, "InternalError", "no").into())
    });
    lab.join("m1");
    let told = lab.until("m1", |c| ready(c).0 == "False").await;
    assert_eq!(ready(&told), ("False", "ClusterNotReady"));
    lab.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_older_server_has_healthz_only() {
    let lab = Lab::start();
    lab.member.serve_raw("/healthz", "ok");
    lab.member.on_call(|call| {
        let unknown = call.verb == "raw" && call.name == "/readyz";
        unknown.then(|| Status::no_such_path().into())
    });
    lab.join("m1");
    lab.until("m1", |c| ready(c) == ("True", "ClusterReady"))
        .await;
    lab.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_connected_says_why_and_recovers_at_once() {
    let lab = Lab::start();
    lab.host.seed(&CLUSTERS, crate::lab::cluster("m1", "Push"));
    let told = lab.until("m1", |c| ready(c).0 == "False").await;
    assert_eq!(ready(&told).1, "StatusCollectionFailed");
    let text = told["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(text.contains("secret \"kc/m1\""), "{text}");
    let since = lab.began.elapsed();
    lab.seed_secret("m1");
    lab.until("m1", |c| ready(c).0 == "True").await;
    assert!(lab.began.elapsed() - since < Duration::from_millis(100));
    lab.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn foreign_parts_of_the_status_stay() {
    let lab = Lab::start();
    lab.seed_secret("m1");
    let mut with = crate::lab::cluster("m1", "Push");
    let foreign = json!({"type": "ServiceDomainNameResolutionReady", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    with["status"] = json!({"remedyActions": ["TrafficControl"], "conditions": [foreign]});
    lab.host.seed(&CLUSTERS, with);
    let done = lab.until("m1", |c| ready(c).0 == "True").await;
    assert_eq!(done["status"]["conditions"][0], foreign);
    assert_eq!(done["status"]["remedyActions"], json!(["TrafficControl"]));
    lab.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_names_no_secret_reports_for_himself() {
    let lab = Lab::start();
    let mut other = crate::lab::cluster("m1", "Push");
    other["spec"]["secretRef"] = serde_json::Value::Null;
    lab.host.seed(&CLUSTERS, other);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(ready(&lab.cluster("m1")), ("", ""));
    lab.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_appears_in_a_member_is_told_soon() {
    static CRDS: Gvr = Gvr::constant("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let lab = Lab::start();
    lab.join("m1");
    lab.until("m1", |c| ready(c).0 == "True").await;
    lab.settle().await;
    lab.members.get("m1").unwrap().managed(&CRDS);
    lab.member
        .serve(crate::lab::served("example.com", "v1", "foos", "Foo"));
    let since = lab.began.elapsed();
    lab.member.seed(
        &CRDS,
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
               "metadata": {"name": "foos.example.com", "labels": {"karmada.io/managed": "true"}}}),
    );
    lab.until("m1", |c| {
        c["status"]["apiEnablements"][0]["groupVersion"] == "example.com/v1"
    })
    .await;
    assert!(lab.began.elapsed() - since < Duration::from_secs(1));
    lab.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_never_answers_delays_no_other_and_no_end() {
    let lab = Lab::start();
    for n in 0..10 {
        lab.join(&format!("{HANGING}-{n}"));
    }
    lab.join("m1");
    lab.until("m1", |c| ready(c).0 == "True").await;
    assert!(lab.began.elapsed() < Duration::from_millis(100));
    let told = lab
        .until(&format!("{HANGING}-3"), |c| ready(c).0 == "False")
        .await;
    assert_eq!(ready(&told).1, "ClusterNotReachable");
    let before = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(11)).await;
    lab.tasks.stop().await;
    assert!(before.elapsed() < Duration::from_secs(12));
}

/// A member tells nobody that it serves another group since its last discovery: an
/// aggregated API server, or a CRD that Flotilla does not follow.
#[tokio::test(start_paused = true)]
async fn what_a_member_starts_to_serve_is_told_within_the_status_period() {
    let lab = Lab::start();
    lab.join("m1");
    lab.until("m1", |c| ready(c).0 == "True").await;
    lab.settle().await;
    let serves = |c: &serde_json::Value| {
        let groups = c["status"]["apiEnablements"].as_array();
        let mut groups = groups.into_iter().flatten();
        groups.any(|g| g["groupVersion"] == "example.com/v1")
    };
    let foos = crate::lab::served("example.com", "v1", "foos", "Foo");
    for _ in 0..3 {
        let since = lab.began.elapsed();
        lab.member.serve(foos.clone());
        lab.until("m1", serves).await;
        assert!(lab.began.elapsed() - since <= Duration::from_secs(11));
        let since = lab.began.elapsed();
        lab.member.unserve(&foos.resource);
        lab.until("m1", |c| !serves(c)).await;
        assert!(lab.began.elapsed() - since <= Duration::from_secs(11));
    }
    lab.tasks.stop().await;
}
