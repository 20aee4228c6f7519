//! Tests of the native rules, kind by kind: replicas and revision, health, reflection, aggregation.

mod readiness;

use jiff::Timestamp;
use karmada_api::well_known_keys::{RETAIN_REPLICAS, TEMPLATE_GENERATION};
use machinery::Gvk;
use serde_json::{Value, json};

use crate::native::fixtures::object;
use crate::native::{CollectedStatus, NativeInterpreter, rules_for};

const WORKLOADS: [&str; 3] = ["Deployment", "ReplicaSet", "StatefulSet"];

fn gvk(kind: &str) -> Gvk {
    let (group, version) = match kind {
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => ("apps", "v1"),
        "Job" | "CronJob" => ("batch", "v1"),
        "Ingress" => ("networking.k8s.io", "v1"),
        "PodDisruptionBudget" => ("policy", "v1"),
        "HorizontalPodAutoscaler" => ("autoscaling", "v2"),
        "ServiceImport" => ("multicluster.x-k8s.io", "v1alpha1"),
        _ => ("", "v1"),
    };
    Gvk::new(group, version, kind)
}

/// The number of replicas that a spec asks for.
fn replica_count(kind: &str, spec: Value) -> Option<i64> {
    let template = object(json!({"metadata": {"name": "x"}, "spec": spec}));
    let actual = NativeInterpreter.replicas(&gvk(kind), &template).unwrap();
    actual.map(|replicas| replicas.count)
}

fn revised(kind: &str, mut copy: Value, replicas: i64) -> Value {
    NativeInterpreter
        .revise_replica(&gvk(kind), &mut copy, replicas)
        .unwrap();
    copy
}

fn retained(kind: &str, mut desired: Value, observed: Value) -> Result<Value, String> {
    let done = NativeInterpreter.retain(&gvk(kind), &mut desired, &observed);
    done.map(|()| desired).map_err(|e| e.to_string())
}

fn healthy(kind: &str, generation: i64, spec: Value, status: Value) -> Option<bool> {
    let copy = json!({"metadata": {"name": "x", "generation": generation}, "spec": spec, "status": status});
    NativeInterpreter
        .interpret_health(&gvk(kind), &object(copy))
        .unwrap()
}

/// The collected status of a member object of generation 7, applied from generation 3 of the
/// template.
fn reflected(kind: &str, spec: Value, status: Value) -> Option<Value> {
    let metadata = json!({"name": "x", "generation": 7, "annotations": {TEMPLATE_GENERATION: "3"}});
    let mut copy = json!({"metadata": metadata, "spec": spec});
    if !status.is_null() {
        copy["status"] = status;
    }
    NativeInterpreter
        .reflect_status(&gvk(kind), &object(copy))
        .unwrap()
}

/// The aggregated status of a template of generation 3; null stands for a status not collected.
fn aggregated(kind: &str, status: &Value, clusters: &[Value]) -> Option<Value> {
    let template = json!({"metadata": {"name": "x", "generation": 3}, "spec": {"type": "LoadBalancer"}, "status": status});
    let names = ["a", "b", "c"];
    let items: Vec<CollectedStatus<'_>> = names
        .iter()
        .zip(clusters)
        .map(|(cluster, status)| {
            CollectedStatus::new(cluster, (!status.is_null()).then_some(status))
        })
        .collect();
    let now = Timestamp::UNIX_EPOCH;
    NativeInterpreter
        .aggregate_status(&gvk(kind), &object(template), &items, now)
        .unwrap()
}

fn merged(mut object: Value, more: Value) -> Value {
    let fields = object.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    object
}

