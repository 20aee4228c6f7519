//! Measures the scheduler's decisions in memory, without server and store.
//!
//! generated clusters and bindings ──► [`scheduler::core`] ──► one JSON line per measurement
//!
//! This is a bench target of the scheduler's crate, so that it is built without the server:
//! run it with `cargo bench --bench decisions`.

mod measurement;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::ensure;
use karmada_api::ResourceBindingSpec;
use machinery::Object;
use measurement::{MeasurementLimit, MeasurementRecorder, median};
use scheduler::core::{
    ClusterSnapshot, ScheduleRequest, SchedulingContext, make_decision, schedule,
};
use serde_json::{Value, json};

const RUNS: usize = 5;
/// The numbers of clusters for the measurement of growth.
const CLUSTER_COUNTS: [usize; 6] = [125, 250, 500, 1000, 2000, 4000];
/// The factor by which growth may exceed n log n.
const GROWTH_SLACK: f64 = 1.5;

/// A cluster with resource models, labels and one of `regions` regions.
fn cluster(n: usize, regions: usize) -> anyhow::Result<Object> {
    let model = |grade: usize, cpu: &str, memory: &str| {
        json!({"grade": grade, "ranges": [
            {"name": "cpu", "min": cpu, "max": "1000"}, {"name": "memory", "min": memory, "max": "4Ti"}]})
    };
    let kinds = json!([{"name": "deployments", "kind": "Deployment"}]);
    let cluster = json!({
        "metadata": {"name": format!("member-{n:05}"), "labels": {"tier": (n % 4).to_string(), "site": (n % 10).to_string()}},
        "spec": {
            "syncMode": "Push", "provider": "p", "region": format!("region-{:03}", n % regions),
            "zones": [format!("zone-{}", n % 7)],
            "resourceModels": [model(0, "1", "4Gi"), model(1, "4", "16Gi"), model(2, "16", "64Gi")],
        },
        "status": {
            "apiEnablements": [{"groupVersion": "apps/v1", "resources": kinds}],
            "resourceSummary": {
                "allocatable": {"pods": 400 + n % 97, "cpu": "640", "memory": "2Ti"},
                "allocated": {"pods": n % 53, "cpu": "64", "memory": "256Gi"},
                "allocatableModelings": [{"grade": 0, "count": 2}, {"grade": 1, "count": 10 + n % 5}, {"grade": 2, "count": 6}],
            },
        },
    });
    Ok(Object::from_value(&cluster)?)
}

fn snapshot(clusters: usize, regions: usize) -> anyhow::Result<ClusterSnapshot> {
    let all: anyhow::Result<Vec<Object>> = (0..clusters).map(|n| cluster(n, regions)).collect();
    Ok(ClusterSnapshot::new(all?))
}

fn divided(preference: &str, weights: &Value) -> Value {
    json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": preference, "weightPreference": weights})
}

/// Six kinds of placement in turn.
fn mixed_placement(n: usize) -> Value {
    let dynamic = json!({"dynamicWeight": "AvailableReplicas"});
    let by_label = |tier: &str| json!({"labelSelector": {"matchLabels": {"tier": tier}}});
    let clusters = |least: usize, most: usize| json!([{"spreadByField": "cluster", "minGroups": least, "maxGroups": most}]);
    match n % 6 {
        0 => json!({"clusterAffinity": by_label("1")}),
        1 => {
            let weight = |tier, weight| json!({"targetCluster": by_label(tier), "weight": weight});
            let weights =
                json!({"staticWeightList": [weight("0", 1), weight("1", 2), weight("2", 3)]});
            json!({"replicaScheduling": divided("Weighted", &weights)})
        }
        2 => json!({"replicaScheduling": divided("Weighted", &dynamic)}),
        3 => json!({"replicaScheduling": divided("Aggregated", &Value::Null)}),
        4 => {
            json!({"replicaScheduling": divided("Weighted", &dynamic), "spreadConstraints": clusters(2, 5)})
        }
        _ => json!({"spreadConstraints": clusters(1, 3)}),
    }
}

/// A placement spread over two to three of many regions.
fn regional_placement(n: usize) -> Value {
    let preference = if n.is_multiple_of(2) {
        "Aggregated"
    } else {
        "Weighted"
    };
    json!({
        "replicaScheduling": divided(preference, &json!({"dynamicWeight": "AvailableReplicas"})),
        "spreadConstraints": [
            {"spreadByField": "region", "minGroups": 2, "maxGroups": 3},
            {"spreadByField": "cluster", "minGroups": 4, "maxGroups": 10},
        ],
    })
}

/// A placement spread over half of many regions, with more clusters than the smallest
/// regions have.
fn crowded_placement(n: usize) -> Value {
    let (regions, clusters) = (200, 420 + 5 * n);
    json!({"spreadConstraints": [
        {"spreadByField": "region", "minGroups": regions, "maxGroups": regions},
        {"spreadByField": "cluster", "minGroups": clusters, "maxGroups": clusters},
    ]})
}

fn bindings(
    count: usize,
    placement: fn(usize) -> Value,
) -> anyhow::Result<Vec<ResourceBindingSpec>> {
    let spec = |n: usize| {
        let placed = json!([{"name": format!("member-{:05}", n % 50), "replicas": 1 + n % 3}]);
        let spec = json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": format!("web-{n}"), "uid": format!("{n}")},
            "replicas": 3 + n % 40,
            "replicaRequirements": {"resourceRequest": {"cpu": "250m", "memory": "512Mi"}},
            "placement": placement(n),
            "clusters": if n.is_multiple_of(3) { placed } else { json!([]) },
        });
        Ok(serde_json::from_value(spec)?)
    };
    (0..count).map(spec).collect()
}

