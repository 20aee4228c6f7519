//! Tests of tracking ResourceQuotas.

use std::time::Duration;

use client::ShutdownToken;
use client_fake::FakeApi;
use serde_json::{Value, json};

use super::*;

fn quota(name: &str, hard: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "n"},
           "spec": {"scopes": ["Terminating"], "scopeSelector": {"matchExpressions": [
               {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}},
           "status": {"hard": {"cpu": hard}, "used": {"cpu": "1"}}})
}

async fn wait_until(condition: impl Fn() -> bool) {
    let poll = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let reached = tokio::time::timeout(Duration::from_secs(300), poll).await;
    reached.unwrap();
}

#[tokio::test(start_paused = true)]
async fn quotas_are_followed_by_namespace() {
    let (fake, tasks) = (FakeApi::new(), TaskGroup::new(ShutdownToken::new()));
    fake.seed(&RESOURCE_QUOTAS, quota("a", "3"));
    fake.seed(
        &RESOURCE_QUOTAS,
        json!({"metadata": {"name": "bare", "namespace": "m"}}),
    );
    let api: Arc<dyn Api> = fake.clone();
    let quotas = ResourceQuotaCache::start(&api, &tasks);
    wait_until(|| quotas.in_namespace("n").is_some()).await;
    let scope = |name: &str, operator: &str, values: &[&str]| ScopedResourceSelectorRequirement {
        scope_name: name.into(),
        operator: operator.into(),
        values: values.iter().map(|v| (*v).into()).collect(),
    };
    let amount = |text: &str| {
        let cpu = Quantity::parse(text).unwrap();
        BTreeMap::from([("cpu".to_owned(), cpu)])
    };
    let read = MemberResourceQuota {
        scopes: vec![
            scope("Terminating", "Exists", &[]),
            scope("PriorityClass", "In", &["high"]),
        ],
        hard: amount("3"),
        used: amount("1"),
    };
    assert_eq!(quotas.in_namespace("n").unwrap(), [Arc::new(read)]);
    assert_eq!(
        quotas.in_namespace("m").unwrap(),
        [Arc::new(MemberResourceQuota::default())]
    );
    assert!(quotas.in_namespace("none").unwrap().is_empty());

    fake.seed(&RESOURCE_QUOTAS, quota("a", "4"));
    fake.seed(&RESOURCE_QUOTAS, quota("b", "5"));
    fake.remove(&RESOURCE_QUOTAS, "m", "bare");
    wait_until(|| {
        quotas.in_namespace("m").unwrap().is_empty() && quotas.in_namespace("n").unwrap().len() == 2
    })
    .await;
    wait_until(|| quotas.in_namespace("n").unwrap()[0].hard == amount("4")).await;
    // Objects deleted while the watch is broken are removed after the next list.
    fake.on_call(|c| (c.verb == "watch").then(|| machinery::Status::expired("old").into()));
    fake.end_watches();
    fake.remove(&RESOURCE_QUOTAS, "n", "a");
    wait_until(|| quotas.in_namespace("n").unwrap().len() == 1).await;
    tasks.stop().await;
}
