//! A member in pull mode: registered with a token, with an agent beside it.
//!
//! The agent connects through a relay, so that its network can be cut. Nothing tells the
//! control plane an address of the member.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, Error, ListOptions, Patch, ResourcePath, WriteOptions};
use harness::daemon::TestDir;
use harness::{FlotillaUpProcess, NetworkNamespace, ServerProcess, TcpRelay};
use serde_json::{Value, json};

use crate::flow::fleet::{ApiServerClient, BINARY, run_flotilla};
use crate::flow::objects::{
    CLUSTER_ROLES, CLUSTERS, CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, ROLES, SECRETS, WORKS,
    config_map, deployment, execution_space, policy,
};

pub(crate) const NAME: &str = "edge";
const NS: &str = "pull";
/// Renews the certificate at each start, and not again.
pub(crate) const ROTATE: [&str; 5] = [
    "--enable-cert-rotation",
    "--cert-rotation-remaining-time-threshold",
    "1",
    "--cert-rotation-checking-interval",
    "1h",
];

/// A control plane, a member to register, and the relay between the control plane and the
/// agent of the member.
pub(crate) struct PullFixture {
    pub(crate) up: Arc<FlotillaUpProcess>,
    pub(crate) name: String,
    pub(crate) control: ApiServerClient,
    pub(crate) member: ApiServerClient,
    member_dir: TestDir,
    member_address: SocketAddr,
    _member_process: ServerProcess,
    pub(crate) relay: Arc<TcpRelay>,
    /// The network namespace in which the member and its agent run.
    pub(crate) namespace: Option<NetworkNamespace>,
    /// The way of the test to a member in a namespace.
    _entrance: Option<TcpRelay>,
}

impl PullFixture {
    /// A control plane with the push member `member1` and a member to register.
    pub(crate) async fn start() -> Self {
        let start = || FlotillaUpProcess::start(BINARY, 1, &[]);
        let up = tokio::task::spawn_blocking(start).await.unwrap();
        Self::beside(Arc::new(up), NAME, None).await
    }

    /// A member of a running control plane. In a namespace, the member listens at the loopback
    /// address of the namespace only, and its agent reaches the relay over the link.
    pub(crate) async fn beside(
        up: Arc<FlotillaUpProcess>,
        name: &str,
        namespace: Option<NetworkNamespace>,
    ) -> Self {
        let member_dir = TestDir::new();
        let (process, address) = start_member_in(namespace.as_ref(), member_dir.path()).await;
        let member_address: SocketAddr = address.parse().unwrap();
        let entrance = namespace
            .as_ref()
            .map(|namespace| TcpRelay::start_into(namespace, member_address));
        let client = member_dir.path().join("client.kubeconfig");
        let direct = std::fs::read_to_string(member_dir.path().join("kubeconfig")).unwrap();
        let reached = entrance
            .as_ref()
            .map_or(member_address, TcpRelay::address)
            .to_string();
        std::fs::write(&client, direct.replace(&address, &reached)).unwrap();
        let host = namespace
            .as_ref()
            .map_or(Ipv4Addr::LOCALHOST, NetworkNamespace::host_address);
        let relay = TcpRelay::start_at(
            SocketAddr::from((host, 0)),
            &[up.address().parse().unwrap()],
        );
        Self {
            name: name.to_owned(),
            member: ApiServerClient::connect(name, &client),
            control: up.control_plane(),
            up,
            member_dir,
            member_address,
            _member_process: process,
            relay: Arc::new(relay),
            namespace,
            _entrance: entrance,
        }
    }

    fn kubeconfig(&self) -> String {
        self.up.dir().join("kubeconfig").display().to_string()
    }

    /// The kubeconfig with which the test reaches the member.
    fn member_kubeconfig(&self) -> String {
        let path = self.member_dir.path().join("client.kubeconfig");
        path.display().to_string()
    }

    /// Whether a connection from outside the member's network reaches it.
    pub(crate) fn is_member_reachable(&self) -> bool {
        let linked = self.namespace.iter().map(|n| IpAddr::from(n.address()));
        let addresses = linked.chain([self.member_address.ip()]);
        let timeout = Duration::from_secs(1);
        addresses.into_iter().any(|address| {
            let to = SocketAddr::new(address, self.member_address.port());
            TcpStream::connect_timeout(&to, timeout).is_ok()
        })
    }

