//! Tests of the detector's events and metrics.

use machinery::Status;
use openapi::karmada::resources::{CLUSTER_POLICIES, POLICIES};
use openapi::karmada::{FeatureGates, Gate};
use serde_json::{Value, json};

use super::claims::{named, of_cluster, preempting};
use super::{CONFIG_MAPS, DEPLOYMENTS, EVENTS, Options, Plane, deployment, policy, until};

/// How many events of a reason a template has.
fn times(plane: &Plane, template: &str, reason: &str) -> u64 {
    let all = plane.control.objects(&EVENTS).into_iter();
    let some = all
        .filter(|event| event["reason"] == reason && event["involvedObject"]["name"] == template);
    some.map(|event| event["count"].as_u64().unwrap()).sum()
}

// proves: DET-told, DET-told-replicas
#[tokio::test]
async fn a_write_records_a_success_event() {
    let plane = Plane::telling_events().started().await;
    plane.control.seed(&POLICIES, named("p", json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    until("success", || {
        times(&plane, "web", "ApplyPolicySucceed") == 1
    })
    .await;
    assert_eq!(
        plane.told("ApplyPolicySucceed"),
        ["Apply policy(n/p) succeed"]
    );
    let replicas = || plane.told("GetReplicasSucceed");
    until("replicas", || !replicas().is_empty()).await;
    assert_eq!(
        replicas(),
        ["Get replicas of resource template successfully."]
    );
    // A change of the policy that does not affect the binding.
    plane.change(&POLICIES, "p", |p| p["spec"]["priority"] = 1.into());
    let any = json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]});
    plane.control.seed(&CLUSTER_POLICIES, of_cluster("c", any));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map", "namespace": "n"}});
    plane.control.seed(&CONFIG_MAPS, map);
    until("another", || {
        times(&plane, "map", "ApplyPolicySucceed") == 1
    })
    .await;
    let events = plane.told("ApplyPolicySucceed");
    assert!(events.contains(&"Apply cluster policy(c) succeed".to_owned()));
    assert_eq!(times(&plane, "web", "ApplyPolicySucceed"), 1);
    assert_eq!(times(&plane, "map", "GetReplicasSucceed"), 0);
    plane.tasks.stop().await;
}

// proves: DET-replicas-failed
#[tokio::test]
async fn invalid_replicas_record_an_event_and_end_the_attempt() {
    let plane = Plane::telling_events().started().await;
    plane.control.seed(&POLICIES, named("p", json!({})));
    let mut bad = deployment("web");
    bad["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "much"}});
    plane.control.seed(&DEPLOYMENTS, bad);
    until("both", || {
        times(&plane, "web", "GetReplicasFailed") > 0
            && times(&plane, "web", "ApplyPolicyFailed") > 0
    })
    .await;
    let why = plane.told("GetReplicasFailed").remove(0);
    assert!(why.contains("\"much\""), "{why}");
    let failed = plane.told("ApplyPolicyFailed").remove(0);
    assert_eq!(failed, format!("Apply policy(n/p) failed: {why}"));
    assert_eq!(plane.binding("web-deployment"), None);
    plane.tasks.stop().await;
}

/// A policy that gives its bindings the priority of a class.
fn of_class(source: &str) -> Value {
    policy(
        json!({"schedulePriority": {"priorityClassSource": source, "priorityClassName": "high"}}),
    )
}

// proves: DET-priority-class-gate
#[tokio::test]
async fn priority_classes_need_the_feature_gate() {
    let mut plane = Plane::new();
    let gates = FeatureGates::default().with(Gate::PriorityBasedScheduling, false);
    let options = Options {
        gates,
        ..Options::default()
    };
    plane.start_with(options, None).await;
    plane.control.seed(&POLICIES, of_class("KubePriorityClass"));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    until("the binding", || plane.binding("web-deployment").is_some()).await;
    let binding = plane.binding("web-deployment").unwrap();
    assert_eq!(binding["spec"].get("schedulePriority"), None);
    plane.tasks.stop().await;
}

// proves: DET-priority-class-source
#[tokio::test]
async fn other_priority_class_sources_are_rejected() {
    let plane = Plane::telling_events().started().await;
    plane.control.seed(&POLICIES, of_class("PodPriorityClass"));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    until("the refusal", || {
        times(&plane, "web", "ApplyPolicyFailed") > 0
    })
    .await;
    assert_eq!(
        plane.told("ApplyPolicyFailed"),
        [
            "Apply policy(n/p) failed: priority class source is PodPriorityClass, but PodPriorityClass is not supported yet"
        ]
    );
    assert_eq!(plane.binding("web-deployment"), None);
    plane.tasks.stop().await;
}

/// The number of preemptions with a result in this process.
fn preemptions(result: &str) -> u64 {
    let all = flotilla_metrics::text(&[flotilla_metrics::process()]);
    let all = String::from_utf8(all).unwrap();
    let name = format!("policy_preemption_total{{result=\"{result}\"}} ");
    let line = all.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap().parse().unwrap()
}

// proves: DET-preempt-failed, DET-preempt-counted
#[tokio::test]
async fn preemptions_record_events_and_metrics() {
    let plane = Plane::telling_events()
        .started_with(&[Gate::PropagationPolicyPreemption])
        .await;
    plane.control.seed(&POLICIES, named("low", json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    plane.belongs_to("web", "low").await;
    let (failed, succeeded) = (preemptions("error"), preemptions("success"));
    plane.control.on_call(|call| {
        let claims = call.verb == "patch" && call.resource == Some(&DEPLOYMENTS);
        claims.then(|| Status::internal("no room").into())
    });
    let high = named("high", preempting(1, &["m1"]));
    plane.control.seed(&POLICIES, high);
    until("the failure", || {
        !plane.told("PreemptPolicyFailed").is_empty()
    })
    .await;
    let event = plane.told("PreemptPolicyFailed").remove(0);
    let expected = "Propagation policy(n/high) failed to preempt propagation policy(n/low): ";
    assert!(
        event.starts_with(expected) && event.contains("no room"),
        "{event}"
    );
    assert!(preemptions("error") > failed);
    plane.control.on_call(|_| None);
    plane.belongs_to("web", "high").await;
    until("the success", || {
        plane.told("PreemptPolicySucceed")
            == ["Propagation policy(n/high) preempted propagation policy(n/low) successfully"]
    })
    .await;
    assert!(preemptions("success") > succeeded);
    plane.tasks.stop().await;
}
