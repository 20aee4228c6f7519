//! Properties that hold for any clusters and placement.

use karmada_api::{Placement, ResourceBindingSpec, TargetCluster};
use machinery::Object;
use proptest::prelude::*;
use serde_json::json;

use super::super::{
    ClusterSnapshot, ScheduleRequest, SchedulingContext, SchedulingFailure, is_duplicated,
    make_decision, schedule,
};
use super::cluster;
use super::decision_table::placement;

const PLACEMENTS: [&str; 12] = [
    "dup",
    "dup spread:cluster:1-3",
    "dup spread:region:1-2 spread:cluster:1-4",
    "even",
    "static:c0=1,c1=2,c2+c3=3",
    "dyn",
    "agg",
    "dyn spread:cluster:1-3",
    "agg spread:cluster:2-4",
    "dyn spread:region:2-2 spread:cluster:2-5",
    "agg not:c1",
    "dyn not:c0,c2 spread:cluster:1-2",
];

/// A cluster's pods, region, and whether it is tainted.
type GeneratedCluster = (i64, u8, bool);

#[derive(Clone, Debug)]
struct GeneratedSchedulingCase {
    clusters: Vec<GeneratedCluster>,
    placement: &'static str,
    replicas: i64,
    current_targets: Vec<(usize, i64)>,
    evicting: Option<usize>,
}

fn placement_scenario() -> impl Strategy<Value = GeneratedSchedulingCase> {
    let sketch = (0_i64..40, 0_u8..4, prop::bool::weighted(0.2));
    (
        prop::collection::vec(sketch, 1..10),
        prop::sample::select(&PLACEMENTS[..]),
        0_i64..60,
        prop::collection::vec((0_usize..10, 1_i64..20), 0..4),
        prop::option::of(0_usize..10),
    )
        .prop_map(|(clusters, placement, replicas, mut at, evicting)| {
            at.sort_unstable();
            at.dedup_by_key(|(n, _)| *n);
            GeneratedSchedulingCase {
                clusters,
                placement,
                replicas,
                current_targets: at,
                evicting,
            }
        })
}

impl GeneratedSchedulingCase {
    fn member(&self, at: usize, used: &[TargetCluster]) -> Object {
        let (pods, region, tainted) = self.clusters[at];
        let name = format!("c{at}");
        let taint = json!({"key": "k", "effect": "NoSchedule"});
        let taints = if tainted { json!([taint]) } else { json!([]) };
        let used = used
            .iter()
            .find(|t| t.name == name)
            .map_or(0, |t| t.replicas);
        let more = json!({
            "spec": {"region": format!("r{region}"), "taints": taints},
            "status": {"resourceSummary": {"allocated": {"pods": used}}},
        });
        cluster(&name, pods, more)
    }

    fn snapshot(&self, used: &[TargetCluster]) -> ClusterSnapshot {
        ClusterSnapshot::new((0..self.clusters.len()).map(|at| self.member(at, used)))
    }

    fn spec(&self) -> ResourceBindingSpec {
        let mut spec = json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "replicas": self.replicas, "replicaRequirements": {},
        });
        let at = self.current_targets.iter();
        spec["clusters"] = at
            .map(|(n, replicas)| json!({"name": format!("c{n}"), "replicas": replicas}))
            .collect();
        if let Some(n) = self.evicting {
            spec["gracefulEvictionTasks"] = json!([{"fromCluster": format!("c{n}")}]);
        }
        serde_json::from_value(spec).unwrap()
    }
}

fn run(
    spec: &ResourceBindingSpec,
    placement: &Placement,
    snapshot: &ClusterSnapshot,
) -> Result<Vec<TargetCluster>, SchedulingFailure> {
    let request = ScheduleRequest {
        spec,
        placement,
        term: None,
        fresh: false,
    };
    schedule(&request, &SchedulingContext::from_snapshot(snapshot))
}

fn sorted(mut targets: Vec<TargetCluster>) -> Vec<TargetCluster> {
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    targets
}

