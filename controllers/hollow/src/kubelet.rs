//! Decides which status a pod gets next, and builds pod statuses. Pure.

use jiff::Timestamp;
use machinery::time::rfc3339_seconds;
use serde_json::{Value, json};

use crate::pods::{BROKEN_IMAGE_PREFIX, HollowContainerFields, HollowPodFields};

/// The next transition of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodTransition {
    /// Gets a node.
    AssignNode,
    /// Starts to run once its delay has passed.
    Start,
    /// Succeeds: a running pod of a Job.
    Finish,
    /// Its image cannot be pulled; reported once.
    ReportImageFailure,
    /// Its deletion is confirmed: a server with graceful deletion waits for the kubelet.
    ConfirmDeletion,
    Nothing,
}

/// The next transition of a pod.
pub(crate) fn next_transition(pod: &HollowPodFields, of_job: bool) -> PodTransition {
    if pod.is_deleting() && pod.metadata.deletion_grace_period_seconds > 0 {
        return PodTransition::ConfirmDeletion;
    }
    if pod.is_finished() || pod.is_deleting() {
        return PodTransition::Nothing;
    }
    if pod.spec.node_name.is_empty() {
        return PodTransition::AssignNode;
    }
    match (pod.status.phase.as_str(), pod.has_broken_image()) {
        ("Running", _)
            if of_job
                || pod.spec.restart_policy == "Never"
                || pod.spec.restart_policy == "OnFailure" =>
        {
            PodTransition::Finish
        }
        ("Running", _) => PodTransition::Nothing,
        (_, true) if pod.status.has_conditions() => PodTransition::Nothing,
        (_, true) => PodTransition::ReportImageFailure,
        _ => PodTransition::Start,
    }
}

fn condition(kind: &str, yes: bool, reason: &str, time: &str) -> Value {
    let mut condition = json!({"type": kind, "status": if yes { "True" } else { "False" }, "lastProbeTime": null, "lastTransitionTime": time});
    if !reason.is_empty() {
        condition["reason"] = reason.into();
    }
    condition
}

fn container_status(container: &HollowContainerFields, state: Value, ready: bool) -> Value {
    json!({"name": container.name, "image": container.image, "imageID": "", "restartCount": 0,
           "ready": ready, "started": ready, "state": state, "lastState": {}})
}

fn pod_status(phase: &str, conditions: Vec<Value>, containers: Vec<Value>, time: &str) -> Value {
    json!({"phase": phase, "conditions": conditions, "containerStatuses": containers, "hostIP": "127.0.0.1",
           "startTime": time, "qosClass": "BestEffort"})
}

/// The status of a running and ready pod.
pub(crate) fn running_status(pod: &HollowPodFields, ip: &str, now: Timestamp) -> Value {
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
        .map(|c| container_status(c, state.clone(), true))
        .collect();
    let mut status = pod_status("Running", conditions, containers, &time);
    status["podIP"] = ip.into();
    status["podIPs"] = json!([{"ip": ip}]);
    status
}

/// The status of a pod that has succeeded.
pub(crate) fn succeeded_status(pod: &HollowPodFields, now: Timestamp) -> Value {
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
        .map(|c| container_status(c, state.clone(), false))
        .collect();
    pod_status("Succeeded", conditions, containers, &time)
}

/// The status of a pod whose image cannot be pulled.
pub(crate) fn image_failure_status(pod: &HollowPodFields, now: Timestamp) -> Value {
    let time = rfc3339_seconds(now);
    let conditions = vec![
        condition("Initialized", true, "", &time),
        condition("Ready", false, "ContainersNotReady", &time),
        condition("ContainersReady", false, "ContainersNotReady", &time),
        condition("PodScheduled", true, "", &time),
    ];
    let containers = pod.spec.containers.iter().map(|c| {
        let reason = if c.image.starts_with(BROKEN_IMAGE_PREFIX) {
            "ImagePullBackOff"
        } else {
            "ContainerCreating"
        };
        container_status(c, json!({"waiting": {"reason": reason}}), false)
    });
    pod_status("Pending", conditions, containers.collect(), &time)
}

/// The status of a pod that fits on no node.
pub(crate) fn unschedulable_status(now: Timestamp) -> Value {
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

    fn check(spec: Value, status: Value, of_job: bool, expected: PodTransition) {
        let pod: HollowPodFields = serde_json::from_value(
            json!({"metadata": {"name": "p"}, "spec": spec, "status": status}),
        )
        .unwrap();
        assert_eq!(next_transition(&pod, of_job), expected, "{pod:?}");
    }

    #[test]
    fn a_pod_is_assigned_started_and_then_unchanged() {
        check(
            json!({}),
            json!({"phase": "Pending"}),
            false,
            PodTransition::AssignNode,
        );
        check(
            json!({"nodeName": "n"}),
            json!({"phase": "Pending"}),
            false,
            PodTransition::Start,
        );
        check(
            json!({"nodeName": "n"}),
            json!({"phase": "Running"}),
            false,
            PodTransition::Nothing,
        );
        check(
            json!({"nodeName": "n"}),
            json!({"phase": "Running"}),
            true,
            PodTransition::Finish,
        );
        check(
            json!({"nodeName": "n"}),
            json!({"phase": "Succeeded"}),
            true,
            PodTransition::Nothing,
        );
    }

    #[test]
    fn a_fake_image_never_becomes_ready_and_is_reported_once() {
        let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "fake/x"}]});
        check(
            spec.clone(),
            json!({"phase": "Pending"}),
            false,
            PodTransition::ReportImageFailure,
        );
        let pod: HollowPodFields = serde_json::from_value(json!({"spec": spec})).unwrap();
        check(
            spec,
            image_failure_status(&pod, Timestamp::UNIX_EPOCH),
            false,
            PodTransition::Nothing,
        );
    }
}
