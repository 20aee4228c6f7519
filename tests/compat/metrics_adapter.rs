//! The metrics of all members in the control plane (`metrics.k8s.io`), as Karmada's
//! karmada-metrics-adapter serves them: merged lists, objects of one member, what is missing.

use std::sync::Arc;
use std::time::Duration;

use harness::http_client::{
    CLUSTERS_PATH, HttpTestClient, HttpTestRequest, HttpTestResponse, full_body,
};
use harness::https_server::{FakeHttpsServer, TestRequestHandler};
use harness::kubectl::{Kubectl, fails, succeeds};
use hyper::Method;
use serde_json::{Value, json};

use crate::compat::karmadactl;
use crate::compat::test_server::CompatTestServer;

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";
pub(crate) const BARE: &str = "299 - \"cluster(bare): metrics API not available\"";
const PODS: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods";
const NO_METRICS: &[&str] = &["--resource-metrics=false", "--custom-metrics=false"];
const CLUSTER: &str = "/metadata/annotations/resource.karmada.io~1query-from-cluster";

/// A control plane with the members `m1` and `m2`, and `bare`, which has no metrics. The pods
/// are `both` in m1 and m2, `first` in m1 and `second` in m2.
pub(crate) struct MetricsAdapterFleet {
    pub(crate) control: Arc<CompatTestServer>,
    pub(crate) members: Vec<CompatTestServer>,
}

async fn start_server(flags: Option<&'static [&'static str]>) -> CompatTestServer {
    let start = move || match flags {
        None => CompatTestServer::start(),
        Some(flags) => CompatTestServer::start_member_with(flags),
    };
    tokio::task::spawn_blocking(start).await.unwrap()
}

/// Creates a running pod in a member.
async fn run_pod(member: &HttpTestClient, name: &str, cpu: &str) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "x",
            "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}]}});
    let reply = member.post("/api/v1/namespaces/default/pods", &pod).await;
    assert_eq!(reply.code, 201, "{}", String::from_utf8_lossy(&reply.body));
    wait_until(member, &format!("{PODS}/{name}"), |reply| reply.code == 200).await;
}

