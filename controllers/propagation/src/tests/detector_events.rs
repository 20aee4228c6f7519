//! Tests of the detector's events and metrics.

use karmada_api::resources::{CLUSTER_POLICIES, POLICIES};
use karmada_api::{FeatureGates, KarmadaFeature};
use machinery::Status;
use serde_json::{Value, json};

use super::claims::{cluster_policy, policy_named, preempting_spec};
use super::{CONFIG_MAPS, DEPLOYMENTS, EVENTS, PropagationFixture, deployment, policy, wait_until};

/// How many events of a reason a template has.
fn event_count(plane: &PropagationFixture, template: &str, reason: &str) -> u64 {
    let all = plane.control_plane.list_objects(&EVENTS).into_iter();
    let some = all
        .filter(|event| event["reason"] == reason && event["involvedObject"]["name"] == template);
    some.map(|event| event["count"].as_u64().unwrap()).sum()
}

// proves: DET-event, DET-replicas-event
#[tokio::test]
async fn a_write_records_a_success_event() {
    let plane = PropagationFixture::with_events().started().await;
    plane
        .control_plane
        .seed(&POLICIES, policy_named("p", json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    wait_until("success", || {
        event_count(&plane, "web", "ApplyPolicySucceed") == 1
    })
    .await;
    assert_eq!(
        plane.event_messages("ApplyPolicySucceed"),
        ["Apply policy(n/p) succeed"]
    );
    let replicas = || plane.event_messages("GetReplicasSucceed");
    wait_until("replicas", || !replicas().is_empty()).await;
    assert_eq!(
        replicas(),
        ["Get replicas of resource template successfully."]
    );
    // A change of the policy that does not affect the binding.
    plane.edit(&POLICIES, "p", |p| p["spec"]["priority"] = 1.into());
    let any = json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]});
    plane
        .control_plane
        .seed(&CLUSTER_POLICIES, cluster_policy("c", any));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map", "namespace": "n"}});
    plane.control_plane.seed(&CONFIG_MAPS, map);
    wait_until("another", || {
        event_count(&plane, "map", "ApplyPolicySucceed") == 1
    })
    .await;
    let events = plane.event_messages("ApplyPolicySucceed");
    assert!(events.contains(&"Apply cluster policy(c) succeed".to_owned()));
    assert_eq!(event_count(&plane, "web", "ApplyPolicySucceed"), 1);
    assert_eq!(event_count(&plane, "map", "GetReplicasSucceed"), 0);
    plane.tasks.stop().await;
}

// proves: DET-name
#[tokio::test]
async fn a_template_whose_name_is_too_long_for_a_binding_says_so() {
    let plane = PropagationFixture::with_events().started().await;
    let name = "m".repeat(250);
    let any = json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]});
    plane
        .control_plane
        .seed(&CLUSTER_POLICIES, cluster_policy("c", any));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}});
    plane.control_plane.seed(&CONFIG_MAPS, map);
    wait_until("failure", || {
        event_count(&plane, &name, "ApplyPolicyFailed") > 0
    })
    .await;
    let message = plane.event_messages("ApplyPolicyFailed").swap_remove(0);
    assert!(
        message.ends_with("(260 characters): must be no more than 253 characters"),
        "{message}"
    );
    plane.tasks.stop().await;
}