    /// Breaks the network between the agent and the control plane without closing anything.
    pub(crate) fn cut(&self) {
        match &self.namespace {
            Some(namespace) => namespace.cut_link(),
            None => self.relay.partition(),
        }
    }

    pub(crate) fn heal(&self) {
        match &self.namespace {
            Some(namespace) => namespace.restore_link(),
            None => self.relay.heal(),
        }
    }

    /// The flags of `flotilla register`, for a new token.
    async fn register_flags(&self) -> Vec<String> {
        let create = [
            "token",
            "create",
            "--print-register-command",
            "--kubeconfig",
        ];
        let printed = run_flotilla(&[&create[..], &[&self.kubeconfig()]].concat()).await;
        let command = printed.lines().find(|l| l.starts_with("flotilla register"));
        let mut words: Vec<String> = command
            .unwrap()
            .split_whitespace()
            .skip(1)
            .map(str::to_owned)
            .collect();
        // The certificate of the control plane does not have the address of the link.
        if self.namespace.is_none() {
            words[1] = self.relay.address().to_string();
        }
        words.extend(["--kubeconfig".to_owned(), self.member_kubeconfig()]);
        words
    }

    pub(crate) async fn register(&self) {
        self.register_with(&[]).await;
    }

    pub(crate) async fn register_with(&self, more: &[&str]) {
        let mut words = self.register_flags().await;
        words.extend(["--cluster-name".to_owned(), self.name.clone()]);
        words.extend(more.iter().map(|word| (*word).to_owned()));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = run_flotilla(&words).await;
        let joined = format!("cluster({}) is joined successfully", self.name);
        for line in ["[preflight] All pre-flight checks were passed", &joined] {
            assert!(output.contains(line), "{output}");
        }
        if self.namespace.is_some() {
            self.move_agent_to_link().await;
        }
    }

    /// Lets the kubeconfig of the agent name the relay's address on the link.
    async fn move_agent_to_link(&self) {
        let resource = (&SECRETS, "karmada-system", "karmada-kubeconfig");
        let secret = self
            .member
            .wait_until_exists(resource.0, resource.1, resource.2)
            .await;
        let data = secret["data"]["karmada-kubeconfig"].as_str().unwrap();
        let text = String::from_utf8(STANDARD.decode(data).unwrap()).unwrap();
        let mut config: Value = serde_saphyr::from_str(&text).unwrap();
        let cluster = &mut config["clusters"][0]["cluster"];
        cluster["server"] = format!("https://{}", self.relay.address()).into();
        cluster["tls-server-name"] = "127.0.0.1".into();
        let patch = json!({"stringData": {"karmada-kubeconfig": config.to_string()}});
        self.member
            .merge_patch(resource.0, resource.1, resource.2, patch)
            .await;
    }

    /// Writes the kubeconfig of the agent from its Secret in the member.
    pub(crate) async fn agent_kubeconfig(&self) -> PathBuf {
        let secret = self
            .member
            .wait_until_exists(&SECRETS, "karmada-system", "karmada-kubeconfig")
            .await;
        let data = secret["data"]["karmada-kubeconfig"].as_str().unwrap();
        let file = self.member_dir.path().join("agent/kubeconfig");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, STANDARD.decode(data).unwrap()).unwrap();
        file
    }

    pub(crate) async fn start_agent(&self, kubeconfig: &Path, more: &[&str]) -> ServerProcess {
        let line = self.agent_line(kubeconfig, more);
        let log = self.member_dir.path().join("agent.log");
        let start = move || start_process(&line, &log).0;
        tokio::task::spawn_blocking(start).await.unwrap()
    }

    /// The words of the command that runs the agent, in the namespace if there is one.
    pub(crate) fn agent_line(&self, kubeconfig: &Path, more: &[&str]) -> Vec<String> {
        let mut line = enter_command(self.namespace.as_ref());
        let own = self.member_dir.path().join("kubeconfig");
        line.extend(["agent", "--cluster-name", &self.name].map(str::to_owned));
        for (flag, file) in [
            ("--karmada-kubeconfig", kubeconfig),
            ("--kubeconfig", own.as_path()),
        ] {
            line.extend([flag.to_owned(), file.display().to_string()]);
        }
        line.extend(["-v", "1"].map(str::to_owned));
        line.extend(more.iter().map(|flag| (*flag).to_owned()));
        if !more.iter().any(|flag| flag.contains("bind-address")) {
            let off = ["--metrics-bind-address=0", "--health-probe-bind-address=0"];
            line.extend(off.map(str::to_owned));
        }
        line
    }

    /// Waits until the agent's Secret has another certificate, and gives it to the agent, as
    /// a kubelet does.
    pub(crate) async fn deliver_renewed_kubeconfig(&self, file: &Path) {
        let former = STANDARD.encode(std::fs::read(file).unwrap());
        let renewed = |secret: &Value| secret["data"]["karmada-kubeconfig"] != former;
        let secret = self.member.wait_until(
            &SECRETS,
            "karmada-system",
            "karmada-kubeconfig",
            "renewed",
            renewed,
        );
        let secret = secret.await;
        let data = secret["data"]["karmada-kubeconfig"].as_str().unwrap();
        let next = file.with_extension("next");
        std::fs::write(&next, STANDARD.decode(data).unwrap()).unwrap();
        std::fs::rename(&next, file).unwrap();
    }
}

