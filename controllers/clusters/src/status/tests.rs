//! Tests of the cluster status controller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use client::Error;
use karmada_api::resources::CLUSTERS;
use machinery::{Gvr, Status};
use serde_json::json;

use crate::fixture::{
    ClustersFixture, HANGING_MEMBER_PREFIX, condition_of, ready_condition, taint_keys,
};

static NODES: Gvr = Gvr::from_static("", "v1", "nodes");

fn transport_error() -> Error {
    Error::Transport {
        host: "m".into(),
        message: "gone".into(),
    }
}

// proves: CST-first, CST-facts, CST-unchanged
#[tokio::test(start_paused = true)]
async fn a_new_cluster_is_ready_at_once() {
    let fixture = ClustersFixture::start();
    fixture.member.seed(
        &NODES,
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
               "status": {"allocatable": {"cpu": "4", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    fixture.seed_push_cluster("m1");
    let done = fixture
        .wait_for_cluster("m1", |c| ready_condition(c).0 == "True")
        .await;
    assert!(fixture.started_at.elapsed() < Duration::from_millis(100));
    assert_eq!(ready_condition(&done), ("True", "ClusterReady"));
    assert_eq!(
        condition_of(&done, "CompleteAPIEnablements"),
        ("True", "Complete")
    );
    assert_eq!(done["status"]["kubernetesVersion"], "v1.36.0");
    assert_eq!(
        done["status"]["apiEnablements"],
        json!([{"groupVersion": "v1", "resources": [{"name": "pods", "kind": "Pod"}]}])
    );
    let summed = fixture
        .wait_for_cluster("m1", |c| c["status"]["nodeSummary"].is_object())
        .await;
    assert!(fixture.started_at.elapsed() < Duration::from_millis(500));
    assert_eq!(
        summed["status"]["nodeSummary"],
        json!({"totalNum": 1, "readyNum": 1})
    );
    assert_eq!(
        summed["status"]["resourceSummary"]["allocatable"],
        json!({"cpu": "4", "pods": "110"})
    );
    // An unchanged status is not written again.
    fixture.wait_until_idle().await;
    assert_eq!(taint_keys(&fixture.cluster("m1")), [""; 0]);
    fixture.host.clear_writes();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(fixture.host.writes(), []);
    fixture.tasks.stop().await;
}

// proves: CST-thresholds, CST-last-apis, CST-unreachable
#[tokio::test(start_paused = true)]
async fn a_short_outage_is_not_reported() {
    let fixture = ClustersFixture::start();
    let (down, discoveries) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (is_down, count) = (Arc::clone(&down), Arc::clone(&discoveries));
    fixture.member.on_call(move |call| {
        if call.verb == "discover" {
            count.fetch_add(1, Ordering::SeqCst);
        }
        (call.verb == "raw" && is_down.load(Ordering::SeqCst)).then(transport_error)
    });
    fixture.seed_push_cluster("m1");
    fixture
        .wait_for_cluster("m1", |c| {
            ready_condition(c).0 == "True" && taint_keys(c).is_empty()
        })
        .await;
    fixture.wait_until_idle().await;

    down.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(
        ready_condition(&fixture.cluster("m1")),
        ("True", "ClusterReady")
    );
    down.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(
        ready_condition(&fixture.cluster("m1")),
        ("True", "ClusterReady")
    );

    down.store(true, Ordering::SeqCst);
    let gone = fixture
        .wait_for_cluster("m1", |c| ready_condition(c).0 == "False")
        .await;
    assert_eq!(ready_condition(&gone), ("False", "ClusterNotReachable"));
    assert!(
        gone["status"]["apiEnablements"].is_array(),
        "the last known APIs stay"
    );
    fixture
        .wait_for_cluster("m1", |c| taint_keys(c) == ["not-ready"])
        .await;

    let before = discoveries.load(Ordering::SeqCst);
    down.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(ready_condition(&fixture.cluster("m1")).0, "False");
    fixture
        .wait_for_cluster("m1", |c| {
            ready_condition(c).0 == "True" && taint_keys(c).is_empty()
        })
        .await;
    fixture.wait_until_idle().await;
    assert!(discoveries.load(Ordering::SeqCst) > before);
    fixture.tasks.stop().await;
}

// proves: CST-not-ready
#[tokio::test(start_paused = true)]
async fn a_server_that_answers_badly_is_not_ready() {
    let fixture = ClustersFixture::start();
    fixture.member.on_call(|call| {
        let failing = call.verb == "raw" && call.name == "/readyz";
        failing.then(|| Status::failure(500, "InternalError", "no").into())
    });
    fixture.seed_push_cluster("m1");
    let cluster = fixture
        .wait_for_cluster("m1", |c| ready_condition(c).0 == "False")
        .await;
    assert_eq!(ready_condition(&cluster), ("False", "ClusterNotReady"));
    fixture.tasks.stop().await;
}

// proves: CST-healthz
#[tokio::test(start_paused = true)]
async fn an_older_server_has_healthz_only() {
    let fixture = ClustersFixture::start();
    fixture.member.set_raw_body("/healthz", "ok");
    fixture.member.on_call(|call| {
        let unknown = call.verb == "raw" && call.name == "/readyz";
        unknown.then(|| Status::path_not_found().into())
    });
    fixture.seed_push_cluster("m1");
    fixture
        .wait_for_cluster("m1", |c| ready_condition(c) == ("True", "ClusterReady"))
        .await;
    fixture.tasks.stop().await;
}

// proves: CST-secret
#[tokio::test(start_paused = true)]
async fn a_missing_secret_is_reported_and_recovers_at_once() {
    let fixture = ClustersFixture::start();
    fixture
        .host
        .seed(&CLUSTERS, crate::fixture::cluster("m1", "Push"));
    let cluster = fixture
        .wait_for_cluster("m1", |c| ready_condition(c).0 == "False")
        .await;
    assert_eq!(ready_condition(&cluster).1, "StatusCollectionFailed");
    let text = cluster["status"]["conditions"][0]["message"]
        .as_str()
        .unwrap();
    assert!(text.contains("secret \"kc/m1\""), "{text}");
    let since = fixture.started_at.elapsed();
    fixture.seed_secret("m1");
    fixture
        .wait_for_cluster("m1", |c| ready_condition(c).0 == "True")
        .await;
    assert!(fixture.started_at.elapsed() - since < Duration::from_millis(100));
    fixture.tasks.stop().await;
}

// proves: CST-foreign
#[tokio::test(start_paused = true)]
async fn foreign_parts_of_the_status_stay() {
    let fixture = ClustersFixture::start();
    fixture.seed_secret("m1");
    let mut with = crate::fixture::cluster("m1", "Push");
    let foreign = json!({"type": "ServiceDomainNameResolutionReady", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    with["status"] = json!({"remedyActions": ["TrafficControl"], "conditions": [foreign]});
    fixture.host.seed(&CLUSTERS, with);
    let done = fixture
        .wait_for_cluster("m1", |c| ready_condition(c).0 == "True")
        .await;
    assert_eq!(done["status"]["conditions"][0], foreign);
    assert_eq!(done["status"]["remedyActions"], json!(["TrafficControl"]));
    fixture.tasks.stop().await;
}

// proves: CST-no-secret
#[tokio::test(start_paused = true)]
async fn a_cluster_without_a_secret_is_not_collected() {
    let fixture = ClustersFixture::start();
    let mut other = crate::fixture::cluster("m1", "Push");
    other["spec"]["secretRef"] = serde_json::Value::Null;
    fixture.host.seed(&CLUSTERS, other);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(ready_condition(&fixture.cluster("m1")), ("", ""));
    fixture.tasks.stop().await;
}

// proves: CST-new-crd
#[tokio::test(start_paused = true)]
async fn a_crd_created_in_a_member_is_reported_soon() {
    static CRDS: Gvr = Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let fixture = ClustersFixture::start();
    fixture.seed_push_cluster("m1");
    fixture
        .wait_for_cluster("m1", |c| ready_condition(c).0 == "True")
        .await;
    fixture.wait_until_idle().await;
    fixture.members.get("m1").unwrap().managed_informer(&CRDS);
    fixture.member.add_resource(crate::fixture::api_resource(
        "example.com",
        "v1",
        "foos",
        "Foo",
    ));
    let since = fixture.started_at.elapsed();
    fixture.member.seed(
        &CRDS,
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
               "metadata": {"name": "foos.example.com", "labels": {"karmada.io/managed": "true"}}}),
    );
    fixture
        .wait_for_cluster("m1", |c| {
            c["status"]["apiEnablements"][0]["groupVersion"] == "example.com/v1"
        })
        .await;
    assert!(fixture.started_at.elapsed() - since < Duration::from_secs(1));
    fixture.tasks.stop().await;
}

// proves: CST-hanging, CST-unreachable
#[tokio::test(start_paused = true)]
async fn a_hanging_member_delays_no_other_and_no_shutdown() {
    let fixture = ClustersFixture::start();
    for n in 0..10 {
        fixture.seed_push_cluster(&format!("{HANGING_MEMBER_PREFIX}-{n}"));
    }
    fixture.seed_push_cluster("m1");
    fixture
        .wait_for_cluster("m1", |c| ready_condition(c).0 == "True")
        .await;
    assert!(fixture.started_at.elapsed() < Duration::from_millis(100));
    let cluster = fixture
        .wait_for_cluster(&format!("{HANGING_MEMBER_PREFIX}-3"), |c| {
            ready_condition(c).0 == "False"
        })
        .await;
    assert_eq!(ready_condition(&cluster).1, "ClusterNotReachable");
    let before = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(11)).await;
    fixture.tasks.stop().await;
    assert!(before.elapsed() < Duration::from_secs(12));
}

/// A member does not announce a group that it serves since the last discovery: one of an
/// aggregated API server, or of a CRD without an informer.
// proves: CST-new-apis
#[tokio::test(start_paused = true)]
async fn new_apis_are_reported_within_the_status_period() {
    let fixture = ClustersFixture::start();
    fixture.seed_push_cluster("m1");
    fixture
        .wait_for_cluster("m1", |c| ready_condition(c).0 == "True")
        .await;
    fixture.wait_until_idle().await;
    let serves = |c: &serde_json::Value| {
        let groups = c["status"]["apiEnablements"].as_array();
        let mut groups = groups.into_iter().flatten();
        groups.any(|g| g["groupVersion"] == "example.com/v1")
    };
    let foos = crate::fixture::api_resource("example.com", "v1", "foos", "Foo");
    for _ in 0..3 {
        let since = fixture.started_at.elapsed();
        fixture.member.add_resource(foos.clone());
        fixture.wait_for_cluster("m1", serves).await;
        assert!(fixture.started_at.elapsed() - since <= Duration::from_secs(11));
        let since = fixture.started_at.elapsed();
        fixture.member.remove_resource(&foos.resource);
        fixture.wait_for_cluster("m1", |c| !serves(c)).await;
        assert!(fixture.started_at.elapsed() - since <= Duration::from_secs(11));
    }
    fixture.tasks.stop().await;
}
