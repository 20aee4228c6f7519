//! The custom and external metrics of all members in the control plane (`custom.metrics.k8s.io`,
//! `external.metrics.k8s.io`): sums, series, what is missing, rights and discovery.

use std::sync::Arc;

use harness::http_client::{HttpTestClient, HttpTestRequest, HttpTestResponse, full_body};
use harness::https_server::{FakeHttpsServer, TestRequestHandler};
use harness::kubectl::{Kubectl, succeeds};
use hyper::Method;
use serde_json::{Value, json};

use crate::compat::metrics_adapter::{BARE, MetricsAdapterFleet, wait_until, warnings};
use crate::compat::test_server::CompatTestServer;

const CUSTOM: &str = "/apis/custom.metrics.k8s.io/v1beta2";
const CUSTOM_V1BETA1: &str = "/apis/custom.metrics.k8s.io/v1beta1";
const REQUESTS: &str = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/requests";
const EXTERNAL: &str = "/apis/external.metrics.k8s.io/v1beta1";

/// Sets the metric of an object in a simulated member.
async fn set_metric(member: &HttpTestClient, object: &str, metric: &str, value: &str) {
    let annotation = format!("custom-metric.flotilla.io/{metric}");
    let change = json!({"metadata": {"annotations": {annotation: value}}});
    let patch = HttpTestRequest::new(Method::PATCH, object)
        .header("content-type", "application/merge-patch+json")
        .body(full_body(change.to_string()));
    let reply = member.call(patch).await;
    assert_eq!(reply.code, 200, "{}", reply.json());
}

async fn set_metrics(fleet: &MetricsAdapterFleet) {
    let pod = |name: &str| format!("/api/v1/namespaces/default/pods/{name}");
    let [m1, m2, ..] = &*fleet.members else {
        panic!("two members");
    };
    set_metric(&m1.admin, &pod("both"), "requests", "1500m").await;
    set_metric(&m2.admin, &pod("both"), "requests", "2").await;
    set_metric(&m1.admin, &pod("first"), "requests", "5").await;
    set_metric(&m1.admin, "/api/v1/namespaces/default", "queue", "7").await;
    set_metric(&m1.admin, "/api/v1/nodes/node-0", "load", "1").await;
    set_metric(&m2.admin, "/api/v1/nodes/node-0", "load", "2").await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "annotations": {"custom-metric.flotilla.io/load": "3"}},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "x"}]}}}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(m2.admin.post(deployments, &deployment).await.code, 201);
    for (member, topic, value) in [(m1, "a", "10"), (m1, "b", "20"), (m2, "a", "40")] {
        let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": format!("queue-{topic}"), "labels": {"topic": topic},
            "annotations": {"external-metric.flotilla.io/queue": value}}});
        let path = "/api/v1/namespaces/default/configmaps";
        assert_eq!(member.admin.post(path, &config_map).await.code, 201);
    }
}

/// Object and value of the items of a list of v1beta2.
fn values(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let line = |item: &Value| {
        let object = &item["describedObject"];
        format!("{} {}", text(&object["name"]), text(&item["value"]))
    };
    items.map(line).collect()
}

// proves: MAC-sum, MAC-paths, MAC-missing, MAC-rbac, MAC-discovery
#[tokio::test(flavor = "multi_thread")]
async fn the_control_plane_serves_the_custom_metrics_of_all_members() {
    let fleet = MetricsAdapterFleet::start().await;
    set_metrics(&fleet).await;
    let list = fleet.get(REQUESTS).await;
    assert_eq!(warnings(&list), [BARE]);
    let list = list.json();
    assert_eq!(values(&list), ["both 3500m", "first 5"]);
    assert_eq!(list["kind"], "MetricValueList");
    let described = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "default",
        "name": "both"});
    assert_eq!(list["items"][0]["describedObject"], described);
    let metric = json!({"name": "requests", "selector": null});
    assert_eq!(list["items"][0]["metric"], metric);

    for (path, expected) in [
        (
            "namespaces/default/pods/*/requests?labelSelector=app%3Dfirst",
            "first 5",
        ),
        ("namespaces/default/pods/both/requests", "both 3500m"),
        (
            "namespaces/default/pods/both/requests?fieldSelector=metadata.name%3Dboth",
            "both 3500m",
        ),
        ("namespaces/default/metrics/queue", "default 7"),
        ("namespaces/*/metrics/queue", "default 7"),
        ("nodes/node-0/load", "node-0 3"),
        ("namespaces/default/deployments.apps/web/load", "web 3"),
    ] {
        let reply = fleet.get(&format!("{CUSTOM}/{path}")).await;
        assert_eq!(reply.code, 200, "{path}: {}", reply.json());
        assert_eq!(values(&reply.json()), [expected], "{path}");
    }
    let first = fleet
        .get(&format!(
            "{CUSTOM_V1BETA1}/namespaces/default/pods/first/requests"
        ))
        .await
        .json();
    assert_eq!(first["apiVersion"], "custom.metrics.k8s.io/v1beta1");
    assert_eq!(first["items"][0]["metricName"], "requests");

    check_refusals(&fleet).await;
    check_discovery(&fleet).await;
    check_rights(&fleet).await;
    let control = Arc::clone(&fleet.control);
    tokio::task::spawn_blocking(move || kubectl_discovers(&control))
        .await
        .unwrap();
    check_other_members(&fleet).await;
}