// proves: NAT-deployment, NAT-replicaset, NAT-statefulset, NAT-daemonset, NAT-pod
#[test]
fn replicas_are_those_of_the_spec() {
    for kind in WORKLOADS {
        for (spec, expected) in [
            (json!({"replicas": 3}), 3),
            (json!({"replicas": 0}), 0),
            (json!({}), 0),
            (json!({"replicas": null}), 0),
        ] {
            assert_eq!(
                replica_count(kind, spec.clone()),
                Some(expected),
                "{kind} {spec}"
            );
        }
        assert_eq!(
            revised(kind, json!({"spec": {"replicas": 9, "paused": true}}), 4),
            json!({"spec": {"replicas": 4, "paused": true}}),
            "{kind}"
        );
    }
    assert_eq!(replica_count("Pod", json!({"replicas": 3})), Some(1));
    let none = [
        "DaemonSet",
        "CronJob",
        "Service",
        "Ingress",
        "ServiceAccount",
        "PersistentVolumeClaim",
        "PersistentVolume",
        "Secret",
        "PodDisruptionBudget",
        "HorizontalPodAutoscaler",
        "ServiceImport",
    ];
    let spec = json!({"replicas": 3, "parallelism": 3});
    for kind in none {
        assert_eq!(replica_count(kind, spec.clone()), None, "{kind}");
    }
    for kind in none.into_iter().chain(["Pod"]) {
        let copy = json!({"spec": spec});
        assert_eq!(revised(kind, copy.clone(), 4), copy, "{kind}");
        assert!(rules_for(&gvk(kind)).replica_field().is_none(), "{kind}");
    }
}

// proves: NAT-job, NAT-revise-existing
#[test]
fn only_an_existing_field_is_revised() {
    for (spec, expected) in [
        (json!({"parallelism": 3, "completions": 2}), 2),
        (json!({"parallelism": 2, "completions": 5}), 2),
        (json!({"parallelism": 4}), 4),
        (json!({"completions": 5}), 0),
        (json!({}), 0),
    ] {
        assert_eq!(replica_count("Job", spec.clone()), Some(expected), "{spec}");
    }
    assert_eq!(
        revised("Job", json!({"spec": {"parallelism": 3, "replicas": 3}}), 1),
        json!({"spec": {"parallelism": 1, "replicas": 3}})
    );
    for kind in WORKLOADS.into_iter().chain(["Job"]) {
        assert!(rules_for(&gvk(kind)).replica_field().is_some(), "{kind}");
        for bare in [json!({}), json!({"spec": {}}), json!({"spec": {"x": 1}})] {
            assert_eq!(revised(kind, bare.clone(), 4), bare, "{kind}");
        }
    }
}

// proves: NAT-retain-replicas
#[test]
fn replicas_are_left_to_members_by_the_label_of_a_deployment() {
    let desired = |label: &str| json!({"metadata": {"labels": {RETAIN_REPLICAS: label}}, "spec": {"replicas": 2}});
    let observed = json!({"spec": {"replicas": 7}});
    let result = |kind: &str, label: &str| {
        retained(kind, desired(label), observed.clone()).unwrap()["spec"]["replicas"].clone()
    };
    assert_eq!(result("Deployment", "true"), 7);
    for (kind, label) in [
        ("Deployment", "false"),
        ("Deployment", "True"),
        ("ReplicaSet", "true"),
        ("StatefulSet", "true"),
    ] {
        assert_eq!(result(kind, label), 2, "{kind} {label}");
    }
    // Without observed replicas the retention fails: the desired replicas must not be applied instead.
    let retention = retained("Deployment", desired("true"), json!({"spec": {}}));
    assert!(retention.unwrap_err().contains("spec.replicas"));
}

// proves: NAT-service-retain, NAT-token, NAT-retain-none
#[test]
fn only_the_fields_that_members_decide_are_retained() {
    let service = json!({"spec": {"clusterIP": "10.1.2.3", "healthCheckNodePort": 31000, "externalName": "x"}});
    let result = retained("Service", json!({"spec": {"clusterIP": ""}}), service).unwrap();
    let expected = json!({"spec": {"clusterIP": "10.1.2.3", "healthCheckNodePort": 31000}});
    assert_eq!(result, expected);
    let token = json!({"type": "kubernetes.io/service-account-token"});
    let observed = merged(token.clone(), json!({"data": {"token": "t"}}));
    assert_eq!(retained("Secret", token, observed.clone()), Ok(observed));
    let desired = json!({"spec": {"a": 1}});
    let observed = json!({"spec": {"a": 2, "b": 2, "replicas": 3}, "data": {"k": "v"}});
    for kind in WORKLOADS.into_iter().chain([
        "DaemonSet",
        "CronJob",
        "Ingress",
        "PodDisruptionBudget",
        "HorizontalPodAutoscaler",
        "ServiceImport",
        "Secret",
        "ConfigMap",
    ]) {
        let result = retained(kind, desired.clone(), observed.clone());
        assert_eq!(result.as_ref(), Ok(&desired), "{kind}");
    }
}

