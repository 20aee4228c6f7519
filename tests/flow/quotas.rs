//! Federated resource quotas, the workload rebalancer, and templates that follow the
//! replicas of a workload scaled in a member.

use serde_json::{Value, json};

use crate::flow::fleet::{FleetFixture, find_condition, wait_for_namespace};
use crate::flow::objects::{
    AUTOSCALERS, BINDINGS, CLUSTERS, DEPLOYMENTS, QUOTAS, REBALANCERS, RESOURCE_QUOTAS, deployment,
    divided_policy, policy,
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
            .await
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
    let updated = used(json!("1250m")).await;
    assert_eq!(updated["status"]["overall"], json!({"cpu": "2"}));

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

// proves: QUO-share, QUO-collected, QUO-leaves
#[tokio::test]
async fn static_assignments_become_resource_quotas() {
    let ns = "shares";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    wait_for_namespace(&fleet, ns).await;
    let hard = json!({"cpu": "2"});
    let bad = federated_quota(
        ns,
        "q",
        json!({"overall": hard, "staticAssignments": [{"clusterName": "member1", "hard": {"cpu": "3"}}]}),
    );
    let rejection = control.try_create(bad).await.unwrap_err().to_string();
    assert!(
        rejection
            .contains("spec.overall[cpu]: Invalid value: \"2\": overall is less than assignments"),
        "{rejection}"
    );
    let assigned = json!([{"clusterName": "member1", "hard": hard}]);
    let spec = json!({"overall": {"cpu": "4"}, "staticAssignments": assigned});
    control.create(federated_quota(ns, "q", spec)).await;
    let one = fleet.member("member1");
    let share = one.wait_until_exists(&RESOURCE_QUOTAS, ns, "q").await;
    assert_eq!(share["spec"], json!({"hard": hard}));
    // The member's own controller may replace the usage that a test writes by its own count.
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    one.create(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": ns, "name": "user"},
        "spec": {"containers": [container]}}),
    )
    .await;
    let status = json!({"overall": {"cpu": "4"}, "overallUsed": {"cpu": "1"},
        "aggregatedStatus": [{"clusterName": "member1", "hard": hard, "used": {"cpu": "1"}}]});
    control
        .wait_until(&QUOTAS, ns, "q", "collected", |q| q["status"] == status)
        .await;
    let two = fleet.member("member2");
    assert_eq!(two.get(&RESOURCE_QUOTAS, ns, "q").await, None);
    control.delete(&QUOTAS, ns, "q").await;
    one.wait_until_deleted(&RESOURCE_QUOTAS, ns, "q").await;
}

// proves: REB-marks, REB-missing, REB-ttl
#[tokio::test]
async fn rebalancer_reschedules_a_workload() {
    let ns = "rebalanced";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let object = deployment(ns, "web", 2);
    let weights = [("member1", 1), ("member2", 1)];
    control
        .create(divided_policy(ns, "p", &object, &weights))
        .await;
    control.create(object).await;
    control
        .wait_until(&BINDINGS, ns, "web-deployment", "placed", |b| {
            scheduled_reason(b) == "Success"
        })
        .await;
    let workload = |name: &str| json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "namespace": ns});
    let rebalancer = |spec: Value| {
        json!({"apiVersion": "apps.karmada.io/v1alpha1", "kind": "WorkloadRebalancer",
            "metadata": {"name": "rebalanced"}, "spec": spec})
    };
    let rejection = control.try_create(rebalancer(json!({"workloads": []})));
    let rejection = rejection.await.unwrap_err().to_string();
    assert!(rejection.contains("spec.workloads"), "{rejection}");
    let workloads = json!([workload("web"), workload("none")]);
    control
        .create(rebalancer(json!({"workloads": workloads})))
        .await;
    let done = control
        .wait_until(&REBALANCERS, "", "rebalanced", "done", |r| {
            !r["status"]["finishTime"].is_null()
        })
        .await;
    let observed = json!([
        {"workload": workload("none"), "result": "Failed", "reason": "ReferencedBindingNotFound"},
        {"workload": workload("web"), "result": "Successful"},
    ]);
    assert_eq!(done["status"]["observedWorkloads"], observed);
    assert_eq!(done["status"]["observedGeneration"], 1);
    let created = done["metadata"]["creationTimestamp"].clone();
    control
        .wait_until(&BINDINGS, ns, "web-deployment", "placed anew", |b| {
            let observed = &b["status"]["schedulerObservedGeneration"];
            b["spec"]["rescheduleTriggeredAt"] == created
                && *observed == b["metadata"]["generation"]
                && placed_replicas(b) == 2
        })
        .await;
    let ttl = json!({"spec": {"ttlSecondsAfterFinished": 0}});
    control
        .merge_patch(&REBALANCERS, "", "rebalanced", ttl)
        .await;
    control
        .wait_until_deleted(&REBALANCERS, "", "rebalanced")
        .await;
}
