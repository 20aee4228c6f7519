//! The pages of override policies and of rollout policies.

use std::sync::Arc;

use client_fake::FakeApi;
use http::StatusCode;
use karmada_api::resources::{BINDINGS, CLUSTER_OVERRIDES, CLUSTERS, OVERRIDES};
use karmada_api::rollout::{CLUSTER_ROLLOUT_POLICIES, ROLLOUT_POLICIES, ROLLOUTS};
use serde_json::json;

use super::fixture::{ConsoleFixture, binding, cluster, fleet, rollout};

/// The fleet with policies that change and stage what its Deployment `web` is.
fn fleet_with_policies() -> Arc<FakeApi> {
    let api = fleet();
    let named = |name: &str| json!({"name": name, "namespace": "shop"});
    let web = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}]);
    let overriders =
        json!({"plaintext": [{"path": "/spec/<b>", "operator": "replace", "value": "visible"}]});
    api.seed(
        &OVERRIDES,
        json!({"metadata": named("less"), "spec": {"resourceSelectors": web, "overrideRules": [
            {"targetCluster": {"clusterNames": ["east", "gone"]}, "overriders": overriders}]}}),
    );
    api.seed(
        &CLUSTER_OVERRIDES,
        json!({"metadata": {"name": "all"}, "spec": {"overriders": {"plaintext": [
            {"path": "/data/key", "operator": "add", "value": "aGlkZGVu"}]}}}),
    );
    api.seed(
        &ROLLOUT_POLICIES,
        json!({"metadata": named("web"), "spec": {"resourceSelectors": web, "progressDeadline": "10m", "stages": [
            {"name": "canary", "clusterAffinity": {"clusterNames": ["east"]}},
            {"name": "everywhere", "gates": {"approval": true, "healthyFor": "5m"}}]}}),
    );
    api.seed(
        &CLUSTER_ROLLOUT_POLICIES,
        json!({"metadata": {"name": "web"}, "spec": {"stages": [
            {"name": "one", "clusterAffinity": {"clusterNames": ["east"]}}]}}),
    );
    let mut ended = rollout("done");
    ended["status"]["state"] = json!("Completed");
    api.seed(&ROLLOUTS, ended);
    api.seed(&BINDINGS, binding("done", &[("east", 1)]));
    api
}

// proves: CON-override-policy, CON-escape, CON-secrets
#[tokio::test]
async fn an_override_policy_says_what_it_changes_and_where() {
    let fixture = ConsoleFixture::start(fleet_with_policies()).await;
    let cookie = fixture.login().await;
    let page = fixture.get("/overridepolicies/shop/less", &cookie).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    for text in [
        "<title>less · Flotilla</title>",
        "OverridePolicy in shop",
        "Deployment web",
        "In east, gone",
        "<a href=\"/clusters/east\">east</a>",
        "replace /spec/&lt;b&gt;",
        "value: visible",
    ] {
        assert!(page.text.contains(text), "{text} in {}", page.text);
    }
    assert!(!page.text.contains("/clusters/west"), "{}", page.text);
    // A policy that may select Secrets may have their values.
    let page = fixture.get("/overridepolicies/%2D/all", &cookie).await;
    assert!(page.text.contains("add /data/key"), "{}", page.text);
    assert!(page.text.contains("/clusters/west"), "{}", page.text);
    assert!(!page.text.contains("aGlkZGVu"), "{}", page.text);
    let list = fixture.get("/overridepolicies", &cookie).await;
    assert!(list.text.contains("2 override policies"), "{}", list.text);
    let missing = fixture.get("/overridepolicies/shop/none", &cookie).await;
    assert_eq!(missing.status, StatusCode::BAD_GATEWAY);
}

// proves: CON-rollout-policy
#[tokio::test]
async fn a_rollout_policy_shows_its_stages_and_rollouts() {
    let api = fleet_with_policies();
    api.seed(&CLUSTERS, cluster("north", "True", ""));
    let fixture = ConsoleFixture::start(api).await;
    let cookie = fixture.login().await;
    let page = fixture.get("/rolloutpolicies/shop/web", &cookie).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    for text in [
        "RolloutPolicy in shop",
        "A cluster may take 10m",
        "the other clusters",
        "It begins when somebody approves it",
        "Its clusters have to be healthy for 5m",
        "2 rollouts",
        "progressDeadline: 10m",
    ] {
        assert!(page.text.contains(text), "{text} in {}", page.text);
    }
    // Each cluster is in one stage, and what has not ended comes first.
    for name in ["east", "west", "north"] {
        let link = format!("<a href=\"/clusters/{name}\">{name}</a>");
        assert_eq!(page.text.matches(&link).count(), 1, "{}", page.text);
    }
    let at = |text: &str| page.text.find(text).unwrap();
    assert!(
        at("/workloads/shop/web%2Ddeployment") < at("/workloads/shop/done%2Ddeployment"),
        "{}",
        page.text
    );
    let list = fixture.get("/rolloutpolicies", &cookie).await;
    for text in ["2 rollout policies", "1 AwaitingApproval", "1 Completed"] {
        assert!(list.text.contains(text), "{text} in {}", list.text);
    }
    let other = fixture.get("/rolloutpolicies/%2D/web", &cookie).await;
    assert!(
        other
            .text
            .contains("It stages the changes of no template yet"),
        "{}",
        other.text
    );
    assert!(other.text.contains("In no stage"), "{}", other.text);
}
