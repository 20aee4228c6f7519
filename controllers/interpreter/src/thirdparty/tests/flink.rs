//! Tests of flink.apache.org.

use super::*;

const FLINK: &str = "flink.apache.org/v1beta1 FlinkDeployment";

// proves: CRD-flink
#[test]
fn health_follows_the_state_of_the_job() {
    let state = |state: &str, error: &str| json!({"jobStatus": {"state": state}, "error": error});
    let without = |manager: &str, life: &str| json!({"jobManagerDeploymentStatus": manager, "lifecycleState": life});
    check_health_by_status(
        FLINK,
        &[
            (state("RUNNING", ""), Some(true)),
            (state("FINISHED", ""), Some(true)),
            (state("FAILED", "bad"), Some(true)),
            (state("RESTARTING", ""), Some(true)),
            (state("CREATED", ""), Some(false)),
            (state("CREATED", "pod: ImagePullBackOff"), Some(true)),
            (state("RECONCILING", "lost"), Some(false)),
            (state("ODD", ""), Some(false)),
            (without("READY", "STABLE"), Some(true)),
            (without("READY", "DEPLOYED"), Some(false)),
            (without("MISSING", "STABLE"), Some(false)),
            (json!({}), Some(false)),
        ],
    );
}

fn deployment_with_resources(job: Value, task: Value, more: Value) -> Value {
    let mut spec = json!({"jobManager": {"resource": job}, "taskManager": {"resource": task}});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    namespaced_object(spec)
}

// proves: CRD-flink-replicas
#[test]
fn managers_are_counted() {
    let count = |spec: Value| {
        ThirdPartyInterpreter
            .replicas(&gvk(FLINK), &namespaced_object(spec))
            .unwrap()
            .unwrap()
            .count
    };
    let slots = |parallelism: Value, slots: Value| json!({"job": {"parallelism": parallelism}, "flinkConfiguration": {"taskmanager.numberOfTaskSlots": slots}});
    assert_eq!(count(json!({})), 2);
    assert_eq!(
        count(json!({"jobManager": {"replicas": 2}, "taskManager": {"replicas": 3}})),
        5
    );
    assert_eq!(count(slots(json!(7), json!("2"))), 5);
    assert_eq!(count(slots(json!(7), json!("0"))), 2);
    assert_eq!(count(slots(json!(7), json!("many"))), 2);
    assert_eq!(count(slots(Value::Null, json!(2))), 2);
    let mut report = slots(json!(7), json!("2"));
    report["taskManager"] = json!({"replicas": 1});
    assert_eq!(count(report), 2);
}

// proves: CRD-flink-replicas
#[test]
fn a_replica_needs_what_the_greater_manager_needs() {
    let pod = json!({"podTemplate": {"spec": {"nodeSelector": {"a": "b"}, "affinity": {"x": 1}, "priorityClassName": "high"}}});
    let all = deployment_with_resources(
        json!({"cpu": 1, "memory": "2Gi"}),
        json!({"cpu": 0.5, "memory": "1024m"}),
        pod,
    );
    let needs = |template: &Value| {
        ThirdPartyInterpreter
            .replicas(&gvk(FLINK), template)
            .map(|r| r.unwrap().requirements.unwrap())
    };
    assert_eq!(
        needs(&all).unwrap(),
        json!({"resourceRequest": {"cpu": "1", "memory": "2Gi"}, "nodeClaim": {"nodeSelector": {"a": "b"}},
               "priorityClassName": "high", "namespace": "n"})
    );
    let one = deployment_with_resources(json!({}), json!({"cpu": 2, "memory": "2048m"}), json!({}));
    assert_eq!(
        needs(&one).unwrap(),
        json!({"resourceRequest": {"cpu": "2", "memory": "2Gi"}, "namespace": "n"})
    );
    assert_eq!(needs(&json!({"spec": {}})).unwrap(), json!({}));
    let bad = |job: &str, task: &str| {
        deployment_with_resources(json!({"memory": job}), json!({"memory": task}), json!({}))
    };
    for odd in [bad("2gig", "1Gi"), bad("-1Gi", "1Gi"), bad("-1g", "1Gi")] {
        assert!(needs(&odd).is_err(), "{odd}");
    }
}

// proves: CRD-flink-components, CRD-flink-memory
#[test]
fn each_manager_is_a_component() {
    let pod = json!({"jobManager": {"replicas": "2", "resource": {"cpu": 0.5, "memory": "2Gi"}},
                     "podTemplate": {"spec": {"tolerations": [{"key": "k"}]}}});
    let all = deployment_with_resources(json!({}), json!({"cpu": 1, "memory": "2048m"}), pod);
    let claim = json!({"tolerations": [{"key": "k"}]});
    assert_eq!(
        components(FLINK, &all),
        [
            component_tuple(
                "jobmanager",
                2,
                json!({"resourceRequest": {"cpu": "500m", "memory": "2147483648"}, "nodeClaim": claim})
            ),
            component_tuple(
                "taskmanager",
                1,
                json!({"resourceRequest": {"cpu": "1", "memory": "2147483648"}, "nodeClaim": claim})
            ),
        ]
    );
    assert_eq!(
        components(FLINK, &json!({})),
        [
            component_tuple("jobmanager", 1, json!({})),
            component_tuple("taskmanager", 1, json!({}))
        ]
    );
    for (text, bytes) in [
        ("2048m", "2147483648"),
        ("2G", "2147483648"),
        ("1 kb", "1024"),
        ("7bytes", "7"),
        ("1 Tebibytes", "1099511627776"),
        ("2Gi", "2147483648"),
        ("2M", "2097152"),
        ("1500", "1500"),
    ] {
        let one = deployment_with_resources(json!({"memory": text}), json!({}), json!({}));
        let job_manager = json!({"resourceRequest": {"memory": bytes}});
        assert_eq!(
            components(FLINK, &one)[0],
            component_tuple("jobmanager", 1, job_manager),
            "{text}"
        );
    }
    let bad = deployment_with_resources(json!({"memory": "2gig"}), json!({}), json!({}));
    assert!(ThirdPartyInterpreter.components(&gvk(FLINK), &bad).is_err());
}

// proves: CRD-flink-status
#[test]
fn the_last_cluster_speaks_for_all() {
    let report = |state: &str| json!({"jobStatus": {"state": state}, "error": "e", "odd": 1});
    assert_eq!(
        reflected(FLINK, &json!({"status": report("RUNNING")})),
        json!({"jobStatus": {"state": "RUNNING"}, "error": "e"})
    );
    let template =
        json!({"metadata": {"name": "x"}, "status": {"lifecycleState": "STABLE", "mine": 1}});
    let result = aggregated(FLINK, &template, &[report("A"), report("B"), Value::Null]).unwrap();
    assert_eq!(
        result["status"],
        json!({"jobStatus": {"state": "B"}, "error": "e", "mine": 1})
    );
    let result = aggregated(FLINK, &template, &[Value::Null]).unwrap();
    assert_eq!(
        result["status"],
        json!({"error": "", "jobManagerDeploymentStatus": "", "lifecycleState": "", "observedGeneration": 0, "mine": 1})
    );
    assert_eq!(aggregated_without_items(FLINK, &template), template);
}
