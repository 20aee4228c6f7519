//! Tests of where the scale of a target comes from.

use client::Error;
use machinery::{Gvr, Object, Status};
use serde_json::{Value, json};

use super::{HpaFixture, cpu_utilization};
use crate::federated_hpa::target_scale::{TargetScale, scale_of_workload};

fn scale(resource: &Gvr, spec: &Value) -> Option<TargetScale> {
    let object = json!({"metadata": {"name": "web", "namespace": "n"}, "spec": spec,
        "status": {"replicas": 2}});
    scale_of_workload(resource, &Object::from_value(&object).unwrap())
}

// proves: FHP-utilization
#[test]
fn workloads_of_kubernetes_are_their_own_scale() {
    let expression = json!({"key": "tier", "operator": "In", "values": ["b", "a"]});
    let cases = [
        (
            json!({"replicas": 3, "selector": {"matchLabels": {"b": "2", "a": "1"}}}),
            (3, "a=1,b=2"),
        ),
        (
            json!({"replicas": 0, "selector": {"matchExpressions": [expression]}}),
            (0, "tier in (a,b)"),
        ),
        (json!({"selector": {"matchLabels": {"a": "1"}}}), (1, "a=1")),
        (json!({"replicas": 3}), (3, "")),
    ];
    for (spec, (spec_replicas, selector)) in cases {
        for resource in ["deployments", "statefulsets", "replicasets"] {
            let actual = scale(&Gvr::from_static("apps", "v1", resource), &spec);
            let expected = TargetScale {
                spec_replicas,
                status_replicas: 2,
                selector: selector.into(),
            };
            assert_eq!(actual, Some(expected), "{resource} {spec}");
        }
        for (group, resource) in [("apps", "daemonsets"), ("argoproj.io", "deployments")] {
            assert_eq!(scale(&Gvr::from_static(group, "v1", resource), &spec), None);
        }
    }
}

// proves: FHP-utilization
#[tokio::test(start_paused = true)]
async fn a_target_that_is_watched_is_not_asked_for_its_scale() {
    let fixture = HpaFixture::start(&[2, 1]).await;
    fixture.use_cpu(0, "80m");
    fixture.use_cpu(1, "80m");
    fixture.watch_targets().await;
    for member in &fixture.members {
        member.on_call(|call| {
            let fails = call.subresource == "scale";
            fails.then(|| Error::from(Status::failure(500, "InternalError", "scale")))
        });
    }
    fixture.autoscale("h", 10, json!([cpu_utilization(40)]));
    fixture
        .wait_until("6 replicas", |fixture| fixture.replicas() == 6)
        .await;
}

// proves: FHP-errors
#[tokio::test(start_paused = true)]
async fn a_watched_member_that_is_unreachable_does_not_count() {
    let fixture = HpaFixture::start(&[2, 1]).await;
    fixture.use_cpu(0, "80m");
    fixture.use_cpu(1, "80m");
    fixture.watch_targets().await;
    for member in &fixture.members {
        member.on_call(|_| {
            Some(Error::Transport {
                host: "member".into(),
                message: "connection refused".into(),
            })
        });
    }
    fixture.autoscale("h", 10, json!([cpu_utilization(40)]));
    fixture
        .wait_until("a condition", |fixture| {
            fixture.condition("AbleToScale")["reason"] == "FailedGetScale"
        })
        .await;
    assert_eq!(fixture.replicas(), 3);
}