/// The words of a command that runs the binary, in the namespace if there is one.
fn enter_command(namespace: Option<&NetworkNamespace>) -> Vec<String> {
    let entered = namespace.into_iter().flat_map(NetworkNamespace::enter);
    entered.chain([BINARY.to_owned()]).collect()
}

fn start_process(line: &[String], log: &Path) -> (ServerProcess, String) {
    let arguments: Vec<&str> = line[1..].iter().map(String::as_str).collect();
    ServerProcess::start(&line[0], &arguments, log)
}

/// Starts a member, in the namespace if there is one; returns its address, too.
pub(crate) async fn start_member_in(
    namespace: Option<&NetworkNamespace>,
    dir: &Path,
) -> (ServerProcess, String) {
    let mut line = enter_command(namespace);
    let own = ["member", "--nodes", "2", "--listen", "127.0.0.1:0", "--dir"];
    line.extend(own.map(str::to_owned));
    line.push(dir.display().to_string());
    let log = dir.join("log");
    let start = move || start_process(&line, &log);
    tokio::task::spawn_blocking(start).await.unwrap()
}

fn is_forbidden<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Status(status)) if status.code == 403)
}

/// The requests that are forbidden to the agent's credentials.
async fn assert_limited(agent: &Arc<dyn Api>) {
    let list = |resource, namespace| {
        let at = ResourcePath::collection(resource, namespace);
        let agent = Arc::clone(agent);
        async move { agent.list(at, &ListOptions::default()).await }
    };
    assert!(list(&WORKS, "karmada-es-edge").await.is_ok());
    assert!(is_forbidden(list(&WORKS, "karmada-es-member1").await));
    assert!(is_forbidden(list(&WORKS, "").await));
    assert!(is_forbidden(list(&SECRETS, "karmada-cluster").await));
    let other = ResourcePath::object(&CLUSTERS, "", "member1");
    assert!(is_forbidden(agent.get(other).await));
    let own = ResourcePath::object(&CLUSTERS, "", NAME);
    assert!(agent.get(own).await.is_ok());
    let patch = Patch::Merge(json!({"spec": {"syncMode": "Push"}}));
    let options = WriteOptions::default();
    assert!(is_forbidden(agent.patch(own, patch, &options).await));
    let secret = ResourcePath::object(&SECRETS, "karmada-cluster", "member1");
    assert!(is_forbidden(agent.get(secret).await));
}

/// Leaves the agent the rights on its Works that `karmadactl register` gives: no `patch`.
async fn restrict_to_rights_of_karmadactl(control: &ApiServerClient) {
    let verbs = ["get", "create", "list", "watch", "update", "delete"];
    let rule = |resource: &str, verbs: &[&str]| json!({"apiGroups": ["work.karmada.io"], "resources": [resource], "verbs": verbs});
    let rules = json!([
        rule("works", &verbs),
        rule("works/status", &["patch", "update"])
    ]);
    let role = format!("system:karmada:{NAME}:agent-work");
    let space = execution_space(NAME);
    let patch = json!({"rules": rules});
    control.merge_patch(&ROLES, &space, &role, patch).await;
}

fn is_ready(replicas: i64) -> impl Fn(&Value) -> bool {
    move |deployment| deployment["status"]["readyReplicas"] == replicas
}

