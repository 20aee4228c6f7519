//! Queries that clusters have to satisfy: the control plane's Prometheus answers them, or a Service in a
//! member that only the tunnel of its agent reaches.

use std::sync::Arc;

use harness::api_server_client::is_rolled_out;
use harness::http_client::full_body;
use harness::{FakeHttpsServer, FlotillaUpProcess};
use http::header::AUTHORIZATION;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::flow::agent_tunnels::TunneledMember;
use crate::flow::fleet::{ApiServerClient, BINARY};
use crate::flow::objects::{
    CLUSTER_ROLE_BINDINGS, ROLLOUTS, deployment, policy, resource_selector,
};
use crate::flow::pull_members::{NAME, PullFixture};

const NAMESPACE: &str = "rollout-queries";
const ROLLOUT: &str = "web-deployment";
const TOKEN: &str = "of-the-queries";

/// A staged Deployment in one cluster, whose stage awaits a query.
async fn create_web(control: &ApiServerClient, cluster: &str, query: Value) {
    control.create_namespace(NAMESPACE).await;
    let web = deployment(NAMESPACE, "web", 1);
    let stage = json!({"name": "canary", "gates": {"query": query}});
    control
        .create(
            json!({"apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "RolloutPolicy",
            "metadata": {"name": "web", "namespace": NAMESPACE},
            "spec": {"resourceSelectors": [resource_selector(&web)], "stages": [stage]}}),
        )
        .await;
    control.create(web.clone()).await;
    control
        .create(policy(NAMESPACE, "web", &web, &[cluster]))
        .await;
}

async fn wait_for_message(control: &ApiServerClient, expected: &str) {
    control
        .wait_until(&ROLLOUTS, NAMESPACE, ROLLOUT, expected, |rollout| {
            rollout["status"]["stages"][0]["clusters"][0]["message"] == expected
        })
        .await;
}

/// A Prometheus with one series, about `member1`.
async fn start_prometheus() -> FakeHttpsServer {
    let query = "query=up%7Bcluster%3D%22member1%22%7D&";
    FakeHttpsServer::start(Arc::new(move |request| {
        let token = request.headers().get(AUTHORIZATION);
        let is_allowed = token.is_some_and(|token| *token == format!("Bearer {TOKEN}"));
        let uri = request.uri().to_string();
        let is_expected = uri.contains("/prom/api/v1/query?")
            && uri.contains(query)
            && uri.ends_with("&namespace=rollout%2Dqueries");
        let result = match is_expected {
            true => json!([{"metric": {}, "value": [1, "0.25"]}]),
            false => json!([]),
        };
        let answer =
            json!({"status": "success", "data": {"resultType": "vector", "result": result}});
        let mut response = Response::new(full_body(answer.to_string()));
        if !is_allowed {
            *response.status_mut() = StatusCode::UNAUTHORIZED;
        }
        Box::pin(async move { response })
    }))
    .await
}

// proves: ROL-query-control-plane
#[tokio::test]
async fn the_prometheus_of_the_control_plane_answers_queries_without_a_service() {
    let prometheus = start_prometheus().await;
    let files = tempfile::tempdir().unwrap();
    let (ca, token) = (files.path().join("ca.pem"), files.path().join("token"));
    std::fs::write(&ca, &prometheus.ca_pem).unwrap();
    std::fs::write(&token, TOKEN).unwrap();
    let flags = [
        format!(
            "--rollout-prometheus-url=https://{}/prom",
            prometheus.address
        ),
        format!("--rollout-prometheus-ca-file={}", ca.display()),
        format!("--rollout-prometheus-token-file={}", token.display()),
    ];
    let start = move || {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        FlotillaUpProcess::start(BINARY, 1, &flags)
    };
    let up = tokio::task::spawn_blocking(start).await.unwrap();
    let control = up.control_plane();
    let query = json!({"expression": "up{cluster=\"$cluster\"}", "threshold": 0.5});
    create_web(&control, "member1", query).await;
    let rollout = control
        .wait_until(&ROLLOUTS, NAMESPACE, ROLLOUT, "completed", |rollout| {
            is_rolled_out(rollout, 1)
        })
        .await;
    let cluster = &rollout["status"]["stages"][0]["clusters"][0];
    assert_eq!(cluster["query"]["value"], "0.25", "{rollout}");
}

// proves: ROL-query-tunnel
#[tokio::test]
async fn a_member_in_pull_mode_is_asked_through_its_tunnel() {
    let fleet = PullFixture::start().await;
    fleet.register().await;
    let config = fleet.agent_kubeconfig().await;
    let agent = fleet.start_agent(&config, &[]).await;
    fleet.control.wait_until_cluster_ready(NAME).await;
    TunneledMember::new(&fleet).wait_until_reached().await;
    let query = json!({"prometheus": {"name": "prometheus"}, "expression": "up", "threshold": 1,
        "interval": "10s"});
    create_web(&fleet.control, NAME, query).await;
    // The member decides about the rights.
    let unauthorized = "the query has no result: the Service answered with status code 403";
    wait_for_message(&fleet.control, unauthorized).await;
    grant_services(&fleet.member).await;
    // Simulated members have no network, and so no Services.
    let absent = "the query has no result: the Service answered with status code 404";
    wait_for_message(&fleet.control, absent).await;
    drop(agent);
}

/// Lets the control plane ask the Services of a member.
async fn grant_services(member: &ApiServerClient) {
    let group = "rbac.authorization.k8s.io";
    let rule = json!({"apiGroups": [""], "resources": ["services/proxy"], "verbs": ["get"]});
    member
        .create(
            json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole",
            "metadata": {"name": "rollout-queries"}, "rules": [rule]}),
        )
        .await;
    let user = json!({"apiGroup": group, "kind": "User",
        "name": "system:karmada:karmada-controller-manager"});
    member
        .create(
            json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": "rollout-queries"}, "subjects": [user],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "rollout-queries"}}),
        )
        .await;
    member
        .wait_until_exists(&CLUSTER_ROLE_BINDINGS, "", "rollout-queries")
        .await;
}
