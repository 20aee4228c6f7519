//! Tests of kubeflow.org.

use super::*;

const NOTEBOOK: &str = "kubeflow.org/v1 Notebook";
const PYTORCH: &str = "kubeflow.org/v1 PyTorchJob";
const TF: &str = "kubeflow.org/v1 TFJob";
const MPI: &str = "kubeflow.org/v2beta1 MPIJob";

fn notebook_in_state(state: Value) -> Value {
    json!({"containerState": state, "readyReplicas": 1})
}

fn running(started: &str) -> Value {
    notebook_in_state(json!({"running": {"startedAt": started}}))
}

fn waiting(reason: &str) -> Value {
    notebook_in_state(json!({"waiting": {"reason": reason}}))
}

// proves: CRD-notebook
#[test]
fn a_notebook_is_as_healthy_as_its_container() {
    let ended = |reason: &str, code: i64| {
        notebook_in_state(json!({"terminated": {"reason": reason, "exitCode": code}}))
    };
    check_health_by_status(
        NOTEBOOK,
        &[
            (running("t"), Some(true)),
            (waiting("ContainerCreating"), Some(true)),
            (waiting("CrashLoopBackOff"), Some(false)),
            (ended("Completed", 0), Some(true)),
            (ended("Completed", 1), Some(false)),
            (ended("OOMKilled", 0), Some(false)),
            (notebook_in_state(json!({})), Some(false)),
            (json!({}), Some(false)),
        ],
    );
    let notebook = namespaced_object(json!({"template": pod_template("1")}));
    let actual = ThirdPartyInterpreter
        .replicas(&gvk(NOTEBOOK), &notebook)
        .unwrap()
        .unwrap();
    assert_eq!(
        (actual.count, actual.requirements),
        (1, Some(cpu_request("1")))
    );
    assert!(
        ThirdPartyInterpreter
            .replicas(&gvk(NOTEBOOK), &namespaced_object(json!({})))
            .is_err()
    );
    let copy =
        json!({"status": {"conditions": [{"type": "Running"}], "containerState": {}, "odd": 1}});
    assert_eq!(
        reflected(NOTEBOOK, &copy),
        json!({"readyReplicas": 0, "conditions": [{"type": "Running"}]})
    );
}

// proves: CRD-notebook
#[test]
fn notebooks_run_everywhere_or_fail_somewhere() {
    let conditions = |kind: &str, reason: &str, message: &str| {
        let mut condition = condition(kind, "True", reason, message);
        condition["lastProbeTime"] = NOW.into();
        condition["lastTransitionTime"] = NOW.into();
        json!([condition])
    };
    assert_eq!(
        status_of(NOTEBOOK, &[running("2"), running("3"), running("1")]),
        json!({"readyReplicas": 3, "containerState": {"running": {"startedAt": "3"}}, "conditions": conditions("Ready", "Ready", "All notebooks are ready")})
    );
    assert_eq!(
        status_of(NOTEBOOK, &[running("2"), Value::Null]),
        json!({"readyReplicas": 1, "containerState": {"running": {"startedAt": "2"}}})
    );
    let failed = |clusters: &str| {
        conditions(
            "Failed",
            "NotebookFailed",
            &format!("Notebook executed failed in member clusters: {clusters}"),
        )
    };
    assert_eq!(
        status_of(
            NOTEBOOK,
            &[waiting("ContainerCreating"), running("9"), json!({})]
        ),
        json!({"readyReplicas": 2, "containerState": {"waiting": {"reason": "Unschedulable"}}, "conditions": failed("a, c")})
    );
    assert_eq!(
        status_of(
            NOTEBOOK,
            &[json!({"containerState": {}}), waiting("W"), running("9")]
        ),
        json!({"readyReplicas": 2, "containerState": {"waiting": {"reason": "W"}}, "conditions": failed("a, b")})
    );
    assert_eq!(status_of(NOTEBOOK, &[]), json!({"readyReplicas": 0}));
}

fn condition_at(kind: &str, status: &str, time: &str) -> Value {
    json!({"type": kind, "status": status, "lastUpdateTime": time, "lastTransitionTime": time})
}

// proves: CRD-training-health
#[test]
fn training_is_healthy_unless_it_failed() {
    let with = |all: &[Value]| json!({ "conditions": all });
    for kind in [PYTORCH, TF, MPI] {
        check_health_by_status(
            kind,
            &[
                (
                    with(&[
                        condition_at("Created", "True", ""),
                        condition_at("Running", "True", ""),
                    ]),
                    Some(true),
                ),
                (with(&[condition_at("Succeeded", "True", "")]), Some(true)),
                (with(&[condition_at("Created", "True", "")]), Some(true)),
                (with(&[condition_at("Failed", "False", "")]), Some(true)),
                (
                    with(&[
                        condition_at("Running", "False", ""),
                        condition_at("Failed", "True", ""),
                    ]),
                    Some(false),
                ),
                (with(&[]), Some(kind != MPI)),
                (json!({}), Some(false)),
            ],
        );
    }
}

