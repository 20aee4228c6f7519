//! Tests of batch.volcano.sh.

use super::*;

const JOB: &str = "batch.volcano.sh/v1alpha1 Job";

fn phase(phase: &str) -> Value {
    json!({"state": {"phase": phase}})
}

// proves: CRD-volcano
#[test]
fn a_job_is_healthy_unless_it_failed() {
    check_health_by_status(
        JOB,
        &[
            (phase("Running"), Some(true)),
            (phase("Pending"), Some(true)),
            (phase("Completed"), Some(true)),
            (phase("Aborted"), Some(true)),
            (phase("Failed"), Some(false)),
            (phase("Odd"), Some(false)),
            (phase(""), Some(false)),
            (json!({}), Some(false)),
        ],
    );
}

// proves: CRD-volcano
#[test]
fn tasks_are_its_components() {
    let spec = json!({"tasks": [
        {"name": "master", "replicas": 3, "template": pod_template("1")},
        {"minAvailable": 2, "replicas": 3, "template": {"spec": {}}},
        {"name": "", "minAvailable": "4", "template": pod_template("100m")},
    ]});
    assert_eq!(
        components(JOB, &namespaced_object(spec)),
        [
            component_tuple("master", 1, cpu_request("1")),
            component_tuple("task-1", 2, Value::Null),
            component_tuple("task-2", 4, cpu_request("100m"))
        ]
    );
    assert!(components(JOB, &namespaced_object(json!({}))).is_empty());
    let bare = namespaced_object(json!({"tasks": [{"name": "a"}]}));
    assert!(ThirdPartyInterpreter.components(&gvk(JOB), &bare).is_err());
}

// proves: CRD-volcano-status
#[test]
fn non_empty_fields_are_reflected() {
    let status = json!({"running": 1, "failed": 0, "conditions": [], "state": {"phase": "Running"}, "taskStatusCount": {"a": {"phase": {"Running": 1}}}, "odd": 1});
    let expected = json!({"running": 1, "failed": 0, "state": {"phase": "Running"}, "taskStatusCount": {"a": {"phase": {"Running": 1}}}});
    assert_eq!(reflected(JOB, &json!({ "status": status })), expected);
}

fn finished_status(status: &str, at: &str) -> Value {
    json!({"status": status, "lastTransitionTime": at})
}

// proves: CRD-volcano-status
#[test]
fn counters_add_up_and_the_longest_duration_wins() {
    let one = json!({"minAvailable": 1, "running": 2, "pending": 0, "version": 3, "runningDuration": "1m40s",
        "taskStatusCount": {"a": {"phase": {"Running": 2}}}, "controlledResources": {"p": "x", "q": "y"},
        "conditions": [finished_status("Pending", "1"), finished_status("Running", "3")], "odd": 1});
    let other = json!({"minAvailable": 1, "running": 1, "version": 2, "runningDuration": "99s", "retryCount": 1,
        "taskStatusCount": {"a": {"phase": {"Running": 1, "Failed": 0}}, "b": {"phase": {"Pending": 1}}, "c": {}},
        "controlledResources": {"p": "z"}, "conditions": [finished_status("Running", "2"), finished_status("Pending", "2")]});
    assert_eq!(
        status_of(JOB, &[one, Value::Null, other]),
        json!({"minAvailable": 2, "running": 3, "version": 3, "retryCount": 1, "runningDuration": "1m40s",
               "taskStatusCount": {"a": {"phase": {"Running": 3}}, "b": {"phase": {"Pending": 1}}},
               "controlledResources": {"p": "z", "q": "y"},
               "conditions": [finished_status("Pending", "2"), finished_status("Running", "3")]})
    );
}

// proves: CRD-volcano-status
#[test]
fn durations() {
    for (durations, longest) in [
        (["1h", "59m59s"], json!("1h")),
        (["1.5s", "1s"], json!("1.5s")),
        (["100ms", "2s"], json!("100ms")),
        (["5", "4s"], json!("5")),
        (["0s", "never"], Value::Null),
        (["60s", "1m"], json!("60s")),
    ] {
        let status = status_of(
            JOB,
            &durations.map(|d| json!({"runningDuration": d, "running": 1})),
        );
        assert_eq!(
            status.get("runningDuration").cloned().unwrap_or_default(),
            longest,
            "{durations:?}"
        );
    }
}

// proves: CRD-volcano-end
#[test]
fn a_job_ends_everywhere_or_fails_somewhere() {
    let state = |all: &[Value]| {
        status_of(JOB, all)
            .get("state")
            .cloned()
            .unwrap_or_default()
    };
    let completed = phase("Completed");
    assert_eq!(
        state(&[completed.clone(), completed.clone()]),
        json!({"phase": "Completed", "reason": "Completed", "message": "Job completed successfully", "lastTransitionTime": NOW})
    );
    assert_eq!(state(&[completed.clone(), Value::Null]), Value::Null);
    assert_eq!(state(&[completed.clone(), phase("Running")]), Value::Null);
    assert_eq!(
        state(&[phase("Failed"), completed, phase("Aborted")]),
        json!({"phase": "Failed", "reason": "VolcanoJobFailed", "message": "Job failed in clusters: a,c", "lastTransitionTime": NOW})
    );
    let wrong = json!([
        finished_status("Running", "1"),
        finished_status("Terminating", "2")
    ]);
    let status = status_of(
        JOB,
        &[
            json!({"conditions": [finished_status("Running", "9")]}),
            json!({ "conditions": wrong }),
        ],
    );
    assert_eq!(status, json!({ "conditions": wrong }));
    assert_eq!(status_of(JOB, &[]), Value::Null);
    let timeless = json!({"conditions": [{"status": "Running"}, {"status": "Running"}]});
    assert!(aggregated(JOB, &json!({}), &[timeless, Value::Null]).is_err());
}