// proves: NAT-health-workloads, NAT-health-replicaset, NAT-health-daemonset
#[test]
fn workloads_are_healthy_when_all_is_updated_and_available() {
    let counters = |observed: i64, updated: i64, available: i64| json!({"observedGeneration": observed, "updatedReplicas": updated, "availableReplicas": available});
    let spec = json!({"replicas": 2});
    for (status, is_healthy) in [
        (counters(5, 2, 2), true),
        (counters(5, 3, 3), true),
        (counters(4, 2, 2), false),
        (counters(6, 2, 2), false),
        (counters(5, 1, 2), false),
        (counters(5, 2, 1), false),
        (counters(5, 3, 2), false),
        (json!({}), false),
    ] {
        for kind in ["Deployment", "StatefulSet"] {
            let actual = healthy(kind, 5, spec.clone(), status.clone());
            assert_eq!(actual, Some(is_healthy), "{kind} {status}");
        }
    }
    for (status, is_healthy) in [
        (counters(5, 0, 2), true),
        (counters(5, 0, 1), false),
        (counters(4, 0, 2), false),
    ] {
        let actual = healthy("ReplicaSet", 5, spec.clone(), status.clone());
        assert_eq!(actual, Some(is_healthy), "{status}");
    }
    let counters = |observed: i64, desired: i64, updated: i64, available: i64| json!({"observedGeneration": observed, "desiredNumberScheduled": desired, "updatedNumberScheduled": updated, "numberAvailable": available});
    for (status, is_healthy) in [
        (counters(5, 2, 2, 2), true),
        (counters(5, 0, 0, 0), true),
        (counters(4, 2, 2, 2), false),
        (counters(5, 2, 1, 2), false),
        (counters(5, 2, 2, 1), false),
    ] {
        let actual = healthy("DaemonSet", 5, json!({}), status.clone());
        assert_eq!(actual, Some(is_healthy), "{status}");
    }
}

// proves: NAT-health-service, NAT-health-ingress, NAT-health-claim, NAT-health-budget, NAT-health-none
#[test]
fn other_kinds_are_healthy_when_they_can_be_used() {
    let at = |ingress: Value| json!({"loadBalancer": {"ingress": ingress}});
    let (ip, host) = (
        at(json!([{"ip": "10.0.0.1"}])),
        at(json!([{}, {"hostname": "h"}])),
    );
    let (nowhere, empty) = (json!({"loadBalancer": {}}), at(json!([{"ip": ""}])));
    let phase = |phase: &str| json!({"phase": phase});
    let pods =
        |current: i64, desired: i64| json!({"currentHealthy": current, "desiredHealthy": desired});
    let balanced = || json!({"type": "LoadBalancer"});
    for (kind, spec, status, expected) in [
        ("Service", json!({"type": "ClusterIP"}), &nowhere, true),
        ("Service", json!({"type": "NodePort"}), &nowhere, true),
        ("Service", json!({}), &json!({}), true),
        ("Service", balanced(), &nowhere, false),
        ("Service", balanced(), &empty, false),
        ("Service", balanced(), &ip, true),
        ("Service", balanced(), &host, true),
        ("Ingress", json!({}), &nowhere, false),
        ("Ingress", json!({}), &json!({}), false),
        ("Ingress", json!({}), &empty, false),
        ("Ingress", json!({}), &ip, true),
        ("Ingress", json!({}), &host, true),
        ("PersistentVolumeClaim", json!({}), &phase("Bound"), true),
        ("PersistentVolumeClaim", json!({}), &phase("Pending"), false),
        ("PersistentVolumeClaim", json!({}), &json!({}), false),
        ("PodDisruptionBudget", json!({}), &pods(2, 2), true),
        ("PodDisruptionBudget", json!({}), &pods(3, 2), true),
        ("PodDisruptionBudget", json!({}), &pods(1, 2), false),
    ] {
        let actual = healthy(kind, 1, spec.clone(), status.clone());
        assert_eq!(actual, Some(expected), "{kind} {spec} {status}");
    }
    for kind in [
        "Job",
        "CronJob",
        "ServiceAccount",
        "PersistentVolume",
        "Secret",
        "HorizontalPodAutoscaler",
        "ServiceImport",
        "ConfigMap",
    ] {
        assert_eq!(healthy(kind, 1, json!({}), phase("Failed")), None, "{kind}");
    }
}