// proves: CRD-training-components
#[test]
fn replica_types_are_components() {
    let role =
        |replicas: Value, cpu: &str| json!({"replicas": replicas, "template": pod_template(cpu)});
    let torch = namespaced_object(
        json!({"pytorchReplicaSpecs": {"Worker": role(json!(3), "2"), "Master": role(Value::Null, "1"), "Other": role(json!(1), "1")}}),
    );
    assert_eq!(
        components(PYTORCH, &torch),
        [
            component_tuple("master", 1, cpu_request("1")),
            component_tuple("worker", 3, cpu_request("2"))
        ]
    );
    let tf = namespaced_object(
        json!({"tfReplicaSpecs": {"Evaluator": {"replicas": "2"}, "PS": role(json!(1), "1"), "Chief": role(json!(1), "3")}}),
    );
    assert_eq!(
        components(TF, &tf),
        [
            component_tuple("ps", 1, cpu_request("1")),
            component_tuple("chief", 1, cpu_request("3")),
            component_tuple("evaluator", 2, Value::Null)
        ]
    );
    let mpi = namespaced_object(
        json!({"mpiReplicaSpecs": {"Worker": role(Value::Null, "2"), "Launcher": role(Value::Null, "1"), "Bare": {}}}),
    );
    assert_eq!(
        components(MPI, &mpi),
        [
            component_tuple("Launcher", 1, cpu_request("1")),
            component_tuple("Worker", 0, cpu_request("2"))
        ]
    );
    for kind in [PYTORCH, TF, MPI] {
        assert!(components(kind, &namespaced_object(json!({}))).is_empty());
    }
    let half = namespaced_object(json!({"pytorchReplicaSpecs": {"Master": {"replicas": 1.5}}}));
    assert!(
        ThirdPartyInterpreter
            .components(&gvk(PYTORCH), &half)
            .is_err()
    );
}

// proves: CRD-training-deps
#[test]
fn dependencies_of_replica_types() {
    let role = |template: Value| json!({ "template": template });
    for (kind, field, one, other) in [
        (PYTORCH, "pytorchReplicaSpecs", "Master", "Worker"),
        (TF, "tfReplicaSpecs", "PS", "Evaluator"),
    ] {
        let job = namespaced_object(
            json!({field: {one: role(template_with_dependencies()), other: role(template_with_dependencies()), "Odd": role(pod_template("1"))}}),
        );
        assert_eq!(dependencies(kind, &job), template_dependencies());
        let job = namespaced_object(
            json!({field: {other: {"replicas": 1}, one: role(json!({"spec": {"serviceAccountName": "robot"}}))}}),
        );
        assert_eq!(
            dependencies(kind, &job).unwrap(),
            ["ServiceAccount n/robot"]
        );
        assert_eq!(
            dependencies(kind, &namespaced_object(json!({}))),
            Some(Vec::new())
        );
    }
}

fn finished_condition(end: &str, from: &str, to: &str) -> Value {
    json!({"startTime": from, "completionTime": to, "lastReconcileTime": to,
           "replicaStatuses": {"Worker": {"succeeded": 1, "active": 0, "failed": null}, "Master": {"active": 2}},
           "conditions": [condition_at("Created", "True", from), condition_at("Running", "False", from), condition_at(end, "True", to)]})
}

// proves: CRD-training-status
#[test]
fn tf_jobs_end_everywhere_or_fail_somewhere() {
    let conditions = |kind: &str, reason: &str, message: &str| json!([{"type": kind, "status": "True", "reason": reason, "message": message, "lastProbeTime": NOW, "lastTransitionTime": NOW}]);
    let status = status_of(
        TF,
        &[
            finished_condition("Succeeded", "2", "8"),
            finished_condition("Succeeded", "1", "9"),
        ],
    );
    assert_eq!(
        status,
        json!({"startTime": "1", "completionTime": "9", "lastReconcileTime": "9", "replicaStatuses": {"Worker": {"succeeded": 2}, "Master": {"active": 4}},
               "conditions": conditions("Succeeded", "Completed", "TFJob completed successfully")})
    );
    let status = status_of(
        TF,
        &[
            finished_condition("Failed", "2", "8"),
            Value::Null,
            finished_condition("Failed", "1", "9"),
        ],
    );
    assert_eq!(
        status["conditions"],
        conditions(
            "Failed",
            "TFJobFailed",
            "TFJob executed failed in member clusters: a, c"
        )
    );
    assert_eq!(status.get("completionTime"), None);
    let status = status_of(
        TF,
        &[finished_condition("Succeeded", "2", "8"), Value::Null],
    );
    assert_eq!(status.get("conditions"), None);
    // The last condition of a cluster counts.
    let both = json!({"conditions": [condition_at("Failed", "True", "1"), condition_at("Succeeded", "True", "2")]});
    assert_eq!(status_of(TF, &[both])["conditions"][0]["type"], "Succeeded");
}

