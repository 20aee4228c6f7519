//! Tests of ray.io.

use super::*;

const CLUSTER: &str = "ray.io/v1 RayCluster";
const JOB: &str = "ray.io/v1 RayJob";
const SERVICE: &str = "ray.io/v1 RayService";

fn head(cpu: &str) -> Value {
    json!({ "template": pod_template(cpu) })
}

fn group(name: &str, replicas: Value, cpu: &str) -> Value {
    json!({"groupName": name, "replicas": replicas, "template": pod_template(cpu), "numOfHosts": 4})
}

// proves: CRD-ray
#[test]
fn health_of_clusters_jobs_and_services() {
    let with = |all: &[(&str, &str)]| {
        let conditions: Vec<Value> = all
            .iter()
            .map(|(kind, status)| condition(kind, status, "", ""))
            .collect();
        json!({ "conditions": conditions })
    };
    let (ready, up) = (("HeadPodReady", "True"), ("RayClusterProvisioned", "True"));
    check_health_by_status(
        CLUSTER,
        &[
            (with(&[ready, up]), Some(true)),
            (
                with(&[ready, up, ("RayClusterReplicaFailure", "False")]),
                Some(true),
            ),
            (
                with(&[ready, up, ("RayClusterReplicaFailure", "True")]),
                Some(false),
            ),
            (with(&[ready]), Some(false)),
            (
                with(&[ready, ("RayClusterProvisioned", "False")]),
                Some(false),
            ),
            (json!({"state": "ready"}), Some(false)),
        ],
    );
    check_health_by_status(
        SERVICE,
        &[
            (with(&[("Ready", "True")]), Some(true)),
            (with(&[("Ready", "False")]), Some(false)),
            (with(&[]), Some(false)),
        ],
    );
    let job =
        |deployment: &str, job: &str| json!({"jobDeploymentStatus": deployment, "jobStatus": job});
    check_health_by_status(
        JOB,
        &[
            (job("Running", "PENDING"), Some(true)),
            (job("Running", "FAILED"), Some(true)),
            (job("Complete", "SUCCEEDED"), Some(true)),
            (job("Complete", "FAILED"), Some(false)),
            (job("Initializing", ""), Some(false)),
            (job("Suspended", ""), Some(false)),
            (job("Failed", "SUCCEEDED"), Some(false)),
            (json!({}), Some(false)),
        ],
    );
}

// proves: CRD-ray-components
#[test]
fn head_and_groups_are_components() {
    let spec = json!({"headGroupSpec": head("1"), "workerGroupSpecs": [group("small", json!(3), "2"), group("", Value::Null, "3"), {"replicas": 1}]});
    let expected = [
        component_tuple("ray-head", 1, cpu_request("1")),
        component_tuple("small", 3, cpu_request("2")),
        component_tuple("worker-2", 0, cpu_request("3")),
        component_tuple("worker-3", 1, Value::Null),
    ];
    assert_eq!(
        components(CLUSTER, &namespaced_object(spec.clone())),
        expected
    );
    assert_eq!(
        components(JOB, &namespaced_object(json!({ "rayClusterSpec": spec }))),
        expected
    );
    for kind in [CLUSTER, JOB] {
        assert!(components(kind, &namespaced_object(json!({}))).is_empty());
        assert!(components(kind, &json!({})).is_empty());
    }
}

// proves: CRD-ray-deps
#[test]
fn dependencies_of_all_groups() {
    let spec = json!({"headGroupSpec": {"template": template_with_dependencies()}, "workerGroupSpecs": [{"template": template_with_dependencies()}, {}]});
    assert_eq!(
        dependencies(
            SERVICE,
            &namespaced_object(json!({"rayClusterConfig": spec}))
        ),
        template_dependencies()
    );
    assert_eq!(
        dependencies(JOB, &namespaced_object(json!({"rayClusterSpec": spec}))),
        template_dependencies()
    );
    assert_eq!(
        dependencies(
            JOB,
            &namespaced_object(json!({"submitterPodTemplate": template_with_dependencies()}))
        ),
        template_dependencies()
    );
    for kind in [JOB, SERVICE] {
        assert_eq!(
            dependencies(kind, &namespaced_object(json!({}))),
            Some(Vec::new())
        );
    }
}

