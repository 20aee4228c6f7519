//! The page of a cluster, and what is done to it there.

use std::sync::Arc;

use client::Error;
use client_fake::FakeApi;
use http::StatusCode;
use http::header::ORIGIN;
use karmada_api::resources::{BINDINGS, CLUSTERS, WORKS};
use machinery::Status;
use serde_json::{Value, json};

use super::fixture::{ConsoleFixture, api, binding, cluster, deployment, fleet, form_request};
use super::fixture::{DEPLOYMENTS, OWN_ORIGIN, PlannedPage};

const DRAIN: &str = "/clusters/east/drain";

/// Two ready clusters without taints; what is in `east` may go to `west`.
fn ready_fleet() -> Arc<FakeApi> {
    let api = api();
    for name in ["east", "west"] {
        let mut cluster = cluster(name, "True", "");
        cluster["spec"]["taints"] = json!([]);
        let resources = json!([{"name": "deployments", "kind": "Deployment"}]);
        cluster["status"]["apiEnablements"] =
            json!([{"groupVersion": "apps/v1", "resources": resources}]);
        api.seed(&CLUSTERS, cluster);
    }
    api.seed(&DEPLOYMENTS, deployment("web", 2));
    api.seed(&BINDINGS, binding("web", &[("east", 2)]));
    api
}

fn taints_of(api: &FakeApi) -> Value {
    api.get_object(&CLUSTERS, "", "east").unwrap()["spec"]["taints"].clone()
}

// proves: CON-cluster, CON-escape, CON-clipped
#[tokio::test]
async fn a_cluster_shows_its_conditions_and_what_is_placed_there() {
    let api = fleet();
    let mut west = cluster(
        "west",
        "False",
        &format!("no <b>answer</b>{}", "x".repeat(5000)),
    );
    west["spec"]["zones"] = json!(["z1", "z2"]);
    api.seed(&CLUSTERS, west);
    let fixture = ConsoleFixture::start(api).await;
    let cookie = fixture.login().await;
    let page = fixture.get("/clusters/west", &cookie).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    for text in [
        "<title>west · Flotilla</title>",
        "Not ready",
        "v1.36.1",
        "dedicated=db:NoSchedule",
        "z1, z2",
        "31 GiB",
        "ClusterNotReachable",
        "no &lt;b&gt;answer&lt;/b&gt;",
        "href=\"/workloads?cluster=west\">1 workload</a>",
        "href=\"/workloads/shop/web%2Ddeployment\"",
        "href=\"/clusters/west/cordon\"",
        "href=\"/clusters/west/drain\"",
    ] {
        assert!(page.text.contains(text), "{text} in {}", page.text);
    }
    assert!(!page.text.contains("<b>"), "{}", page.text);
    assert!(page.text.len() < 20_000, "{}", page.text.len());
    let fleet = fixture.get("/", &cookie).await;
    assert!(
        fleet.text.contains("href=\"/clusters/west\""),
        "{}",
        fleet.text
    );
    let missing = fixture.get("/clusters/none", &cookie).await;
    assert_eq!(missing.status, StatusCode::BAD_GATEWAY);
}

// proves: CON-cordon, CON-plan-first
#[tokio::test]
async fn a_cluster_is_cordoned_and_uncordoned() {
    let fixture = ConsoleFixture::start(ready_fleet()).await;
    let cookie = fixture.login().await;
    for (action, count, text) in [
        ("cordon", 1, "Nothing new is placed on the cluster."),
        ("uncordon", 0, "The cluster may get templates again."),
    ] {
        let path = format!("/clusters/east/{action}");
        let plan = fixture.get(&path, &cookie).await;
        assert_eq!(plan.status, StatusCode::OK, "{}", plan.text);
        let writes = fixture.api.writes().len();
        let form = ConsoleFixture::plan_form(&plan, "");
        let done = fixture.post(&path, &cookie, &form).await;
        assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text);
        assert_eq!(fixture.api.writes().len(), writes + 1);
        let taints = taints_of(&fixture.api);
        assert_eq!(taints.as_array().map_or(0, Vec::len), count, "{taints}");
        let page = fixture.get(done.location(), &cookie).await;
        assert!(page.text.contains(text), "{}", page.text);
        let again = fixture.post(&path, &cookie, &form).await;
        assert_eq!(again.status, StatusCode::CONFLICT);
        assert!(
            again.text.contains(&format!("is already {action}ed")),
            "{}",
            again.text
        );
    }
}

// proves: CON-drain, CON-plan-first
#[tokio::test]
async fn a_drain_shows_what_leaves_and_then_evicts_it() {
    let planned = PlannedPage::open(ready_fleet(), DRAIN).await;
    planned.assert_shows(&[
        "1 template can leave it, 0 templates cannot",
        "east:2",
        "west:2",
    ]);
    let done = planned.confirm("").await;
    assert_eq!(done.location(), "/clusters/east?done=drain");
    let api = &planned.fixture.api;
    let key = ("shop", "web-deployment");
    let bound = api.get_object(&BINDINGS, key.0, key.1).unwrap();
    let tasks = &bound["spec"]["gracefulEvictionTasks"];
    assert_eq!(tasks[0]["fromCluster"], "east", "{bound}");
    assert_eq!(bound["spec"]["clusters"], json!([]));
    assert_eq!(taints_of(api).as_array().map(Vec::len), Some(1));
}

