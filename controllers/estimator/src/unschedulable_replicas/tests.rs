//! Tests of the count of unschedulable replicas.

use client_fake::FakeApi;
use serde_json::json;

use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

fn workload(kind: &str) -> ObjectReferenceMessage {
    ObjectReferenceMessage {
        api_version: "apps/v1".into(),
        kind: kind.into(),
        namespace: "n".into(),
        name: "web".into(),
    }
}

fn template(image: &str, hash: Option<&str>) -> Value {
    let mut labels = json!({"app": "web"});
    if let Some(hash) = hash {
        labels[POD_TEMPLATE_HASH_LABEL] = hash.into();
    }
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn owned(kind: &str, name: &str, owner: (&str, &Value)) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": owner.0, "name": owner.1["metadata"]["name"],
                       "uid": owner.1["metadata"]["uid"], "controller": true});
    json!({"kind": kind, "metadata": {"name": name, "namespace": "n", "uid": format!("{kind}-{name}"),
           "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "web"}, "ownerReferences": [owner]}})
}

/// A Deployment with the ReplicaSets `new` and `old`.
fn seed_deployment(api: &FakeApi) -> [Value; 2] {
    let deployment = json!({
        "metadata": {"name": "web", "namespace": "n", "uid": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template("web:2", None)},
    });
    let sets = [("new", "web:2"), ("old", "web:1")].map(|(name, image)| {
        let mut set = owned("ReplicaSet", name, ("Deployment", &deployment));
        set["spec"]["template"] = template(image, Some(name));
        api.seed(&REPLICA_SETS, set.clone());
        set
    });
    api.seed(&DEPLOYMENTS, deployment);
    sets
}

fn seed_pod(api: &FakeApi, name: &str, owner: &Value, phase: &str, condition: &Value) {
    let mut pod = owned("Pod", name, ("ReplicaSet", owner));
    pod["status"] =
        json!({"phase": phase, "conditions": [{"type": "Ready", "status": "False"}, condition]});
    api.seed(&PODS, pod);
}

fn condition(status: &str, reason: &str, since: &str) -> Value {
    json!({"type": "PodScheduled", "status": status, "reason": reason,
           "lastTransitionTime": format!("2026-01-01T00:{since}Z")})
}

// proves: EST-unschedulable
#[tokio::test]
async fn pods_that_wait_for_longer_than_the_threshold_are_counted() {
    let api = FakeApi::new();
    let [new, old] = seed_deployment(&api);
    let waiting = condition("False", "Unschedulable", "54:59");
    let pods = [
        ("waiting", &new, "Pending", waiting.clone()),
        (
            "also-waiting",
            &new,
            "Pending",
            condition("False", "Unschedulable", "10:00"),
        ),
        (
            "recent",
            &new,
            "Pending",
            condition("False", "Unschedulable", "55:00"),
        ),
        (
            "gated",
            &new,
            "Pending",
            condition("False", "SchedulingGated", "10:00"),
        ),
        ("running", &new, "Running", condition("True", "", "10:00")),
        ("failed", &new, "Failed", waiting.clone()),
        ("of-old-template", &old, "Pending", waiting.clone()),
    ];
    for (name, owner, phase, condition) in &pods {
        seed_pod(&api, name, owner, phase, condition);
    }
    let other = json!({"metadata": {"name": "other", "uid": "other"}});
    seed_pod(&api, "of-another-owner", &other, "Pending", &waiting);
    let now = time::parse(NOW).unwrap();
    for (minutes, expected) in [(5, 2), (4, 3), (30, 1), (120, 0)] {
        let threshold = Duration::from_secs(minutes * 60);
        let count =
            count_unschedulable_replicas(&*api, &workload("Deployment"), threshold, now).await;
        assert_eq!(count, Ok(expected), "{minutes} minutes");
    }
}

// proves: EST-unschedulable
#[tokio::test]
async fn only_deployments_that_exist_are_counted() {
    let (api, now) = (FakeApi::new(), time::parse(NOW).unwrap());
    let count = |kind: &str| {
        let (api, workload) = (api.clone(), workload(kind));
        async move { count_unschedulable_replicas(&*api, &workload, Duration::ZERO, now).await }
    };
    let unsupported = "kind(StatefulSet) of workload(n/web) is not supported";
    assert_eq!(count("StatefulSet").await, Err(unsupported.into()));
    let missing = count("Deployment").await.unwrap_err();
    assert!(missing.contains("not found"), "{missing}");
    let deployment = json!({
        "metadata": {"name": "web", "namespace": "n", "uid": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template("web:2", None)},
    });
    api.seed(&DEPLOYMENTS, deployment);
    assert_eq!(count("Deployment").await, Ok(0));
}
