//! Three kinds of members side by side: in push mode, in pull mode behind a relay, and in pull
//! mode in a network namespace that nothing outside can connect to.
//!
//! All networks fail in the same way at the same time, and all members have the same objects
//! afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use harness::daemon::TestDir;
use harness::{FlotillaUpProcess, NetworkNamespace, ServerProcess, TcpRelay};
use serde_json::json;

use crate::flow::agent_tunnels::TunneledMember;
use crate::flow::fleet::{ApiServerClient, BINARY, run_flotilla};
use crate::flow::member_credentials::short_token;
use crate::flow::objects::{CLUSTERS, PODS, SECRETS};
use crate::flow::pull_members::{PullFixture, ROTATE, start_member_in};
use crate::flow::pull_networks::ConnectionResets;
use crate::flow::rollout::Rollout;

const PUSH: &str = "push";
const NS: &str = "kinds";
const SHORT_CUT: Duration = Duration::from_secs(3);
/// Longer than the lease of an agent and the failure threshold of a Cluster.
const LONG_CUT: Duration = Duration::from_secs(60);

/// A member that the control plane connects to, through a relay.
struct PushMember {
    client: ApiServerClient,
    relay: Arc<TcpRelay>,
    _process: ServerProcess,
    _dir: TestDir,
}

impl PushMember {
    async fn join(up: &FlotillaUpProcess) -> Self {
        let dir = TestDir::new();
        let (process, address) = start_member_in(None, dir.path()).await;
        let relay = TcpRelay::start(&[address.parse().unwrap()]);
        let direct = dir.path().join("kubeconfig");
        let relayed = dir.path().join("relayed.kubeconfig");
        let text = std::fs::read_to_string(&direct).unwrap();
        let text = text.replace(&address, &relay.address().to_string());
        std::fs::write(&relayed, text).unwrap();
        let control = up.dir().join("kubeconfig").display().to_string();
        let relayed = relayed.display().to_string();
        let files = ["--cluster-kubeconfig", &relayed, "--kubeconfig", &control];
        run_flotilla(&[&["join", PUSH][..], &files].concat()).await;
        Self {
            client: ApiServerClient::connect(PUSH, &direct),
            relay: Arc::new(relay),
            _process: process,
            _dir: dir,
        }
    }

    /// Replaces the token of the control plane; the former one is worth nothing from then on.
    async fn rotate_token(&self, control: &ApiServerClient) {
        let token = short_token(&self.client, PUSH).await;
        let patch = json!({"stringData": {"token": token}});
        control
            .merge_patch(&SECRETS, "karmada-cluster", PUSH, patch)
            .await;
        let account = format!("karmada-{PUSH}");
        self.client
            .delete(&SECRETS, "karmada-cluster", &account)
            .await;
    }
}

/// A member in pull mode with its agent.
struct PullMember {
    fixture: PullFixture,
    config: PathBuf,
    _agent: ServerProcess,
}

impl PullMember {
    async fn register(
        up: &Arc<FlotillaUpProcess>,
        name: &str,
        namespace: Option<NetworkNamespace>,
    ) -> Self {
        let fixture = PullFixture::beside(Arc::clone(up), name, namespace).await;
        fixture.register().await;
        let config = fixture.agent_kubeconfig().await;
        let agent = fixture.start_agent(&config, &ROTATE).await;
        Self {
            fixture,
            config,
            _agent: agent,
        }
    }
}

struct MemberKinds {
    up: Arc<FlotillaUpProcess>,
    control: ApiServerClient,
    push: PushMember,
    /// The second one is in a namespace, and is missing where none can be created.
    pull: Vec<PullMember>,
}

impl MemberKinds {
    async fn start(namespace: Option<NetworkNamespace>) -> Self {
        let start = || Arc::new(FlotillaUpProcess::start(BINARY, 0, &[]));
        let up = tokio::task::spawn_blocking(start).await.unwrap();
        let isolated = async {
            match namespace {
                Some(namespace) => {
                    Some(PullMember::register(&up, "isolated", Some(namespace)).await)
                }
                None => None,
            }
        };
        let (push, pull, isolated) = tokio::join!(
            PushMember::join(&up),
            PullMember::register(&up, "outbound", None),
            isolated
        );
        let kinds = Self {
            control: up.control_plane(),
            pull: [pull].into_iter().chain(isolated).collect(),
            push,
            up,
        };
        for name in kinds.names() {
            kinds.control.wait_until_cluster_ready(name).await;
        }
        kinds
    }

    fn clients(&self) -> impl Iterator<Item = &ApiServerClient> {
        let pull = self.pull.iter().map(|p| &p.fixture.member);
        [&self.push.client].into_iter().chain(pull)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.clients().map(|client| client.name.as_str())
    }

    fn relays(&self) -> Vec<Arc<TcpRelay>> {
        let pull = self.pull.iter().map(|p| &p.fixture.relay);
        [&self.push.relay]
            .into_iter()
            .chain(pull)
            .cloned()
            .collect()
    }

