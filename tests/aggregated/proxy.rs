//! The cluster proxy in aggregated mode: the requests of karmadactl, and logs and exec in a real
//! member cluster whose kubelet is a server of the test.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use auth::pki::CertKeyPair;
use bytes::Bytes;
use client::{Patch, ResourcePath, WriteOptions};
use http_body_util::{BodyExt, StreamBody};
use hyper::Response;
use hyper::body::Frame;
use machinery::Gvr;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::direct_client::SERVING_NAME;
use crate::aggregated::real_clusters::{RealMemberCluster, join};
use crate::compat::karmadactl;
use harness::http_client::{HttpTestClient, cluster_proxy_path, within_timeout};
use harness::https_server::{
    FakeHttpsServer, HALF_CLOSE_MESSAGE, TestRequestHandler, pseudo_random_bytes, upgrade_handler,
};
use harness::process::{RunningCommand, run};

static NODES: Gvr = Gvr::from_static("", "v1", "nodes");
static PODS: Gvr = Gvr::from_static("", "v1", "pods");
static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");
static ROLES: Gvr = Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterroles");
static BINDINGS: Gvr = Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterrolebindings");

pub(super) const LOOPBACK: &str = "127.0.0.1";
const ADMIN: &str = "kubernetes-admin";
const MEMBER: &str = "member1";

/// Sends the next lines of a container's log; `None` until the log is requested.
type ContainerLogSenderSlot = Arc<Mutex<Option<mpsc::Sender<Bytes>>>>;

/// Starts a kubelet whose container logs come from the sender, and that upgrades connections.
async fn start_kubelet() -> (FakeHttpsServer, ContainerLogSenderSlot) {
    let (heard, _) = mpsc::channel(8);
    let (sessions, feed) = (upgrade_handler(heard), ContainerLogSenderSlot::default());
    let log_sender = Arc::clone(&feed);
    let handler: TestRequestHandler = Arc::new(move |request| {
        if !request.uri().path().starts_with("/containerLogs/") {
            return sessions(request);
        }
        let (sender, mut lines) = mpsc::channel::<Bytes>(8);
        *log_sender.lock() = Some(sender);
        let frames = futures_util::stream::poll_fn(move |cx| {
            lines.poll_recv(cx).map(|l| l.map(|l| Ok(Frame::data(l))))
        });
        let body = BodyExt::boxed(StreamBody::new(frames));
        Box::pin(async move { Response::new(body) })
    });
    (FakeHttpsServer::start(handler).await, feed)
}

/// Sets the kubelet's address in the status of all nodes.
async fn set_kubelet_address(member: &RealMemberCluster, kubelet: &FakeHttpsServer) {
    for node in member.server.list(&NODES, "").await {
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.address.port()}}}});
        let at = ResourcePath::object(&NODES, "", node["metadata"]["name"].as_str().unwrap())
            .subresource("status");
        let patch = Patch::Merge(status);
        let options = WriteOptions::default();
        member.server.api.patch(at, patch, &options).await.unwrap();
    }
}