// proves: CRD-training-status
#[test]
fn pytorch_job_conditions() {
    let condition = |kind: &str, status: &str, message: &str, times: [&str; 2]| {
        json!({"type": kind, "status": status, "reason": format!("PyTorchJob{kind}"),
        "message": message, "lastUpdateTime": times[0], "lastTransitionTime": times[1]})
    };
    let created = |at: &str| condition("Created", "True", "PyTorchJob is created.", [at, at]);
    let running =
        |status: &str, at: &str| condition("Running", status, "PyTorchJob is running.", [at, at]);
    let status = status_of(
        PYTORCH,
        &[
            finished_condition("Succeeded", "2", "8"),
            finished_condition("Succeeded", "1", "9"),
        ],
    );
    assert_eq!(
        status["conditions"],
        json!([
            created("1"),
            running("False", "1"),
            condition(
                "Succeeded",
                "True",
                "PyTorchJob is successfully completed.",
                ["9", "9"]
            )
        ])
    );
    assert_eq!(
        (&status["completionTime"], &status["startTime"]),
        (&json!("9"), &json!("1"))
    );
    let status = status_of(
        PYTORCH,
        &[finished_condition("Succeeded", "2", "8"), Value::Null],
    );
    assert_eq!(
        status["conditions"],
        json!([created("2"), running("True", "2")])
    );
    assert_eq!(status.get("completionTime"), None);
    let status = status_of(
        PYTORCH,
        &[
            finished_condition("Failed", "2", "8"),
            finished_condition("Succeeded", "1", "9"),
        ],
    );
    let failed = condition(
        "Failed",
        "True",
        "PyTorchJob executed failed in member clusters: a",
        ["9", "9"],
    );
    assert_eq!(
        status["conditions"],
        json!([created("1"), running("False", "1"), failed])
    );
    let early = json!({"conditions": [{"type": "Created", "status": "True"}]});
    assert_eq!(
        status_of(PYTORCH, &[early]),
        json!({"conditions": [{"type": "Created", "status": "True", "reason": "PyTorchJobCreated", "message": "PyTorchJob is created."}]})
    );
}

// proves: CRD-training-status
#[test]
fn zero_values_are_pruned() {
    let template = json!({"metadata": {}, "status": {"startTime": "1", "completionTime": "2", "conditions": [{}], "mine": 1, "idle": 0, "none": ""}});
    let cleared = json!({"mine": 1, "idle": 0, "none": ""});
    for kind in [PYTORCH, TF] {
        assert_eq!(aggregated_without_items(kind, &template)["status"], cleared);
        assert_eq!(
            aggregated_without_items(kind, &json!({"metadata": {}}))["status"],
            json!({})
        );
        let result = aggregated(kind, &template, &[Value::Null]).unwrap();
        assert_eq!(result["status"], json!({"completionTime": "2", "mine": 1}));
    }
    assert_eq!(
        aggregated(PYTORCH, &template, &[]).unwrap()["status"],
        cleared
    );
}

// proves: CRD-mpi
#[test]
fn mpi_jobs() {
    let report = |conditions: Value, time: &str| {
        json!({"conditions": conditions, "startTime": time, "lastReconcileTime": time, "completionTime": "",
        "replicaStatuses": {"Worker": {"active": 1, "selector": "s"}, "Launcher": {"succeeded": 0}}})
    };
    let status = status_of(
        MPI,
        &[
            report(
                json!([condition_at("Created", "True", "1"), condition_at("Running", "True", "5"), {"type": "Odd"}]),
                "2",
            ),
            Value::Null,
            report(
                json!([
                    condition_at("Running", "False", "6"),
                    condition_at("Failed", "True", "6"),
                    condition_at("Created", "False", "1")
                ]),
                "1",
            ),
        ],
    );
    let zero = json!({"active": 0, "succeeded": 0, "failed": 0});
    assert_eq!(
        status,
        json!({"startTime": "1", "lastReconcileTime": "2", "replicaStatuses": {"Worker": {"active": 2, "succeeded": 0, "failed": 0}, "Launcher": zero},
               "conditions": [condition_at("Created", "True", "1"), condition_at("Running", "False", "6"), condition_at("Failed", "True", "6")]})
    );
    let older = json!({"type": "A", "status": "x", "lastTransitionTime": "3"});
    let newer =
        json!({"type": "A", "status": "y", "lastUpdateTime": "4", "lastTransitionTime": "1"});
    let status = status_of(
        MPI,
        &[
            json!({ "conditions": [older] }),
            json!({ "conditions": [newer] }),
        ],
    );
    assert_eq!(status, json!({ "conditions": [newer] }));
    let template = json!({"metadata": {"name": "x"}, "status": {"mine": 1}});
    assert_eq!(aggregated(MPI, &template, &[]).unwrap(), template);
    let copy = json!({"status": {"replicaStatuses": {"Worker": {"active": 1, "selector": "s", "odd": 1}, "Idle": {}}, "conditions": [], "odd": 1}});
    assert_eq!(
        reflected(MPI, &copy),
        json!({"replicaStatuses": {"Worker": {"active": 1, "selector": "s"}}})
    );
}