// proves: PUL-register, PUL-agent, PUL-secrets, PUL-update, PUL-rights, PUL-cut, PUL-rotate, PUL-unregister
#[tokio::test]
async fn a_member_behind_an_agent_is_served_until_it_is_unregistered() {
    let fleet = PullFixture::start().await;
    let control = &fleet.control;
    fleet.register().await;
    let config = fleet.agent_kubeconfig().await;
    let agent = fleet.start_agent(&config, &[]).await;
    let cluster = control.wait_until_cluster_ready(NAME).await;
    assert_eq!(cluster["spec"]["syncMode"], "Pull");
    assert!(cluster["spec"]["apiEndpoint"].is_null());
    for (field, name) in [
        ("secretRef", NAME),
        ("impersonatorSecretRef", "edge-impersonator"),
    ] {
        assert_eq!(cluster["spec"][field]["name"], name);
        let secret = control
            .get(&SECRETS, "karmada-cluster", name)
            .await
            .unwrap();
        assert_eq!(
            secret["metadata"]["ownerReferences"][0]["uid"],
            cluster["metadata"]["uid"]
        );
        assert!(secret["data"]["token"].is_string(), "{name}");
    }
    assert_limited(&harness::cluster::connect(&config)).await;

    control.create_namespace(NS).await;
    let clusters = ["member1", NAME];
    let mut everything = policy(NS, "all", &deployment(NS, "", 1), &clusters);
    everything["spec"]["resourceSelectors"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}, {"apiVersion": "v1", "kind": "ConfigMap"}]);
    control.create(everything).await;
    control.create(deployment(NS, "web", 2)).await;
    control.create(config_map(NS, "gone", "x")).await;
    control
        .wait_until(&DEPLOYMENTS, NS, "web", "ready in both", is_ready(4))
        .await;
    let before = fleet
        .member
        .wait_until_exists(&DEPLOYMENTS, NS, "web")
        .await;
    fleet
        .member
        .wait_until_exists(&CONFIG_MAPS, NS, "gone")
        .await;

    // The network is cut, and the agent dies while it is.
    fleet.relay.partition();
    let scaled = json!({"spec": {"replicas": 3}});
    control.merge_patch(&DEPLOYMENTS, NS, "web", scaled).await;
    control.create(deployment(NS, "late", 1)).await;
    control.delete(&CONFIG_MAPS, NS, "gone").await;
    drop(agent);
    fleet.relay.heal();
    restrict_to_rights_of_karmadactl(control).await;
    let agent = fleet.start_agent(&config, &ROTATE).await;
    control
        .wait_until(&DEPLOYMENTS, NS, "web", "ready in both", is_ready(6))
        .await;
    control
        .wait_until(&DEPLOYMENTS, NS, "late", "ready in both", is_ready(2))
        .await;
    fleet
        .member
        .wait_until_deleted(&CONFIG_MAPS, NS, "gone")
        .await;
    control.wait_until_deleted(&CONFIG_MAPS, NS, "gone").await;
    let after = fleet
        .member
        .wait_until_exists(&DEPLOYMENTS, NS, "web")
        .await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    let generation = before["metadata"]["generation"].as_i64().unwrap();
    assert_eq!(after["metadata"]["generation"], generation + 1, "one write");

    // Each start renews the certificate; the agent goes on with the next.
    fleet.deliver_renewed_kubeconfig(&config).await;
    control.create(deployment(NS, "renewed", 1)).await;
    control
        .wait_until(&DEPLOYMENTS, NS, "renewed", "ready in both", is_ready(2))
        .await;
    fleet.deliver_renewed_kubeconfig(&config).await;
    unregister(&fleet, agent).await;
}

