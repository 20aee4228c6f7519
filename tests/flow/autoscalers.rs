//! Autoscalers of the control plane, whose replicas the scheduler divides.

use serde_json::{Value, json};

use crate::flow::fleet::{ApiServerClient, FleetFixture, find_condition};
use crate::flow::objects::{
    BINDINGS, CRON_FEDERATED_HPAS, DEPLOYMENTS, FEDERATED_HPAS, cpu_utilization,
    cron_federated_hpa, deployment, divided_policy, federated_hpa,
};

/// Divides a Deployment equally between the first two members.
async fn create_in_both_members(control: &ApiServerClient, ns: &str, object: Value) {
    let weights = [("member1", 1), ("member2", 1)];
    control
        .create(divided_policy(ns, "p", &object, &weights))
        .await;
    control.create(object).await;
}

/// Waits for a field of the Deployment `web` in the first two members.
async fn wait_in_both_members(fleet: &FleetFixture, ns: &str, field: &str, expected: i64) {
    let description = format!("{expected} at {field}");
    for member in &fleet.members[..2] {
        member
            .wait_until(&DEPLOYMENTS, ns, "web", &description, |object| {
                object.pointer(field) == Some(&expected.into())
            })
            .await;
    }
}

// proves: CRH-workload, CRH-history
#[tokio::test]
async fn a_schedule_scales_a_deployment_and_its_members() {
    let ns = "schedules";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let object = deployment(ns, "web", 1);
    create_in_both_members(control, ns, object).await;
    control.create(cron_federated_hpa(ns, "web", 4)).await;
    // Within a minute.
    let cron = control
        .wait_until(&CRON_FEDERATED_HPAS, ns, "web", "an execution", |cron| {
            cron["status"]["executionHistories"][0]["successfulExecutions"].is_array()
        })
        .await;
    let history = &cron["status"]["executionHistories"][0];
    assert_eq!(history["ruleName"], "each-minute");
    assert_eq!(history["successfulExecutions"][0]["appliedReplicas"], 4);
    let template = control.get(&DEPLOYMENTS, ns, "web").await.unwrap();
    assert_eq!(template["spec"]["replicas"], 4);
    control
        .wait_until(&BINDINGS, ns, "web-deployment", "clusters", |binding| {
            binding["spec"]["replicas"] == 4
        })
        .await;
    wait_in_both_members(&fleet, ns, "/spec/replicas", 2).await;
}

// proves: FHP-utilization, FHP-status
#[tokio::test]
async fn a_template_follows_the_usage_in_its_members() {
    let ns = "usage";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let mut object = deployment(ns, "web", 2);
    // A pod in a simulated member uses half of what it requests.
    object["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "100m"}});
    create_in_both_members(control, ns, object).await;
    wait_in_both_members(&fleet, ns, "/status/readyReplicas", 1).await;
    let metrics = json!([cpu_utilization(25)]);
    control
        .create(federated_hpa(ns, "web", "web", 4, &metrics))
        .await;
    // The pods have just started: their CPU counts from the next measurement on.
    let hpa = control
        .wait_until(&FEDERATED_HPAS, ns, "web", "replicas", |hpa| {
            hpa["status"]["desiredReplicas"] == 4
        })
        .await;
    assert_eq!(find_condition(&hpa, "ScalingActive")["status"], "True");
    let current = &hpa["status"]["currentMetrics"][0]["resource"]["current"];
    assert_eq!(current["averageUtilization"], 50);
    wait_in_both_members(&fleet, ns, "/spec/replicas", 2).await;
}

// proves: FHP-pods-metric, FHP-object
#[tokio::test]
async fn a_template_follows_custom_metrics_of_its_members() {
    let ns = "custom-metrics";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let mut object = deployment(ns, "web", 2);
    // In a simulated member, annotations are the custom metrics of an object.
    object["metadata"]["annotations"] = json!({"custom-metric.flotilla.io/queue": "8"});
    object["spec"]["template"]["metadata"]["annotations"] =
        json!({"custom-metric.flotilla.io/requests": "15"});
    create_in_both_members(control, ns, object).await;
    wait_in_both_members(&fleet, ns, "/status/readyReplicas", 1).await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    // Three replicas by the requests of the pods, four by the queue of both Deployments.
    let metrics = json!([
        {"type": "Pods", "pods": {"metric": {"name": "requests"},
            "target": {"type": "AverageValue", "averageValue": "10"}}},
        {"type": "Object", "object": {"metric": {"name": "queue"}, "describedObject": target,
            "target": {"type": "AverageValue", "averageValue": "4"}}},
    ]);
    control
        .create(federated_hpa(ns, "web", "web", 6, &metrics))
        .await;
    let hpa = control
        .wait_until(&FEDERATED_HPAS, ns, "web", "replicas", |hpa| {
            hpa["status"]["desiredReplicas"] == 4
        })
        .await;
    assert_eq!(find_condition(&hpa, "ScalingActive")["status"], "True");
    let current = &hpa["status"]["currentMetrics"];
    assert_eq!(current[0]["pods"]["current"]["averageValue"], "15");
    assert_eq!(current[1]["object"]["describedObject"]["name"], "web");
    wait_in_both_members(&fleet, ns, "/spec/replicas", 2).await;
}
