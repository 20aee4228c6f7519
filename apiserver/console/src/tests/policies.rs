//! The pages of policies, and changes of them.

use std::sync::Arc;

use client::Error;
use http::header::ORIGIN;
use http::{Method, StatusCode};
use karmada_api::resources::{CLUSTER_POLICIES, OVERRIDES, POLICIES};
use karmada_api::rollout::ROLLOUT_POLICIES;
use karmada_api::well_known_keys::POLICY_ID;
use machinery::Status;
use serde_json::json;

use super::fixture::{
    ConsoleFixture, PlannedPage, api, claimed_fleet, form_request, manifest_field, request,
};

const WEB: &str = "/policies/shop/web";
const CHANGE: &str = "/policies/shop/web/change";

fn manifest(namespace: &str, name: &str, clusters: &str) -> String {
    format!(
        "apiVersion: policy.karmada.io/v1alpha1\r\nkind: PropagationPolicy\r\nmetadata:\r\n  namespace: {namespace}\r\n  name: {name}\r\nspec:\r\n  resourceSelectors:\r\n  - {{apiVersion: apps/v1, kind: Deployment, name: web}}\r\n  placement: {{clusterAffinity: {{clusterNames: {clusters}}}}}"
    )
}

// proves: CON-policies, CON-escape
#[tokio::test]
async fn policies_are_listed_with_what_they_have_claimed() {
    let api = claimed_fleet();
    api.seed(
        &CLUSTER_POLICIES,
        json!({"metadata": {"name": "maps"}, "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": {"matchLabels": {"a": "<b>"}}}]}}),
    );
    let selectors = json!([{"apiVersion": "v1", "kind": "Secret", "name": "key"}]);
    let named = |name: &str| json!({"name": name, "namespace": "shop"});
    api.seed(
        &OVERRIDES,
        json!({"metadata": named("more"), "spec": {"resourceSelectors": selectors, "overrideRules": [
            {"targetCluster": {"clusterNames": ["north"]},
                "overriders": {"plaintext": [{"path": "/data/a", "value": "aGlkZGVu"}]}}]}}),
    );
    api.seed(
        &ROLLOUT_POLICIES,
        json!({"metadata": named("staged"), "spec": {"stages": [
            {"name": "first", "clusterAffinity": {"clusterNames": ["east"]}}, {"name": "rest"}]}}),
    );
    let fixture = ConsoleFixture::start(api).await;
    let cookie = fixture.login().await;
    for (path, texts) in [
        (
            "/policies",
            vec![
                "4 policies",
                "ClusterPropagationPolicy",
                "ConfigMap with a=&lt;b&gt;",
                "href=\"/policies/%2D/maps\"",
                "href=\"/overridepolicies/shop/more\"",
                "href=\"/rolloutpolicies/shop/staged\"",
                "Deployment web",
                "east 1, west 1",
            ],
        ),
        ("/policies?q=configmap+maps", vec!["1 policy", "maps"]),
        (
            "/policies?q=secret+key",
            vec!["OverridePolicy in shop", "Secret key", ">north<"],
        ),
        (
            "/policies?q=rolloutpolicy",
            vec!["every object", "first: east", "rest: the other clusters"],
        ),
        ("/policies?q=none", vec!["Nothing matches"]),
        ("/policies?page=7", vec!["This page is behind the last one"]),
        (
            WEB,
            vec![
                "<title>web · Flotilla</title>",
                "PropagationPolicy in shop",
                "href=\"/workloads?policy=shop%2Fweb\">1 template</a>",
                "href=\"/workloads/shop/web%2Ddeployment\"",
                "clusterNames:",
                "href=\"/policies/shop/web/change\"",
            ],
        ),
        (
            "/workloads?policy=shop/web",
            vec!["1 workload", "<option value=\"shop/web\" selected>"],
        ),
        ("/workloads?policy=shop/other", vec!["Nothing matches"]),
    ] {
        let page = fixture.get(path, &cookie).await;
        assert_eq!(page.status, StatusCode::OK, "{path}: {}", page.text);
        for text in texts {
            assert!(page.text.contains(text), "{path}: {text} in {}", page.text);
        }
        for text in ["<b>", "aGlkZGVu"] {
            assert!(!page.text.contains(text), "{text} in {}", page.text);
        }
    }
    let missing = fixture.get("/policies/shop/none", &cookie).await;
    assert_eq!(missing.status, StatusCode::BAD_GATEWAY);
}

// proves: CON-empty
#[tokio::test]
async fn a_fleet_without_policies_says_what_they_are() {
    let fixture = ConsoleFixture::start(api()).await;
    let page = fixture.page("/policies").await;
    assert!(
        page.text.contains("which templates go to which clusters"),
        "{}",
        page.text
    );
}

