//! Tests of the conditions of FederatedHPAs: the cases of Kubernetes' `horizontal_test.go`, with the
//! controller and its two members.

use client::Error;
use karmada_api::resources::{BINDINGS, FEDERATED_HPAS};
use machinery::Status;
use serde_json::{Value, json};

use super::{EVENTS, HpaFixture, PERIOD, PODS, cpu_utilization, deployment, pod, pods_metric};
use crate::DEPLOYMENTS;

impl HpaFixture {
    /// Waits until a condition has a reason, and checks its status.
    async fn wait_for_reason(&self, kind: &str, status: &str, reason: &str) {
        let has_reason = |f: &Self| f.condition(kind)["reason"] == reason;
        self.wait_until(reason, has_reason).await;
        assert_eq!(self.condition(kind)["status"], status, "{reason}");
    }

    /// The reasons of the conditions.
    fn reasons(&self) -> Vec<String> {
        let status = self.status("h");
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let reasons = conditions.map(|c| c["reason"].as_str().unwrap().to_owned());
        reasons.collect()
    }

    async fn wait_for_event(&self, reason: &str) {
        let is_recorded = |f: &Self| {
            let events = f.control.list_objects(&EVENTS);
            events.iter().any(|event| event["reason"] == reason)
        };
        self.wait_until(reason, is_recorded).await;
    }
}

// proves: FHP-selectors
#[tokio::test(start_paused = true)]
async fn a_target_without_a_valid_selector_is_not_scaled() {
    for (selector, event) in [
        ("", "SelectorRequired"),
        ("cheddar cheese", "InvalidSelector"),
    ] {
        let fixture = HpaFixture::start(&[2, 1]).await;
        fixture.use_cpu(0, "100m");
        fixture.use_cpu(1, "100m");
        for (member, replicas) in fixture.members.iter().zip([2, 1]) {
            let mut target = deployment(replicas);
            target["status"]["selector"] = selector.into();
            member.seed(&DEPLOYMENTS, target);
        }
        fixture.autoscale("h", 10, json!([cpu_utilization(10)]));
        fixture.wait_for_event(event).await;
        fixture
            .wait_for_reason("ScalingActive", "False", "InvalidSelector")
            .await;
        assert_eq!(
            fixture.reasons(),
            ["SucceededGetScale", "InvalidSelector"],
            "{selector}"
        );
        assert_eq!(fixture.replicas(), 3);
        assert_eq!(fixture.status("h")["currentReplicas"], 3);
    }
}

fn object_metric() -> Value {
    json!({"type": "Object", "object": {"metric": {"name": "qps"},
        "describedObject": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "some"},
        "target": {"type": "Value", "value": "15"}}})
}

fn container_metric(container: &str) -> Value {
    json!({"type": "ContainerResource", "containerResource": {"name": "cpu",
        "container": container, "target": {"type": "Utilization", "averageUtilization": 10}}})
}

// proves: FHP-errors, FHP-events
#[tokio::test(start_paused = true)]
async fn metrics_that_cannot_be_read_have_reasons() {
    for (metric, reason) in [
        (cpu_utilization(10), "FailedGetResourceMetric"),
        (pods_metric("15"), "FailedGetPodsMetric"),
        (object_metric(), "FailedGetObjectMetric"),
        (container_metric("c"), "FailedGetContainerResourceMetric"),
        (json!({"type": "CheddarCheese"}), "InvalidMetricSourceType"),
    ] {
        let fixture = HpaFixture::start(&[2, 1]).await;
        fixture.autoscale("h", 10, json!([metric]));
        fixture
            .wait_for_reason("ScalingActive", "False", reason)
            .await;
        assert_eq!(fixture.reasons(), ["SucceededGetScale", reason]);
        fixture.wait_for_event(reason).await;
        fixture.wait_for_event("FailedComputeMetricsReplicas").await;
        assert_eq!(fixture.replicas(), 3);
        assert_eq!(fixture.status("h")["currentReplicas"], 3);
    }
    // Of a container that no pod has.
    let fixture = HpaFixture::start(&[2, 1]).await;
    fixture.use_cpu(0, "100m");
    fixture.use_cpu(1, "100m");
    fixture.autoscale("h", 10, json!([container_metric("sidecar")]));
    fixture
        .wait_for_reason("ScalingActive", "False", "FailedGetContainerResourceMetric")
        .await;
    let message = fixture.condition("ScalingActive")["message"].to_string();
    assert!(
        message.contains("container sidecar not present in metrics"),
        "{message}"
    );
}

// proves: FHP-partial
#[tokio::test(start_paused = true)]
async fn a_metric_of_an_unknown_type_removes_no_replicas() {
    let fixture = HpaFixture::start(&[3, 2]).await;
    fixture.use_cpu(0, "28m");
    fixture.use_cpu(1, "28m");
    let metrics = json!([cpu_utilization(50), {"type": "CheddarCheese"}]);
    fixture.autoscale("h", 6, metrics);
    fixture
        .wait_for_reason("ScalingActive", "False", "InvalidMetricSourceType")
        .await;
    assert_eq!(fixture.replicas(), 5);
}

