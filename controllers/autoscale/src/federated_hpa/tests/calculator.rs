//! Tests of the replica calculator: its rules one by one, and what Karmada adds to Kubernetes'. The other
//! cases of Kubernetes are in `calculator_case_tests`.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::federated_hpa::pod_groups::{
    ContainerRequests, PodKey, PodMetric, PodMetrics, PodPhase, PodStartPeriods, ReadyCondition,
    ScaledPod,
};
use crate::federated_hpa::replica_calculator::{CalculatorInput, PodTarget, ReplicaProposal};

pub(super) const MINUTE: SignedDuration = SignedDuration::from_mins(1);

pub(super) fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

pub(super) fn key(i: usize) -> PodKey {
    PodKey {
        cluster: Arc::from("member"),
        name: Arc::from(format!("pod-{i}")),
    }
}

/// A letter for each pod: `r`eady, `u`nready, `h`ot (started just now), `f`ailed, `p`ending,
/// `d`eleted.
pub(super) fn pods(states: &str, request: i64) -> Vec<ScaledPod> {
    states
        .chars()
        .enumerate()
        .map(|(i, state)| {
            let started = match state {
                'h' => now() - SignedDuration::from_secs(30),
                _ => now() - MINUTE * 60,
            };
            ScaledPod {
                key: key(i),
                phase: match state {
                    'f' => PodPhase::Failed,
                    'p' => PodPhase::Pending,
                    _ => PodPhase::Running,
                },
                deleting: state == 'd',
                start_time: Some(started),
                ready: Some(ReadyCondition {
                    is_true: !matches!(state, 'u' | 'p'),
                    is_false: matches!(state, 'u' | 'p'),
                    last_transition: started,
                }),
                containers: vec![ContainerRequests {
                    name: "c".into(),
                    requests: [("cpu".to_owned(), request)].into(),
                }],
            }
        })
        .collect()
}

pub(super) fn metrics(values: &[i64]) -> PodMetrics {
    let metric = |value: &i64| PodMetric {
        value: *value,
        timestamp: now() - SignedDuration::from_secs(15),
        window: MINUTE,
    };
    let entries = values.iter().enumerate();
    entries.map(|(i, value)| (key(i), metric(value))).collect()
}

pub(super) fn input(current_replicas: i32, pods: &[ScaledPod]) -> CalculatorInput<'_> {
    CalculatorInput {
        current_replicas,
        status_replicas: current_replicas,
        calibration: 1.0,
        pods,
        tolerance: 0.1,
        periods: PodStartPeriods {
            cpu_initialization: MINUTE * 2,
            initial_readiness_delay: SignedDuration::from_secs(10),
        },
        now: now(),
    }
}

pub(super) fn utilization(percent: i32) -> PodTarget<'static> {
    PodTarget::Utilization {
        percent,
        resource: "cpu",
        container: "",
    }
}

/// Name, current replicas, pods, metrics, target in percent, and the expected replicas, utilization
/// and mean.
type UtilizationCase = (
    &'static str,
    i32,
    &'static str,
    &'static [i64],
    i32,
    (i32, i32, i64),
);

const UTILIZATION_CASES: &[UtilizationCase] = &[
    ("up", 3, "rrr", &[300, 500, 700], 30, (5, 50, 500)),
    (
        "up, less for the unready",
        3,
        "urr",
        &[300, 500, 700],
        30,
        (4, 60, 600),
    ),
    (
        "up, less for the hot",
        3,
        "hrr",
        &[300, 500, 700],
        30,
        (4, 60, 600),
    ),
    (
        "not up for one cool pod",
        3,
        "rhh",
        &[400, 500, 700],
        30,
        (3, 40, 400),
    ),
    (
        "up, without failed pods",
        2,
        "rrff",
        &[500, 700],
        30,
        (4, 60, 600),
    ),
    (
        "up, without deleted pods",
        2,
        "rrdd",
        &[500, 700],
        30,
        (4, 60, 600),
    ),
    (
        "down",
        5,
        "rrrrr",
        &[100, 300, 500, 250, 250],
        50,
        (3, 28, 280),
    ),
    (
        "down, without unready pods",
        5,
        "rrruu",
        &[100, 300, 500, 250, 250],
        50,
        (2, 30, 300),
    ),
    (
        "tolerance",
        3,
        "rrr",
        &[1010, 1030, 1020],
        100,
        (3, 102, 1020),
    ),
    (
        "metrics of other pods",
        4,
        "rrrr",
        &[4000, 9500, 3000, 7000, 3200, 2000],
        100,
        (24, 587, 5875),
    ),
    ("missing metrics", 4, "rrrr", &[400, 95], 100, (3, 24, 247)),
    (
        "missing metrics, on target",
        2,
        "rr",
        &[1000],
        100,
        (2, 100, 1000),
    ),
    (
        "missing metrics, above",
        2,
        "rr",
        &[1900],
        100,
        (2, 190, 1900),
    ),
    ("missing metrics, below", 2, "rr", &[600], 100, (2, 60, 600)),
    (
        "missing and unready, no change",
        3,
        "urr",
        &[100, 450],
        50,
        (3, 45, 450),
    ),
    (
        "missing and hot, no change",
        3,
        "hrr",
        &[100, 450],
        50,
        (3, 45, 450),
    ),
    (
        "missing and unready, up",
        3,
        "urr",
        &[100, 2000],
        50,
        (4, 200, 2000),
    ),
    (
        "missing and unready, down",
        4,
        "urrr",
        &[100, 100, 100],
        50,
        (3, 10, 100),
    ),
    (
        "pending pods of a rolling update",
        2,
        "rrp",
        &[100],
        50,
        (2, 10, 100),
    ),
];

