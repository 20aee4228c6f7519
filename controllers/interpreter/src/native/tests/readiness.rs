//! Tables of the conditions by which clients wait for a template.

use jiff::Timestamp;
use machinery::Gvk;
use serde_json::{Value, json};

use crate::native::fixtures::object;
use crate::native::rules::CollectedStatus;
use crate::native::{NativeInterpreter, rules_for};

const UP_TO_DATE: [&str; 3] = [
    "generation",
    "observedGeneration",
    "resourceTemplateGeneration",
];

/// The report of a cluster about its copy: the counters, and its other fields.
fn copy(generation: i64, more: Value) -> Value {
    let mut status = json!({"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
    for field in UP_TO_DATE {
        status[field] = generation.into();
    }
    for (field, value) in more.as_object().unwrap() {
        status[field] = value.clone();
    }
    status
}

fn conditions(all: &[(&str, &str, &str)]) -> Value {
    let all = all.iter().map(|(kind, status, reason)| {
        json!({"type": kind, "status": status, "reason": reason, "message": "why"})
    });
    json!({"conditions": all.collect::<Vec<_>>()})
}

/// The conditions of a template as `type status reason`.
fn summary(status: &Value) -> Vec<String> {
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    let text = |c: &Value, field: &str| c[field].as_str().unwrap_or("-").to_owned();
    all.iter()
        .map(|c| ["type", "status", "reason"].map(|f| text(c, f)).join(" "))
        .collect()
}

fn deployment(spec: Value, old: &[(&str, &str, &str)]) -> Value {
    json!({"metadata": {"name": "web", "generation": 2}, "spec": spec, "status": conditions(old)})
}

const WAITING: &str = "Available False MinimumReplicasUnavailable";
const AVAILABLE: &str = "Available True MinimumReplicasAvailable";
const GOING: &str = "Progressing True ReplicaSetUpdated";
const DONE: &str = "Progressing True NewReplicaSetAvailable";

/// The clusters a and b, and c, which the binding no longer contains.
fn aggregate(kind: &Gvk, template: Value, copies: &[Option<(Value, bool)>], now: i64) -> Value {
    let clusters = ["a", "b", "c"].into_iter().zip(copies);
    let item = |(cluster, copy): (&'static str, &'_ Option<(Value, bool)>)| CollectedStatus {
        healthy: copy.as_ref().is_some_and(|(_, healthy)| *healthy),
        leaving: cluster == "c",
        ..CollectedStatus::new(cluster, None)
    };
    let mut items: Vec<CollectedStatus<'_>> = clusters.map(item).collect();
    for (item, copy) in items.iter_mut().zip(copies) {
        item.status = copy.as_ref().map(|(status, _)| status);
    }
    let now = Timestamp::from_second(now).unwrap();
    let status = NativeInterpreter.aggregate_status(kind, &object(template), &items, now);
    status.unwrap().unwrap()
}

fn check_deployment(
    says: &str,
    template: Value,
    copies: &[Option<(Value, bool)>],
    expected: &[&str],
) {
    let kind = Gvk::from_static("apps", "v1", "Deployment");
    let status = aggregate(&kind, template.clone(), copies, 1);
    assert_eq!(summary(&status), expected, "{says}");
    // Nothing is written again while the clusters report the same.
    let mut again = template;
    again["status"] = status.clone();
    assert_eq!(aggregate(&kind, again, copies, 2), status, "{says}");
}

// proves: NAT-deployment-available, NAT-deployment-progressing
#[test]
fn a_deployment_is_available_where_every_cluster_says_so() {
    let new = || deployment(json!({"replicas": 4}), &[]);
    let ready = || Some((copy(2, json!({})), true));
    let short = |more| Some((copy(2, more), false));
    let fewer = || json!({"availableReplicas": 1, "unavailableReplicas": 1});
    let says_available = || conditions(&[("Available", "True", "")]);
    let rolled_out = || conditions(&[("Progressing", "True", "NewReplicaSetAvailable")]);
    let zero = json!({"replicas": 0, "updatedReplicas": 0, "availableReplicas": 0});
    let zero = || Some((copy(2, zero.clone()), true));
    check_deployment("in no cluster", new(), &[], &[WAITING, GOING]);
    check_deployment("both ready", new(), &[ready(), ready()], &[AVAILABLE, DONE]);
    check_deployment("no replicas", new(), &[zero()], &[AVAILABLE, DONE]);
    check_deployment("b is silent", new(), &[ready(), None], &[WAITING, GOING]);
    check_deployment(
        "b is short",
        new(),
        &[ready(), short(fewer())],
        &[WAITING, GOING],
    );
    let copies = [ready(), short(says_available())];
    check_deployment("b has enough", new(), &copies, &[AVAILABLE, GOING]);
    let copies = [ready(), short(rolled_out())];
    check_deployment("a pod of b died", new(), &copies, &[WAITING, DONE]);
    let copies = [ready(), Some((copy(2, json!({"replicas": 3})), true))];
    check_deployment(
        "an old pod of b is left",
        new(),
        &copies,
        &[AVAILABLE, GOING],
    );
    let copies = [ready(), ready(), Some((copy(1, fewer()), false))];
    check_deployment("c is being evicted", new(), &copies, &[AVAILABLE, DONE]);
}

// proves: NAT-deployment-progressing
#[test]
fn the_rollout_of_a_deployment_follows_the_newest_generation() {
    let ready = || Some((copy(2, json!({})), true));
    let stale = || Some((copy(1, json!({})), true));
    let failed = |generation| {
        let conditions = conditions(&[("Progressing", "False", "ProgressDeadlineExceeded")]);
        Some((copy(generation, conditions), false))
    };
    let old = [
        ("Available", "True", "MinimumReplicasAvailable"),
        ("Progressing", "True", "NewReplicaSetAvailable"),
    ];
    let edited = || deployment(json!({}), &old);
    let copies = [ready(), stale()];
    check_deployment("b is stale", edited(), &copies, &[AVAILABLE, DONE]);
    let exceeded = "Progressing False ProgressDeadlineExceeded";
    let copies = [ready(), failed(2)];
    check_deployment("b fails", edited(), &copies, &[WAITING, exceeded]);
    let copies = [ready(), failed(1)];
    check_deployment("b failed before", edited(), &copies, &[WAITING, DONE]);
    let paused = deployment(json!({"paused": true}), &old);
    let unknown = "Progressing Unknown DeploymentPaused";
    check_deployment("paused", paused, &[ready(), ready()], &[AVAILABLE, unknown]);
    let full = conditions(&[("ReplicaFailure", "True", "FailedCreate")]);
    let copies = [ready(), Some((copy(2, full), false))];
    let failure = "ReplicaFailure True FailedCreate";
    check_deployment(
        "a quota of b is full",
        edited(),
        &copies,
        &[WAITING, GOING, failure],
    );
    let failing = deployment(json!({}), &[("ReplicaFailure", "True", "FailedCreate")]);
    check_deployment("it was full", failing, &[ready()], &[AVAILABLE, DONE]);
}

#[test]
fn a_failed_rollout_names_the_cluster() {
    let kind = Gvk::from_static("apps", "v1", "Deployment");
    let failed = conditions(&[("Progressing", "False", "ProgressDeadlineExceeded")]);
    let copies = [
        Some((copy(2, json!({})), true)),
        Some((copy(2, failed), false)),
    ];
    let status = aggregate(&kind, deployment(json!({}), &[]), &copies, 1);
    assert_eq!(status["conditions"][1]["message"], "cluster b: why");
    let message = &status["conditions"][0]["message"];
    let expected = "Deployment does not have minimum availability in clusters: b";
    assert_eq!(message, expected);
}

/// A Deployment that runs as it should reports what Karmada collects.
// proves: NAT-deployment-reflected
#[test]
fn a_deployment_reports_the_conditions_that_the_counters_do_not_tell() {
    let rules = rules_for(&Gvk::from_static("apps", "v1", "Deployment"));
    let reflected = |available: i64, all: &[(&str, &str, &str)]| {
        let mut status = conditions(all);
        status["updatedReplicas"] = 2.into();
        status["availableReplicas"] = available.into();
        let observed =
            json!({"metadata": {"name": "d"}, "spec": {"replicas": 2}, "status": status});
        summary(&rules.reflect_status(&object(observed)).unwrap().unwrap())
    };
    let done = ("Progressing", "True", "NewReplicaSetAvailable");
    let none: [&str; 0] = [];
    assert_eq!(reflected(2, &[("Available", "True", "M"), done]), none);
    assert_eq!(
        reflected(1, &[("Available", "True", "M"), done]),
        [
            "Available True -",
            "Progressing True NewReplicaSetAvailable"
        ]
    );
    let going = ("Progressing", "True", "ReplicaSetUpdated");
    assert_eq!(reflected(1, &[("Available", "False", "M"), going]), none);
    let exceeded = ("Progressing", "False", "ProgressDeadlineExceeded");
    assert_eq!(
        reflected(1, &[exceeded, ("ReplicaFailure", "True", "not a reason")]),
        [
            "ReplicaFailure True Unknown",
            "Progressing False ProgressDeadlineExceeded"
        ]
    );
}

// proves: NAT-pod-conditions
#[test]
fn a_pod_is_ready_where_it_is_ready_everywhere() {
    let kind = Gvk::from_static("", "v1", "Pod");
    let pod = |ready: &str| {
        let all = [("Ready", ready, "R"), ("ContainersReady", ready, "R")];
        Some((conditions(&all), true))
    };
    let both = |status: &str, reason: &str| {
        ["ContainersReady", "Ready"].map(|kind| format!("{kind} {status} {reason}"))
    };
    for (copies, status, reason) in [
        (vec![pod("True"), pod("True")], "True", "R"),
        (vec![pod("True"), pod("False")], "False", "R"),
        (vec![pod("True"), None], "False", "StatusNotReported"),
        (vec![None], "False", "StatusNotReported"),
        (vec![pod("True"), pod("True"), pod("False")], "True", "R"),
    ] {
        let template = json!({"metadata": {"name": "p"}});
        let first = aggregate(&kind, template.clone(), &copies, 1);
        assert_eq!(summary(&first), both(status, reason), "{copies:?}");
        let mut again = template;
        again["status"] = first.clone();
        assert_eq!(aggregate(&kind, again, &copies, 2), first);
    }
}

// proves: NAT-hpa-conditions, NAT-budget-condition
#[test]
fn autoscalers_and_budgets_have_their_conditions() {
    let kind = Gvk::from_static("autoscaling", "v2", "HorizontalPodAutoscaler");
    let scaler = |status: &str| {
        let all = [
            ("AbleToScale", "True", "ReadyForNewScale"),
            ("ScalingActive", status, "R"),
        ];
        let observed = json!({"metadata": {"name": "h"}, "status": conditions(&all)});
        let reflected = rules_for(&kind).reflect_status(&object(observed)).unwrap();
        Some((reflected.unwrap(), true))
    };
    let template = |version: &str| json!({"apiVersion": version, "metadata": {"name": "h"}});
    let both = [scaler("True"), scaler("False")];
    assert_eq!(
        summary(&aggregate(&kind, template("autoscaling/v2"), &both, 1)),
        ["AbleToScale True -", "ScalingActive False R"]
    );
    let none: [&str; 0] = [];
    let old_version = aggregate(&kind, template("autoscaling/v1"), &both, 1);
    assert_eq!(summary(&old_version), none);
    let silent = aggregate(&kind, template("autoscaling/v2"), &[None], 1);
    assert_eq!(summary(&silent), none);

    let kind = Gvk::from_static("policy", "v1", "PodDisruptionBudget");
    for (allowed, condition) in [
        (0, "DisruptionAllowed False InsufficientPods"),
        (1, "DisruptionAllowed True SufficientPods"),
    ] {
        let copies = [Some((json!({"disruptionsAllowed": allowed}), true)), None];
        let status = aggregate(&kind, json!({"metadata": {"name": "b"}}), &copies, 1);
        assert_eq!(summary(&status), [condition]);
    }
}