proptest! {
    // proves: SCH-sum
    #[test]
    fn every_replica_is_assigned_once(scene in placement_scenario()) {
        let (spec, placement) = (scene.spec(), placement(scene.placement));
        let targets = run(&spec, &placement, &scene.snapshot(&[]));
        let Ok(targets) = targets else { return Ok(()) };
        if is_duplicated(&placement) {
            prop_assert!(targets.iter().all(|t| t.replicas == scene.replicas));
        } else {
            prop_assert_eq!(targets.iter().map(|t| t.replicas).sum::<i64>(), scene.replicas);
        }
        prop_assert!(targets.iter().all(|t| t.replicas > 0));
    }

    // proves: SCH-nowhere-else
    #[test]
    fn no_replica_goes_to_an_infeasible_cluster(scene in placement_scenario()) {
        let (spec, placement) = (scene.spec(), placement(scene.placement));
        let targets = run(&spec, &placement, &scene.snapshot(&[])).unwrap_or_default();
        let excluded = placement.cluster_affinity.clone().unwrap_or_default().exclude;
        for target in &targets {
            prop_assert!(!excluded.contains(&target.name));
            prop_assert!(!spec.graceful_eviction_tasks.iter().any(|t| t.from_cluster == target.name));
            let n: usize = target.name[1..].parse().unwrap();
            let was_target = spec.clusters.iter().any(|t| t.name == target.name);
            prop_assert!(was_target || !scene.clusters[n].2, "{} is tainted", target.name);
        }
        let mut names: Vec<&str> = targets.iter().map(|t| t.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        prop_assert_eq!(names.len(), targets.len());
        for constraint in &placement.spread_constraints {
            if constraint.spread_by_field == "cluster" {
                prop_assert!(targets.len() as i64 <= constraint.max_groups);
            }
        }
    }

    // proves: SCH-divided-stays
    #[test]
    fn scheduled_replicas_stay(scene in placement_scenario()) {
        // Regions are selected anew once replicas are in some of them.
        if scene.placement.contains("region") { return Ok(()) }
        let placement = placement(scene.placement);
        let mut spec = scene.spec();
        let Ok(first) = run(&spec, &placement, &scene.snapshot(&[])) else { return Ok(()) };
        // Without capacity left, replicas on tainted clusters no longer count.
        if first.is_empty() { return Ok(()) }
        spec.clusters.clone_from(&first);
        let second = run(&spec, &placement, &scene.snapshot(&first));
        prop_assert_eq!(second.map(sorted), Ok(sorted(first)));
    }

    // proves: SCH-any-order
    #[test]
    fn the_order_of_clusters_changes_nothing(scene in placement_scenario(), by in 0_usize..10) {
        let (spec, placement) = (scene.spec(), placement(scene.placement));
        let mut members: Vec<Object> = (0..scene.clusters.len()).map(|at| scene.member(at, &[])).collect();
        let forward = ClusterSnapshot::new(members.clone());
        let by = by % members.len();
        members.rotate_left(by);
        members.reverse();
        let other = ClusterSnapshot::new(members);
        prop_assert_eq!(run(&spec, &placement, &forward), run(&spec, &placement, &other));
    }

    #[test]
    fn a_trace_has_the_result_and_every_cluster(scene in placement_scenario()) {
        let (spec, placement) = (scene.spec(), placement(scene.placement));
        let snapshot = scene.snapshot(&[]);
        let request = ScheduleRequest { spec: &spec, placement: &placement, term: None, fresh: false };
        let decision = make_decision(&request, &SchedulingContext::from_snapshot(&snapshot), &mut |_| {});
        let trace = decision.trace();
        prop_assert_eq!(trace.clusters.len() + trace.omitted_clusters, scene.clusters.len());
        for target in decision.targets() {
            let row = trace.clusters.iter().find(|row| row.name == target.name);
            prop_assert_eq!(row.and_then(|row| row.replicas), Some(target.replicas));
        }
        prop_assert_eq!(&trace.failure, &decision.failure().map(ToString::to_string));
    }
}
