//! What quotas are charged for bindings, written at once and in vain.

use std::sync::Arc;

use machinery::UserInfo;
use openapi::karmada::resources::{BINDINGS, QUOTAS};
use openapi::karmada::{FeatureGates, Gate};

use super::*;
use crate::Loopback;

async fn enforcing() -> Lab {
    let gates = FeatureGates::default().with(Gate::FederatedQuotaEnforcement, true);
    let lab = lab_under(admission::Options {
        gates,
        ..admission::Options::default()
    })
    .await;
    let api = Loopback::new(Arc::clone(&lab.registry), UserInfo::internal());
    lab.registry.options.chain.connect(api);
    let quota = json!({"metadata": {"name": "q", "namespace": "default"}, "spec": {"overall": {"cpu": "2"}}});
    lab.create(&QUOTAS, quota).await.unwrap();
    lab
}

fn binding(name: &str, replicas: i64) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "replicaRequirements": {"resourceRequest": {"cpu": "500m"}},
            "clusters": [{"name": "m", "replicas": replicas}]}})
}

impl Lab {
    async fn used(&self) -> Value {
        let quota = self.get(At::one(&QUOTAS, "default", "q")).await.unwrap();
        quota["status"]["overallUsed"]["cpu"].clone()
    }
}

#[tokio::test]
async fn what_is_not_written_is_not_charged() {
    let lab = enforcing().await;
    lab.create(&BINDINGS, binding("b", 2)).await.unwrap();
    assert_eq!(lab.used().await, "1");
    // The name is taken, which is found last.
    let again = lab.create(&BINDINGS, binding("b", 1)).await;
    assert_eq!(verdict(&again), "409 AlreadyExists");
    assert_eq!(lab.used().await, "1");
    let rehearsed = lab
        .create_with(&BINDINGS, binding("c", 2), &dry_run())
        .await;
    assert_eq!(verdict(&rehearsed), "ok");
    assert_eq!(lab.used().await, "1");
    let refused = lab.create(&BINDINGS, binding("c", 3)).await;
    assert_eq!(verdict(&refused), "403 QuotaExceeded");

    let at = At::one(&BINDINGS, "default", "b");
    let clusters =
        |replicas: i64| json!({"spec": {"clusters": [{"name": "m", "replicas": replicas}]}});
    lab.merge(at, clusters(4)).await.unwrap();
    assert_eq!(lab.used().await, "2");
    assert_eq!(
        verdict(&lab.merge(at, clusters(5)).await),
        "403 QuotaExceeded"
    );
    lab.merge(at, clusters(1)).await.unwrap();
    assert_eq!(lab.used().await, "500m");
    let status = json!({"status": {"schedulerObservedGeneration": 1}});
    lab.merge(at.sub("status"), status).await.unwrap();
    assert_eq!(lab.used().await, "500m");
}

#[tokio::test]
async fn writes_at_once_share_a_quota() {
    let lab = Arc::new(enforcing().await);
    let writes = (0..8).map(|n| {
        let lab = Arc::clone(&lab);
        tokio::spawn(async move {
            let made = lab.create(&BINDINGS, binding(&format!("b{n}"), 1)).await;
            verdict(&made)
        })
    });
    let mut said = Vec::new();
    for write in writes.collect::<Vec<_>>() {
        said.push(write.await.unwrap());
    }
    said.sort();
    assert_eq!(said[..4], ["403 QuotaExceeded"; 4]);
    assert_eq!(said[4..], ["ok"; 4]);
    assert_eq!(lab.used().await, "2");
}

// proves: ADM-frq-status
#[tokio::test]
async fn a_status_that_breaks_the_rules_is_refused_with_the_next_change_of_the_quota() {
    let lab = lab().await;
    let quota = json!({"metadata": {"name": "q", "namespace": "default"}, "spec": {"overall": {"cpu": "2"}}});
    lab.create(&QUOTAS, quota).await.unwrap();
    let at = At::one(&QUOTAS, "default", "q");
    let status = json!({"status": {"overall": {"cpu": "-1"}, "overallUsed": {"cpu": "-2"}, "aggregatedStatus": [
        {"clusterName": "m", "hard": {"cpu": "-3"}, "used": {"cpu": "-4"}}, {"clusterName": "M"}]}});
    lab.merge(at.sub("status"), status).await.unwrap();
    let refused = lab.merge(at, json!({"spec": {"overall": {"cpu": "3"}}}));
    let status = refused.await.unwrap_err();
    let negative = |field: &str, value: i64| {
        format!(
            "status.{field}[cpu]: Invalid value: \"{value}\": must be greater than or equal to 0"
        )
    };
    let name = machinery::names::dns1123_label("M").unwrap_err();
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
