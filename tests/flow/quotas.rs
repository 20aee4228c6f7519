//! Federated resource quotas, and templates that follow the
//! replicas of a workload scaled in a member.

use serde_json::{Value, json};

use crate::flow::fleet::{FleetFixture, find_condition, wait_for_namespace};
use crate::flow::objects::{
    AUTOSCALERS, BINDINGS, CLUSTERS, DEPLOYMENTS, QUOTAS, deployment, divided_policy, policy,
};

const FLAGS: &[&str] = &[
    "--feature-gates",
    "FederatedQuotaEnforcement=true",
    "--controllers",
    "*,hpaScaleTargetMarker,deploymentReplicasSyncer",
];

/// A Deployment whose replicas request a quarter of a core each: a container and a sidecar,
/// and an init container that requests less than both.
fn deployment_with_requests(ns: &str, name: &str, replicas: i64) -> Value {
    let mut deployment_object = deployment(ns, name, replicas);
    let pod = &mut deployment_object["spec"]["template"]["spec"];
    let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
    pod["containers"][0]["resources"] = requests("200m");
    pod["initContainers"] = json!([
        {"name": "sidecar", "image": "nginx:1.27", "restartPolicy": "Always", "resources": requests("50m")},
        {"name": "init", "image": "nginx:1.27", "resources": requests("150m")}]);
    deployment_object
}

fn federated_quota(ns: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "FederatedResourceQuota",
        "metadata": {"name": name, "namespace": ns}, "spec": spec})
}

fn scheduled_reason(binding: &Value) -> &Value {
    &find_condition(binding, "Scheduled")["reason"]
}

/// The number of replicas of a binding in all its clusters.
fn placed_replicas(binding: &Value) -> i64 {
    let clusters = binding["spec"]["clusters"].as_array();
    let clusters = clusters.into_iter().flatten();
    clusters.filter_map(|c| c["replicas"].as_i64()).sum()
}

// proves: QUO-charged, QUO-recount, AUT-marked, AUT-unmarked, AUT-follows
#[tokio::test]
async fn scheduling_stops_at_the_quota() {
    let ns = "quotas";
    let fleet = FleetFixture::with_flags(FLAGS, ns).await;
    let control = &fleet.control;
    let limit = |cpu: &str| json!({"overall": {"cpu": cpu}});
    control.create(federated_quota(ns, "q", limit("1"))).await;
    let object = deployment_with_requests(ns, "web", 3);
    let weights = [("member1", 2), ("member2", 1)];
    control
        .create(divided_policy(ns, "p", &object, &weights))
        .await;
    control.create(object).await;
    let used = async |amount: Value| {
        let description = format!("used {amount}");
        let same = |q: &Value| {
            let used = &q["status"]["overallUsed"];
            used.get("cpu").unwrap_or(&Value::Null) == &amount
        };
        control
            .wait_until(&QUOTAS, ns, "q", &description, same)
            .await;
    };
    used(json!("750m")).await;
    // The resource summary of the member counts pods by the same rule.
    control
        .wait_until(&CLUSTERS, "", "member1", "summed", |c| {
            c["status"]["resourceSummary"]["allocated"]["cpu"] == "500m"
        })
        .await;

    let replicas = |n: i64| json!({"spec": {"replicas": n}});
    control
        .merge_patch(&DEPLOYMENTS, ns, "web", replicas(5))
        .await;
    let partial_binding = control
        .wait_until(&BINDINGS, ns, "web-deployment", "refused", |b| {
            scheduled_reason(b) == "QuotaExceeded"
        })
        .await;
    assert_eq!(placed_replicas(&partial_binding), 3);
    let text = find_condition(&partial_binding, "Scheduled")["message"]
        .as_str()
        .unwrap();
    let expected =
        "FederatedResourceQuota(quotas/q) exceeded for resource cpu: requested sum 1250m, limit 1.";
    assert!(text.contains(expected), "{text}");
    used(json!("750m")).await;

    // The scheduler retries without another change.
    let more = json!({"spec": limit("2")});
    control.merge_patch(&QUOTAS, ns, "q", more).await;
    control
        .wait_until(&BINDINGS, ns, "web-deployment", "placed", |b| {
            placed_replicas(b) == 5 && scheduled_reason(b) == "Success"
        })
        .await;
    control
        .wait_until(&QUOTAS, ns, "q", "used below the new limit", |q| {
            q["status"]["overallUsed"]["cpu"] == "1250m"
                && q["status"]["overall"] == json!({"cpu": "2"})
        })
        .await;

    // Scaling down is allowed although it still exceeds the quota.
    let less = json!({"spec": limit("500m")});
    control.merge_patch(&QUOTAS, ns, "q", less).await;
    control
        .merge_patch(&DEPLOYMENTS, ns, "web", replicas(4))
        .await;
    used(json!("1")).await;
    control.delete(&DEPLOYMENTS, ns, "web").await;
    used(Value::Null).await;
    check_scaling_by_member(&fleet).await;
}

/// A member scales its workload, as its autoscaler would, and the template follows.
async fn check_scaling_by_member(fleet: &FleetFixture) {
    let ns = "scaled";
    let control = &fleet.control;
    control.create_namespace(ns).await;
    wait_for_namespace(fleet, ns).await;
    let object = deployment(ns, "web", 2);
    let weights = [("member1", 1), ("member2", 1)];
    control
        .create(divided_policy(ns, "p", &object, &weights))
        .await;
    control.create(object).await;
    let autoscaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": ns},
        "spec": {"minReplicas": 1, "maxReplicas": 9,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
    control
        .create(policy(ns, "h", &autoscaler, &["member1", "member2"]))
        .await;
    control.create(autoscaler).await;
    let label = "resourcetemplate.karmada.io/retain-replicas";
    let is_marked = |d: &Value| d["metadata"]["labels"][label] == "true";
    control
        .wait_until(&DEPLOYMENTS, ns, "web", "marked", is_marked)
        .await;
    let one = fleet.member("member1");
    one.wait_until(&DEPLOYMENTS, ns, "web", "marked too", is_marked)
        .await;
    let more = json!({"spec": {"replicas": 3}});
    one.merge_patch(&DEPLOYMENTS, ns, "web", more).await;
    control
        .wait_until(&DEPLOYMENTS, ns, "web", "following", |d| {
            d["spec"]["replicas"] == 4
        })
        .await;
    one.wait_until(&DEPLOYMENTS, ns, "web", "kept", |d| {
        d["spec"]["replicas"] == 3
    })
    .await;
    control.delete(&AUTOSCALERS, ns, "web").await;
    control
        .wait_until(&DEPLOYMENTS, ns, "web", "unmarked", |d| !is_marked(d))
        .await;
}
