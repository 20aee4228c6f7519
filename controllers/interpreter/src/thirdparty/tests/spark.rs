//! Tests of sparkoperator.k8s.io.

use super::*;

const SPARK: &str = "sparkoperator.k8s.io/v1beta2 SparkApplication";

fn state(state: &str) -> Value {
    json!({"applicationState": {"state": state}})
}

// proves: CRD-spark
#[test]
fn only_failed_is_not_healthy() {
    check_health_by_status(
        SPARK,
        &[
            (state("RUNNING"), Some(true)),
            (state("COMPLETED"), Some(true)),
            (state("SUBMITTED"), Some(true)),
            (state(""), Some(true)),
            (state("SUBMISSION_FAILED"), Some(true)),
            (state("FAILED"), Some(false)),
            (json!({"applicationState": {}}), Some(false)),
            (json!({}), Some(false)),
        ],
    );
}

/// The memory request of a driver; `None` when the rule fails.
fn memory(kind: &str, driver: Value) -> Option<String> {
    let application = namespaced_object(json!({"type": kind, "driver": driver}));
    let interpreted = ThirdPartyInterpreter
        .components(&gvk(SPARK), &application)
        .ok()?
        .unwrap();
    let needs = interpreted[0].replica_requirements.as_ref().unwrap();
    needs["resourceRequest"]["memory"]
        .as_str()
        .map(str::to_owned)
}

// proves: CRD-spark-components
#[test]
fn memory_has_its_overhead() {
    for (kind, driver, expected) in [
        ("Java", json!({}), "1408Mi"),
        ("SCALA", json!({"memory": "1g"}), "1408Mi"),
        ("Python", json!({"memory": "512m"}), "896Mi"),
        ("Python", json!({"memory": "2g"}), "3006477107200m"),
        ("Java", json!({"memory": "10G"}), "11Gi"),
        (
            "Java",
            json!({"memory": "1.5gb", "memoryOverhead": "512mb"}),
            "2Gi",
        ),
        ("Java", json!({"memory": "1024k"}), "385Mi"),
        (
            "Java",
            json!({"memory": "1g", "memoryOverhead": "1024b"}),
            "1073742848",
        ),
    ] {
        assert_eq!(
            memory(kind, driver.clone()).as_deref(),
            Some(expected),
            "{kind} {driver}"
        );
    }
    for odd in ["1024", "1Gi", "g", "", "1.2.3g", ".5g", "-1g"] {
        assert_eq!(memory("Java", json!({ "memory": odd })), None, "{odd}");
    }
    assert!(
        ThirdPartyInterpreter
            .components(&gvk(SPARK), &namespaced_object(json!({})))
            .is_err()
    );
    let report = namespaced_object(json!({"type": "Java", "memoryOverheadFactor": "0.5"}));
    assert_eq!(
        components(SPARK, &report)[0].2["resourceRequest"]["memory"],
        "1536Mi"
    );
}

// proves: CRD-spark-components
#[test]
fn driver_and_executors() {
    let counts = |executor: Value, dynamic: Value| {
        components(
            SPARK,
            &namespaced_object(
                json!({"type": "Java", "executor": executor, "dynamicAllocation": dynamic}),
            ),
        )[1]
        .1
    };
    assert_eq!(counts(json!({}), json!({})), 1);
    assert_eq!(counts(json!({"instances": 3}), json!({})), 3);
    assert_eq!(
        counts(
            json!({"instances": 3}),
            json!({"enabled": false, "initialExecutors": 9})
        ),
        3
    );
    assert_eq!(
        counts(
            json!({"instances": 3}),
            json!({"enabled": true, "initialExecutors": 5, "minExecutors": 4})
        ),
        5
    );
    assert_eq!(
        counts(
            json!({"instances": 3}),
            json!({"enabled": true, "minExecutors": 2})
        ),
        3
    );
    let term = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "k"}]}]});
    let application = namespaced_object(json!({"type": "Java", "driver": {
        "cores": 2, "coreRequest": "1", "gpu": {"name": "example.com/gpu", "quantity": 2}, "priorityClassName": "high", "nodeSelector": {"a": "b"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}},
        "executor": {"gpu": {"name": "", "quantity": 2}}}));
    assert_eq!(
        components(SPARK, &application),
        [
            component_tuple(
                "driver",
                1,
                json!({"resourceRequest": {"cpu": "2", "memory": "1408Mi", "example.com/gpu": "2"},
                "nodeClaim": {"nodeSelector": {"a": "b"}, "hardNodeAffinity": term}, "priorityClassName": "high"})
            ),
            component_tuple(
                "executor",
                1,
                json!({"resourceRequest": {"cpu": "1", "memory": "1408Mi"}})
            ),
        ]
    );
}

// proves: CRD-spark-status
#[test]
fn the_worst_state_is_shown() {
    let report = |name: &str, attempts: i64, time: Value| {
        json!({"applicationState": {"state": name, "of": attempts}, "executionAttempts": attempts, "submissionAttempts": 1,
               "lastSubmissionAttemptTime": time, "executorState": {"x": name, name: "y"}})
    };
    let template = json!({"metadata": {}, "status": {"driverInfo": {"podName": "p"}}});
    let result = aggregated(
        SPARK,
        &template,
        &[
            report("COMPLETED", 1, json!("2")),
            Value::Null,
            report("RUNNING", 2, json!("1")),
            report("RESUMING", 3, Value::Null),
        ],
    );
    assert_eq!(
        result.unwrap()["status"],
        json!({"applicationState": {"state": "RUNNING", "of": 2}, "executionAttempts": 6, "submissionAttempts": 3, "lastSubmissionAttemptTime": "2",
               "terminationTime": "", "executorState": {"x": "RESUMING", "COMPLETED": "y", "RUNNING": "y", "RESUMING": "y"}, "driverInfo": {"podName": "p"}})
    );
    assert_eq!(
        status_of(SPARK, &[]),
        json!({"executionAttempts": 0, "submissionAttempts": 0, "lastSubmissionAttemptTime": "", "terminationTime": ""})
    );
    for odd in [state("ODD"), json!({"applicationState": {"odd": 1}})] {
        assert!(aggregated(SPARK, &template, &[odd, Value::Null]).is_err());
    }
    let copy = json!({"status": {"applicationState": {"state": "RUNNING"}, "executorState": {}, "submissionID": "i", "odd": 1}});
    assert_eq!(
        reflected(SPARK, &copy),
        json!({"applicationState": {"state": "RUNNING"}, "submissionID": "i"})
    );
}