// proves: CON-leaving
#[tokio::test]
async fn a_drained_cluster_shows_what_has_not_left_it() {
    let api = ready_fleet();
    let mut leaving = binding("web", &[("west", 2)]);
    leaving["spec"]["gracefulEvictionTasks"] = json!([{"fromCluster": "east",
        "reason": "Cluster<b>Drained", "producer": "Drain", "creationTimestamp": "2026-01-01T00:00:00Z"}]);
    let healthy = json!({"clusterName": "east", "applied": true, "health": "Healthy"});
    leaving["status"]["aggregatedStatus"] = json!([healthy]);
    api.seed(&BINDINGS, leaving.clone());
    let fixture = ConsoleFixture::start(api).await;
    let cookie = fixture.login().await;
    let page = fixture.get("/clusters/east", &cookie).await;
    for text in [
        "No template is placed on this cluster, but not all have left it.",
        "Leaving it",
        "1 workload still there",
        "href=\"/workloads/shop/web%2Ddeployment\"",
        "Cluster&lt;b&gt;Drained",
        "<span class=\"badge good\">Healthy</span>",
        "2026-01-01T00:00:00Z",
    ] {
        assert!(page.text.contains(text), "{text} in {}", page.text);
    }
    let fleet = fixture.get("/", &cookie).await;
    assert!(fleet.text.contains("1 leaving"), "{}", fleet.text);
    // The eviction has ended, and the Work is still being deleted. The Namespace stays.
    let mut placed = leaving;
    placed["spec"]["gracefulEvictionTasks"] = json!([]);
    fixture.api.seed(&BINDINGS, placed);
    let work = |name: &str, manifest: &Value| {
        json!({"metadata": {"name": name, "namespace": "karmada-es-east", "finalizers": ["f"]},
            "spec": {"workload": {"manifests": [manifest]}}})
    };
    let mut deleting = work("w", &deployment("other", 1));
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    fixture.api.seed(&WORKS, deleting);
    fixture
        .api
        .seed(&WORKS, work("kept", &deployment("web", 2)));
    let namespace = json!({"kind": "Namespace", "metadata": {"name": "lasting"}});
    fixture.api.seed(&WORKS, work("n", &namespace));
    fixture
        .wait_until(|console| !console.inventory.loads().contains_key("east"))
        .await;
    let page = fixture.get("/clusters/east", &cookie).await;
    for text in [
        "Still there",
        "Deployment other in shop: being deleted",
        "Deployment web in shop: kept until its replacement runs elsewhere",
    ] {
        assert!(page.text.contains(text), "{text} in {}", page.text);
    }
    assert!(!page.text.contains("lasting"), "{}", page.text);
    assert!(!page.text.contains("Leaving it"), "{}", page.text);
}

// proves: CON-drain, CON-plan-stale
#[tokio::test]
async fn a_drain_is_planned_again_if_a_template_has_moved() {
    let planned = PlannedPage::open(ready_fleet(), DRAIN).await;
    let moved = binding("web", &[("east", 1), ("west", 1)]);
    let api = &planned.fixture.api;
    api.seed(&BINDINGS, moved);
    let page = planned.confirm("").await;
    assert_eq!(page.status, StatusCode::CONFLICT);
    assert!(
        page.text
            .contains("it has changed since the plan was shown"),
        "{}",
        page.text
    );
    assert_eq!(api.writes(), []);
}

// proves: CON-cross-site, CON-csrf, CON-rights
#[tokio::test]
async fn clusters_are_changed_by_no_other_site_and_with_no_other_rights() {
    let api = ready_fleet();
    api.on_call(|call| {
        let is_patch = call.verb == "patch" && call.resource == Some(&CLUSTERS);
        is_patch.then(|| Error::from(Status::failure(403, "Forbidden", "not <yours>")))
    });
    let planned = PlannedPage::open(api, DRAIN).await;
    let good = planned.form("");
    let bad = good.replace(&planned.plan.field("token"), "x");
    let PlannedPage {
        fixture, cookie, ..
    } = planned;
    for (form, origin, site) in [
        (&good, "http://evil.example", "same-origin"),
        (&good, OWN_ORIGIN, "cross-site"),
        (&bad, OWN_ORIGIN, "same-origin"),
    ] {
        let mut request = form_request(DRAIN, &cookie, form);
        let headers = request.headers_mut();
        headers.insert(ORIGIN, origin.parse().unwrap());
        headers.insert("sec-fetch-site", site.parse().unwrap());
        let page = fixture.send(request).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{origin} {site}");
    }
    let page = fixture.post(DRAIN, &cookie, &good).await;
    assert_eq!(page.status, StatusCode::CONFLICT);
    assert!(page.text.contains("not &lt;yours&gt;"), "{}", page.text);
    assert_eq!(fixture.api.writes(), []);
}
