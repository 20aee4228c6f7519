//! Property tests of automatic failover: in whatever order clusters fail and recover,
//! decisions are idempotent, no cluster is both evicted and a target, and no replica is
//! lost on recovery.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use karmada_api::ResourceBinding;
use karmada_api::well_known_keys::BEFORE_FAILOVER;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::failover::auto_failover::reconcile::{
    AutoFailoverInputs, BindingFailoverDecision, ClusterReadiness, FailoverTransition,
    decide_failover, is_own_task,
};

const AFTER: u64 = 60;
const CLUSTERS: usize = 4;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

fn name(cluster: usize) -> String {
    format!("m{cluster}")
}

/// The readiness of each cluster at one time.
fn states() -> impl Strategy<Value = Vec<ClusterReadiness>> {
    let one = prop_oneof![
        1 => Just(ClusterReadiness::Deleted),
        6 => Just(ClusterReadiness::Ready),
        1 => Just(ClusterReadiness::NeverReported),
        4 => (0..100_i64).prop_map(|second| ClusterReadiness::NotReady(at(second))),
    ];
    proptest::collection::vec(one, CLUSTERS)
}

fn decide_with(
    binding: &ResourceBinding,
    states: &[ClusterReadiness],
    enabled: bool,
    now: i64,
) -> BindingFailoverDecision {
    let by_name: BTreeMap<String, ClusterReadiness> =
        (0..).map(name).zip(states.iter().copied()).collect();
    let context = AutoFailoverInputs {
        readiness: &|cluster| {
            by_name
                .get(cluster)
                .copied()
                .unwrap_or(ClusterReadiness::Deleted)
        },
        any_ready: states.contains(&ClusterReadiness::Ready),
        delay: enabled.then_some(Duration::from_secs(AFTER)),
        now: at(now),
    };
    // Generation 2 is not observed by the scheduler: nothing is replaced.
    decide_failover(binding, 2, &context)
}

fn apply(binding: &mut ResourceBinding, plan: BindingFailoverDecision) {
    let saved = json!(plan.targets_before).to_string();
    binding
        .metadata
        .annotations
        .insert(BEFORE_FAILOVER.into(), saved);
    binding.spec = plan.spec;
}

fn total(binding: &ResourceBinding) -> i64 {
    binding.spec.clusters.iter().map(|t| t.replicas).sum()
}

proptest! {
    #[test]
    fn decisions_are_idempotent(
        placed in proptest::collection::btree_map(0..CLUSTERS, 1..5_i64, 0..=CLUSTERS),
        rounds in proptest::collection::vec((states(), any::<bool>()), 1..6),
    ) {
        let clusters: Value = placed
            .iter()
            .map(|(cluster, replicas)| json!({"name": name(*cluster), "replicas": replicas}))
            .collect();
        let mut binding: ResourceBinding =
            serde_json::from_value(json!({"spec": {"clusters": clusters}})).unwrap();
        for (round, (states, enabled)) in rounds.iter().enumerate() {
            let now = 100 * (round as i64 + 1);
            let decision = decide_with(&binding, states, *enabled, now);
            let begun = decision.transitions.iter().any(|d| matches!(d, FailoverTransition::Started(_)));
            prop_assert!(*enabled || !begun);
            apply(&mut binding, decision);
            let again = decide_with(&binding, states, *enabled, now);
            prop_assert_eq!(&again.transitions, &Vec::new());
            prop_assert_eq!(&again.spec.clusters, &binding.spec.clusters);
            for target in &binding.spec.clusters {
                prop_assert!(!binding.spec.is_evicting(&target.name), "{:?}", target);
            }
            let tasks = &binding.spec.graceful_eviction_tasks;
            prop_assert!(tasks.iter().all(is_own_task));
            prop_assert!(again.targets_before.keys().all(|c| binding.spec.is_evicting(c)));
        }
    }

    #[test]
    fn all_evicted_clusters_get_their_replicas_back(
        placed in proptest::collection::btree_map(0..CLUSTERS, 1..5_i64, 1..=CLUSTERS),
        falls in proptest::collection::vec(0..CLUSTERS, 1..CLUSTERS),
    ) {
        let clusters: Value = placed
            .iter()
            .map(|(cluster, replicas)| json!({"name": name(*cluster), "replicas": replicas}))
            .collect();
        let mut binding: ResourceBinding =
            serde_json::from_value(json!({"spec": {"clusters": clusters}})).unwrap();
        let (before, sum) = (binding.spec.clusters.clone(), total(&binding));
        let mut states = vec![ClusterReadiness::Ready; CLUSTERS];
        for (round, fallen) in falls.iter().enumerate() {
            states[*fallen] = ClusterReadiness::NotReady(at(0));
            let decision = decide_with(&binding, &states, true, 100 * (round as i64 + 1));
            apply(&mut binding, decision);
        }
        let decision = decide_with(&binding, &[ClusterReadiness::Ready; CLUSTERS], true, 1000);
        apply(&mut binding, decision);
        prop_assert_eq!(total(&binding), sum);
        prop_assert_eq!(&binding.spec.clusters, &before);
        prop_assert!(binding.spec.graceful_eviction_tasks.is_empty());
    }
}