// proves: NAT-reflect-deployment, NAT-reflect-replicaset, NAT-reflect-daemonset, NAT-reflect-statefulset
#[test]
fn counters_of_workloads_are_reflected_with_both_generations() {
    let deployment = json!({"replicas": 5, "updatedReplicas": 4, "readyReplicas": 3, "availableReplicas": 2, "unavailableReplicas": 1});
    let replica_set = json!({"replicas": 5, "fullyLabeledReplicas": 1, "readyReplicas": 3, "availableReplicas": 2});
    let daemon_set = json!({"currentNumberScheduled": 1, "numberMisscheduled": 2, "desiredNumberScheduled": 3, "numberReady": 4,
        "updatedNumberScheduled": 5, "numberAvailable": 6, "numberUnavailable": 7});
    let stateful_set = json!({"availableReplicas": 1, "currentReplicas": 2, "readyReplicas": 3, "replicas": 4, "updatedReplicas": 5});
    let others = json!({"observedGeneration": 6, "collisionCount": 1, "currentRevision": "r",
        "conditions": [{"type": "Available", "status": "False"}]});
    let generations = json!({"generation": 7, "resourceTemplateGeneration": 3});
    for (kind, counters) in [
        ("Deployment", deployment),
        ("ReplicaSet", replica_set),
        ("DaemonSet", daemon_set),
        ("StatefulSet", stateful_set),
    ] {
        let mut expected = merged(counters.clone(), generations.clone());
        expected["observedGeneration"] = 6.into();
        let status = merged(counters, others.clone());
        assert_eq!(reflected(kind, json!({}), status), Some(expected), "{kind}");
    }
}

// proves: NAT-reflect-job, NAT-budget, NAT-hpa, NAT-service
#[test]
fn chosen_fields_of_other_kinds_are_reflected() {
    let job = json!({"active": 1, "succeeded": 2, "failed": 3, "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T01:00:00Z",
        "conditions": [{"type": "Complete", "status": "True"}]});
    let more = json!({"ready": 1, "terminating": 1, "uncountedTerminatedPods": {}});
    let actual = reflected("Job", json!({}), merged(job.clone(), more));
    assert_eq!(actual, Some(job));
    let budget = json!({"disruptionsAllowed": 1, "expectedPods": 4, "desiredHealthy": 2, "currentHealthy": 3,
        "disruptedPods": {"p": "2026-01-01T00:00:00Z"}});
    let more = json!({"observedGeneration": 1, "conditions": []});
    let actual = reflected(
        "PodDisruptionBudget",
        json!({}),
        merged(budget.clone(), more),
    );
    assert_eq!(actual, Some(budget));
    let autoscaler = json!({"currentReplicas": 1, "desiredReplicas": 2, "lastScaleTime": "2026-01-01T00:00:00Z"});
    let actual = reflected("HorizontalPodAutoscaler", json!({}), autoscaler).unwrap();
    assert_eq!(
        (&actual["currentReplicas"], &actual["desiredReplicas"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(actual.get("lastScaleTime"), None);
    let address = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}});
    let status = merged(address.clone(), json!({"conditions": []}));
    for (of, expected) in [("LoadBalancer", Some(address)), ("ClusterIP", None)] {
        let actual = reflected("Service", json!({ "type": of }), status.clone());
        assert_eq!(actual, expected, "{of}");
    }
}

