//! The pages show the fleet, and escape what they show.

use client::Error;
use client_fake::FakeApi;
use http::StatusCode;
use karmada_api::resources::{BINDINGS, CLUSTERS, OVERRIDES};
use machinery::{Gvr, Status};
use serde_json::json;

use super::fixture::{ConsoleFixture, api, binding, cluster, fleet};
use crate::console::Console;

const WEB: &str = "/workloads/shop/web%2Ddeployment";

// proves: CON-fleet, CON-escape
#[tokio::test]
async fn clusters_are_cards_and_rows() {
    let fixture = ConsoleFixture::start(fleet()).await;
    let cookie = fixture.login().await;
    for path in ["/", "/?view=table"] {
        let page = fixture.get(path, &cookie).await;
        assert_eq!(page.status, StatusCode::OK);
        for text in [
            "2 clusters",
            "1 ready",
            "v1.36.1",
            "Push",
            "dedicated=db:NoSchedule",
            "2.5<span class=\"of\"> of 8</span>",
            "31 GiB",
            "aria-label=\"Memory: 31 GiB of 32 GiB are requested, 96 %\"",
            "href=\"/workloads?cluster=east\">1 workload</a>",
            "no &lt;b&gt;answer&lt;/b&gt;",
        ] {
            assert!(page.text.contains(text), "{path}: {text} in {}", page.text);
        }
        assert!(!page.text.contains("<b>answer"), "{}", page.text);
    }
}

// proves: CON-clipped
#[tokio::test]
async fn an_endless_text_of_a_member_is_clipped() {
    let api = api();
    let mut cluster = cluster("east", "False", &"message".repeat(10_000));
    cluster["status"]["kubernetesVersion"] = json!("v".repeat(10_000));
    api.seed(&CLUSTERS, cluster);
    let fixture = ConsoleFixture::start(api).await;
    let cookie = fixture.login().await;
    for path in ["/", "/?view=table"] {
        let page = fixture.get(path, &cookie).await;
        assert!(page.text.contains("messagemess"), "{path}: {}", page.text);
        assert!(page.text.len() < 10_000, "{path}: {}", page.text.len());
    }
}

// proves: CON-empty
#[tokio::test]
async fn an_empty_fleet_says_what_to_do() {
    let fixture = ConsoleFixture::start(api()).await;
    let cookie = fixture.login().await;
    for (path, text) in [
        ("/", "flotilla join"),
        ("/workloads", "once a PropagationPolicy selects it"),
        ("/workloads?q=x", "Nothing matches"),
    ] {
        let page = fixture.get(path, &cookie).await;
        assert!(page.text.contains(text), "{path}: {}", page.text);
    }
}

// proves: CON-rights
#[tokio::test]
async fn what_the_user_may_not_list_is_named() {
    let api = fleet();
    api.on_call(|call| {
        let is_binding = call.resource.is_some_and(|resource| *resource == BINDINGS);
        is_binding.then(|| Error::from(Status::failure(403, "Forbidden", "bindings are <secret>")))
    });
    let fixture = ConsoleFixture::start_unlisted(api);
    fixture
        .wait_until(|console| {
            let remarks = console.inventory.remarks();
            remarks.len() == 1 && remarks[0].contains("cannot be listed")
        })
        .await;
    let cookie = fixture.login().await;
    for path in ["/", "/workloads"] {
        let page = fixture.get(path, &cookie).await;
        let text = "resourcebindings cannot be listed: bindings are &lt;secret&gt;";
        assert!(page.text.contains(text), "{path}: {}", page.text);
    }
    let page = fixture.get(WEB, &cookie).await;
    assert_eq!(page.status, StatusCode::BAD_GATEWAY, "{}", page.text);
}

/// Refuses a resource in all namespaces but one.
fn forbid_bindings(api: &FakeApi, allowed_namespace: &'static str) {
    api.on_call(move |call| {
        let is_binding = call.resource.is_some_and(|resource| *resource == BINDINGS);
        let is_refused = is_binding && call.namespace != allowed_namespace;
        is_refused.then(|| Error::from(Status::forbidden(&BINDINGS, "", "no right")))
    });
}

