//! Property tests of replicas: on random fleets, the rollout takes no replica that has to stay
//! available, and leaves out no batch.

use karmada_api::rollout::{ClusterRolloutStatus, RolloutStatus};
use proptest::prelude::*;
use serde_json::json;

use super::fleet::{Delivery, Fleet};

#[derive(Clone, Debug)]
enum Event {
    Change(u8),
    Reach(usize, bool),
    Pause(bool),
    Pass(i64),
    Deliver(usize, bool),
    DeliverAll,
    /// The process dies after the decision, before it is written.
    Lose,
}

const CLUSTERS: usize = 5;
const PERCENTS: [i64; 3] = [10, 45, 100];

fn events() -> impl Strategy<Value = Vec<Event>> {
    let cluster = 0..CLUSTERS;
    let event = prop_oneof![
        (1..5u8).prop_map(Event::Change),
        (cluster.clone(), any::<bool>()).prop_map(|(c, up)| Event::Reach(c, up)),
        any::<bool>().prop_map(Event::Pause),
        (0..400i64).prop_map(Event::Pass),
        (cluster.clone(), any::<bool>()).prop_map(|(c, done)| Event::Deliver(c, done)),
        (cluster, any::<bool>()).prop_map(|(c, done)| Event::Deliver(c, done)),
        Just(Event::DeliverAll),
        Just(Event::DeliverAll),
        Just(Event::Lose),
    ];
    prop::collection::vec(event, 1..60)
}

fn apply(fleet: &mut Fleet, event: &Event) {
    match event {
        Event::Change(revision) => fleet.target = revision.to_string(),
        Event::Reach(cluster, reachable) => fleet.clusters[*cluster].reachable = *reachable,
        Event::Pause(paused) => fleet.spec.paused = *paused,
        Event::Pass(seconds) => fleet.now += jiff::SignedDuration::from_secs(*seconds),
        Event::Deliver(cluster, true) => fleet.deliver_to(*cluster, Delivery::Complete),
        Event::Deliver(cluster, false) => fleet.deliver_to(*cluster, Delivery::Begun),
        Event::DeliverAll => fleet.deliver(),
        Event::Lose => {}
    }
}

fn clusters(status: &RolloutStatus) -> impl Iterator<Item = &ClusterRolloutStatus> {
    status.stages.iter().flat_map(|stage| &stage.clusters)
}

/// Checks that batches of one revision follow each other, each once the one before is updated.
fn check_batches(fleet: &Fleet, before: &RolloutStatus, after: &RolloutStatus) {
    for cluster in clusters(after) {
        let old = before.cluster(&cluster.name).unwrap();
        if old.batch_percent == cluster.batch_percent && old.batch == cluster.batch {
            continue;
        }
        let number = |percent: i64| {
            let position = PERCENTS.iter().position(|p| *p == percent);
            position.map_or(0, |position| position as i64 + 1)
        };
        if cluster.batch == 0 {
            // All replicas return at once to the revision that has gone through all stages, or the
            // batch is one from before.
            let is_same = old.revision == cluster.revision;
            assert!(
                is_same && old.batch_percent == cluster.batch_percent
                    || cluster.revision == after.stable_revision,
                "{old:?} {cluster:?}"
            );
        } else if old.batch == 0 && old.is_divided() && old.revision == cluster.revision {
            assert_eq!(cluster.batch, number(cluster.batch_percent), "{cluster:?}");
            assert_eq!(old.batch_percent, cluster.batch_percent, "{cluster:?}");
            assert!(!fleet.spec.paused, "{cluster:?}");
        } else if cluster.batch > 1 {
            assert_eq!(cluster.revision, old.revision, "{cluster:?}");
            assert_eq!(cluster.batch, number(cluster.batch_percent), "{cluster:?}");
            assert_eq!(cluster.batch, number(old.batch_percent) + 1, "{cluster:?}");
            assert!(!fleet.spec.paused, "{cluster:?}");
            let mut observed = fleet.clusters.iter();
            let observed = observed.find(|c| c.name == cluster.name).unwrap();
            let updated = observed.replicas.updated * 100;
            let batch = u64::try_from(old.batch_percent).unwrap() * super::fleet::REPLICAS;
            assert!(updated >= batch, "{cluster:?} {observed:?}");
        } else {
            assert_eq!(number(cluster.batch_percent), 1, "{cluster:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    // proves: ROL-min-available-invariant, ROL-batch-order
    #[test]
    fn enough_replicas_stay_available_and_no_batch_is_left_out(
        events in events(),
        required in 0..=40u64,
        divides in any::<bool>(),
        broken in prop::collection::vec((0..CLUSTERS, 2..5u8), 0..4),
        on_failure in prop_oneof![Just("Pause"), Just("Rollback"), Just("Continue")],
    ) {
        let percents: Vec<String> = PERCENTS.iter().map(|p| format!("{p}%")).collect();
        let batches = if divides { percents } else { Vec::new() };
        let stage = |name: &str| json!({"name": name, "batches": batches, "gates": {"healthyFor": "1m"}});
        let policy = json!({"stages": [stage("first"), stage("second")], "progressDeadline": "5m",
            "failureBudget": 1, "onFailure": on_failure, "minAvailable": required});
        let mut fleet = Fleet::new(policy, &[("a", 0), ("b", 1), ("c", 1), ("d", 1), ("e", 1)]);
        for (cluster, revision) in broken {
            let name = fleet.clusters[cluster].name.clone();
            fleet.broken.insert((name, revision.to_string()));
        }
        for event in &events {
            apply(&mut fleet, event);
            prop_assert!(fleet.available() >= required, "{event:?}: {fleet:?}");
            let before = fleet.status.clone().unwrap();
            fleet.step();
            let after = fleet.status.clone().unwrap();
            check_batches(&fleet, &before, &after);
            if matches!(event, Event::Lose) {
                fleet.status = Some(before);
            }
        }
        fleet.broken.clear();
        fleet.spec.paused = false;
        for cluster in &mut fleet.clusters {
            cluster.reachable = true;
        }
        for _ in 0..30 {
            fleet.pass(60);
        }
        let status = fleet.status.unwrap();
        prop_assert!(["Completed", "RolledBack"].contains(&&*status.state), "{:?}", status);
    }
}
