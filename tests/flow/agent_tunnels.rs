//! The cluster proxy to a member in pull mode, through the tunnel of its agent: no address of
//! the member is known to the control plane.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use client::remote::kubeconfig::KubeconfigLoadingRules;
use client::remote::{ClientCertificate, ImpersonationConfig, Redacted, RemoteApi, RestConfig};
use client::{
    Api, Error, ListOptions, ResourcePath, ShutdownToken, TaskGroup, WatchEvent, WatchOptions,
    WriteOptions,
};
use futures_util::StreamExt;
use harness::FlotillaUpProcess;
use harness::certificate_requests::certificate_request;
use harness::port_forward::echo_through_port_forward;
use machinery::Gvr;
use serde_json::json;

use crate::flow::fleet::{ApiServerClient, find_condition, wait_until};
use crate::flow::objects::{
    CLUSTER_ROLE_BINDINGS, CLUSTERS, CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment,
};
use crate::flow::pull_members::{NAME, PullFixture};

static EVENTS: Gvr = Gvr::from_static("", "v1", "events");
static REQUESTS: Gvr = Gvr::from_static("certificates.k8s.io", "v1", "certificatesigningrequests");
static ACCESS_REVIEWS: Gvr = Gvr::from_static("authorization.k8s.io", "v1", "subjectaccessreviews");
static NODE_METRICS: Gvr = Gvr::from_static("metrics.k8s.io", "v1beta1", "nodes");

pub(crate) const NS: &str = "tunnel";
const USER: &str = "ann";
const NO_TUNNEL: &str = "the agent of cluster \"edge\" has no tunnel";

/// Clients of the member through the control plane.
pub(crate) struct TunneledMember {
    pub(crate) admin: ApiServerClient,
    kubeconfig: PathBuf,
}

impl TunneledMember {
    pub(crate) fn new(fleet: &PullFixture) -> Self {
        Self::connect(&fleet.up, &fleet.name)
    }

    /// The cluster proxy of any member.
    pub(crate) fn connect(up: &FlotillaUpProcess, name: &str) -> Self {
        let direct = std::fs::read_to_string(up.dir().join("kubeconfig")).unwrap();
        let server = format!("https://{}", up.address());
        let proxied = format!("{server}/apis/cluster.karmada.io/v1alpha1/clusters/{name}/proxy");
        let kubeconfig = up.dir().join(format!("tunneled-{name}.kubeconfig"));
        std::fs::write(&kubeconfig, direct.replace(&server, &proxied)).unwrap();
        Self {
            admin: ApiServerClient::connect("tunneled", &kubeconfig),
            kubeconfig,
        }
    }

    /// The error of a read of the member; `None` if the member answers.
    async fn failure(&self) -> Option<Error> {
        let at = ResourcePath::object(&crate::flow::objects::NAMESPACES, "", "default");
        self.admin.api.get(at).await.err()
    }

    pub(crate) async fn wait_until_reached(&self) {
        wait_until("the tunnel", async || self.failure().await.is_none()).await;
    }

    async fn wait_until_cut(&self) {
        wait_until("the error of a missing tunnel", async || {
            match self.failure().await {
                Some(Error::Status(status)) => {
                    status.code == 503 && status.message.contains(NO_TUNNEL)
                }
                _ => false,
            }
        })
        .await;
    }

    /// A client that impersonates a user at the control plane.
    fn user(&self) -> Arc<dyn Api> {
        let mut config = KubeconfigLoadingRules::from_file(&self.kubeconfig)
            .load()
            .unwrap();
        config.impersonate = Some(ImpersonationConfig {
            user: USER.to_owned(),
            ..ImpersonationConfig::default()
        });
        Arc::new(RemoteApi::new(config, &TaskGroup::new(ShutdownToken::new())).unwrap())
    }

    /// Runs `kubectl LINE`, which must succeed, and returns its output.
    pub(crate) async fn kubectl(&self, program: &Path, line: &str) -> String {
        self.kubectl_with_log(program, line).await.0
    }

