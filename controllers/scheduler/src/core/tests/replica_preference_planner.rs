//! Divisions by a ReplicaSchedulingPreference: KubeFed's cases and more as a table, and properties.

use std::collections::BTreeMap;

use karmada_api::replica_preference::{ClusterReplicaPreference, ReplicaSchedulingPreferenceSpec};
use proptest::prelude::*;

use super::super::replica_preference_planner::{PlannedCluster, PlannedReplicas, plan};

fn number(text: &str) -> i64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?}"))
}

fn parse_preference(text: &str) -> (String, ClusterReplicaPreference) {
    let (name, rules) = text.split_once(':').unwrap();
    let mut preference = ClusterReplicaPreference::default();
    for rule in rules.split(',') {
        match rule.split_once('=') {
            Some(("min", count)) => preference.min_replicas = number(count),
            Some(("max", count)) => preference.max_replicas = Some(number(count)),
            Some(_) => panic!("{text:?}"),
            None => preference.weight = number(rule),
        }
    }
    (name.to_owned(), preference)
}

fn parse_cluster(text: &str) -> PlannedCluster<'_> {
    let (text, capacity) = match text.split_once('<') {
        Some((text, capacity)) => (text, Some(number(capacity))),
        None => (text, None),
    };
    let (name, current_replicas) = match text.split_once('@') {
        Some((name, current)) => (name, number(current)),
        None => (text, 0),
    };
    PlannedCluster {
        name,
        current_replicas,
        capacity,
    }
}

fn result_text(clusters: &[PlannedCluster<'_>], planned: &[PlannedReplicas]) -> String {
    let words = clusters.iter().zip(planned).map(|(cluster, planned)| {
        let overflow = match planned.overflow {
            0 => String::new(),
            overflow => format!("+{overflow}"),
        };
        format!("{}={}{overflow}", cluster.name, planned.replicas)
    });
    words.collect::<Vec<_>>().join(" ")
}

// proves: RSP-planner
#[test]
fn replicas_are_divided_as_by_kubefeds_planner() {
    let table = include_str!("replica_preference_planner.txt");
    for row in table.lines().filter(|row| !row.starts_with('#')) {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let [total, preferences, clusters, expected] = columns[..] else {
            panic!("{row:?}");
        };
        let (total, rebalance) = match total.strip_suffix(" rebalance") {
            Some(total) => (total, true),
            None => (total, false),
        };
        let spec = ReplicaSchedulingPreferenceSpec {
            total_replicas: number(total),
            rebalance,
            clusters: preferences
                .split_whitespace()
                .map(parse_preference)
                .collect(),
            ..ReplicaSchedulingPreferenceSpec::default()
        };
        let clusters: Vec<_> = clusters.split_whitespace().map(parse_cluster).collect();
        let planned = plan(&spec, "", &clusters);
        assert_eq!(result_text(&clusters, &planned), expected, "{row}");
    }
}

const NAMES: [&str; 8] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];

fn preferences() -> impl Strategy<Value = BTreeMap<String, ClusterReplicaPreference>> {
    let preference = (0_i64..20, prop::option::of(0_i64..30), 0_i64..5);
    let names = prop::sample::select([&NAMES[..], &["*"]].concat());
    let named = (names, preference).prop_map(|(name, (min, max, weight))| {
        let preference = ClusterReplicaPreference {
            min_replicas: min.min(max.unwrap_or(i64::MAX)),
            max_replicas: max,
            weight,
        };
        (name.to_owned(), preference)
    });
    prop::collection::vec(named, 0..6).prop_map(|all| all.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // proves: RSP-bounds
    #[test]
    fn a_plan_keeps_to_the_total_and_to_every_bound(
        total in 0_i64..200,
        rebalance in any::<bool>(),
        preferences in preferences(),
        states in prop::collection::vec((0_i64..60, prop::option::of(0_i64..40)), 0..8),
    ) {
        let spec = ReplicaSchedulingPreferenceSpec {
            total_replicas: total,
            rebalance,
            clusters: preferences,
            ..ReplicaSchedulingPreferenceSpec::default()
        };
        let states = NAMES.iter().zip(states);
        let clusters: Vec<PlannedCluster<'_>> = states
            .map(|(name, (current_replicas, capacity))| PlannedCluster { name, current_replicas, capacity })
            .collect();
        let planned = plan(&spec, "n/web", &clusters);
        let sum: i64 = planned.iter().map(|p| p.replicas).sum();
        prop_assert!(sum <= total);
        let has_all_minimums = clusters.iter().zip(&planned).all(|(cluster, planned)| {
            let preference = spec.for_cluster(cluster.name).unwrap_or_default();
            planned.replicas >= preference.min_replicas.min(cluster.capacity.unwrap_or(i64::MAX))
        });
        prop_assert!(sum == total || has_all_minimums);
        for (cluster, planned) in clusters.iter().zip(&planned) {
            let preference = spec.for_cluster(cluster.name);
            prop_assert!(preference.is_some() || *planned == PlannedReplicas::default());
            let Some(preference) = preference else { continue };
            prop_assert!(planned.replicas <= preference.max_replicas.unwrap_or(i64::MAX));
            prop_assert!(planned.replicas <= cluster.capacity.unwrap_or(i64::MAX));
            prop_assert!(planned.overflow == 0 || cluster.capacity == Some(planned.replicas));
            // The rest could go to no cluster with a weight.
            let takes_more = preference.weight > 0
                && planned.replicas < preference.max_replicas.unwrap_or(i64::MAX).min(cluster.capacity.unwrap_or(i64::MAX));
            prop_assert!(sum == total || !takes_more);
        }
        if !rebalance {
            let overflow = planned.iter().map(|p| p.overflow).max().unwrap_or(0);
            prop_assert!(overflow <= total - sum);
        }
        let reversed: Vec<PlannedCluster<'_>> = clusters.iter().rev().copied().collect();
        let mut again = plan(&spec, "n/web", &reversed);
        again.reverse();
        prop_assert_eq!(again, planned);
    }
}