// proves: CON-namespace
#[tokio::test]
async fn a_user_of_one_namespace_sees_its_workloads() {
    let api = fleet();
    let mut foreign = binding("foreign", &[("east", 1)]);
    foreign["metadata"]["namespace"] = json!("other");
    api.seed(&BINDINGS, foreign);
    forbid_bindings(&api, "shop");
    let fixture = ConsoleFixture::start_unlisted(api);
    let remark = "only resourcebindings of the namespace shop are shown";
    let has_remark = |console: &Console| {
        let remarks = console.inventory.remarks();
        remarks.len() == 1 && remarks[0].contains(remark)
    };
    fixture.wait_until(has_remark).await;
    let page = fixture.page("/workloads").await;
    assert!(page.text.contains("shop/web"), "{}", page.text);
    assert!(!page.text.contains("other/foreign") && page.text.contains(remark));
    fixture
        .api
        .seed(&BINDINGS, binding("later", &[("east", 1)]));
    let key = ("shop".to_owned(), "later-deployment".to_owned());
    fixture
        .wait_until(|console| console.inventory.workload(&key).is_some())
        .await;
}

// proves: CON-rights-end
#[tokio::test(start_paused = true)]
async fn rows_that_may_not_be_listed_anymore_are_dropped() {
    let fixture = ConsoleFixture::start(fleet()).await;
    let cookie = fixture.login().await;
    let page = fixture.get("/workloads", &cookie).await;
    assert!(page.text.contains("shop/web"), "{}", page.text);
    forbid_bindings(&fixture.api, "none");
    fixture.api.end_watches();
    fixture
        .wait_until(|console| console.inventory.remarks().len() == 1)
        .await;
    let is_refused = |console: &Console| {
        let remarks = console.inventory.remarks();
        remarks
            .iter()
            .any(|remark| remark.contains("cannot be listed"))
    };
    fixture.wait_until(is_refused).await;
    let page = fixture.get("/workloads", &cookie).await;
    assert!(!page.text.contains("shop/web"), "{}", page.text);
    fixture.api.on_call(|_| None);
    fixture
        .wait_until(|console| console.inventory.remarks().is_empty())
        .await;
    let page = fixture.get("/workloads", &cookie).await;
    assert!(page.text.contains("shop/web"), "{}", page.text);
}

// proves: CON-workloads
#[tokio::test]
async fn workloads_are_filtered_and_paged_on_the_server() {
    let api = api();
    for number in 0..120 {
        let name = format!("app-{number:03}");
        let mut binding = binding(&name, &[("east", 2)]);
        if number == 7 {
            binding["status"]["aggregatedStatus"][0]["health"] = json!("Unhealthy");
        }
        api.seed(&BINDINGS, binding);
    }
    api.seed(&BINDINGS, binding("web", &[("east", 2), ("west", 1)]));
    let fixture = ConsoleFixture::start(api).await;
    let cookie = fixture.login().await;
    for (query, rows, text) in [
        ("", 50, "1–50 of 121"),
        ("?page=3", 21, "101–121 of 121"),
        ("?page=9", 0, "This page is behind the last one"),
        ("?q=WEB", 1, "1 workload"),
        ("?q=shop+app-01", 10, "10 workloads"),
        (
            "?q=app-01&page=1&kind=Deployment&namespace=shop",
            10,
            "10 workloads",
        ),
        ("?cluster=west", 1, "east 2, west 1"),
        ("?health=Unhealthy", 1, "app-007"),
        ("?namespace=other", 0, "Nothing matches"),
        ("?kind=Service", 0, "Nothing matches"),
        ("?q=%3Cscript%3E", 0, "value=\"&lt;script&gt;\""),
    ] {
        let page = fixture.get(&format!("/workloads{query}"), &cookie).await;
        let count = page.text.matches("<th scope=\"row\">").count();
        assert_eq!(count, rows, "{query}: {}", page.text);
        assert!(page.text.contains(text), "{query}: {}", page.text);
    }
    let second = fixture.get("/workloads?q=app&page=2", &cookie).await;
    assert!(
        second.text.contains("href=\"/workloads?q=app\">Previous"),
        "{}",
        second.text
    );
    assert!(
        second
            .text
            .contains("href=\"/workloads?q=app&amp;page=3\">Next")
    );
}

// proves: CON-workload
#[tokio::test]
async fn a_workload_shows_its_tree_its_rollout_and_its_actions() {
    let api = fleet();
    let overrides = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": "more", "namespace": "shop"},
        "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
            "overrideRules": [{"targetCluster": {"clusterNames": ["east"]}, "overriders": {"plaintext": [
                {"path": "/spec/paused", "operator": "add", "value": "<i>"}]}}]}});
    api.seed(&OVERRIDES, overrides);
    let fixture = ConsoleFixture::start(api).await;
    let page = fixture.page(WEB).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    for text in [
        "<title>web · Flotilla</title>",
        "Deployment in shop",
        "web-deployment",
        "Not ready",
        "canary",
        "Succeeded",
        "job/smoke-1",
        "AwaitingApproval",
        "href=\"/workloads/shop/web%2Ddeployment/approve?stage=everywhere\"",
        "href=\"/workloads/shop/web%2Ddeployment/pause\"",
        "href=\"/workloads/shop/web%2Ddeployment/scale?replicas=3\"",
        "spec.paused: (absent) -&gt; &quot;&lt;i&gt;&quot;",
        "It has not moved",
    ] {
        assert!(page.text.contains(text), "{text} in {}", page.text);
    }
    let missing = fixture.page("/workloads/shop/nothing").await;
    assert_eq!(missing.status, StatusCode::BAD_GATEWAY);
    assert!(missing.text.contains("not found"), "{}", missing.text);
}