/// Creates a pod with the containers `echo` and `brief`, waits until it is ready, and returns
/// its name.
async fn create_pod(member: &RealMemberCluster) -> String {
    let containers: Vec<Value> = ["echo", "brief"]
        .iter()
        .map(|name| json!({"name": name, "image": "none"}))
        .collect();
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "talk", "namespace": "default"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "talk"}}, "template": {
            "metadata": {"labels": {"app": "talk"}}, "spec": {"containers": containers}}}});
    member.server.create(deployment).await;
    let ready = |d: &Value| d["status"]["readyReplicas"] == 1;
    let server = &member.server;
    server
        .wait_until(&DEPLOYMENTS, "default", "talk", "ready", ready)
        .await;
    let pods = server.list(&PODS, "default").await;
    let talks = |p: &&Value| p["metadata"]["labels"]["app"] == "talk";
    let pod = pods.iter().find(talks).unwrap();
    pod["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Grants the administrator `clusters/proxy` in the host.
async fn grant_cluster_proxy(control_plane: &AggregatedControlPlane) {
    let metadata = json!({"name": "cluster-proxy-admin"});
    let rule = json!({"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"], "verbs": ["*"]});
    let group = "rbac.authorization.k8s.io";
    let role = json!({"metadata": metadata, "rules": [rule]});
    let binding = json!({"metadata": metadata,
        "subjects": [{"kind": "User", "apiGroup": group, "name": ADMIN}],
        "roleRef": {"kind": "ClusterRole", "apiGroup": group, "name": "cluster-proxy-admin"}});
    for (resource, body) in [(&ROLES, role), (&BINDINGS, binding)] {
        let options = WriteOptions::default();
        let created = control_plane.client.api.create(
            ResourcePath::collection(resource, ""),
            body.into(),
            &options,
        );
        created.await.unwrap();
    }
}

pub(super) fn connect(
    server: &str,
    name: &str,
    ca: &str,
    identity: &CertKeyPair,
) -> HttpTestClient {
    let address = server.strip_prefix("https://").unwrap();
    let pems = (
        identity.certificate_pem.as_bytes(),
        identity.key_pem.as_bytes(),
    );
    HttpTestClient::new(address, name, ca.as_bytes(), Some(pems))
}

async fn wait_until_reachable(target: &HttpTestClient) {
    let path = cluster_proxy_path(MEMBER, "/api");
    within_timeout("the cluster to know the user", async {
        while target.get(&path).await.code != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
}

fn kubectl_command(program: &Path, control_plane: &AggregatedControlPlane, line: &str) -> Command {
    let mut command = Command::new(program);
    let server = format!(
        "{}{}",
        control_plane.host.server,
        cluster_proxy_path(MEMBER, "")
    );
    command
        .arg("--kubeconfig")
        .arg(&control_plane.host.kubeconfig)
        .args(["--server", &server, "--cache-dir"])
        .arg(control_plane.host.dir().join("kubectl"))
        .args(line.split(' '));
    command
}

/// `kubectl logs -f` prints each line when the container writes it, and ends with the log.
fn check_log_follow(
    program: &Path,
    control_plane: &AggregatedControlPlane,
    feed: &ContainerLogSenderSlot,
    pod: &str,
) {
    let follow = kubectl_command(program, control_plane, &format!("logs -f {pod} -c echo"));
    let mut follow = RunningCommand::start(&follow);
    let mut lines = BufReader::new(follow.child.stdout.take().unwrap()).lines();
    let sender = loop {
        if let Some(sender) = feed.lock().take() {
            break sender;
        }
        let ended = follow.child.try_wait().unwrap();
        assert!(ended.is_none(), "kubectl logs ended");
        std::thread::yield_now();
    };
    for line in ["one", "two", "three"] {
        sender.blocking_send(format!("{line}\n").into()).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), line);
    }
    drop(sender);
    follow.wait_for_success();
}

/// `kubectl get pods -w` prints a pod again when it changes.
fn check_watch(program: &Path, control_plane: &AggregatedControlPlane, pod: &str) {
    let watch = kubectl_command(program, control_plane, "get pods -w");
    let mut watch = RunningCommand::start(&watch);
    let lines = BufReader::new(watch.child.stdout.take().unwrap()).lines();
    let mut rows = lines.map(Result::unwrap).filter(|l| l.starts_with(pod));
    rows.next().unwrap();
    let label = kubectl_command(program, control_plane, &format!("label pod {pod} seen=yes"));
    assert!(run(&label).status.success());
    rows.next().unwrap();
}

