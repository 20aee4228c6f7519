//! The requests of `karmadactl describe`, `logs` and `exec` for a member, and those of
//! `unjoin --force`.
//!
//! Sources: Karmada's `pkg/karmadactl/{describe,logs,exec}`, which run kubectl's commands with a
//! factory for the member (`pkg/karmadactl/util/factory.go`), and
//! `pkg/karmadactl/util/cluster.go`, at f8fdd02df376; kubectl's `pkg/describe/describe.go`,
//! `pkg/polymorphichelpers/logsforobject.go` and `pkg/cmd/exec/exec.go` at 1.36.

use harness::http_client::{
    CLUSTERS_PATH, HttpTestClient, HttpTestRequest, HttpTestResponse, cluster_proxy_path,
};
use hyper::Method;
use serde_json::{Value, json};

use crate::compat::karmadactl_requests::KarmadactlRequestChecker;

const JSON: &str = "application/json";

fn checker<'a>(command: &'a str, target: &'a HttpTestClient) -> KarmadactlRequestChecker<'a> {
    KarmadactlRequestChecker { command, target }
}

/// Creates a Pod in the member and waits until it runs.
async fn run_pod(control: &HttpTestClient, member: &str) -> Value {
    let create = checker("create", control);
    let pods = cluster_proxy_path(member, "/api/v1/namespaces/default/pods");
    let ready = |reply: &HttpTestResponse| reply.code == 200;
    create.get_until(&pods, "reachable", ready).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": [{"name": "nginx", "image": "nginx:1.27"}]}});
    create.post(&pods, pod, &[]).await;
    let running = |reply: &HttpTestResponse| reply.json()["status"]["phase"] == "Running";
    let path = format!("{pods}/web");
    create.get_until(&path, "running", running).await.json()
}

/// Replays `describe pod web --operation-scope members --cluster NAME`, and `describe cluster NAME`.
async fn describe(control: &HttpTestClient, member: &str, pod: &Value) {
    let describe = checker("describe", control);
    let proxy = |path: &str| cluster_proxy_path(member, path);
    let kind = [("/kind", json!("Pod"))];
    let path = proxy("/api/v1/namespaces/default/pods/web");
    describe.get_as(&path, JSON, 200, &kind).await;
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let events = |name: &str, kind: &str, uid: &str| {
        format!(
            "fieldSelector=involvedObject.name%3D{name}%2CinvolvedObject.kind%3D{kind}%2CinvolvedObject.uid%3D{uid}&limit=500"
        )
    };
    let selector = format!(
        "fieldSelector=involvedObject.name%3Dweb%2CinvolvedObject.namespace%3Ddefault%2CinvolvedObject.uid%3D{uid}&limit=500"
    );
    let list = [("/kind", json!("EventList"))];
    let path = proxy(&format!("/api/v1/namespaces/default/events?{selector}"));
    describe.get(&path, 200, &list).await;
    let path = format!("{CLUSTERS_PATH}/{member}");
    let cluster = describe
        .get_as(&path, JSON, 200, &[("/kind", json!("Cluster"))])
        .await;
    let uid = cluster["metadata"]["uid"].as_str().unwrap();
    let path = format!("/api/v1/events?{}", events(member, "Cluster", uid));
    let event_list = describe.get(&path, 200, &list).await;
    let all = event_list["items"].as_array().unwrap();
    assert!(!all.is_empty(), "the events of the cluster");
    assert!(
        all.iter().all(|e| e["involvedObject"]["uid"] == uid),
        "{event_list}"
    );
}

/// Replays `logs web --cluster NAME`, which prints what the container has written.
async fn logs(control: &HttpTestClient, member: &str) {
    let logs = checker("logs", control);
    let path = cluster_proxy_path(member, "/api/v1/namespaces/default/pods/web");
    logs.get(&path, 200, &[("/kind", json!("Pod"))]).await;
    let log = logs
        .target
        .get(&format!("{path}/log?container=nginx"))
        .await;
    let text = String::from_utf8_lossy(&log.body).into_owned();
    assert_eq!(log.code, 200, "{text}");
    assert!(
        text.contains("hollow container nginx of default/web"),
        "{text}"
    );
    let message = [("/reason", json!("BadRequest"))];
    let path = format!("{path}/log?container=other");
    logs.get(&path, 400, &message).await;
}