// proves: CON-secrets
#[tokio::test]
async fn values_of_secrets_are_not_shown() {
    static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
    let api = fleet();
    api.add_resource(client::ApiResource {
        resource: SECRETS.clone(),
        kind: "Secret".to_owned(),
        namespaced: true,
        verbs: vec!["list".to_owned()],
        subresources: vec![],
        categories: vec![],
        short_names: vec![],
    });
    api.seed(
        &SECRETS,
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "shop"},
            "data": {"a": "b3JpZ2luYWw="}}),
    );
    let mut bound = binding("key", &[("east", 0)]);
    bound["metadata"]["name"] = json!("key-secret");
    bound["spec"]["resource"]["apiVersion"] = json!("v1");
    bound["spec"]["resource"]["kind"] = json!("Secret");
    api.seed(&BINDINGS, bound);
    let selector = json!([{"apiVersion": "v1", "kind": "Secret", "name": "key"}]);
    api.seed(
        &OVERRIDES,
        json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"name": "other", "namespace": "shop"},
            "spec": {"resourceSelectors": selector, "overrideRules": [{"overriders": {"plaintext": [
                {"path": "/data/a", "operator": "replace", "value": "Y2hhbmdlZA=="}]}}]}}),
    );
    let fixture = ConsoleFixture::start(api).await;
    let page = fixture.page("/workloads/shop/key-secret").await;
    assert!(
        page.text.contains("The values of Secrets are not shown"),
        "{}",
        page.text
    );
    for value in ["b3JpZ2luYWw", "Y2hhbmdlZA"] {
        assert!(!page.text.contains(value), "{}", page.text);
    }
}

// proves: CON-health
#[tokio::test]
async fn health_shows_what_doctor_says() {
    let fixture = ConsoleFixture::start(fleet()).await;
    let page = fixture.page("/health").await;
    for text in [
        "1 error, 0 warnings at https://plane:6443",
        "the agent of &lt;edge&gt; has lost its tunnel",
        "read the log of the agent",
    ] {
        assert!(page.text.contains(text), "{text} in {}", page.text);
    }
}

// proves: CON-workloads-states
#[tokio::test]
async fn the_state_of_a_workload_is_that_of_its_worst_cluster() {
    let api = api();
    api.seed(&CLUSTERS, cluster("east", "True", ""));
    let two = [("east", 1), ("west", 1)];
    let cases = [
        ("healthy", json!({}), "Healthy"),
        (
            "unhealthy",
            json!({"/status/aggregatedStatus/1/health": "Unhealthy"}),
            "Unhealthy",
        ),
        (
            "applying",
            json!({"/status/aggregatedStatus/1/applied": false}),
            "Progressing",
        ),
        (
            "silent",
            json!({"/status/aggregatedStatus/0/health": "Unknown"}),
            "Unknown",
        ),
        (
            "waiting",
            json!({"/status/conditions/0/status": "False"}),
            "Unscheduled",
        ),
        (
            "unwritten",
            json!({"/status/aggregatedStatus": []}),
            "Progressing",
        ),
        ("nowhere", json!({"/spec/clusters": []}), "Unscheduled"),
        (
            "on-purpose",
            json!({"/spec/clusters": [], "/status/conditions/0/reason": "PlacedNowhere"}),
            "Healthy",
        ),
    ];
    for (name, changes, _) in &cases {
        let mut binding = binding(name, &two);
        for (pointer, value) in changes.as_object().unwrap() {
            *binding.pointer_mut(pointer).unwrap() = value.clone();
        }
        api.seed(&BINDINGS, binding);
    }
    let fixture = ConsoleFixture::start(api).await;
    let cookie = fixture.login().await;
    for (name, _, state) in cases {
        let page = fixture
            .get(&format!("/workloads?q={name}&health={state}"), &cookie)
            .await;
        let link = format!("title=\"{name}\"");
        assert!(page.text.contains(&link), "{name} {state}: {}", page.text);
    }
}