pub(crate) async fn wait_until(
    client: &HttpTestClient,
    path: &str,
    holds: impl Fn(&HttpTestResponse) -> bool,
) {
    let wait = async {
        while !holds(&client.get(path).await) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    harness::http_client::within_timeout(path, wait).await;
}

impl MetricsAdapterFleet {
    pub(crate) async fn start() -> Self {
        let control = start_server(None).await;
        let mut members = Vec::new();
        for (name, flags, pods) in [
            ("m1", &[][..], &["both", "first"][..]),
            ("m2", &[][..], &["both", "second"][..]),
            ("bare", NO_METRICS, &[][..]),
        ] {
            let member = start_server(Some(flags)).await;
            for pod in pods {
                run_pod(&member.admin, pod, "200m").await;
            }
            karmadactl::join(&control.admin, &member.admin, name).await;
            let is_ready = |reply: &HttpTestResponse| {
                let conditions = reply.json()["status"]["conditions"].clone();
                let conditions = conditions.as_array().cloned().unwrap_or_default();
                conditions
                    .iter()
                    .any(|c| c["type"] == "Ready" && c["status"] == "True")
            };
            wait_until(&control.admin, &format!("{CLUSTERS_PATH}/{name}"), is_ready).await;
            members.push(member);
        }
        // Each member has the rights of its account in a cache of its own.
        let are_asked = |reply: &HttpTestResponse| warnings(reply) == [BARE];
        wait_until(&control.admin, PODS, are_asked).await;
        Self {
            control: Arc::new(control),
            members,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> HttpTestResponse {
        self.control.admin.get(path).await
    }
}

/// Name and cluster of the objects of a list.
fn origins(list: &Value) -> Vec<String> {
    let origin = |item: &Value| {
        let cluster = item.pointer(CLUSTER).and_then(Value::as_str);
        let name = item["metadata"]["name"].as_str().unwrap();
        format!("{name} {}", cluster.unwrap_or_default())
    };
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(origin)
        .collect()
}

pub(crate) fn warnings(reply: &HttpTestResponse) -> Vec<String> {
    let values = reply.headers.get_all("warning").iter();
    values
        .map(|value| value.to_str().unwrap().to_owned())
        .collect()
}

// proves: MAD-list, MAD-get, MAD-warnings, MAD-rbac, MAD-kubectl
#[tokio::test(flavor = "multi_thread")]
async fn the_control_plane_serves_the_metrics_of_all_members() {
    let fleet = MetricsAdapterFleet::start().await;
    let list = fleet.get(PODS).await;
    let merged = ["both m1", "both m2", "first m1", "second m2"];
    assert_eq!(origins(&list.json()), merged);
    assert_eq!(list.json()["kind"], "PodMetricsList");
    assert_eq!(warnings(&list), [BARE]);
    let nodes = fleet.get(&format!("{METRICS}/nodes")).await.json();
    assert_eq!(origins(&nodes), ["node-0 m1", "node-0 m2"]);
    for (query, expected) in [
        ("labelSelector=app%20in%20(first)", &["first m1"][..]),
        ("fieldSelector=metadata.name%3Dsecond", &["second m2"]),
        ("labelSelector=app%3Dnothing", &[]),
    ] {
        let list = fleet.get(&format!("{PODS}?{query}")).await.json();
        assert_eq!(origins(&list), expected, "{query}");
    }

    let first = fleet.get(&format!("{PODS}/first")).await;
    assert_eq!(first.json().pointer(CLUSTER), Some(&json!("m1")));
    assert_eq!(first.json()["containers"][0]["usage"]["cpu"], "100m");
    let both = fleet.get(&format!("{PODS}/both")).await;
    assert_eq!(both.code, 409);
    assert_eq!(
        both.json()["message"],
        "Operation cannot be fulfilled on pods \"both\": the pod(both) found in more than one clusters"
    );
    // The pod could be in the member without metrics.
    let none = fleet.get(&format!("{PODS}/none")).await;
    assert_eq!(none.code, 503, "{}", none.json());

    check_rights(&fleet).await;
    let control = Arc::clone(&fleet.control);
    tokio::task::spawn_blocking(move || kubectl_top(&control))
        .await
        .unwrap();
    check_outages(&fleet).await;
}

/// The role `view` reads the metrics of its namespace, whatever the rights in members.
async fn check_rights(fleet: &MetricsAdapterFleet) {
    let as_jane = |path: &str| {
        let request = HttpTestRequest::new(Method::GET, path);
        let request = request.header("impersonate-user", "jane");
        fleet.control.admin.call(request)
    };
    assert_eq!(as_jane(PODS).await.code, 403);
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let created = fleet.control.admin.post(bindings, &binding).await;
    assert_eq!(created.code, 201);
    let wait = async {
        while as_jane(PODS).await.code != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    harness::http_client::within_timeout("jane may read", wait).await;
    assert_eq!(as_jane(&format!("{METRICS}/pods")).await.code, 403);
}

fn kubectl_top(control: &CompatTestServer) {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = control.kubeconfig();
    let kubectl = Kubectl::of_1_36(&kubeconfig, folder.path(), "top");
    let Some(kubectl) = kubectl else {
        return;
    };
    kubectl.run_commands(&[
        succeeds(
            "top pods -n default",
            &[
                "Warning: cluster(bare): metrics API not available",
                "NAME CPU(cores) MEMORY(bytes) both 100m 32Mi both 100m 32Mi first 100m 32Mi \
                 second 100m 32Mi",
            ],
        ),
        succeeds(
            "top pod second -n default --containers",
            &["second main 100m 32Mi"],
        ),
        succeeds(
            "top pods -A -l app=first --no-headers",
            &["default first 100m 32Mi"],
        ),
        succeeds("top nodes", &["node-0 200m", "64Mi"]),
        succeeds("get podmetrics -n default", &["first 100m 32Mi 15s"]),
        fails(
            "top pod both -n default",
            &["found in more than one clusters"],
        ),
    ]);
}

/// Answers with one pod if the request has the control plane's own credentials.
fn answer_to_control_plane() -> TestRequestHandler {
    Arc::new(|request| {
        Box::pin(async move {
            let headers = request.headers();
            let is_own = headers
                .get("authorization")
                .is_some_and(|v| v == "Bearer own")
                && !headers.contains_key("impersonate-user");
            let name = if is_own { "own" } else { "other" };
            let list = json!({"kind": "PodMetricsList", "items": [
                {"metadata": {"name": name, "namespace": "default"}, "containers": null}]});
            hyper::Response::new(full_body(list.to_string()))
        })
    })
}

/// A member that never answers is missing after the deadline; one that is not Ready at once.
async fn check_outages(fleet: &MetricsAdapterFleet) {
    // In pull mode nothing but the control plane's reads connects to them.
    let answers = FakeHttpsServer::start(answer_to_control_plane()).await;
    fleet
        .control
        .register_cluster("own", &answers, json!({}))
        .await;
    let _silent = fleet.control.register_silent_cluster("silent").await;
    let list = fleet.get(PODS).await;
    assert_eq!(
        origins(&list.json()),
        ["both m1", "both m2", "first m1", "own own", "second m2"]
    );
    let missing = warnings(&list);
    assert_eq!(missing.len(), 2, "{missing:?}");
    assert!(
        missing[1].contains("cluster(silent): no answer within 5 s"),
        "{missing:?}"
    );

    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "False",
        "reason": "ClusterNotReachable", "message": "cut",
        "lastTransitionTime": "2026-01-02T03:04:05Z"}]}});
    let patch = HttpTestRequest::new(Method::PATCH, &format!("{CLUSTERS_PATH}/silent/status"))
        .header("content-type", "application/merge-patch+json")
        .body(full_body(status.to_string()));
    assert_eq!(fleet.control.admin.call(patch).await.code, 200);
    let is_known = |reply: &HttpTestResponse| {
        let not_ready = "cluster(silent): not ready: ClusterNotReachable: cut";
        warnings(reply).iter().any(|text| text.contains(not_ready))
    };
    wait_until(&fleet.control.admin, PODS, is_known).await;
}
