//! The lists of quotas, autoscalers and services.

use client::Error;
use karmada_api::resources::{FEDERATED_HPAS, MULTI_CLUSTER_SERVICES, QUOTAS};
use machinery::Status;
use serde_json::json;

use super::fixture::{ConsoleFixture, api};

// proves: CON-lists, CON-escape
#[tokio::test]
async fn objects_are_rows_of_the_table() {
    let api = api();
    let named = |name: &str| json!({"name": name, "namespace": "shop"});
    api.seed(
        &QUOTAS,
        json!({"metadata": named("limit"), "spec": {"overall": {"cpu": "10"},
            "staticAssignments": [{"clusterName": "east", "hard": {"cpu": "4"}}]},
            "status": {"overallUsed": {"cpu": "9500m"}}}),
    );
    api.seed(
        &FEDERATED_HPAS,
        json!({"metadata": named("web"), "spec": {"maxReplicas": 9,
            "scaleTargetRef": {"kind": "Deployment", "name": "<b>"}}}),
    );
    api.seed(
        &MULTI_CLUSTER_SERVICES,
        json!({"metadata": named("shop-api"), "spec": {"types": ["CrossCluster"],
            "providerClusters": [{"name": "east"}]}}),
    );
    let fixture = ConsoleFixture::start(api).await;
    let cookie = fixture.login().await;
    for (path, texts) in [
        (
            "/quotas",
            [
                "1 quota<",
                "9500m<span class=\"of\"> of 10</span>",
                "cpu: 9500m of 10 are used, 95 %",
                "east: cpu 4",
            ],
        ),
        (
            "/autoscalers",
            [
                "1 autoscaler<",
                "Deployment &lt;b&gt;",
                "0, from 1 to 9",
                "FederatedHPA in shop",
            ],
        ),
        (
            "/services",
            [
                "1 service<",
                "CrossCluster",
                "<span class=\"cell-line\">east</span>",
                "all clusters",
            ],
        ),
        (
            "/services?q=shop-api+crosscluster",
            ["1 service<", "shop-api", "Served by", "Asked by"],
        ),
        (
            "/quotas?q=%3Cb%3E",
            [
                "Nothing matches",
                "value=\"&lt;b&gt;\"",
                "Show all",
                "Quotas",
            ],
        ),
    ] {
        let page = fixture.get(path, &cookie).await;
        for text in texts {
            assert!(page.text.contains(text), "{path}: {text} in {}", page.text);
        }
        assert!(!page.text.contains("<b>"), "{}", page.text);
    }
}

// proves: CON-lists, CON-rights, CON-empty
#[tokio::test]
async fn a_list_says_what_is_missing() {
    let api = api();
    api.on_call(|call| {
        let resource = call.resource?;
        let status = match &*resource.resource {
            "federatedresourcequotas" => Status::failure(403, "Forbidden", "no <quotas>"),
            "serviceexports" => Status::failure(404, "NotFound", "there is no such resource"),
            _ => return None,
        };
        Some(Error::from(status))
    });
    let fixture = ConsoleFixture::start(api).await;
    let cookie = fixture.login().await;
    for (path, text, other) in [
        (
            "/quotas",
            "cannot be listed: no &lt;quotas&gt;",
            "No quotas",
        ),
        (
            "/services",
            "share a Service among clusters",
            "cannot be listed",
        ),
        (
            "/autoscalers",
            "scale a workload over all of its clusters",
            "cannot be listed",
        ),
    ] {
        let page = fixture.get(path, &cookie).await;
        assert!(page.text.contains(text), "{path}: {}", page.text);
        assert!(!page.text.contains(other), "{path}: {}", page.text);
    }
}