// proves: CRD-ray-replicas
#[test]
fn a_service_needs_what_its_greatest_pod_needs() {
    let service = |head: Value, groups: Value| {
        namespaced_object(
            json!({"rayClusterConfig": {"headGroupSpec": head, "workerGroupSpecs": groups}}),
        )
    };
    let actual = |service: &Value| {
        ThirdPartyInterpreter
            .replicas(&gvk(SERVICE), service)
            .unwrap()
            .unwrap()
    };
    let all = service(
        head("1"),
        json!([
            group("a", json!(2), "500m"),
            group("b", json!(3), "1500m"),
            {}
        ]),
    );
    assert_eq!(
        (actual(&all).count, actual(&all).requirements),
        (6, Some(cpu_request("1500m")))
    );
    let idle = service(
        json!({"template": {"spec": {}}}),
        json!([group("a", json!(1), "1")]),
    );
    assert_eq!((actual(&idle).count, actual(&idle).requirements), (2, None));
    let picky = service(
        json!({"template": {"spec": {"nodeSelector": {"a": "b"}}}}),
        json!([group("a", Value::Null, "1")]),
    );
    assert_eq!(
        (actual(&picky).count, actual(&picky).requirements),
        (
            1,
            Some(
                json!({"nodeClaim": {"nodeSelector": {"a": "b"}}, "resourceRequest": {"cpu": "1"}})
            )
        )
    );
    for none in [
        namespaced_object(json!({})),
        service(json!({}), json!([group("a", json!(2), "1")])),
    ] {
        assert_eq!(actual(&none), TemplateReplicas::default());
    }
}

// proves: CRD-ray-replicas
#[test]
fn workers_are_shared_among_groups() {
    let service = |groups: &[Value]| {
        let groups: Vec<Value> = groups.iter().map(|n| json!({"replicas": n})).collect();
        namespaced_object(json!({"rayClusterConfig": {"workerGroupSpecs": groups}}))
    };
    for (now, replicas, then) in [
        (&[json!(5)][..], 4, &[3][..]),
        (&[json!(5)], 0, &[0]),
        (&[json!(1), json!(3)], 9, &[2, 6]),
        (&[json!(1), json!(3)], 1, &[0, 0]),
        (&[json!(0), Value::Null, json!(0)], 6, &[2, 2, 1]),
        (&[json!(1), json!(1), json!(1), json!(1)], 3, &[1, 1, 1, -1]),
        (&[json!(2), json!(1)], 6, &[3, 2]),
    ] {
        let revised = ThirdPartyInterpreter
            .revise_replica(&gvk(SERVICE), &service(now), replicas)
            .unwrap();
        let then: Vec<Value> = then.iter().map(|n| json!(n)).collect();
        assert_eq!(revised, Some(service(&then)), "{now:?} {replicas}");
    }
    for same in [namespaced_object(json!({})), service(&[])] {
        assert_eq!(
            ThirdPartyInterpreter
                .revise_replica(&gvk(SERVICE), &same, 5)
                .unwrap(),
            Some(same)
        );
    }
}

// proves: CRD-ray-status
#[test]
fn clusters_of_clusters_add_up() {
    let report = |cpu: &str, memory: &str, time: &str, more: Value| {
        let mut status = json!({"desiredCPU": cpu, "desiredMemory": memory, "desiredGPU": "1", "lastUpdateTime": time,
            "readyWorkerReplicas": 1, "conditions": [condition("HeadPodReady", "True", "", time)]});
        for (field, value) in more.as_object().unwrap() {
            status[field] = value.clone();
        }
        status
    };
    let template =
        json!({"metadata": {"name": "r"}, "spec": {"a": 1}, "status": {"state": "old", "mine": 1}});
    let result = aggregated(
        CLUSTER,
        &template,
        &[
            report("500m", "0", "2", json!({"head": {"podIP": "1"}})),
            Value::Null,
            report(
                "1",
                "4Gi",
                "1",
                json!({"head": {"podIP": "2"}, "endpoints": {"gcs": "1"}, "state": "ready", "stateTransitionTimes": {"ready": "1"}}),
            ),
            report("", "2Gi", "3", json!({"state": "failed", "desiredGPU": ""})),
        ],
    );
    assert_eq!(
        result.unwrap(),
        json!({"metadata": {"name": "r"}, "status": {
            "desiredCPU": "1500m", "desiredMemory": "6Gi", "desiredGPU": "2", "desiredTPU": "0", "lastUpdateTime": "3",
            "readyWorkerReplicas": 3, "availableWorkerReplicas": 0, "maxWorkerReplicas": 0, "minWorkerReplicas": 0, "desiredWorkerReplicas": 0,
            "conditions": [condition("HeadPodReady", "True", "", "2, 1, 3")],
            "head": {"podIP": "1"}, "endpoints": {"gcs": "1"}, "state": "ready", "stateTransitionTimes": {"ready": "1"}, "mine": 1}})
    );
    let result = aggregated(CLUSTER, &template, &[]).unwrap();
    assert_eq!(
        (
            &result["status"]["desiredCPU"],
            result["status"].get("state")
        ),
        (&json!("0"), None)
    );
    for odd in [
        json!({"desiredGPU": "500m"}),
        json!({"desiredCPU": "many"}),
        json!({"desiredCPU": 1}),
    ] {
        assert!(aggregated(CLUSTER, &template, &[odd, Value::Null]).is_err());
    }
}