    /// The same, with what it writes to standard error.
    pub(crate) async fn kubectl_with_log(&self, program: &Path, line: &str) -> (String, String) {
        let mut command = Command::new(program);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command.args(line.split(' '));
        command.env("HOME", self.kubeconfig.parent().unwrap());
        command.stdin(Stdio::null());
        let out = tokio::task::spawn_blocking(move || harness::process::run(&command));
        let out = out.await.unwrap();
        let [text, log] =
            [&out.stdout, &out.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        assert!(out.status.success(), "{line}: {text} {log}");
        (text, log)
    }
}

fn refused_with<T>(result: Result<T, Error>, code: u16) -> String {
    let error = result.err().unwrap();
    let is_refused = matches!(&error, Error::Status(status) if status.code == code);
    assert!(is_refused, "{error}");
    error.to_string()
}

pub(crate) async fn list_config_maps(api: &Arc<dyn Api>) -> Result<usize, Error> {
    let at = ResourcePath::collection(&CONFIG_MAPS, NS);
    let listed = api.list(at, &ListOptions::default()).await;
    let count = |list: client::ObjectList| {
        let names = list.items.iter().map(machinery::Object::name);
        names.filter(|name| *name != "kube-root-ca.crt").count()
    };
    listed.map(count)
}

/// The role and binding that give the user something.
async fn grant(server: &ApiServerClient, name: &str, groups: &[&str], resources: &[&str]) {
    let group = "rbac.authorization.k8s.io";
    server
        .create(
            json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole",
                "metadata": {"name": name},
                "rules": [{"apiGroups": groups, "resources": resources, "verbs": ["*"]}]}),
        )
        .await;
    server
        .create(
            json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
                "subjects": [{"apiGroup": group, "kind": "User", "name": USER}]}),
        )
        .await;
}

/// Opens a watch of ConfigMaps; the first event has come when this returns.
pub(crate) async fn watch(member: &TunneledMember, name: &str) -> client::WatchStream {
    let at = ResourcePath::collection(&CONFIG_MAPS, NS);
    let options = WatchOptions::default();
    let mut events = member.admin.api.watch(at, &options).await.unwrap();
    loop {
        let event = events.next().await.unwrap().unwrap();
        if let WatchEvent::Added(object) = event
            && object.name() == name
        {
            return events;
        }
    }
}

// proves: MAD-pull, TUN-requests, TUN-watch, TUN-cut, TUN-restart, TUN-newest, TUN-mode
#[tokio::test]
async fn the_proxy_reaches_a_member_through_its_agent() {
    let fleet = PullFixture::start().await;
    fleet.register().await;
    let config = fleet.agent_kubeconfig().await;
    let agent = fleet.start_agent(&config, &[]).await;
    fleet.control.wait_until_cluster_ready(NAME).await;
    let member = TunneledMember::new(&fleet);
    member.wait_until_reached().await;

    fleet.member.create_namespace(NS).await;
    fleet.member.create(config_map(NS, "direct", "x")).await;
    let through = &member.admin;
    through.create(config_map(NS, "tunneled", "y")).await;
    assert_eq!(list_config_maps(&through.api).await.unwrap(), 2);
    let stored = fleet.member.get(&CONFIG_MAPS, NS, "tunneled").await;
    assert_eq!(stored.unwrap()["data"]["k"], "y");
    // Many at once, in one tunnel.
    let lists = (0..100).map(|_| list_config_maps(&through.api));
    let lists = futures_util::future::join_all(lists).await;
    assert!(lists.into_iter().all(|count| count.unwrap() == 2));

    // The control plane reads metrics through the tunnel, as the user of the request.
    let cluster = "/metadata/annotations/resource.karmada.io~1query-from-cluster";
    wait_until("metrics of the member", async || {
        let metrics = fleet.control.list(&NODE_METRICS, "").await;
        let mut clusters = metrics.iter().map(|node| node.pointer(cluster));
        clusters.any(|cluster| cluster == Some(&NAME.into()))
    })
    .await;

    // A watch gets events while it runs, ends with the connection, and can be opened again.
    let mut events = watch(&member, "tunneled").await;
    fleet.member.create(config_map(NS, "later", "z")).await;
    loop {
        if let WatchEvent::Added(object) = events.next().await.unwrap().unwrap()
            && object.name() == "later"
        {
            break;
        }
    }
    fleet.relay.reset_connections();
    while let Some(Ok(_)) = events.next().await {}
    member.wait_until_reached().await;
    drop(watch(&member, "later").await);

    // A second agent replaces the tunnel of the first; both know how to come back.
    let second = fleet.start_agent(&config, &[]).await;
    member.wait_until_reached().await;
    drop(agent);
    member.wait_until_reached().await;
    drop(second);
    member.wait_until_cut().await;
    let _agent = fleet.start_agent(&config, &[]).await;
    member.wait_until_reached().await;
    // The tunnel of a cluster ends when it is reached directly.
    let mode =
        |mode: &str| json!({"spec": {"syncMode": mode, "apiEndpoint": "https://127.0.0.1:1"}});
    let control = &fleet.control;
    control.merge_patch(&CLUSTERS, "", NAME, mode("Push")).await;
    wait_until("the end of the tunnel", async || {
        member.failure().await.is_some()
    })
    .await;
    control.merge_patch(&CLUSTERS, "", NAME, mode("Pull")).await;
    member.wait_until_reached().await;
    fleet.control.delete(&CLUSTERS, "", NAME).await;
    fleet.control.wait_until_deleted(&CLUSTERS, "", NAME).await;
    wait_until("the end of the proxy", async || {
        let failure = member.failure().await;
        matches!(failure, Some(Error::Status(status)) if status.code == 404)
    })
    .await;
}

