//! The fleet view of a member in pull mode, whose objects come through the tunnel of its agent.

use std::path::PathBuf;

use harness::ServerProcess;
use harness::http_client::{HttpTestClient, HttpTestRequest, HttpTestResponse};
use http::Method;
use serde_json::json;

use crate::flow::fleet::{ApiServerClient, wait_until};
use crate::flow::fleet_view::{grant, proxy_of};
use crate::flow::objects::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, secret};
use crate::flow::pull_members::{NAME, PullFixture};
use crate::flow::search::{WatchLines, administrator_of, origins};

const NS: &str = "fleet-pull";
const SECRETS_PATH: &str = "/fleet/api/v1/namespaces/fleet-pull/secrets";
const FLEET_CACHE: &str = "flotilla:fleet-cache";
/// The objects of both members.
const BOTH: [&str; 2] = ["edge/of-edge", "member1/of-member1"];

/// A control plane with a member in push mode and one in pull mode, a Secret in each.
struct PullView {
    fleet: PullFixture,
    push_member: ApiServerClient,
    client: HttpTestClient,
    agent_kubeconfig: PathBuf,
}

impl PullView {
    async fn start() -> (Self, ServerProcess) {
        let fleet = PullFixture::start().await;
        fleet.register().await;
        let agent_kubeconfig = fleet.agent_kubeconfig().await;
        let agent = fleet.start_agent(&agent_kubeconfig, &[]).await;
        fleet.control.wait_until_cluster_ready(NAME).await;
        let view = Self {
            push_member: fleet.up.members().remove(0),
            client: administrator_of(&fleet.up),
            agent_kubeconfig,
            fleet,
        };
        for (member, name) in [
            (&view.push_member, "of-member1"),
            (&view.fleet.member, "of-edge"),
        ] {
            member.create_namespace(NS).await;
            member.create(secret(NS, name, "x")).await;
        }
        view.wait_for_items(None, &BOTH).await;
        (view, agent)
    }

    async fn get_as(&self, user: Option<&str>, path: &str) -> HttpTestResponse {
        let mut request = HttpTestRequest::new(Method::GET, path);
        if let Some(user) = user {
            request = request.header("impersonate-user", user);
        }
        self.client.call(request).await
    }

    /// Waits until a user is shown these Secrets.
    async fn wait_for_items(&self, user: Option<&str>, expected: &[&str]) {
        wait_until(&format!("{expected:?} for {user:?}"), async || {
            let response = self.get_as(user, SECRETS_PATH).await;
            response.code == 200 && origins(&response.json()) == expected
        })
        .await;
    }

    /// Waits until a list has this text in a warning about the member in pull mode.
    async fn wait_for_warning(&self, path: &str, text: &str) {
        wait_until(text, async || {
            let response = self.get_as(None, path).await;
            let mut warnings = response.headers.get_all("warning").iter();
            warnings.any(|warning| {
                let warning = warning.to_str().unwrap();
                warning.contains("cluster(edge)") && warning.contains(text)
            })
        })
        .await;
    }

    async fn watch(&self) -> (WatchLines, String) {
        let list = self.get_as(None, SECRETS_PATH).await.json();
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let path = format!("{SECRETS_PATH}?watch=1&resourceVersion={version}");
        let request = HttpTestRequest::new(Method::GET, &path);
        (
            WatchLines::start(&self.client, request).await,
            version.to_owned(),
        )
    }
}

/// Whoever may read a kind nowhere starts no cache of it.
async fn check_that_strangers_cache_nothing(view: &PullView) {
    let ready_caches = async || {
        let metrics = view.get_as(None, "/metrics").await;
        let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
        let lines = metrics.lines();
        let caches = lines.filter(|line| line.starts_with("flotilla_search_caches{"));
        let counts = caches.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
        counts.sum::<f64>()
    };
    let before = ready_caches().await;
    let path = "/fleet/api/v1/podtemplates";
    assert_eq!(view.get_as(Some("stranger"), path).await.code, 403);
    let path = "/fleet/api/v1/limitranges";
    assert_eq!(view.get_as(None, path).await.code, 200);
    let members = 2.0;
    assert_eq!(ready_caches().await, before + members);
}

/// Who may use the proxies of both members sees the objects of the one that allows it.
async fn check_rights(view: &PullView) {
    let rule =
        json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]});
    for (user, member, shown) in [
        ("ann", &view.fleet.member, BOTH[0]),
        ("bob", &view.push_member, BOTH[1]),
    ] {
        let role = format!("proxies-{user}");
        grant(
            &view.fleet.control,
            &role,
            user,
            proxy_of(&[NAME, "member1"]),
        )
        .await;
        grant(member, &format!("secrets-{user}"), user, rule.clone()).await;
        view.wait_for_items(Some(user), &[shown]).await;
    }
    for (user, code) in [("ann", 200), ("bob", 404), ("carl", 403)] {
        let path = format!("{SECRETS_PATH}/of-edge");
        assert_eq!(view.get_as(Some(user), &path).await.code, code, "{user}");
    }
}