// proves: DET-failure-event
#[tokio::test]
async fn a_template_that_cannot_be_claimed_says_so() {
    let plane = PropagationFixture::with_events().started().await;
    plane.control_plane.on_call(|call| {
        let is_claim = call.verb == "patch" && call.resource == Some(&DEPLOYMENTS);
        is_claim.then(|| Status::forbidden(&DEPLOYMENTS, call.name, "it is frozen").into())
    });
    plane
        .control_plane
        .seed(&POLICIES, policy_named("p", json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    wait_until("the failure", || {
        event_count(&plane, "web", "ApplyPolicyFailed") > 0
    })
    .await;
    let failed = plane.event_messages("ApplyPolicyFailed").remove(0);
    assert!(
        failed.starts_with("Apply policy(n/p) failed: ") && failed.ends_with("it is frozen"),
        "{failed}"
    );
    plane.tasks.stop().await;
}

// proves: DET-replicas-failed
#[tokio::test]
async fn invalid_replicas_record_an_event_and_end_the_attempt() {
    let plane = PropagationFixture::with_events().started().await;
    plane
        .control_plane
        .seed(&POLICIES, policy_named("p", json!({})));
    let mut bad = deployment("web");
    bad["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "much"}});
    plane.control_plane.seed(&DEPLOYMENTS, bad);
    wait_until("both", || {
        event_count(&plane, "web", "GetReplicasFailed") > 0
            && event_count(&plane, "web", "ApplyPolicyFailed") > 0
    })
    .await;
    let message = plane.event_messages("GetReplicasFailed").remove(0);
    assert!(message.contains("\"much\""), "{message}");
    let failed = plane.event_messages("ApplyPolicyFailed").remove(0);
    assert_eq!(failed, format!("Apply policy(n/p) failed: {message}"));
    assert_eq!(plane.binding("web-deployment"), None);
    plane.tasks.stop().await;
}

/// A policy that gives its bindings the priority of a class.
fn policy_with_priority_class(source: &str) -> Value {
    policy(
        json!({"schedulePriority": {"priorityClassSource": source, "priorityClassName": "high"}}),
    )
}

// proves: DET-priority-class-gate
#[tokio::test]
async fn priority_classes_need_the_feature_gate() {
    let mut plane = PropagationFixture::new();
    let gates =
        FeatureGates::default().with_feature(KarmadaFeature::PriorityBasedScheduling, false);
    plane.start_with(gates, |_| {}).await;
    plane
        .control_plane
        .seed(&POLICIES, policy_with_priority_class("KubePriorityClass"));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    wait_until("the binding", || plane.binding("web-deployment").is_some()).await;
    let binding = plane.binding("web-deployment").unwrap();
    assert_eq!(binding["spec"].get("schedulePriority"), None);
    plane.tasks.stop().await;
}

// proves: DET-priority-class-source
#[tokio::test]
async fn other_priority_class_sources_are_rejected() {
    let plane = PropagationFixture::with_events().started().await;
    plane
        .control_plane
        .seed(&POLICIES, policy_with_priority_class("PodPriorityClass"));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    wait_until("the refusal", || {
        event_count(&plane, "web", "ApplyPolicyFailed") > 0
    })
    .await;
    assert_eq!(
        plane.event_messages("ApplyPolicyFailed"),
        [
            "Apply policy(n/p) failed: priority class source is PodPriorityClass, but PodPriorityClass is not supported yet"
        ]
    );
    assert_eq!(plane.binding("web-deployment"), None);
    plane.tasks.stop().await;
}

/// The number of preemptions with a result in this process.
fn preemption_count(result: &str) -> u64 {
    let all = flotilla_metrics::encode_text(&[flotilla_metrics::process_registry()]);
    let all = String::from_utf8(all).unwrap();
    let name = format!("policy_preemption_total{{result=\"{result}\"}} ");
    let line = all.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap().parse().unwrap()
}

// proves: DET-preempt-failed, DET-preempt-counted
#[tokio::test]
async fn preemptions_record_events_and_metrics() {
    let plane = PropagationFixture::with_events()
        .started_with_gates(&[KarmadaFeature::PropagationPolicyPreemption])
        .await;
    plane
        .control_plane
        .seed(&POLICIES, policy_named("low", json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane.wait_until_claimed("web", "low").await;
    let (failed, succeeded) = (preemption_count("error"), preemption_count("success"));
    plane.control_plane.on_call(|call| {
        let claims = call.verb == "patch" && call.resource == Some(&DEPLOYMENTS);
        claims.then(|| Status::internal("no room").into())
    });
    let high = policy_named("high", preempting_spec(1, &["m1"]));
    plane.control_plane.seed(&POLICIES, high);
    wait_until("the failure", || {
        !plane.event_messages("PreemptPolicyFailed").is_empty()
    })
    .await;
    let event = plane.event_messages("PreemptPolicyFailed").remove(0);
    let expected = "Propagation policy(n/high) failed to preempt propagation policy(n/low): ";
    assert!(
        event.starts_with(expected) && event.contains("no room"),
        "{event}"
    );
    assert!(preemption_count("error") > failed);
    plane.control_plane.on_call(|_| None);
    plane.wait_until_claimed("web", "high").await;
    wait_until("the success", || {
        plane.event_messages("PreemptPolicySucceed")
            == ["Propagation policy(n/high) preempted propagation policy(n/low) successfully"]
    })
    .await;
    assert!(preemption_count("success") > succeeded);
    plane.tasks.stop().await;
}