// proves: TUN-identity, TUN-authorization
#[tokio::test]
async fn users_and_agents_have_no_more_rights_through_a_tunnel() {
    let fleet = PullFixture::start().await;
    fleet.register().await;
    let config = fleet.agent_kubeconfig().await;
    let _agent = fleet.start_agent(&config, &[]).await;
    let member = TunneledMember::new(&fleet);
    member.wait_until_reached().await;
    fleet.member.create_namespace(NS).await;

    // The control plane grants the right to the proxy; the member grants the other rights.
    let ann = member.user();
    let rejection = refused_with(list_config_maps(&ann).await, 403);
    assert!(rejection.contains("clusters/proxy"), "{rejection}");
    let proxy = ["clusters/proxy"];
    grant(&fleet.control, "proxy", &["cluster.karmada.io"], &proxy).await;
    wait_until("the member's refusal", async || {
        let listed = list_config_maps(&ann).await;
        matches!(listed, Err(Error::Status(status)) if status.message.contains("configmaps is forbidden: User \"ann\""))
    })
    .await;
    grant(&fleet.member, "maps", &[""], &["configmaps"]).await;
    wait_until("the list", async || list_config_maps(&ann).await.is_ok()).await;

    // Only the agent opens the tunnel, and only that of its own cluster.
    let tasks = TaskGroup::new(ShutdownToken::new());
    let rest = |path: &Path| {
        let config = KubeconfigLoadingRules::from_file(path).load().unwrap();
        RemoteApi::new(config, &tasks).unwrap()
    };
    let attach = async |client: &RemoteApi, cluster: &str| {
        let path = format!("/apis/cluster.karmada.io/v1alpha1/clusters/{cluster}/attach");
        client.post(&path, Bytes::new(), 1 << 20).await
    };
    let (agent, admin) = (rest(&config), rest(&fleet.up.dir().join("kubeconfig")));
    let (foreign, no_agent) = (
        format!("an agent may only access the Cluster {NAME:?}"),
        format!("only the agent of cluster {NAME:?} may open its tunnel"),
    );
    for (client, cluster, expected) in [(&agent, "member1", foreign), (&admin, NAME, no_agent)] {
        let rejection = refused_with(attach(client, cluster).await, 403);
        assert!(rejection.contains(&expected), "{rejection}");
    }
    let rejection = refused_with(attach(&agent, NAME).await, 400);
    assert!(rejection.contains("upgrades to"), "{rejection}");
}