    fn rollout(&self, count: usize) -> Rollout<'_> {
        Rollout {
            control: &self.control,
            members: self.clients().collect(),
            namespace: NS,
            count,
        }
    }

    fn cut(&self) {
        self.push.relay.partition();
        self.pull.iter().for_each(|p| p.fixture.cut());
    }

    fn heal(&self) {
        self.push.relay.heal();
        self.pull.iter().for_each(|p| p.fixture.heal());
    }

    /// Nothing outside the namespace reaches its member, and the control plane has no address
    /// of a member in pull mode.
    async fn assert_unreachable(&self) {
        for member in &self.pull {
            let fixture = &member.fixture;
            let cluster = self.control.get(&CLUSTERS, "", &fixture.name).await;
            assert!(cluster.unwrap()["spec"]["apiEndpoint"].is_null());
            if fixture.namespace.is_some() {
                assert!(!fixture.is_member_reachable());
            }
        }
    }

    /// Logs and exec of a Pod in each member, through the cluster proxy.
    async fn assert_proxied(&self, kubectl: &Path) {
        for name in self.names() {
            let member = TunneledMember::connect(&self.up, name);
            member.wait_until_reached().await;
            let pods = member.admin.list(&PODS, NS).await;
            let pod = pods[0]["metadata"]["name"].as_str().unwrap();
            let line = format!("-n {NS} logs {pod}");
            let log = member.kubectl(kubectl, &line).await;
            assert!(log.contains(&format!("{NS}/{pod}: second 0")), "{log}");
            // The log names the protocol, should the output ever be incomplete.
            let line = format!("-n {NS} exec -v=4 {pod} -- say {name}");
            let (text, log) = member.kubectl_with_log(kubectl, &line).await;
            assert_eq!(text, format!("say {name}\n"), "{log}");
        }
    }

    /// Replaces the credentials between the control plane and each member.
    async fn rotate(&self) {
        let agents = self.pull.iter().map(async |member| {
            // Each start renews the certificate, so that the agents have begun anew twice.
            for _ in 0..2 {
                let fixture = &member.fixture;
                fixture.deliver_renewed_kubeconfig(&member.config).await;
            }
        });
        let agents = futures_util::future::join_all(agents);
        tokio::join!(self.push.rotate_token(&self.control), agents);
    }
}

/// Changes, creates and deletes objects while no network works. `others` are the prefixes of
/// the Deployments that are there already, and how often they were written.
async fn roll_out_over_a_cut(
    kinds: &MemberKinds,
    rollout: &Rollout<'_>,
    cut: Duration,
    others: &[(&str, i64)],
) {
    rollout.create("web").await;
    rollout.wait_until_ready("web", 1).await;
    kinds.cut();
    rollout.scale("web", 2).await;
    rollout.delete().await;
    rollout.create("late").await;
    tokio::time::sleep(cut).await;
    kinds.heal();
    rollout.wait_until_ready("web", 2).await;
    rollout.wait_until_ready("late", 1).await;
    rollout.wait_until_deleted().await;
    let written = [others, &[("web", 2), ("late", 1)]].concat();
    rollout.assert_written(&written).await;
}

// proves: KND-serve, KND-cut, KND-rotate
#[tokio::test(flavor = "multi_thread")]
async fn three_kinds_of_members_are_served_side_by_side() {
    let Some([kubectl]) = harness::tools(["kubectl-new"]) else {
        return;
    };
    let kinds = MemberKinds::start(NetworkNamespace::create()).await;
    kinds.assert_unreachable().await;
    let rollout = kinds.rollout(4);
    rollout.create_policy().await;
    rollout.create("first").await;
    rollout.wait_until_ready("first", 1).await;
    kinds.assert_proxied(&kubectl).await;
    tokio::join!(rollout.create_in_turn("load"), kinds.rotate());
    rollout.wait_until_ready("load", 1).await;
    let written = [("first", 1), ("load", 1)];
    rollout.assert_written(&written).await;
    roll_out_over_a_cut(&kinds, &rollout, SHORT_CUT, &written).await;
    kinds.assert_proxied(&kubectl).await;
}

// proves: KND-long-cut, KND-breaking-networks
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn three_kinds_of_members_survive_a_minute_without_network() {
    let Some([kubectl]) = harness::tools(["kubectl-new"]) else {
        return;
    };
    let kinds = MemberKinds::start(NetworkNamespace::create()).await;
    let rollout = kinds.rollout(12);
    rollout.create_policy().await;
    roll_out_over_a_cut(&kinds, &rollout, LONG_CUT, &[]).await;
    kinds.assert_proxied(&kubectl).await;

    let relays = kinds.relays();
    for relay in &relays {
        relay.set_delay(Duration::from_millis(100));
    }
    let resets = ConnectionResets::every(Duration::from_secs(1), &relays);
    rollout.create("slow").await;
    rollout.wait_until_ready("slow", 1).await;
    rollout.scale("slow", 2).await;
    rollout.wait_until_ready("slow", 2).await;
    let written = [("web", 2), ("late", 1), ("slow", 2)];
    rollout.assert_written(&written).await;
    drop(resets);
    kinds.assert_proxied(&kubectl).await;
}