async fn check_refusals(fleet: &MetricsAdapterFleet) {
    let no_metric = "the server could not find the metric none for pods";
    let no_path = "the server could not find the requested resource";
    for (path, code, message) in [
        ("namespaces/default/pods/*/none", 404, no_metric),
        (
            "namespaces/default/pods/*/requests?metricLabelSelector=verb%3DGET",
            404,
            "the server could not find the metric requests for pods",
        ),
        ("namespaces/default/requests", 400, "invalid request path"),
        ("namespaces/default/pods/first", 404, no_path),
        ("nodes/node-0", 404, no_path),
        ("nodes", 404, no_path),
        ("nodes/node-0/load/more", 404, no_path),
        (
            "nodes/node-0/load?fieldSelector=metadata.name%3Dother",
            400,
            "fieldSelector metadata.name doesn't match requested name",
        ),
    ] {
        let reply = fleet.get(&format!("{CUSTOM}/{path}")).await.json();
        assert_eq!(
            (&reply["code"], &reply["message"]),
            (&json!(code), &json!(message)),
            "{path}"
        );
    }
    let malformed = format!("{CUSTOM}/nodes/*/load?labelSelector=a%3D%3D%3Db");
    assert_eq!(fleet.get(&malformed).await.code, 400);
    let unknown = "/apis/custom.metrics.k8s.io/v1/nodes/*/load";
    assert_eq!(fleet.get(unknown).await.code, 404);
    let nodes = format!("{CUSTOM}/nodes/*/load");
    let written = fleet.control.admin.post(&nodes, &json!({})).await;
    assert_eq!(written.code, 405);
}

/// The names of the resources of a discovery document.
fn resource_names(document: &Value) -> Vec<&str> {
    let resources = document["resources"].as_array().unwrap().iter();
    resources.map(|r| r["name"].as_str().unwrap()).collect()
}

async fn check_discovery(fleet: &MetricsAdapterFleet) {
    let group = fleet.get("/apis/custom.metrics.k8s.io").await.json();
    assert_eq!(group["preferredVersion"]["version"], "v1beta2");
    for version in [CUSTOM, CUSTOM_V1BETA1] {
        let reply = fleet.get(version).await;
        assert_eq!(warnings(&reply), [BARE]);
        let document = reply.json();
        assert_eq!(document["kind"], "APIResourceList");
        assert_eq!(
            resource_names(&document),
            [
                "deployments.apps/load",
                "namespaces/queue",
                "nodes/load",
                "pods/requests"
            ]
        );
        let expected = json!({"name": "pods/requests", "singularName": "", "namespaced": true,
            "kind": "MetricValueList", "verbs": ["get"]});
        assert_eq!(document["resources"][3], expected);
    }
    let document = fleet.get(EXTERNAL).await.json();
    assert_eq!(resource_names(&document), ["queue"]);
}

