//! Whatever falls and comes back in whichever order: what was decided is not decided
//! again, no cluster is both left and a target, no replica is lost on the way back.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use openapi::karmada::Binding;
use openapi::karmada::labels::BEFORE_FAILOVER;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::decide::{Deed, Plan, Sight, State, is_ours, plan};

const AFTER: u64 = 60;
const CLUSTERS: usize = 4;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

fn name(cluster: usize) -> String {
    format!("m{cluster}")
}

/// How the clusters are at a time: gone, Ready, silent from the first, or down since.
fn states() -> impl Strategy<Value = Vec<State>> {
    let one = prop_oneof![
        1 => Just(State::Gone),
        6 => Just(State::Ready),
        1 => Just(State::Unheard),
        4 => (0..100_i64).prop_map(|second| State::Down(at(second))),
    ];
    proptest::collection::vec(one, CLUSTERS)
}

fn decide(binding: &Binding, states: &[State], wanted: bool, now: i64) -> Plan {
    let by_name: BTreeMap<String, State> = (0..).map(name).zip(states.iter().copied()).collect();
    let sight = Sight {
        state: &|cluster| by_name.get(cluster).copied().unwrap_or(State::Gone),
        any_ready: states.contains(&State::Ready),
        after: wanted.then_some(Duration::from_secs(AFTER)),
        now: at(now),
    };
    // The scheduler has not seen it yet: nothing is replaced.
    plan(binding, 2, &sight)
}

fn apply(binding: &mut Binding, plan: Plan) {
    let told = json!(plan.before).to_string();
    binding
        .metadata
        .annotations
        .insert(BEFORE_FAILOVER.into(), told);
    binding.spec = plan.spec;
}

fn total(binding: &Binding) -> i64 {
    binding.spec.clusters.iter().map(|t| t.replicas).sum()
}

proptest! {
    #[test]
    fn decisions_settle(
        placed in proptest::collection::btree_map(0..CLUSTERS, 1..5_i64, 0..=CLUSTERS),
        rounds in proptest::collection::vec((states(), any::<bool>()), 1..6),
    ) {
        let clusters: Value = placed
            .iter()
            .map(|(cluster, replicas)| json!({"name": name(*cluster), "replicas": replicas}))
            .collect();
        let mut binding: Binding =
            serde_json::from_value(json!({"spec": {"clusters": clusters}})).unwrap();
        for (round, (states, wanted)) in rounds.iter().enumerate() {
            let now = 100 * (round as i64 + 1);
            let found = decide(&binding, states, *wanted, now);
            let begun = found.deeds.iter().any(|d| matches!(d, Deed::Begun(_)));
            prop_assert!(*wanted || !begun);
            apply(&mut binding, found);
            let again = decide(&binding, states, *wanted, now);
            prop_assert_eq!(&again.deeds, &Vec::new());
            prop_assert_eq!(&again.spec.clusters, &binding.spec.clusters);
            for target in &binding.spec.clusters {
                prop_assert!(!binding.spec.is_evicting(&target.name), "{:?}", target);
            }
            let tasks = &binding.spec.graceful_eviction_tasks;
            prop_assert!(tasks.iter().all(is_ours));
            prop_assert!(again.before.keys().all(|c| binding.spec.is_evicting(c)));
        }
    }

    #[test]
    fn all_that_were_left_come_back_whole(
        placed in proptest::collection::btree_map(0..CLUSTERS, 1..5_i64, 1..=CLUSTERS),
        falls in proptest::collection::vec(0..CLUSTERS, 1..CLUSTERS),
    ) {
        let clusters: Value = placed
            .iter()
            .map(|(cluster, replicas)| json!({"name": name(*cluster), "replicas": replicas}))
            .collect();
        let mut binding: Binding =
            serde_json::from_value(json!({"spec": {"clusters": clusters}})).unwrap();
        let (before, sum) = (binding.spec.clusters.clone(), total(&binding));
        let mut states = vec![State::Ready; CLUSTERS];
        for (round, fallen) in falls.iter().enumerate() {
            states[*fallen] = State::Down(at(0));
            let found = decide(&binding, &states, true, 100 * (round as i64 + 1));
            apply(&mut binding, found);
        }
        let found = decide(&binding, &[State::Ready; CLUSTERS], true, 1000);
        apply(&mut binding, found);
        prop_assert_eq!(total(&binding), sum);
        prop_assert_eq!(&binding.spec.clusters, &before);
        prop_assert!(binding.spec.graceful_eviction_tasks.is_empty());
    }
}