// proves: CRD-ray-status
#[test]
fn the_worst_job_is_shown() {
    let report = |deployment: &str, job: &str, reason: Value| json!({"jobDeploymentStatus": deployment, "jobStatus": job, "reason": reason});
    let template = json!({"metadata": {}, "status": {"message": "old", "mine": 1}});
    let status = |all: &[Value]| aggregated(JOB, &template, all).unwrap()["status"].clone();
    assert_eq!(
        status(&[
            report("Running", "RUNNING", Value::Null),
            report("Complete", "SUCCEEDED", Value::Null),
            Value::Null
        ]),
        json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "mine": 1})
    );
    assert_eq!(
        status(&[
            report("Failed", "STOPPED", json!("x")),
            report("Failed", "FAILED", json!("y"))
        ]),
        json!({"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "reason": "x", "mine": 1})
    );
    assert_eq!(
        status(&[report("", "", Value::Null), report("Odd", "", json!("y"))]),
        json!({"jobDeploymentStatus": "", "mine": 1})
    );
    assert_eq!(status(&[]), json!({"mine": 1}));
}

// proves: CRD-ray-status
#[test]
fn applications_are_as_bad_as_the_worst_of_them() {
    let report = |apps: Value, service: &str, observed: i64| {
        json!({"activeServiceStatus": {"rayClusterName": format!("c{observed}"), "applicationStatuses": apps}, "serviceStatus": service,
               "observedGeneration": observed, "numServeEndpoints": 2, "lastUpdateTime": format!("{observed}"), "conditions": [condition("Ready", "True", "", "")]})
    };
    let app = |status: &str, of: i64| json!({"status": status, "of": of});
    let template =
        json!({"metadata": {}, "status": {"pendingServiceStatus": {"old": 1}, "mine": 1}});
    let result = aggregated(
        SERVICE,
        &template,
        &[
            report(
                json!({"x": app("RUNNING", 1), "y": app("DEPLOYING", 1)}),
                "Running",
                3,
            ),
            Value::Null,
            report(
                json!({"x": app("UNHEALTHY", 2), "y": app("NOT_STARTED", 2), "z": app("ODD", 2)}),
                "",
                2,
            ),
        ],
    );
    let waiting = "waiting for the status in clusters: b";
    let ready = condition("Ready", "False", "StatusNotReported", waiting);
    assert_eq!(
        result.unwrap()["status"],
        json!({"activeServiceStatus": {"rayClusterName": "c3", "applicationStatuses": {"x": app("UNHEALTHY", 2), "y": app("DEPLOYING", 1), "z": app("ODD", 2)}},
               "serviceStatus": "", "observedGeneration": 3, "numServeEndpoints": 4, "lastUpdateTime": "3", "conditions": [ready],
               "pendingServiceStatus": {"old": 1}, "mine": 1})
    );
    assert_eq!(
        aggregated(SERVICE, &template, &[Value::Null, Value::Null]).unwrap()["status"],
        json!({"serviceStatus": "Running", "observedGeneration": 0, "numServeEndpoints": 0, "pendingServiceStatus": {"old": 1}, "mine": 1})
    );
}