// proves: FHP-utilization, FHP-unready, FHP-missing
#[test]
fn replicas_follow_the_utilization() {
    for (name, current, states, values, percent, (replicas, percentage, usage)) in UTILIZATION_CASES
    {
        // The pods of the rolling update and of the superfluous metrics request a core, too.
        let pods = pods(states, 1000);
        let proposal = input(*current, &pods).by_pods(utilization(*percent), metrics(values));
        let expected = ReplicaProposal {
            replicas: *replicas,
            usage: *usage,
            utilization: Some(*percentage),
        };
        assert_eq!(proposal, Ok(expected), "{name}");
    }
}

// proves: FHP-average
#[test]
fn replicas_follow_an_average() {
    for (name, current, states, values, target, replicas, usage) in [
        (
            "up",
            3,
            "rrr",
            &[20_000, 10_000, 30_000][..],
            15_000,
            4,
            20_000,
        ),
        (
            "hot and unready pods count",
            3,
            "rhu",
            &[50_000, 10_000, 30_000],
            15_000,
            6,
            30_000,
        ),
        (
            "without failed pods",
            3,
            "rrf",
            &[50_000, 10_000],
            15_000,
            4,
            30_000,
        ),
        ("down", 5, "rrrrr", &[12_000; 5], 20_000, 3, 12_000),
        (
            "tolerance",
            3,
            "rrr",
            &[20_000, 21_000, 21_000],
            20_000,
            3,
            20_666,
        ),
        (
            "a pending pod counts as idle",
            2,
            "rrp",
            &[30_000, 30_000],
            15_000,
            4,
            30_000,
        ),
    ] {
        let pods = pods(states, 1000);
        let target = PodTarget::Average {
            milli: target,
            resource: "",
        };
        let proposal = input(current, &pods).by_pods(target, metrics(values));
        let expected = ReplicaProposal {
            replicas,
            usage,
            utilization: None,
        };
        assert_eq!(proposal, Ok(expected), "{name}");
    }
}

// proves: FHP-object
#[test]
fn replicas_follow_the_metric_of_an_object() {
    for (name, current, states, target, value, replicas) in [
        ("up", 3, "rrr", 15_000, 20_000, 4),
        ("only ready pods count", 5, "rruuu", 5_000, 10_000, 4),
        ("tolerance", 3, "rrr", 20_000, 21_000, 3),
        ("from nothing", 0, "", 15_000, 31_000, 3),
        ("to nothing", 3, "rrr", 15_000, 0, 0),
    ] {
        let pods = pods(states, 1000);
        let proposal = input(current, &pods)
            .by_object_value(target, value)
            .unwrap();
        assert_eq!(
            (proposal.replicas, proposal.usage),
            (replicas, value),
            "{name}"
        );
    }
    for (name, current, target, value, replicas, usage) in [
        ("up", 3, 10_000, 40_000, 4, 13_334),
        ("down", 5, 20_000, 60_000, 3, 12_000),
        ("tolerance", 4, 10_000, 41_000, 4, 10_250),
    ] {
        let proposal = input(current, &[]).by_object_average(target, value);
        assert_eq!(
            (proposal.replicas, proposal.usage),
            (replicas, usage),
            "{name}"
        );
    }
}

// proves: FHP-calibration
#[test]
fn replicas_are_those_of_the_template() {
    let pods = pods("rrrrrr", 1000);
    // Each replica of the template is one pod in each of three clusters.
    let target = CalculatorInput {
        current_replicas: 2,
        status_replicas: 6,
        calibration: 3.0,
        ..input(2, &pods)
    };
    let doubled = target
        .by_pods(utilization(50), metrics(&[1000; 6]))
        .unwrap();
    assert_eq!(doubled.replicas, 4);
    let a_third = target
        .by_pods(utilization(75), metrics(&[1000; 6]))
        .unwrap();
    assert_eq!(a_third.replicas, 3, "rounded up");
    assert_eq!(target.by_object_value(10_000, 20_000).unwrap().replicas, 4);
    assert_eq!(target.by_object_average(10_000, 120_000).replicas, 4);
    assert_eq!(
        target.by_object_average(10_000, 60_000).replicas,
        2,
        "on target"
    );
}

// proves: FHP-errors
#[test]
fn what_cannot_be_computed_is_an_error() {
    let ready = pods("rr", 1000);
    let mut others = metrics(&[100]);
    let metric = others.remove(&key(0)).unwrap();
    others.insert(key(7), metric);
    let failed = pods("ff", 1000);
    let without_request = {
        let mut pods = pods("rr", 1000);
        pods[1].containers[0].requests.clear();
        pods
    };
    for (pods, metrics, expected) in [
        (
            &ready[..0],
            metrics(&[1]),
            "no pods returned by selector while calculating replica count",
        ),
        (&ready, others, "no metrics returned matched known pods"),
        (
            &failed,
            metrics(&[100, 100]),
            "did not receive metrics for any ready pods",
        ),
        (
            &without_request,
            metrics(&[100, 100]),
            "missing request for cpu in container c of Pod pod-1",
        ),
    ] {
        let result = input(2, pods).by_pods(utilization(50), metrics);
        assert_eq!(result, Err(expected.to_owned()));
    }
}

// proves: FHP-container
#[test]
fn requests_may_be_those_of_one_container() {
    let mut pods = pods("rr", 1000);
    for pod in &mut pods {
        pod.containers.push(ContainerRequests {
            name: "sidecar".into(),
            ..ContainerRequests::default()
        });
    }
    let target = PodTarget::Utilization {
        percent: 50,
        resource: "cpu",
        container: "c",
    };
    let proposal = input(2, &pods).by_pods(target, metrics(&[1000, 1000]));
    assert_eq!(proposal.unwrap().replicas, 4);
}