// proves: FLV-pull, FLV-rights, FLV-demand
#[tokio::test]
async fn a_member_in_pull_mode_is_read_through_its_tunnel() {
    let (view, _agent) = PullView::start().await;
    for name in ["of-edge", "of-edge@edge", "of-edge?cluster=edge"] {
        let object = view.get_as(None, &format!("{SECRETS_PATH}/{name}")).await;
        let labels = &object.json()["metadata"]["labels"];
        let origin = &labels["resource.karmada.io/cached-from-cluster"];
        assert_eq!((object.code, origin), (200, &NAME.into()), "{name}");
    }
    check_rights(&view).await;
    check_that_strangers_cache_nothing(&view).await;

    // A watch has the events of the member, and goes on where the agent comes back at once.
    let (mut events, _) = view.watch().await;
    for name in ["first", "second"] {
        view.fleet.member.create(secret(NS, name, "x")).await;
        assert_eq!(events.next_event().await.0, format!("ADDED edge/{name}"));
        view.fleet.relay.reset_connections();
    }
}

// proves: FLV-tunnel-loss, FLV-missing
#[tokio::test]
async fn a_member_whose_tunnel_is_lost_is_missing_until_it_is_back() {
    let (view, agent) = PullView::start().await;
    let (mut events, version) = view.watch().await;
    drop(agent);
    events.expect_end().await;
    view.wait_for_warning(SECRETS_PATH, "no tunnel to this replica")
        .await;
    view.wait_for_items(None, &BOTH[1..]).await;
    // One object, too, has a warning: the member may have another of its name.
    let object = view
        .get_as(None, &format!("{SECRETS_PATH}/of-member1"))
        .await;
    let warning = object.headers["warning"].to_str().unwrap();
    assert!(object.code == 200 && warning.contains("cluster(edge)"));
    // Nothing would tell the watcher that the member's objects are gone.
    let path = format!("{SECRETS_PATH}?watch=1&resourceVersion={version}");
    assert_eq!(view.get_as(None, &path).await.code, 410);
    let path = format!("{SECRETS_PATH}?cluster=edge");
    assert_eq!(view.get_as(None, &path).await.code, 503);

    let (mut events, version) = view.watch().await;
    view.fleet.member.create(secret(NS, "meanwhile", "x")).await;
    let kubeconfig = &view.agent_kubeconfig;
    let _agent = view.fleet.start_agent(kubeconfig, &[]).await;
    events.expect_end().await;
    view.wait_for_items(None, &["edge/meanwhile", BOTH[0], BOTH[1]])
        .await;
    // Who goes on where the watch has ended gets the member's objects.
    let path = format!("{SECRETS_PATH}?watch=1&resourceVersion={version}");
    let request = HttpTestRequest::new(Method::GET, &path);
    let mut events = WatchLines::start(&view.client, request).await;
    let mut added = [events.next_event().await.0, events.next_event().await.0];
    added.sort();
    assert_eq!(added, ["ADDED edge/meanwhile", "ADDED edge/of-edge"]);
}

// proves: FLV-pull-rights
#[tokio::test]
async fn a_member_decides_what_the_fleet_view_may_read_of_it() {
    let (view, _agent) = PullView::start().await;
    let member = &view.fleet.member;
    let role = member.get(&CLUSTER_ROLES, "", FLEET_CACHE).await.unwrap();
    assert_eq!(role["rules"][0]["verbs"], json!(["list", "watch"]));
    let binding = member.get(&CLUSTER_ROLE_BINDINGS, "", FLEET_CACHE).await;
    let mut binding = binding.unwrap();
    member.delete(&CLUSTER_ROLE_BINDINGS, "", FLEET_CACHE).await;
    // Earlier reads are still watched; this was none of them.
    let path = SECRETS_PATH.replace("secrets", "serviceaccounts");
    view.wait_for_warning(&path, "cannot list resource").await;
    let list = view.get_as(None, &path).await.json();
    let shown = origins(&list);
    assert!(shown.iter().all(|name| name.starts_with("member1/")));
    // The user has rights of his own there.
    let addressed = view.get_as(None, &format!("{path}?cluster=edge")).await;
    assert_eq!(addressed.code, 200);
    binding["metadata"] = json!({"name": FLEET_CACHE});
    member.create(binding).await;
    wait_until("the member's accounts", async || {
        let list = view.get_as(None, &path).await.json();
        origins(&list).contains(&"edge/default".to_owned())
    })
    .await;
}
