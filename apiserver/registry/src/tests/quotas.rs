//! Tests of the quota usage of bindings, also for failed and concurrent writes.

use std::sync::Arc;

use karmada_api::resources::{BINDINGS, QUOTAS};
use karmada_api::{FeatureGates, KarmadaFeature};
use machinery::UserInfo;

use super::*;
use crate::LoopbackApi;

async fn quota_fixture() -> RegistryFixture {
    let gates =
        FeatureGates::default().with_feature(KarmadaFeature::FederatedQuotaEnforcement, true);
    let fixture = fixture_with_admission(admission::AdmissionChainOptions {
        feature_gates: gates,
        ..admission::AdmissionChainOptions::default()
    })
    .await;
    let api = LoopbackApi::new(Arc::clone(&fixture.registry), UserInfo::internal());
    fixture.registry.options.admission_chain.set_api(api);
    let quota = json!({"metadata": {"name": "q", "namespace": "default"}, "spec": {"overall": {"cpu": "2"}}});
    fixture.create(&QUOTAS, quota).await.unwrap();
    fixture
}

fn binding(name: &str, replicas: i64) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "d"},
            "replicaRequirements": {"resourceRequest": {"cpu": "500m"}},
            "clusters": [{"name": "m", "replicas": replicas}]}})
}

impl RegistryFixture {
    async fn used(&self) -> Value {
        let quota = self
            .get(ResourcePath::object(&QUOTAS, "default", "q"))
            .await
            .unwrap();
        quota["status"]["overallUsed"]["cpu"].clone()
    }
}

#[tokio::test]
async fn failed_writes_are_not_charged() {
    let fixture = quota_fixture().await;
    fixture.create(&BINDINGS, binding("b", 2)).await.unwrap();
    assert_eq!(fixture.used().await, "1");
    // The name exists already, which is detected last.
    let second_create = fixture.create(&BINDINGS, binding("b", 1)).await;
    assert_eq!(result_code(&second_create), "409 AlreadyExists");
    assert_eq!(fixture.used().await, "1");
    let dry_run_result = fixture
        .create_with(&BINDINGS, binding("c", 2), &dry_run())
        .await;
    assert_eq!(result_code(&dry_run_result), "ok");
    assert_eq!(fixture.used().await, "1");
    let rejected = fixture.create(&BINDINGS, binding("c", 3)).await;
    assert_eq!(result_code(&rejected), "403 QuotaExceeded");

    let path = ResourcePath::object(&BINDINGS, "default", "b");
    let clusters =
        |replicas: i64| json!({"spec": {"clusters": [{"name": "m", "replicas": replicas}]}});
    fixture.merge(path, clusters(4)).await.unwrap();
    assert_eq!(fixture.used().await, "2");
    assert_eq!(
        result_code(&fixture.merge(path, clusters(5)).await),
        "403 QuotaExceeded"
    );
    fixture.merge(path, clusters(1)).await.unwrap();
    assert_eq!(fixture.used().await, "500m");
    let status = json!({"status": {"schedulerObservedGeneration": 1}});
    fixture
        .merge(path.subresource("status"), status)
        .await
        .unwrap();
    assert_eq!(fixture.used().await, "500m");
}

#[tokio::test]
async fn concurrent_writes_share_a_quota() {
    let fixture = Arc::new(quota_fixture().await);
    let writes = (0..8).map(|n| {
        let fixture = Arc::clone(&fixture);
        tokio::spawn(async move {
            let created = fixture
                .create(&BINDINGS, binding(&format!("b{n}"), 1))
                .await;
            result_code(&created)
        })
    });
    let mut results = Vec::new();
    for write in writes.collect::<Vec<_>>() {
        results.push(write.await.unwrap());
    }
    results.sort();
    assert_eq!(results[..4], ["403 QuotaExceeded"; 4]);
    assert_eq!(results[4..], ["ok"; 4]);
    assert_eq!(fixture.used().await, "2");
}

// proves: ADM-frq-status
#[tokio::test]
async fn an_invalid_status_is_rejected_with_the_next_change_of_the_quota() {
    let fixture = fixture().await;
    let quota = json!({"metadata": {"name": "q", "namespace": "default"}, "spec": {"overall": {"cpu": "2"}}});
    fixture.create(&QUOTAS, quota).await.unwrap();
    let path = ResourcePath::object(&QUOTAS, "default", "q");
    let status = json!({"status": {"overall": {"cpu": "-1"}, "overallUsed": {"cpu": "-2"}, "aggregatedStatus": [
        {"clusterName": "m", "hard": {"cpu": "-3"}, "used": {"cpu": "-4"}}, {"clusterName": "M"}]}});
    fixture
        .merge(path.subresource("status"), status)
        .await
        .unwrap();
    let rejected = fixture.merge(path, json!({"spec": {"overall": {"cpu": "3"}}}));
    let status = rejected.await.unwrap_err();
    let negative = |field: &str, value: i64| {
        format!(
            "status.{field}[cpu]: Invalid value: \"{value}\": must be greater than or equal to 0"
        )
    };
    let name = machinery::names::validate_dns1123_label("M").unwrap_err();
    let all = [
        negative("overall", -1),
        negative("overallUsed", -2),
        negative("aggregatedStatus[0].hard", -3),
        negative("aggregatedStatus[0].used", -4),
        format!("status.aggregatedStatus[1].clusterName: Invalid value: \"M\": {name}"),
    ];
    let hook = "federatedresourcequota.karmada.io";
    let message = format!(
        "admission webhook \"{hook}\" denied the request: [{}]",
        all.join(", ")
    );
    assert_eq!((status.code, status.message), (403, message));
}