async fn unregister(fleet: &PullFixture, agent: ServerProcess) {
    let control = &fleet.control;
    let (own, member_kubeconfig) = (fleet.kubeconfig(), fleet.member_kubeconfig());
    let files = [
        "--cluster-kubeconfig",
        &member_kubeconfig,
        "--karmada-config",
        &own,
    ];
    let line = [&["unregister", NAME][..], &files].concat();
    let planned = run_flotilla(&[&line[..], &["--dry-run"]].concat()).await;
    let space = execution_space(NAME);
    for expected in [
        "works: ".to_owned(),
        " would be deleted with their ".to_owned(),
        format!("execution space: {space} would be deleted"),
        "Deployment karmada-system/karmada-agent".to_owned(),
        "cluster(edge) is unregistered successfully (dry run)".to_owned(),
    ] {
        assert!(planned.contains(&expected), "{planned}");
    }
    assert!(control.get(&CLUSTERS, "", NAME).await.is_some());
    let output = run_flotilla(&line).await;
    // The same Works as planned, now without an object left.
    let works = planned.lines().find(|line| line.starts_with("works: "));
    let works = works.unwrap().replace("would be deleted", "deleted");
    assert!(output.contains(&works), "{works} in {output}");
    let deleted = format!("execution space: {space} deleted");
    assert!(output.contains(&deleted), "{output}");
    assert!(
        output.contains("cluster(edge) is unregistered successfully"),
        "{output}"
    );
    drop(agent);
    assert_eq!(control.get(&CLUSTERS, "", NAME).await, None);
    control
        .wait_until_deleted(&NAMESPACES, "", &execution_space(NAME))
        .await;
    let role = format!("system:karmada:{NAME}:agent");
    assert_eq!(control.get(&CLUSTER_ROLES, "", &role).await, None);
    let secrets = format!("{role}-secret");
    assert_eq!(control.get(&ROLES, "karmada-cluster", &secrets).await, None);
    for (resource, name) in [
        (&DEPLOYMENTS, "karmada-agent"),
        (&SECRETS, "karmada-kubeconfig"),
    ] {
        assert_eq!(
            fleet.member.get(resource, "karmada-system", name).await,
            None
        );
    }
    for name in ["web", "late", "renewed"] {
        assert_eq!(
            fleet.member.get(&DEPLOYMENTS, NS, name).await,
            None,
            "{name}"
        );
    }
    // The other member keeps what it has.
    let first = fleet.up.members().remove(0);
    first.wait_until_exists(&DEPLOYMENTS, NS, "web").await;
}

// proves: PUL-refuse
#[tokio::test]
async fn registrations_that_cannot_be_right_are_refused() {
    let fleet = PullFixture::start().await;
    let flags = fleet.register_flags().await;
    let run = async |changes: &[(&str, &str)], more: &[&str]| {
        let mut words = flags.clone();
        for (flag, value) in changes {
            let at = words.iter().position(|w| w == flag).unwrap();
            words[at + 1] = (*value).to_owned();
        }
        words.extend(["--discovery-timeout", "1s"].map(str::to_owned));
        words.extend(more.iter().map(|w| (*w).to_owned()));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (code, output) = harness::process::run_to_exit(BINARY, &words).await;
        assert_ne!(code, Some(0), "{output}");
        output
    };
    let pin = "--discovery-token-ca-cert-hash";
    let token = flags[3].clone();
    let forged = format!("{}.{}", &token[..6], "0".repeat(16));
    let wrong_pin = format!("sha256:{}", "0".repeat(64));
    let named = ["--cluster-name", "edge"];
    let dead = fleet.member_dir.path().join("dead");
    let kubeconfig = std::fs::read_to_string(fleet.member_kubeconfig()).unwrap();
    let (_, rest) = kubeconfig.split_once("https://").unwrap();
    let address = rest.split(['"', '\n', ' ']).next().unwrap();
    std::fs::write(&dead, kubeconfig.replace(address, "127.0.0.1:1")).unwrap();
    let dead = dead.display().to_string();
    for (changes, more, expected) in [
        (
            &[("--token", forged.as_str())][..],
            &named,
            "failed to verify JWS signature",
        ),
        (
            &[("--token", "zzzzzz.0123456789abcdef")],
            &named,
            "could not find a JWS signature",
        ),
        (&[("--token", "secret")], &named, "was not of the form"),
        (
            &[("--kubeconfig", dead.as_str())],
            &named,
            "check that its API server runs and that server in the kubeconfig has its port",
        ),
        (&[(pin, wrong_pin.as_str())], &named, "are pinned"),
        (&[], &["--cluster-name", "A"], "invalid"),
        (
            &[],
            &["--cluster-name", "member1"],
            "cluster with name member1 already exists",
        ),
    ] {
        let output = run(changes, more).await;
        assert!(output.contains(expected), "{expected:?} not in: {output}");
        assert!(!output.contains(&token[7..]), "{output}");
    }
    // Nothing is left, and a second registration is refused before it writes.
    let role = "system:karmada:member1:agent";
    assert_eq!(fleet.control.get(&CLUSTER_ROLES, "", role).await, None);
    fleet.register().await;
    let output = run(&[], &["--cluster-name", "again"]).await;
    assert!(
        output.contains("karmada-system/karmada-agent Deployment already exists"),
        "{output}"
    );
}
