//! The requests of `karmadactl top pod` and `top node` (Karmada's `pkg/karmadactl/top/top.go`,
//! `top_pods.go`, `top_node.go`): all go through the cluster proxy, those for metrics ask for
//! protobuf first.

use hyper::Method;
use serde_json::{Value, json};

use crate::compat::karmadactl_requests::KarmadactlRequestChecker;
use harness::http_client::{
    CLUSTERS_PATH, HttpTestClient, HttpTestRequest, HttpTestResponse, cluster_proxy_path,
};

const JSON: &str = "application/json";
/// The Accept header of client-go with `--use-protocol-buffers`, which is the default.
const PROTOBUF_ACCEPT: &str = "application/vnd.kubernetes.protobuf, */*";
const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";

/// Replays both commands for a cluster. It may not serve metrics.k8s.io, as behind a real
/// kube-apiserver without metrics-server; returns whether it does.
pub(crate) async fn replay(control: &HttpTestClient, name: &str) -> bool {
    let control = KarmadactlRequestChecker {
        command: "top",
        target: control,
    };
    let list = [("/kind", json!("ClusterList"))];
    control.get(CLUSTERS_PATH, 200, &list).await;
    control.wait_until_proxied(name).await;
    let proxy = |path: &str| cluster_proxy_path(name, path);
    let groups = [("/kind", json!("APIGroupList"))];
    let groups = control.get_as(&proxy("/apis"), JSON, 200, &groups).await;
    let groups = groups["groups"].as_array().unwrap();
    let metrics = groups.iter().find(|g| g["name"] == "metrics.k8s.io");
    let is_supported = metrics.is_some_and(|group| {
        let versions = group["versions"].as_array().unwrap();
        versions.iter().any(|v| v["version"] == "v1beta1")
    });
    for kind in ["nodes", "pods"] {
        // Without the group karmadactl prints that the API is not available, and asks no more.
        let code = if is_supported { 200 } else { 404 };
        let path = proxy(&format!("{METRICS}/{kind}"));
        control.get(&path, code, &[]).await;
    }
    if is_supported {
        pods(&control, name).await;
        nodes(&control, name).await;
    }
    is_supported
}

/// The protobuf of a list of this kind that contains a name.
async fn assert_protobuf(
    control: &KarmadactlRequestChecker<'_>,
    path: &str,
    kind: &str,
    name: &str,
) {
    let request = HttpTestRequest::new(Method::GET, path).header("accept", PROTOBUF_ACCEPT);
    let reply = control.target.call(request).await;
    assert_eq!(reply.code, 200, "{path}");
    assert!(reply.body.starts_with(b"k8s\0"), "{path}: {:?}", reply.body);
    let contains = |text: &str| reply.body.windows(text.len()).any(|w| w == text.as_bytes());
    for text in ["metrics.k8s.io/v1beta1", kind, name] {
        assert!(contains(text), "{path}: no {text:?}");
    }
}

/// `top pod`, `top pod NAME` and `top pod -l ... --field-selector ...`.
async fn pods(control: &KarmadactlRequestChecker<'_>, name: &str) {
    let proxy = |path: &str| cluster_proxy_path(name, path);
    let all = proxy(&format!("{METRICS}/pods"));
    let namespace = proxy(&format!("{METRICS}/namespaces/default/pods"));
    let list = [("/kind", json!("PodMetricsList"))];
    let has_pods = |r: &HttpTestResponse| r.json()["items"][0].is_object();
    control.get_until(&namespace, "measured", has_pods).await;
    let listed = control.get_as(&namespace, JSON, 200, &list).await;
    let pod = &listed["items"][0];
    let container = &pod["containers"][0];
    assert!(container["usage"]["cpu"].is_string(), "{listed}");
    assert!(container["usage"]["memory"].is_string(), "{listed}");
    let pod_name = pod["metadata"]["name"].as_str().unwrap();
    assert_protobuf(control, &all, "PodMetricsList", pod_name).await;
    let one = format!("{namespace}/{pod_name}");
    assert_protobuf(control, &one, "PodMetrics", pod_name).await;
    let selected = format!("{namespace}?labelSelector=app%3Dnothing&fieldSelector=");
    let nothing = [("/items", json!([]))];
    control.get_as(&selected, JSON, 200, &nothing).await;
    // Without metrics, the command looks whether there are pods that should have some.
    let pods = proxy("/api/v1/namespaces/default/pods?labelSelector=app%3Dnothing");
    control.get_as(&pods, JSON, 200, &nothing).await;
    let missing = [("/reason", json!("NotFound"))];
    let none = format!("{namespace}/none");
    control.get_as(&none, JSON, 404, &missing).await;
}

/// `top node` and `top node NAME`, which also read the nodes.
async fn nodes(control: &KarmadactlRequestChecker<'_>, name: &str) {
    let proxy = |path: &str| cluster_proxy_path(name, path);
    let metrics = proxy(&format!("{METRICS}/nodes"));
    let list = [("/kind", json!("NodeMetricsList"))];
    let listed = control.get_as(&metrics, JSON, 200, &list).await;
    let node = listed["items"][0]["metadata"]["name"].as_str().unwrap();
    assert_protobuf(control, &metrics, "NodeMetricsList", node).await;
    let one = format!("{metrics}/{node}");
    assert_protobuf(control, &one, "NodeMetrics", node).await;
    let nodes = proxy("/api/v1/nodes");
    let served = control.get_as(&nodes, JSON, 200, &[]).await;
    let names = served["items"].as_array().unwrap().iter();
    let names: Vec<&Value> = names.map(|n| &n["metadata"]["name"]).collect();
    assert!(names.contains(&&json!(node)), "{names:?}");
    control
        .get_as(
            &format!("{nodes}/{node}"),
            JSON,
            200,
            &[("/kind", json!("Node"))],
        )
        .await;
}