/// Replays `exec web --operation-scope members --cluster NAME -- say it` over WebSockets and over
/// SPDY, whose streams `containers.rs` tests with kubectl.
async fn exec(control: &HttpTestClient, member: &str) {
    let exec = checker("exec", control);
    let path = cluster_proxy_path(member, "/api/v1/namespaces/default/pods/web");
    exec.get(&path, 200, &[("/kind", json!("Pod"))]).await;
    let query = "command=say&command=it&container=nginx&stderr=true&stdout=true";
    let path = format!("{path}/exec?{query}");
    let request = HttpTestRequest::new(Method::GET, &path)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", "v5.channel.k8s.io");
    let response = exec.target.send(request).await;
    let (status, headers) = (response.status(), response.headers());
    assert_eq!(status, 101, "{headers:?}");
    assert_eq!(headers["sec-websocket-protocol"], "v5.channel.k8s.io");
    let request = HttpTestRequest::new(Method::POST, &path)
        .header("connection", "Upgrade")
        .header("upgrade", "SPDY/3.1")
        .header("x-stream-protocol-version", "v4.channel.k8s.io");
    let response = exec.target.send(request).await;
    let (status, headers) = (response.status(), response.headers());
    assert_eq!(status, 101, "{headers:?}");
    assert_eq!(headers["upgrade"], "SPDY/3.1");
    assert_eq!(headers["x-stream-protocol-version"], "v4.channel.k8s.io");
}

/// Replays `unjoin NAME --force` after its timeout: the finalizers go by updates.
async fn unjoin_by_force(control: &HttpTestClient, name: &str) {
    let unjoin = checker("unjoin --force", control);
    let secret = json!({"metadata": {"name": name, "namespace": "karmada-cluster"},
        "stringData": {"token": "t"}});
    let secrets = "/api/v1/namespaces/karmada-cluster/secrets";
    unjoin.post(secrets, secret, &[]).await;
    let reference = json!({"namespace": "karmada-cluster", "name": name});
    let cluster = json!({"metadata": {"name": name}, "spec": {"syncMode": "Push", "id": name,
        "apiEndpoint": "https://127.0.0.1:1", "insecureSkipTLSVerification": true,
        "secretRef": reference}, "status": {}});
    unjoin.post(CLUSTERS_PATH, cluster, &[]).await;
    let path = format!("{CLUSTERS_PATH}/{name}");
    let finalizer = |reply: &HttpTestResponse| {
        reply.json()["metadata"]["finalizers"][0] == "karmada.io/cluster-controller"
    };
    unjoin.get_until(&path, "with a finalizer", finalizer).await;
    let works = format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{name}/works");
    let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": "w", "namespace": format!("karmada-es-{name}"),
        "finalizers": ["karmada.io/execution-controller"]},
        "spec": {"workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "default", "name": "a"}}]}}});
    unjoin.post(&works, work, &[]).await;
    unjoin.delete(&path).await;
    // The execution controller may be faster: it removes its finalizer from what is not applied.
    let request = HttpTestRequest::new(Method::GET, &works);
    let mut listed = unjoin.request(request, "GET works", &[200], &[]).await;
    for work in listed["items"].as_array_mut().unwrap() {
        work["metadata"]["finalizers"] = Value::Null;
        let update = HttpTestRequest::new(Method::PUT, &format!("{works}/w")).json(work);
        let line = "PUT a work without its finalizer";
        unjoin.request(update, line, &[200, 404, 409], &[]).await;
    }
    let space = format!("/api/v1/namespaces/karmada-es-{name}");
    let request = HttpTestRequest::new(Method::GET, &space);
    unjoin
        .request(request, "GET the space", &[200, 404], &[])
        .await;
    unjoin
        .get_until(&path, "gone", |reply| reply.code == 404)
        .await;
}

/// Replays all commands in order, for a joined simulated cluster.
pub(crate) async fn replay(control: &HttpTestClient, member: &str) {
    let pod = run_pod(control, member).await;
    describe(control, member, &pod).await;
    logs(control, member).await;
    exec(control, member).await;
    unjoin_by_force(control, "lost").await;
}