// proves: TUN-certificate
#[tokio::test]
async fn another_certificate_of_the_agent_does_not_take_over_its_tunnel() {
    let fleet = PullFixture::start().await;
    fleet.register().await;
    let config = fleet.agent_kubeconfig().await;
    let _agent = fleet.start_agent(&config, &[]).await;
    let member = TunneledMember::new(&fleet);
    member.wait_until_reached().await;
    let tasks = TaskGroup::new(ShutdownToken::new());
    let own = KubeconfigLoadingRules::from_file(&config).load().unwrap();
    let second = second_certificate(own.clone(), &tasks).await;
    let path = format!("/apis/cluster.karmada.io/v1alpha1/clusters/{NAME}/attach");
    let attach = |config| {
        let client = RemoteApi::new(config, &tasks).unwrap();
        let path = path.clone();
        async move { client.post(&path, Bytes::new(), 1 << 20).await }
    };
    // The control plane admits the key of the certificate a moment after it is issued.
    wait_until("the refusal of another certificate", async || {
        let rejection = refused_with(attach(second.clone()).await, 403);
        rejection.contains("another certificate")
    })
    .await;
    let rejection = refused_with(attach(own).await, 400);
    assert!(rejection.contains("upgrades to"), "{rejection}");
    member.wait_until_reached().await;
    let has_event = async || {
        let events = fleet.control.list(&EVENTS, "default").await;
        let rejection = |e: &serde_json::Value| {
            e["reason"] == "AgentTunnelRefused" && e["involvedObject"]["name"] == NAME
        };
        events.iter().any(rejection)
    };
    wait_until("the event", has_event).await;
    let metrics = fleet.control.api.get_raw("/metrics").await.unwrap();
    let metrics = String::from_utf8_lossy(&metrics);
    let counted = format!("flotilla_agent_tunnels_refused_total{{member_cluster=\"{NAME}\"}} 1");
    assert!(metrics.contains(&counted), "{metrics}");
}

/// The configuration of the agent with another certificate, which the agent requests itself.
async fn second_certificate(mut config: RestConfig, tasks: &TaskGroup) -> RestConfig {
    let agent = RemoteApi::new(config.clone(), tasks).unwrap();
    let user = format!("system:karmada:agent:{NAME}");
    let signing_request = certificate_request(&user, "system:karmada:agents", &[]);
    let body = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "second"},
        "spec": {"signerName": "kubernetes.io/kube-apiserver-client",
            "request": STANDARD.encode(signing_request.request_pem),
            "usages": ["digital signature", "key encipherment", "client auth"]}});
    let all = ResourcePath::collection(&REQUESTS, "");
    agent
        .create(all, body.into(), &WriteOptions::default())
        .await
        .unwrap();
    let at = ResourcePath::object(&REQUESTS, "", "second");
    let issued = async || {
        let request = agent.get(at).await.unwrap().value().unwrap();
        request["status"]["certificate"].as_str().map(str::to_owned)
    };
    wait_until("the certificate", async || issued().await.is_some()).await;
    config.auth.client_certificate = Some(ClientCertificate {
        certificate: STANDARD.decode(issued().await.unwrap()).unwrap(),
        key: Redacted(signing_request.key_pem.into_bytes()),
    });
    config
}

// proves: TUN-upgrade
#[tokio::test]
async fn logs_and_exec_pass_through_a_tunnel() {
    let Some([old, new]) = harness::tools(["kubectl-old", "kubectl-new"]) else {
        return;
    };
    let fleet = PullFixture::start().await;
    fleet.register().await;
    let config = fleet.agent_kubeconfig().await;
    let _agent = fleet.start_agent(&config, &[]).await;
    let member = TunneledMember::new(&fleet);
    member.wait_until_reached().await;
    fleet.member.create_namespace(NS).await;
    fleet.member.create(deployment(NS, "web", 1)).await;
    let ready = |d: &serde_json::Value| d["status"]["readyReplicas"] == 1;
    let through = &member.admin;
    through
        .wait_until(&DEPLOYMENTS, NS, "web", "ready", ready)
        .await;
    let pods = through.list(&PODS, NS).await;
    let pod = pods[0]["metadata"]["name"].as_str().unwrap();
    for kubectl in [old, new] {
        let log = member
            .kubectl(&kubectl, &format!("-n {NS} logs {pod}"))
            .await;
        assert!(log.contains(&format!("{NS}/{pod}: second 0")), "{log}");
        let line = format!("-n {NS} exec {pod} -- say this and that");
        let output = member.kubectl(&kubectl, &line).await;
        assert_eq!(output, "say this and that\n");
        let mut forward = Command::new(&kubectl);
        forward.arg("--kubeconfig").arg(&member.kubeconfig);
        forward.args(["-n", NS, "port-forward", pod, ":80"]);
        forward.env("HOME", member.kubeconfig.parent().unwrap());
        let forwarded = move || echo_through_port_forward(&forward);
        let forwarded = tokio::task::spawn_blocking(forwarded);
        assert_eq!(forwarded.await.unwrap(), ["first", "second"]);
    }
}

