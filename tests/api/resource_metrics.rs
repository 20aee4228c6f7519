//! The metrics of nodes and pods (`metrics.k8s.io`) in simulated clusters: computed objects, which
//! are not stored.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::access::wait_until_code;
use crate::api::kubectl::{succeeds, with_each_kubectl_at};
use crate::api::test_server::ApiTestServer;

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";

fn pod(namespace: &str, name: &str, resources: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "x", "resources": resources}]}})
}

/// Creates a pod, and waits until it has metrics.
fn run_pod(server: &ApiTestServer, namespace: &str, name: &str, resources: &Value) {
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let reply = server.post(&pods, &pod(namespace, name, resources));
    assert_eq!(reply.code, 201, "{}", reply.text());
    let path = format!("{METRICS}/namespaces/{namespace}/pods/{name}");
    wait_until_code(200, || server.get(&path));
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

// proves: MET-simulated
#[test]
fn usage_is_half_of_the_requests() {
    let server = ApiTestServer::start_member();
    let requests = json!({"requests": {"cpu": "500m", "memory": "100Mi"}});
    run_pod(&server, "default", "web", &requests);
    run_pod(&server, "default", "idle", &json!({}));

    let mut web = server.get(&format!("{METRICS}/namespaces/default/pods/web"));
    let metrics = web.json();
    assert_eq!(metrics["kind"], "PodMetrics");
    assert_eq!(metrics["metadata"]["labels"], json!({"app": "web"}));
    assert_eq!(metrics["window"], "15s");
    assert!(metrics["timestamp"].is_string(), "{metrics}");
    assert_eq!(metrics["metadata"]["resourceVersion"], Value::Null);
    let used = json!([{"name": "main", "usage": {"cpu": "250m", "memory": "50Mi"}}]);
    assert_eq!(metrics["containers"], used);

    let list = server.get(&format!("{METRICS}/pods")).json();
    assert_eq!(
        (&list["kind"], &list["metadata"]),
        (&json!("PodMetricsList"), &json!({}))
    );
    assert_eq!(names(&list), ["idle", "web"]);
    for (query, expected) in [
        ("labelSelector=app%3Dweb", vec!["web"]),
        ("fieldSelector=metadata.name%3Didle", vec!["idle"]),
        ("labelSelector=app%3Dnothing", vec![]),
    ] {
        let path = format!("{METRICS}/namespaces/default/pods?{query}");
        assert_eq!(names(&server.get(&path).json()), expected, "{query}");
    }
    let nodes = server.get(&format!("{METRICS}/nodes")).json();
    assert_eq!(names(&nodes), ["node-0", "node-1"]);
    let usage = |node: &Value| node["usage"].clone();
    let mut usages = nodes["items"].as_array().unwrap().iter().map(usage);
    let expected = [
        json!({"cpu": "250m", "memory": "50Mi"}),
        json!({"cpu": "1m", "memory": "4Mi"}),
    ];
    assert!(usages.all(|usage| expected.contains(&usage)), "{nodes}");

    web = server.get(&format!("{METRICS}/namespaces/default/pods/none"));
    assert_eq!(web.code, 404);
    assert_eq!(web.json()["details"]["name"], "none");
    for (method, path) in [
        ("GET", format!("{METRICS}/pods?watch=true")),
        ("DELETE", format!("{METRICS}/namespaces/default/pods/web")),
    ] {
        let rejection = server.request(method, &path).send();
        assert_eq!(rejection.code, 405, "{method} {path}: {}", rejection.text());
    }
    let invalid = server.get(&format!("{METRICS}/pods?fieldSelector=spec.nodeName%3Dx"));
    assert_eq!(invalid.code, 400, "{}", invalid.text());
}

// proves: MET-simulated
#[test]
fn kubectl_shows_the_metrics_of_a_cluster() {
    let member = Arc::new(ApiTestServer::start_member());
    with_each_kubectl_at(&member, "metrics", |kubectl| {
        kubectl.run_commands(&[
            succeeds("run web --image=nginx", &[]),
            succeeds("wait --for=condition=ready pod/web --timeout=30s", &[]),
            succeeds("top pod", &["NAME CPU(cores) MEMORY(bytes)", "web 1m 4Mi"]),
            succeeds("top pod web --containers", &["web web 1m 4Mi"]),
            succeeds("top node", &["node-0", "0%"]),
            succeeds("get podmetrics", &["NAME CPU MEMORY WINDOW web 1m 4Mi 15s"]),
            succeeds("get nodes.metrics.k8s.io", &["node-1"]),
            succeeds(
                "api-resources --api-group=metrics.k8s.io",
                &[
                    "nodes metrics.k8s.io/v1beta1 false NodeMetrics",
                    "pods metrics.k8s.io/v1beta1 true PodMetrics",
                ],
            ),
            // The names of the core group are not taken.
            succeeds("get pods", &["web 1/1 Running"]),
        ]);
    });
}

// proves: MET-absent
#[test]
fn a_cluster_may_have_no_metrics() {
    let member = ApiTestServer::start_member_with(&["--resource-metrics=false"]);
    let groups = member.get("/apis").json();
    let groups = groups["groups"].as_array().unwrap();
    assert!(groups.iter().all(|group| group["name"] != "metrics.k8s.io"));
    assert_eq!(member.get(&format!("{METRICS}/nodes")).code, 404);
}