/// Checks `exec` sessions byte by byte.
///
/// A kube-apiserver closes both directions when one is closed; everything sent before must
/// have arrived.
async fn check_exec(target: &HttpTestClient, pod: &str) {
    for (seed, protocol) in [(1, "SPDY/3.1"), (2, "websocket")] {
        let session = |container: &str| {
            let path = format!("/api/v1/namespaces/default/pods/{pod}/exec");
            let query = format!("container={container}&command=cat&stdin=true&stdout=true");
            cluster_proxy_path(MEMBER, &format!("{path}?{query}"))
        };
        let sent = pseudo_random_bytes(1_000_000, seed);
        let (head, stream) = target.upgrade(&session("echo"), protocol, b"").await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{protocol}: {head}");
        let (mut from, mut to) = tokio::io::split(stream);
        let mut actual = vec![0; sent.len()];
        let both = async { tokio::join!(to.write_all(&sent), from.read_exact(&mut actual)) };
        let (wrote, read) = within_timeout("the echo", both).await;
        wrote.unwrap();
        read.unwrap();
        assert!(actual == sent, "{protocol}");
        to.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let _ = within_timeout("the end", from.read_to_end(&mut rest)).await;
        assert!(HALF_CLOSE_MESSAGE.starts_with(&rest), "{rest:?}");

        let (_, mut stream) = target.upgrade(&session("brief"), protocol, b"").await;
        let mut actual = Vec::new();
        let _ = within_timeout("the farewell", stream.read_to_end(&mut actual)).await;
        assert_eq!(actual, HALF_CLOSE_MESSAGE, "{protocol}");
    }
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn cluster_proxy_works_through_the_host() {
    let Some([kubectl]) = harness::tools(["kubectl-new"]) else {
        return;
    };
    let (Some(control_plane), Some((member, _etcd))) = tokio::join!(
        AggregatedControlPlane::start(),
        RealMemberCluster::start(MEMBER)
    ) else {
        return;
    };
    control_plane.wait_until_available().await;
    grant_cluster_proxy(&control_plane).await;
    let admin = control_plane
        .host
        .client_certificate(ADMIN, &["system:masters"]);
    let through = connect(
        &control_plane.host.server,
        LOOPBACK,
        control_plane.host.ca_pem(),
        &admin,
    );
    let own = member
        .cluster
        .client_certificate("admin", &["system:masters"]);
    let cluster = connect(
        &member.cluster.server,
        LOOPBACK,
        member.cluster.ca_pem(),
        &own,
    );
    karmadactl::replay(&through, &cluster, "legacy1").await;

    // `unjoin` deletes the namespace of the member's service accounts.
    member
        .server
        .wait_until_deleted(&NAMESPACES, "", "karmada-cluster")
        .await;
    join(
        &control_plane.client,
        &control_plane.host.kubeconfig,
        &member,
    )
    .await;
    wait_until_reachable(&through).await;
    let (kubelet, feed) = start_kubelet().await;
    set_kubelet_address(&member, &kubelet).await;
    let pod = create_pod(&member).await;
    let control_plane = tokio::task::spawn_blocking({
        let pod = pod.clone();
        move || {
            check_log_follow(&kubectl, &control_plane, &feed, &pod);
            check_watch(&kubectl, &control_plane, &pod);
            control_plane
        }
    });
    let control_plane = control_plane.await.unwrap();
    let bundle = control_plane.ca_bundle().await;
    let direct = format!("https://127.0.0.1:{}", control_plane.port);
    let direct = |identity: &CertKeyPair| connect(&direct, SERVING_NAME, &bundle, identity);
    check_exec(&through, &pod).await;
    check_exec(&direct(&admin), &pod).await;

    let eve = control_plane.host.client_certificate("eve", &[]);
    let forbidden = connect(
        &control_plane.host.server,
        LOOPBACK,
        control_plane.host.ca_pem(),
        &eve,
    );
    for target in [forbidden, direct(&eve)] {
        let reply = target.get(&cluster_proxy_path(MEMBER, "/api")).await;
        assert_eq!(reply.code, 403);
    }
}