/// A metric is read with the right to the subresource of its name.
async fn check_rights(fleet: &MetricsAdapterFleet) {
    let as_jane = |path: &str| {
        let request = HttpTestRequest::new(Method::GET, path);
        let request = request.header("impersonate-user", "jane");
        fleet.control.admin.call(request)
    };
    assert_eq!(as_jane(REQUESTS).await.code, 403);
    let of = |kind: &str, name: &str| {
        json!({"kind": kind, "name": name,
        "apiGroup": "rbac.authorization.k8s.io"})
    };
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    for (resource, object) in [
        (
            "roles",
            json!({"metadata": {"name": "requests"}, "rules": [{
            "apiGroups": ["custom.metrics.k8s.io"], "resources": ["pods/requests"],
            "verbs": ["get"]}]}),
        ),
        (
            "rolebindings",
            json!({"metadata": {"name": "requests"},
            "roleRef": of("Role", "requests"), "subjects": [of("User", "jane")]}),
        ),
    ] {
        let path = format!("{roles}/{resource}");
        assert_eq!(fleet.control.admin.post(&path, &object).await.code, 201);
    }
    let wait = async {
        while as_jane(REQUESTS).await.code != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    harness::http_client::within_timeout("jane may read", wait).await;
    let others = format!("{CUSTOM}/namespaces/default/pods/*/errors");
    assert_eq!(as_jane(&others).await.code, 403);
}

fn kubectl_discovers(control: &CompatTestServer) {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = control.kubeconfig();
    let Some(kubectl) = Kubectl::of_1_36(&kubeconfig, folder.path(), "custom") else {
        return;
    };
    kubectl.run_commands(&[
        succeeds(
            "api-versions",
            &["custom.metrics.k8s.io/v1beta1 custom.metrics.k8s.io/v1beta2"],
        ),
        succeeds("api-resources", &["pods po v1 true Pod"]),
        succeeds(
            "get apiservices v1beta2.custom.metrics.k8s.io",
            &["Local True"],
        ),
        succeeds(&format!("get --raw {REQUESTS}"), &["3500m"]),
    ]);
}

/// Serves a metric in v1beta1 only.
fn answer_in_v1beta1() -> TestRequestHandler {
    Arc::new(|request| {
        Box::pin(async move {
            let path = request.uri().path();
            let is_served = path.starts_with(&format!("/base{CUSTOM_V1BETA1}/"));
            if !is_served || !path.ends_with("/requests") {
                let mut none = hyper::Response::new(full_body("404 page not found\n"));
                *none.status_mut() = hyper::StatusCode::NOT_FOUND;
                return none;
            }
            let item = json!({"describedObject": {"kind": "Pod", "namespace": "default",
                "name": "both"}, "metricName": "requests", "timestamp": "2026-01-02T03:04:05Z",
                "window": 60, "value": "100"});
            let list = json!({"kind": "MetricValueList", "items": [item]});
            hyper::Response::new(full_body(list.to_string()))
        })
    })
}

/// A member with the older version counts; one that never answers could have the metric.
async fn check_other_members(fleet: &MetricsAdapterFleet) {
    let older = FakeHttpsServer::start(answer_in_v1beta1()).await;
    fleet
        .control
        .register_cluster("older", &older, json!({}))
        .await;
    let is_added = |reply: &HttpTestResponse| values(&reply.json()) == ["both 103500m", "first 5"];
    wait_until(&fleet.control.admin, REQUESTS, is_added).await;
    let both = fleet
        .get(&format!("{CUSTOM}/namespaces/default/pods/both/requests"))
        .await;
    // The sum is as old as its oldest value.
    let item = &both.json()["items"][0];
    assert_eq!(item["timestamp"], "2026-01-02T03:04:05Z");
    assert_eq!(item["windowSeconds"], 60);

    let _silent = fleet.control.register_silent_cluster("silent").await;
    let no_answer = "cluster(silent): no answer within 5 s";
    let is_missing =
        |reply: &HttpTestResponse| warnings(reply).iter().any(|text| text.contains(no_answer));
    wait_until(&fleet.control.admin, REQUESTS, is_missing).await;
    let absent = fleet.get(&format!("{CUSTOM}/nodes/*/none")).await;
    assert_eq!(absent.code, 503, "{}", absent.json());
}

// proves: MAC-external
#[tokio::test(flavor = "multi_thread")]
async fn the_control_plane_serves_the_external_metrics_of_all_members() {
    let fleet = MetricsAdapterFleet::start().await;
    set_metrics(&fleet).await;
    let queue = format!("{EXTERNAL}/namespaces/default/queue");
    let series = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        let cluster = "resource.karmada.io/query-from-cluster";
        let line = |item: &Value| {
            let labels = &item["metricLabels"];
            let fields = [
                &item["metricName"],
                &labels["topic"],
                &labels[cluster],
                &item["value"],
            ];
            fields.map(|field| field.as_str().unwrap()).join(" ")
        };
        items.map(line).collect()
    };
    let list = fleet.get(&queue).await;
    assert_eq!(warnings(&list), [BARE]);
    assert_eq!(list.json()["kind"], "ExternalMetricValueList");
    assert_eq!(
        series(&list.json()),
        ["queue a m1 10", "queue b m1 20", "queue a m2 40"]
    );
    let selected = fleet
        .get(&format!("{queue}?labelSelector=topic%3Da"))
        .await
        .json();
    assert_eq!(series(&selected), ["queue a m1 10", "queue a m2 40"]);
    let none = fleet
        .get(&format!("{EXTERNAL}/namespaces/default/none"))
        .await;
    assert_eq!((none.code, &none.json()["items"]), (200, &json!([])));
    for (path, code) in [
        (format!("{queue}?watch=1"), 405),
        (format!("{queue}?labelSelector=a%3D%3D%3Db"), 400),
        (format!("{queue}/name"), 404),
        (format!("{EXTERNAL}/queue"), 404),
    ] {
        assert_eq!(fleet.get(&path).await.code, code, "{path}");
    }

    // A member that never answers does not keep discovery waiting for as long.
    let _silent = fleet.control.register_silent_cluster("silent").await;
    let is_missing = |reply: &HttpTestResponse| warnings(reply).len() == 2;
    wait_until(&fleet.control.admin, &queue, is_missing).await;
    let discovery = fleet.get(EXTERNAL).await;
    assert_eq!(resource_names(&discovery.json()), ["queue"]);
    let no_answer = "299 - \"cluster(silent): no answer within 2 s\"";
    assert_eq!(warnings(&discovery), [BARE, no_answer]);
}