// proves: PUL-endpoints
#[tokio::test]
async fn an_agent_serves_health_and_metrics() {
    let fleet = PullFixture::start().await;
    fleet.register().await;
    let config = fleet.agent_kubeconfig().await;
    let ports = [(); 2].map(|()| harness::port::free_port());
    let flags = ["metrics", "health-probe"].into_iter().zip(ports);
    let flags = flags.map(|(name, port)| format!("--{name}-bind-address=127.0.0.1:{port}"));
    let flags: Vec<String> = flags.collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let _agent = fleet.start_agent(&config, &flags).await;
    let member = TunneledMember::new(&fleet);
    member.wait_until_reached().await;
    let get = async |port: u16, path: &str| {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    };
    for path in ["/healthz", "/readyz"] {
        let answer = get(ports[1], path).await;
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok"),
            "{answer}"
        );
    }
    assert!(get(ports[1], "/metrics").await.starts_with("HTTP/1.1 404 "));
    for line in [
        "\nflotilla_agent_open_tunnels 1\n",
        "\nflotilla_agent_tunnel_dials_total{result=\"opened\"} ",
        "\nprocess_resident_memory_bytes ",
    ] {
        wait_until(line, async || {
            get(ports[0], "/metrics").await.contains(line)
        })
        .await;
    }
    let connected = format!("flotilla_agent_tunnels{{member_cluster=\"{NAME}\"}} 1");
    wait_until(&connected, async || {
        let metrics = fleet.control.api.get_raw("/metrics").await.unwrap();
        String::from_utf8_lossy(&metrics).contains(&connected)
    })
    .await;
}

/// Whether the control plane lets the agent open its tunnel now.
async fn may_open_tunnel(control: &ApiServerClient) -> bool {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "metadata": {},
        "spec": {"user": format!("system:karmada:agent:{NAME}"),
            "groups": ["system:karmada:agents", "system:authenticated"],
            "resourceAttributes": {"group": "cluster.karmada.io", "version": "v1alpha1",
                "resource": "clusters", "subresource": "attach", "name": NAME,
                "verb": "create"}}});
    let at = ResourcePath::collection(&ACCESS_REVIEWS, "");
    let options = WriteOptions::default();
    let answer = control.api.create(at, review.into(), &options).await;
    answer.unwrap().value().unwrap()["status"]["allowed"] == true
}

// proves: TUN-condition
#[tokio::test]
async fn an_agent_reports_its_tunnels() {
    let fleet = PullFixture::start().await;
    fleet.register().await;
    let config = fleet.agent_kubeconfig().await;
    let condition = async |reason: &str| {
        let has = |cluster: &serde_json::Value| {
            find_condition(cluster, "AgentTunnel")["reason"] == reason
        };
        let control = &fleet.control;
        let cluster = control.wait_until(&CLUSTERS, "", NAME, reason, has).await;
        find_condition(&cluster, "AgentTunnel").clone()
    };
    let agent = fleet.start_agent(&config, &[]).await;
    let open = condition("AgentTunnelOpen").await;
    assert_eq!(open["status"], "True");
    assert_eq!(open["message"], "the agent has tunnels to 1 replica");
    drop(agent);
    let agent = fleet.start_agent(&config, &["--enable-tunnel=false"]).await;
    assert_eq!(condition("AgentTunnelDisabled").await["status"], "False");
    drop(agent);
    // The control plane answers the agent, but refuses tunnels.
    let roles = fleet.control.list(&CLUSTER_ROLE_BINDINGS, "").await;
    let agents = |binding: &&serde_json::Value| {
        binding["subjects"][0]["name"] == "system:karmada:agents"
            && binding["roleRef"]["name"] == "system:karmada:agent-tunnel"
    };
    let binding = roles.iter().find(agents).unwrap();
    let name = binding["metadata"]["name"].as_str().unwrap();
    let none = serde_json::json!({"subjects": []});
    let control = &fleet.control;
    control
        .merge_patch(&CLUSTER_ROLE_BINDINGS, "", name, none)
        .await;
    // A tunnel that is opened before the control plane has seen the change stays open.
    wait_until("the end of the right", async || {
        !may_open_tunnel(control).await
    })
    .await;
    let _agent = fleet.start_agent(&config, &[]).await;
    let missing = condition("NoAgentTunnel").await;
    assert_eq!(missing["status"], "False");
    let message = missing["message"].as_str().unwrap();
    assert!(message.contains("clusters/attach"), "{message}");
}