// proves: NAT-reflect-whole, NAT-reflect-none
#[test]
fn the_whole_status_of_the_rest_is_reflected_and_none_where_there_is_none() {
    let status = json!({"phase": "x", "conditions": [{"type": "t"}], "observedGeneration": 2});
    let reflected_whole = [
        "CronJob",
        "Pod",
        "Ingress",
        "ServiceAccount",
        "PersistentVolumeClaim",
        "PersistentVolume",
        "Secret",
        "ServiceImport",
        "ConfigMap",
    ];
    for kind in reflected_whole {
        let actual = reflected(kind, json!({}), status.clone());
        assert_eq!(actual, Some(status.clone()), "{kind}");
    }
    let chosen = [
        "Deployment",
        "ReplicaSet",
        "StatefulSet",
        "DaemonSet",
        "Job",
        "Service",
        "PodDisruptionBudget",
        "HorizontalPodAutoscaler",
    ];
    for kind in reflected_whole.into_iter().chain(chosen) {
        let spec = json!({"type": "LoadBalancer"});
        assert_eq!(reflected(kind, spec, Value::Null), None, "{kind}");
    }
}

/// The generations in the status that a cluster reports: of the member object, observed by its
/// controller, and of the template from which it was applied.
fn generations(own: i64, observed: i64, template: i64) -> Value {
    json!({"generation": own, "observedGeneration": observed, "resourceTemplateGeneration": template})
}

// proves: NAT-status-workloads, NAT-aggregate-generation, NAT-aggregate-others
#[test]
fn counters_add_up_and_the_generation_follows_when_all_are_there() {
    let table = [
        // The statuses of the clusters, and whether observedGeneration follows the template.
        (vec![generations(7, 7, 3), generations(2, 2, 3)], true),
        (vec![generations(7, 8, 4), generations(2, 2, 3)], true),
        (vec![generations(7, 6, 3), generations(2, 2, 3)], false),
        (vec![generations(7, 7, 2), generations(2, 2, 3)], false),
        (vec![generations(7, 7, 3), Value::Null], false),
        (vec![], true),
    ];
    for (kind, counter) in [
        ("Deployment", "replicas"),
        ("ReplicaSet", "replicas"),
        ("DaemonSet", "numberReady"),
        ("StatefulSet", "readyReplicas"),
    ] {
        let before = json!({"observedGeneration": 2, "collisionCount": 1, counter: 99});
        for (clusters, follows) in &table {
            let mut sum = 0;
            let clusters: Vec<Value> = (1..)
                .zip(clusters)
                .map(|(n, status)| match status {
                    Value::Null => Value::Null,
                    status => {
                        sum += n;
                        merged(status.clone(), json!({counter: n}))
                    }
                })
                .collect();
            let total = aggregated(kind, &before, &clusters).unwrap();
            let expected = if *follows { 3 } else { 2 };
            assert_eq!(total["observedGeneration"], expected, "{kind} {clusters:?}");
            assert_eq!(total.get(counter).and_then(Value::as_i64).unwrap_or(0), sum);
            // Other fields are unchanged.
            assert_eq!(total["collisionCount"], 1, "{kind}");
        }
    }
}

/// Without it `kubectl rollout status` would never return.
// proves: NAT-statefulset-generation
#[test]
fn an_edit_of_a_stateful_set_is_observed_when_all_members_have_observed_theirs() {
    let copy = |observed: i64| {
        let status = json!({"replicas": 2, "readyReplicas": 2, "observedGeneration": observed});
        reflected("StatefulSet", json!({}), status).unwrap()
    };
    let before = json!({"observedGeneration": 2});
    let total = aggregated("StatefulSet", &before, &[copy(7), copy(7)]).unwrap();
    assert_eq!(total["observedGeneration"], 3);
    assert_eq!(total["readyReplicas"], 4);
    let total = aggregated("StatefulSet", &before, &[copy(7), copy(6)]).unwrap();
    assert_eq!(
        total["observedGeneration"], 2,
        "one cluster has not observed its generation"
    );
}

