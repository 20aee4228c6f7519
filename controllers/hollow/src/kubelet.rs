//! Decides which status a pod gets next, and builds pod statuses. Pure.

use jiff::Timestamp;
use machinery::time::rfc3339_seconds;
use serde_json::{Value, json};

use crate::pods::{BROKEN_IMAGES, Container, PodView};

/// The next transition of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Gets a node.
    Place,
    /// Starts to run once its delay has passed.
    Start,
    /// Succeeds: a running pod of a Job.
    Finish,
    /// Its image cannot be pulled; reported once.
    Fail,
    /// Its deletion is confirmed: a server with graceful deletion waits for the kubelet.
    End,
    Nothing,
}

/// The next transition of a pod.
pub(crate) fn next(pod: &PodView, of_job: bool) -> Next {
    if pod.deleting() && pod.metadata.deletion_grace_period_seconds > 0 {
        return Next::End;
    }
    if pod.finished() || pod.deleting() {
        return Next::Nothing;
    }
    if pod.spec.node_name.is_empty() {
        return Next::Place;
    }
    match (pod.status.phase.as_str(), pod.broken()) {
        ("Running", _)
            if of_job
                || pod.spec.restart_policy == "Never"
                || pod.spec.restart_policy == "OnFailure" =>
        {
            Next::Finish
        }
        ("Running", _) => Next::Nothing,
        (_, true) if pod.status.told() => Next::Nothing,
        (_, true) => Next::Fail,
        _ => Next::Start,
    }
}

fn condition(kind: &str, yes: bool, reason: &str, time: &str) -> Value {
    let mut condition = json!({"type": kind, "status": if yes { "True" } else { "False" }, "lastProbeTime": null, "lastTransitionTime": time});
    if !reason.is_empty() {
        condition["reason"] = reason.into();
    }
    condition
}

fn container(container: &Container, state: Value, ready: bool) -> Value {
    json!({"name": container.name, "image": container.image, "imageID": "", "restartCount": 0,
           "ready": ready, "started": ready, "state": state, "lastState": {}})
}

fn status(phase: &str, conditions: Vec<Value>, containers: Vec<Value>, time: &str) -> Value {
    json!({"phase": phase, "conditions": conditions, "containerStatuses": containers, "hostIP": "127.0.0.1",
           "startTime": time, "qosClass": "BestEffort"})
}

/// The status of a running and ready pod.
pub(crate) fn running(pod: &PodView, ip: &str, now: Timestamp) -> Value {
    let time = rfc3339_seconds(now);
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let conditions = conditions
        .iter()
        .map(|c| condition(c, true, "", &time))
        .collect();
    let state = json!({"running": {"startedAt": time}});
    let containers = pod
        .spec
        .containers
        .iter()
        .map(|c| container(c, state.clone(), true))
        .collect();
    let mut status = status("Running", conditions, containers, &time);
    status["podIP"] = ip.into();
    status["podIPs"] = json!([{"ip": ip}]);
    status
}

/// The status of a pod that has succeeded.
pub(crate) fn succeeded(pod: &PodView, now: Timestamp) -> Value {
    let time = rfc3339_seconds(now);
    let conditions = vec![
        condition("Initialized", true, "PodCompleted", &time),
        condition("Ready", false, "PodCompleted", &time),
        condition("ContainersReady", false, "PodCompleted", &time),
        condition("PodScheduled", true, "", &time),
    ];
    let state = json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": time, "finishedAt": time}});
    let containers = pod
        .spec
        .containers
        .iter()
        .map(|c| container(c, state.clone(), false))
        .collect();
    status("Succeeded", conditions, containers, &time)
}

/// The status of a pod whose image cannot be pulled.
pub(crate) fn broken(pod: &PodView, now: Timestamp) -> Value {
    let time = rfc3339_seconds(now);
    let conditions = vec![
        condition("Initialized", true, "", &time),
        condition("Ready", false, "ContainersNotReady", &time),
        condition("ContainersReady", false, "ContainersNotReady", &time),
        condition("PodScheduled", true, "", &time),
    ];
    let containers = pod.spec.containers.iter().map(|c| {
        let reason = if c.image.starts_with(BROKEN_IMAGES) {
            "ImagePullBackOff"
        } else {
            "ContainerCreating"
        };
        container(c, json!({"waiting": {"reason": reason}}), false)
    });
    status("Pending", conditions, containers.collect(), &time)
}

/// The status of a pod that fits on no node.
pub(crate) fn unschedulable(now: Timestamp) -> Value {
    let mut scheduled = condition(
        "PodScheduled",
        false,
        "Unschedulable",
        &rfc3339_seconds(now),
    );
    scheduled["message"] = "no node has room for the pod".into();
    json!({"phase": "Pending", "conditions": [scheduled]})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: Value, status: Value, of_job: bool, expected: Next) {
        let pod: PodView = serde_json::from_value(
            json!({"metadata": {"name": "p"}, "spec": spec, "status": status}),
        )
        .unwrap();
        assert_eq!(next(&pod, of_job), expected, "{pod:?}");
    }

    #[test]
    fn a_pod_is_assigned_started_and_then_unchanged() {
        check(json!({}), json!({"phase": "Pending"}), false, Next::Place);
        check(
            json!({"nodeName": "n"}),
            json!({"phase": "Pending"}),
            false,
            Next::Start,
        );
        check(
            json!({"nodeName": "n"}),
            json!({"phase": "Running"}),
            false,
            Next::Nothing,
        );
        check(
            json!({"nodeName": "n"}),
            json!({"phase": "Running"}),
            true,
            Next::Finish,
        );
        check(
            json!({"nodeName": "n"}),
            json!({"phase": "Succeeded"}),
            true,
            Next::Nothing,
        );
    }

    #[test]
    fn a_fake_image_never_becomes_ready_and_is_reported_once() {
        let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "fake/x"}]});
        check(spec.clone(), json!({"phase": "Pending"}), false, Next::Fail);
        let pod: PodView = serde_json::from_value(json!({"spec": spec})).unwrap();
        check(
            spec,
            broken(&pod, Timestamp::UNIX_EPOCH),
            false,
            Next::Nothing,
        );
    }
}