// proves: CON-policy-change, CON-plan-first
#[tokio::test]
async fn a_changed_policy_is_planned_and_then_applied() {
    let fixture = ConsoleFixture::start(claimed_fleet()).await;
    let cookie = fixture.login().await;
    let form = fixture.get(CHANGE, &cookie).await;
    assert_eq!(form.status, StatusCode::OK, "{}", form.text);
    assert!(
        form.text.contains("kind: PropagationPolicy\n"),
        "{}",
        form.text
    );
    assert!(!form.text.contains("name=\"version\""), "{}", form.text);
    let changed = manifest("shop", "web", "[west, nowhere]");
    let planned = PlannedPage::of_manifest(claimed_fleet(), CHANGE, &changed).await;
    planned.assert_shows(&[
        "spec.placement.clusterAffinity.clusterNames",
        " of 1 template would move",
        "clusters that do not exist: nowhere",
        "Apply the policy",
    ]);
    let done = planned.confirm_manifest(&changed).await;
    let PlannedPage {
        ref fixture,
        ref cookie,
        ..
    } = planned;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text);
    assert_eq!(done.location(), "/policies/shop/web?done=applied");
    let policy = fixture.api.get_object(&POLICIES, "shop", "web").unwrap();
    let names = &policy["spec"]["placement"]["clusterAffinity"]["clusterNames"];
    assert_eq!(*names, json!(["west", "nowhere"]));
    let page = fixture.get(done.location(), cookie).await;
    assert!(
        page.text.contains("The policy is applied."),
        "{}",
        page.text
    );
    let again = planned.confirm_manifest(&changed).await;
    assert_eq!(again.status, StatusCode::CONFLICT, "{}", again.text);
    assert_eq!(fixture.api.writes().len(), 1);
}

// proves: CON-policy-metadata
#[tokio::test]
async fn labels_and_annotations_of_a_policy_are_planned_and_written() {
    let api = claimed_fleet();
    let mut policy = api.get_object(&POLICIES, "shop", "web").unwrap();
    policy["metadata"]["labels"] = json!({POLICY_ID: "p", "team": "a", "old": "x"});
    api.seed(&POLICIES, policy);
    let changed = manifest("shop", "web", "[east]").replace(
        "  name: web\r\nspec",
        "  name: web\r\n  labels: {team: b}\r\n  annotations: {note: read}\r\nspec",
    );
    let planned = PlannedPage::of_manifest(api, CHANGE, &changed).await;
    planned.assert_shows(&[
        "metadata.labels.team: &quot;a&quot; -&gt; &quot;b&quot;",
        "metadata.labels.old: &quot;x&quot; -&gt; (absent)",
        "metadata.annotations: (absent) -&gt; {&quot;note&quot;:&quot;read&quot;}",
    ]);
    // A label that somebody else adds meanwhile is not removed.
    let api = Arc::clone(&planned.fixture.api);
    let mut relabeled = api.get_object(&POLICIES, "shop", "web").unwrap();
    relabeled["metadata"]["labels"]["new"] = json!("y");
    api.seed(&POLICIES, relabeled);
    let page = planned.confirm_manifest(&changed).await;
    assert_eq!(page.status, StatusCode::CONFLICT, "{}", page.text);
    let planned = PlannedPage::of_manifest(api, CHANGE, &changed).await;
    planned.assert_shows(&["metadata.labels.new: &quot;y&quot; -&gt; (absent)"]);
    let done = planned.confirm_manifest(&changed).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text);
    let policy = planned.fixture.api.get_object(&POLICIES, "shop", "web");
    let metadata = &policy.unwrap()["metadata"];
    assert_eq!(metadata["labels"], json!({POLICY_ID: "p", "team": "b"}));
    assert_eq!(metadata["annotations"], json!({"note": "read"}));
}

// proves: CON-policy-change
#[tokio::test]
async fn a_new_policy_is_planned_and_then_created() {
    let new = manifest("shop", "other", "[east]");
    let planned = PlannedPage::of_manifest(claimed_fleet(), "/policies/new", &new).await;
    planned.assert_shows(&["The policy is new."]);
    let done = planned.confirm_manifest(&new).await;
    assert_eq!(done.location(), "/policies/shop/other?done=applied");
    let api = &planned.fixture.api;
    assert!(api.get_object(&POLICIES, "shop", "other").is_some());
}