// proves: FHP-errors, FHP-events
#[tokio::test(start_paused = true)]
async fn a_scale_that_cannot_be_updated_is_a_condition() {
    let fixture = HpaFixture::start(&[2, 1]).await;
    fixture.use_cpu(0, "150m");
    fixture.use_cpu(1, "150m");
    fixture.control.on_call(|call| {
        let fails = call.verb == "patch" && call.subresource == "scale";
        let status = Status::failure(500, "InternalError", "something went wrong");
        fails.then(|| Error::from(status))
    });
    fixture.autoscale("h", 5, json!([cpu_utilization(100)]));
    fixture
        .wait_for_reason("AbleToScale", "False", "FailedUpdateScale")
        .await;
    assert_eq!(
        fixture.reasons(),
        [
            "FailedUpdateScale",
            "ValidMetricFound",
            "DesiredWithinRange"
        ]
    );
    fixture.wait_for_event("FailedRescale").await;
    assert_eq!(
        fixture.status("h")["desiredReplicas"],
        0,
        "nothing was scaled"
    );
    // A change that failed does not count as one; the next period tries again.
    fixture.control.on_call(|_| None);
    fixture.pass(PERIOD).await;
    fixture
        .wait_for_reason("AbleToScale", "True", "SucceededRescale")
        .await;
    assert_eq!(fixture.replicas(), 5);
}

// proves: FHP-bounds, FHP-default-limits
#[tokio::test(start_paused = true)]
async fn limits_are_conditions() {
    for (cpu, max, replicas, reason) in [
        ("200m", 100, 12, "ScaleUpLimit"),
        ("200m", 9, 9, "TooManyReplicas"),
    ] {
        let fixture = HpaFixture::start(&[3, 3]).await;
        fixture.use_cpu(0, cpu);
        fixture.use_cpu(1, cpu);
        fixture.autoscale("h", max, json!([cpu_utilization(10)]));
        fixture
            .wait_for_reason("ScalingLimited", "True", reason)
            .await;
        fixture
            .wait_until(reason, |f| f.replicas() == replicas)
            .await;
    }
}

// proves: FHP-no-idle-write
#[tokio::test(start_paused = true)]
async fn a_status_is_written_when_it_differs() {
    let fixture = HpaFixture::start(&[2, 2]).await;
    fixture.use_cpu(0, "50m");
    fixture.use_cpu(1, "50m");
    fixture.autoscale("h", 6, json!([cpu_utilization(50)]));
    fixture
        .wait_for_reason("AbleToScale", "True", "ReadyForNewScale")
        .await;
    fixture.control.clear_writes();
    for _ in 0..20 {
        fixture.pass(PERIOD).await;
    }
    assert_eq!(fixture.control.writes(), []);
    fixture.use_cpu(0, "53m");
    fixture.pass(PERIOD).await;
    fixture
        .wait_until("the new usage", |f| {
            let current = &f.status("h")["currentMetrics"][0]["resource"]["current"];
            current["averageValue"] == "51m"
        })
        .await;
    let written = fixture.control.writes();
    assert!(written.iter().all(|write| write.resource == FEDERATED_HPAS));
}

// proves: FHP-ambiguous
#[tokio::test(start_paused = true)]
async fn only_pods_that_both_select_are_ambiguous() {
    for (overlaps, reason) in [(false, "ValidMetricFound"), (true, "AmbiguousSelector")] {
        let fixture = HpaFixture::start(&[1, 1]).await;
        let control = &fixture.control;
        let mut other = deployment(2);
        other["metadata"]["name"] = "api".into();
        other["status"]["selector"] = "tier=front".into();
        let mut binding = control
            .get_object(&BINDINGS, "n", "web-deployment")
            .unwrap();
        binding["metadata"] = json!({"name": "api-deployment", "namespace": "n"});
        binding["spec"]["resource"]["name"] = "api".into();
        control.seed(&BINDINGS, binding);
        control.seed(&DEPLOYMENTS, other.clone());
        for member in &fixture.members {
            member.seed(&DEPLOYMENTS, other.clone());
            let mut both = pod(0);
            if overlaps {
                both["metadata"]["labels"]["tier"] = "front".into();
            }
            member.seed(&PODS, both);
            let mut own = pod(0);
            own["metadata"] =
                json!({"name": "api-0", "namespace": "n", "labels": {"tier": "front"}});
            member.seed(&PODS, own);
        }
        fixture.use_cpu(0, "100m");
        fixture.use_cpu(1, "100m");
        fixture.autoscale_target("i", "api", 2, json!([cpu_utilization(100)]));
        fixture
            .wait_until("the other", |f| f.status("i")["conditions"].is_array())
            .await;
        fixture.pass(PERIOD).await;
        fixture.autoscale("h", 2, json!([cpu_utilization(100)]));
        fixture
            .wait_until(reason, |f| f.condition("ScalingActive")["reason"] == reason)
            .await;
    }
}