// proves: NAT-addresses
#[test]
fn addresses_of_services_and_ingresses_are_joined() {
    let at = |all: Value| json!({"loadBalancer": {"ingress": all}});
    let clusters = [
        at(json!([{"ip": "10.0.0.2"}, {"hostname": "x"}])),
        Value::Null,
        at(json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}])),
    ];
    let all = at(json!([{"hostname": "x"}, {"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]));
    for kind in ["Service", "Ingress"] {
        let joined = aggregated(kind, &json!({}), &clusters);
        assert_eq!(joined, Some(all.clone()), "{kind}");
    }
}

// proves: NAT-job-complete, NAT-job-failed, NAT-job-criteria, NAT-job-times
#[test]
fn a_job_ends_when_it_has_ended_everywhere_or_failed_anywhere() {
    let one = |conditions: &[&str], start: &str, end: &str| {
        let condition = |kind: &&str| json!({"type": kind, "status": "True"});
        let conditions: Vec<Value> = conditions.iter().map(condition).collect();
        let mut status =
            json!({"active": 1, "succeeded": 2, "failed": 3, "conditions": conditions});
        for (field, hour) in [("startTime", start), ("completionTime", end)] {
            if !hour.is_empty() {
                status[field] = format!("2026-01-01T{hour}:00:00Z").into();
            }
        }
        status
    };
    let summary = |clusters: &[Value]| -> Value {
        let total = aggregated("Job", &json!({}), clusters).unwrap();
        let conditions = total["conditions"].as_array().cloned().unwrap_or_default();
        let short = conditions
            .iter()
            .map(|c| json!([c["type"], c["reason"], c["message"]]));
        let hour = |field: &str| total[field].as_str().map_or("", |t| &t[11..13]).to_owned();
        json!([
            short.collect::<Vec<_>>(),
            hour("startTime"),
            hour("completionTime")
        ])
    };
    let complete = json!(["Complete", "Completed", "Job completed"]);
    let criteria = json!([
        "SuccessCriteriaMet",
        "CompletionsReached",
        "All member clusters have met success criteria"
    ]);
    let failed = |clusters: &str| {
        json!([
            "Failed",
            "JobFailed",
            format!("Job executed failed in member clusters {clusters}")
        ])
    };
    let met = ["SuccessCriteriaMet", "Complete"];
    for (clusters, expected) in [
        (
            vec![
                one(&["Complete"], "02", "05"),
                one(&["Complete"], "01", "04"),
            ],
            json!([[complete], "01", "05"]),
        ),
        (
            vec![one(&met, "02", "05"), one(&met, "01", "04")],
            json!([[complete, criteria], "01", "05"]),
        ),
        (
            vec![one(&met, "02", "05"), one(&["Complete"], "01", "04")],
            json!([[complete], "01", "05"]),
        ),
        // One cluster has not finished, or has not even started.
        (
            vec![one(&["Complete"], "02", "05"), one(&[], "03", "")],
            json!([[], "02", ""]),
        ),
        (
            vec![one(&["Complete"], "02", "05"), one(&[], "", "")],
            json!([[], "", ""]),
        ),
        (
            vec![one(&["Complete"], "02", "05"), Value::Null],
            json!([[], "", ""]),
        ),
        (
            vec![one(&["Complete"], "02", "05"), one(&["Failed"], "03", "")],
            json!([[failed("b")], "02", ""]),
        ),
        (
            vec![
                one(&["Failed"], "02", ""),
                one(&[], "02", ""),
                one(&["Failed"], "03", ""),
            ],
            json!([[failed("a,c")], "02", ""]),
        ),
    ] {
        assert_eq!(summary(&clusters), expected, "{clusters:?}");
    }
    let two = aggregated(
        "Job",
        &json!({}),
        &[one(&[], "", ""), Value::Null, one(&[], "", "")],
    );
    assert_eq!(two, Some(json!({"active": 2, "succeeded": 4, "failed": 6})));
}