fn schedule_request(spec: &ResourceBindingSpec) -> Option<ScheduleRequest<'_>> {
    Some(ScheduleRequest {
        spec,
        placement: spec.placement.as_ref()?,
        term: None,
        fresh: false,
    })
}

/// The seconds for scheduling all bindings, median of [`RUNS`].
fn time_scheduling(
    bindings: &[ResourceBindingSpec],
    snapshot: &ClusterSnapshot,
) -> anyhow::Result<f64> {
    let context = SchedulingContext::from_snapshot(snapshot);
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let start = Instant::now();
        let placed = bindings.iter().filter_map(schedule_request);
        let placed = placed.filter(|r| schedule(r, &context).is_ok()).count();
        times.push(start.elapsed().as_secs_f64());
        ensure!(placed == bindings.len(), "{placed} of {}", bindings.len());
    }
    Ok(median(&mut times))
}

fn measure_many_bindings(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let bindings = bindings(5000, mixed_placement)?;
    let elapsed = time_scheduling(&bindings, &snapshot(100, 10)?)?;
    let setup =
        "5,000 bindings of six kinds of placement over 100 clusters, one thread, median of 5";
    report.record(
        "decide_many",
        elapsed,
        "s",
        MeasurementLimit::Below(1.0),
        setup,
    );
    let rate = bindings.len() as f64 / elapsed;
    // The limit is the rate that Karmada publishes.
    report.record(
        "decide_rate",
        rate,
        "1/s",
        MeasurementLimit::AtLeast(22.0),
        setup,
    );
    Ok(())
}

fn measure_regions(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let crowded_ones = bindings(10, crowded_placement)?;
    let bindings = bindings(1000, regional_placement)?;
    let elapsed = time_scheduling(&bindings, &snapshot(1000, 20)?)?;
    let setup = "1,000 bindings spread over 2 to 3 of 20 regions and 4 to 10 of 1,000 clusters, one thread, median of 5";
    report.record(
        "decide_regions",
        elapsed,
        "s",
        MeasurementLimit::Below(1.0),
        setup,
    );
    let elapsed = time_scheduling(&bindings[..100], &snapshot(1000, 250)?)?;
    let setup = "100 bindings spread over 2 to 3 of 250 regions and 4 to 10 of 1,000 clusters";
    report.record(
        "decide_many_regions",
        elapsed,
        "s",
        MeasurementLimit::Below(1.0),
        setup,
    );
    let elapsed = time_scheduling(&crowded_ones, &snapshot(1000, 400)?)?;
    let setup = "10 bindings spread over 200 of 400 regions, and 420 to 465 of 1,000 clusters";
    report.record(
        "decide_crowded_regions",
        elapsed,
        "s",
        MeasurementLimit::Below(1.0),
        setup,
    );
    Ok(())
}

/// The time by number of clusters, relative to n log n.
fn measure_growth(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    for (name, placement) in [
        ("mixed", mixed_placement as fn(usize) -> Value),
        ("regions", regional_placement),
    ] {
        let bindings = bindings(120, placement)?;
        let mut first = None;
        for clusters in CLUSTER_COUNTS {
            let elapsed = time_scheduling(&bindings, &snapshot(clusters, 20)?)?;
            let n = clusters as f64;
            let expected = n * n.ln();
            let (took_first, expected_first) = *first.get_or_insert((elapsed, expected));
            let each = elapsed / bindings.len() as f64 * 1e6;
            let setup = format!("one decision ({name}) over {clusters} clusters");
            report.record("decide_each", each, "µs", MeasurementLimit::None, &setup);
            let beside = elapsed / took_first * expected_first / expected;
            report.record(
                "decide_growth",
                beside,
                "× n log n",
                MeasurementLimit::Below(GROWTH_SLACK),
                &setup,
            );
        }
    }
    Ok(())
}

/// The cost and size of the trace that explains a decision.
fn measure_traces(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let bindings = bindings(600, mixed_placement)?;
    for clusters in [3, 100, 1000] {
        let snapshot = snapshot(clusters, 3)?;
        let context = SchedulingContext::from_snapshot(&snapshot);
        let (mut seconds, mut length) = (0.0, 0);
        for request in bindings.iter().filter_map(schedule_request) {
            let decision = make_decision(&request, &context, &mut |_| {});
            let start = Instant::now();
            let trace = decision.trace();
            seconds += start.elapsed().as_secs_f64();
            length = length.max(serde_json::to_vec(&trace)?.len());
        }
        let setup = format!("the trace of one decision over {clusters} clusters");
        let each = seconds / bindings.len() as f64 * 1e6;
        report.record(
            "trace_each",
            each,
            "µs",
            MeasurementLimit::Below(500.0),
            &setup,
        );
        let length = length as f64 / 1024.0;
        report.record(
            "trace_length",
            length,
            "KiB",
            MeasurementLimit::Below(16.0),
            &setup,
        );
    }
    Ok(())
}

type DecisionBenchGroup = (
    &'static str,
    fn(&mut MeasurementRecorder) -> anyhow::Result<()>,
);

fn main() -> ExitCode {
    let mut report = MeasurementRecorder::default();
    let groups: [DecisionBenchGroup; 4] = [
        ("many", measure_many_bindings),
        ("regions", measure_regions),
        ("growth", measure_growth),
        ("traces", measure_traces),
    ];
    for (name, run) in groups {
        if let Err(e) = run(&mut report) {
            report.record_failure(name, &e);
        }
    }
    report.finish()
}