// proves: CON-plan-stale
#[tokio::test]
async fn a_policy_that_somebody_else_has_changed_is_not_overwritten() {
    let changed = manifest("shop", "web", "[west]");
    let planned = PlannedPage::of_manifest(claimed_fleet(), CHANGE, &changed).await;
    // Another manifest than the one that was planned.
    let other = manifest("shop", "web", "[]");
    let page = planned.confirm_manifest(&other).await;
    assert_eq!(page.status, StatusCode::CONFLICT, "{}", page.text);
    let fixture = &planned.fixture;
    let mut policy = fixture.api.get_object(&POLICIES, "shop", "web").unwrap();
    policy["spec"]["priority"] = json!(7);
    fixture.api.seed(&POLICIES, policy);
    let page = planned.confirm_manifest(&changed).await;
    assert_eq!(page.status, StatusCode::CONFLICT, "{}", page.text);
    assert!(
        page.text
            .contains("it has changed since the plan was shown"),
        "{}",
        page.text
    );
    // The input is still there.
    assert!(page.text.contains("clusterNames: [west]"), "{}", page.text);
    assert_eq!(fixture.api.writes(), []);
}

// proves: CON-policy-change, CON-bounds
#[tokio::test]
async fn a_form_changes_its_policy_and_nothing_else() {
    let fixture = ConsoleFixture::start(claimed_fleet()).await;
    let cookie = fixture.login().await;
    let form = fixture.get(CHANGE, &cookie).await;
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: shop}";
    let two = format!("{}\n---\n{secret}", manifest("shop", "web", "[east]"));
    for (text, message) in [
        (
            manifest("shop", "other", "[]"),
            "this page changes PropagationPolicy web only",
        ),
        (manifest("\"\"", "web", "[]"), "has a metadata.namespace"),
        (secret.to_owned(), "one policy is planned at a time"),
        (two, "one policy is planned at a time"),
        ("{".to_owned(), "This cannot be done"),
        ("<script>alert(1)</script>".to_owned(), "&lt;script&gt;"),
        ("[".repeat(30_000), "This cannot be done"),
    ] {
        let body = ConsoleFixture::manifest_form(&form, &text);
        let page = fixture.post(CHANGE, &cookie, &body).await;
        assert_eq!(page.status, StatusCode::CONFLICT, "{text}: {}", page.text);
        assert!(page.text.contains(message), "{message} in {}", page.text);
        assert!(!page.text.contains("<script>alert"), "{}", page.text);
    }
    let large = ConsoleFixture::manifest_form(&form, &"a".repeat(129 << 10));
    let page = fixture.post(CHANGE, &cookie, &large).await;
    assert_eq!(page.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(fixture.api.writes(), []);
}

// proves: CON-csrf, CON-cross-site
#[tokio::test]
async fn policies_of_other_sites_are_neither_planned_nor_applied() {
    let changed = manifest("shop", "web", "[west]");
    let planned = PlannedPage::of_manifest(claimed_fleet(), CHANGE, &changed).await;
    let good = planned.form(&manifest_field(&changed));
    let without_token = good.replace(&planned.plan.field("token"), "x");
    let PlannedPage {
        fixture, cookie, ..
    } = planned;
    for (form, origin, site) in [
        (&good, "http://evil.example", "same-origin"),
        (&good, "null", "same-origin"),
        (&good, super::fixture::OWN_ORIGIN, "cross-site"),
        (&without_token, super::fixture::OWN_ORIGIN, "same-origin"),
    ] {
        let mut request = form_request(CHANGE, &cookie, form);
        let headers = request.headers_mut();
        headers.insert(ORIGIN, origin.parse().unwrap());
        headers.insert("sec-fetch-site", site.parse().unwrap());
        let page = fixture.send(request).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{origin} {site}");
    }
    for path in [WEB, CHANGE, "/policies", "/policies/new"] {
        let page = fixture.send(request(Method::GET, path)).await;
        assert_eq!(page.status, StatusCode::UNAUTHORIZED, "{path}");
        assert!(!page.text.contains("shop"), "{}", page.text);
    }
    // A policy in an address is shown, and neither planned nor applied.
    let page = fixture.get(&format!("{CHANGE}?{good}"), &cookie).await;
    assert!(!page.headers.contains_key("location"));
    assert_eq!(fixture.api.writes(), []);
}

// proves: CON-policy-change, CON-rights
#[tokio::test]
async fn what_the_user_may_not_write_is_refused_by_the_plan() {
    let api = claimed_fleet();
    api.on_call(|call| {
        let is_update = call.verb == "update" && call.resource == Some(&POLICIES);
        is_update.then(|| Error::from(Status::failure(403, "Forbidden", "no <right>")))
    });
    let fixture = ConsoleFixture::start(api).await;
    let cookie = fixture.login().await;
    let form = fixture.get(CHANGE, &cookie).await;
    let changed = manifest("shop", "web", "[west]");
    let body = ConsoleFixture::manifest_form(&form, &changed);
    let page = fixture.post(CHANGE, &cookie, &body).await;
    assert_eq!(page.status, StatusCode::CONFLICT, "{}", page.text);
    assert!(
        page.text.contains("would be refused: no &lt;right&gt;"),
        "{}",
        page.text
    );
    assert!(!page.text.contains("Apply the policy"), "{}", page.text);
}
