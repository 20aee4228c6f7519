//! Scenarios and a property of templates that move between clusters under `minAvailable`.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::moving_fleet::MovingFleet;

type Placement = &'static [(&'static str, u64)];

// proves: ROL-kept-replicas
#[test]
fn replicas_go_when_those_elsewhere_are_available() {
    let check = |min_available: Value,
                 before: Placement,
                 after: Placement,
                 available: Placement,
                 expected: &str| {
        let mut fleet = MovingFleet::new(&min_available, before);
        fleet.place(after);
        fleet.run_to_rest();
        for (name, replicas) in available {
            fleet.member(name).available = *replicas;
            fleet.member(name).is_updated = true;
        }
        fleet.run_to_rest();
        assert_eq!(
            fleet.works(),
            expected,
            "{min_available} {before:?} {after:?} {available:?}"
        );
    };
    let a: Placement = &[("a", 6)];
    let b: Placement = &[("b", 6)];
    // Nothing is kept without `minAvailable`.
    check(json!(null), a, b, &[], "b=6");
    check(json!(0), a, b, &[], "b=6");
    // The old copy stays until enough of the new one are available.
    check(json!(4), a, b, &[], "a=6 b=6");
    check(json!(4), a, b, &[("b", 3)], "a=6 b=6");
    check(json!(4), a, b, &[("b", 4)], "b=6");
    check(json!("100%"), a, b, &[("b", 5)], "a=6 b=6");
    check(json!("100%"), a, b, &[("b", 6)], "b=6");
    // More than all are all.
    check(json!(99), a, b, &[("b", 5)], "a=6 b=6");
    check(json!(99), a, b, &[("b", 6)], "b=6");
    // So do replicas that one cluster loses to another.
    let half: Placement = &[("a", 3), ("b", 3)];
    check(json!(6), a, half, &[], "a=6 b=3");
    check(json!(6), a, half, &[("b", 2)], "a=6 b=3");
    check(json!(6), a, half, &[("b", 3)], "a=3 b=3");
    check(json!(3), a, half, &[], "a=3 b=3");
    // They go by name, as soon as enough are available for each.
    let two: Placement = &[("a", 3), ("b", 3)];
    let moved: Placement = &[("a", 1), ("b", 1), ("c", 4)];
    check(json!(6), two, moved, &[("c", 1)], "a=3 b=3 c=4");
    check(json!(6), two, moved, &[("c", 2)], "a=1 b=3 c=4");
    check(json!(6), two, moved, &[("c", 4)], "a=1 b=1 c=4");
    // A template that is scaled down, or placed nowhere, loses its replicas at once.
    check(json!(6), a, &[("a", 2)], &[], "a=2");
    check(json!(6), a, &[], &[], "");
}

// proves: ROL-kept-replicas-unplaced
#[test]
fn replicas_stay_while_no_cluster_fits() {
    let mut fleet = MovingFleet::new(&json!("50%"), &[("a", 6), ("b", 2)]);
    fleet.fits_none = true;
    fleet.place(&[]);
    fleet.run_to_rest();
    // By name, the first clusters lose theirs as far as enough are left.
    assert_eq!(fleet.works(), "a=6");
    // They stay until they are available elsewhere, with the deadline of the first move.
    fleet.pass(300);
    fleet.place(&[("c", 6)]);
    fleet.run_to_rest();
    assert_eq!(fleet.works(), "a=6 c=6");
    let mut late = fleet.clone();
    late.pass(300);
    assert_eq!((&*late.works(), late.given_up.len()), ("c=6", 1));
    fleet.run_to_end();
    assert_eq!((&*fleet.works(), fleet.given_up.len()), ("c=6", 0));
    // Without a new cluster, they go at the deadline, too.
    fleet.place(&[]);
    fleet.run_to_rest();
    fleet.pass(599);
    assert_eq!((&*fleet.works(), fleet.given_up.len()), ("c=6", 0));
    fleet.pass(1);
    assert_eq!((&*fleet.works(), fleet.given_up.len()), ("", 1));
}

// proves: ROL-kept-replicas-unplaced
#[test]
fn a_change_is_staged_while_replicas_stay_though_no_cluster_fits() {
    let mut fleet = MovingFleet::new(&json!("50%"), &[("a", 2), ("b", 2)]);
    fleet.fits_none = true;
    fleet.place(&[]);
    fleet.run_to_rest();
    assert!(!fleet.works().is_empty());
    fleet.target = "2".into();
    fleet.run_to_rest();
    let status = fleet.status.as_ref().unwrap();
    assert_eq!(
        (&*status.stable_revision, &*status.target_revision),
        ("1", "2")
    );
    // Also where nothing runs any more, a change will go through the stages.
    fleet.pass(600);
    assert_eq!(fleet.works(), "");
    fleet.target = "3".into();
    fleet.run_to_rest();
    assert_eq!(fleet.status.unwrap().stable_revision, "1");
}

// proves: ROL-kept-replicas-lost
#[test]
fn replicas_that_are_not_available_are_not_kept() {
    let mut fleet = MovingFleet::new(&json!(6), &[("a", 6), ("b", 6)]);
    fleet.member("a").available = 0;
    fleet.place(&[("b", 6), ("c", 6)]);
    fleet.run_to_rest();
    assert_eq!(fleet.works(), "b=6 c=6");
    // Nor are those of a cluster that is not Ready.
    let mut fleet = MovingFleet::new(&json!(6), &[("a", 6)]);
    fleet.member("a").unreachable = true;
    fleet.place(&[("b", 6)]);
    fleet.run_to_rest();
    assert_eq!(fleet.works(), "b=6");
    // Replicas that have not become available yet do not count for others.
    let mut fleet = MovingFleet::new(&json!(6), &[("a", 6)]);
    fleet.place(&[("a", 6), ("b", 6)]);
    fleet.run_to_rest();
    fleet.place(&[("b", 6)]);
    fleet.run_to_rest();
    assert_eq!(fleet.works(), "a=6 b=6");
}

// proves: ROL-kept-replicas-deadline
#[test]
fn replicas_are_kept_until_the_deadline() {
    let mut fleet = MovingFleet::new(&json!("50%"), &[("a", 6)]);
    fleet.place(&[("b", 6)]);
    fleet.run_to_rest();
    let kept = &fleet.status.as_ref().unwrap().replicas[0];
    assert_eq!(
        (&*kept.cluster, kept.replicas, &*kept.since, &*kept.message),
        (
            "a",
            6,
            "2026-01-01T00:00:00Z",
            "3 of 6 replicas have to stay available, and 0 would"
        )
    );
    fleet.pass(599);
    assert_eq!((&*fleet.works(), fleet.given_up.len()), ("a=6 b=6", 0));
    fleet.pass(1);
    assert_eq!(fleet.works(), "b=6");
    assert_eq!(
        fleet.given_up,
        ["cluster a: 3 of 6 replicas have to stay available, and 0 would"]
    );
}

// proves: ROL-kept-replicas-back
#[test]
fn a_cluster_that_gets_its_replicas_back_has_never_lost_them() {
    let mut fleet = MovingFleet::new(&json!(6), &[("a", 6)]);
    fleet.place(&[("b", 6)]);
    fleet.run_to_rest();
    fleet.place(&[("a", 6)]);
    fleet.run_to_rest();
    assert_eq!((&*fleet.works(), fleet.available()), ("a=6", 6));
    assert!(fleet.status.as_ref().unwrap().replicas[0].since.is_empty());
    // Its revision waits for its turn, as if it had not left.
    let mut fleet = MovingFleet::new(&json!(3), &[("a", 3), ("b", 3)]);
    fleet.place(&[("b", 3), ("c", 3)]);
    fleet.member("b").available = 0;
    fleet.run_to_rest();
    fleet.target = "2".into();
    fleet.run_to_rest();
    fleet.place(&[("a", 3), ("b", 3)]);
    fleet.run_to_rest();
    assert_eq!((fleet.available(), &*fleet.member("a").revision), (3, "1"));
    fleet.run_to_end();
    assert_eq!((fleet.available(), &*fleet.member("a").revision), (6, "2"));
    assert_eq!(fleet.violations, [""; 0]);
}

// proves: ROL-kept-replicas-observed
#[test]
fn nothing_is_written_until_the_rollout_has_seen_the_placement() {
    let mut fleet = MovingFleet::new(&json!(6), &[("a", 6)]);
    fleet.place(&[("b", 6)]);
    for name in fleet.names() {
        fleet.apply(name);
    }
    assert_eq!(fleet.works(), "a=6");
}

#[derive(Clone, Debug)]
enum Event {
    Place([u64; CLUSTERS]),
    Change(u8),
    Step,
    /// The process dies after the decision, before it is written.
    Lose,
    Apply(usize),
    Complete(usize),
    Fail(usize),
    Reach(usize, bool),
    Pass(i64),
}

const CLUSTERS: usize = 4;
const NAMES: [&str; CLUSTERS] = ["a", "b", "c", "d"];

fn events() -> impl Strategy<Value = Vec<Event>> {
    let cluster = 0..CLUSTERS;
    let event = prop_oneof![
        prop::array::uniform4(0..6u64).prop_map(Event::Place),
        prop::array::uniform4(0..6u64).prop_map(Event::Place),
        (1..4u8).prop_map(Event::Change),
        Just(Event::Step),
        Just(Event::Step),
        Just(Event::Step),
        Just(Event::Lose),
        cluster.clone().prop_map(Event::Apply),
        cluster.clone().prop_map(Event::Apply),
        cluster.clone().prop_map(Event::Apply),
        cluster.clone().prop_map(Event::Complete),
        cluster.clone().prop_map(Event::Complete),
        cluster.clone().prop_map(Event::Fail),
        (cluster, any::<bool>()).prop_map(|(c, up)| Event::Reach(c, up)),
        (0..300i64).prop_map(Event::Pass),
    ];
    prop::collection::vec(event, 1..80)
}

/// A placement of at least `required` replicas, so that as many are required of each.
fn placement_of(mut replicas: [u64; CLUSTERS], required: u64) -> Vec<(&'static str, u64)> {
    replicas[0] += required.saturating_sub(replicas.iter().sum());
    let all = NAMES.into_iter().zip(replicas);
    all.filter(|(_, replicas)| *replicas > 0).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    // proves: ROL-kept-replicas-invariant
    #[test]
    fn a_move_takes_no_replica_that_has_to_stay_available(
        events in events(),
        required in 0..=14u64,
        fits_none in any::<bool>(),
    ) {
        let mut fleet = MovingFleet::new(&json!(required), &placement_of([3; CLUSTERS], required));
        fleet.fits_none = fits_none;
        for event in &events {
            let before = fleet.clone();
            match event {
                Event::Place(replicas) => fleet.place(&placement_of(*replicas, required)),
                Event::Change(revision) => fleet.target = revision.to_string(),
                Event::Step => {
                    fleet.step();
                }
                Event::Lose => {
                    fleet.step();
                    fleet.status = before.status.clone();
                    fleet.given_up = before.given_up.clone();
                }
                Event::Apply(cluster) => fleet.apply(NAMES[*cluster]),
                Event::Complete(cluster) => fleet.complete(NAMES[*cluster]),
                Event::Fail(cluster) => {
                    fleet.step_and_apply();
                    fleet.member(NAMES[*cluster]).available = 0;
                }
                Event::Reach(cluster, up) => {
                    fleet.step_and_apply();
                    fleet.member(NAMES[*cluster]).unreachable = !up;
                }
                Event::Pass(seconds) => fleet.now += jiff::SignedDuration::from_secs(*seconds),
            }
            let is_kept = fleet.violations.is_empty() || !fleet.given_up.is_empty();
            prop_assert!(is_kept, "{event:?}: {before:?} {fleet:?}");
        }
        for name in fleet.names() {
            fleet.member(name).unreachable = false;
        }
        for _ in 0..20 {
            fleet.pass(60);
            fleet.run_to_end();
        }
        let works = fleet.members.iter().filter(|(_, m)| m.replicas > 0);
        let works: Vec<(&str, u64)> = works.map(|(name, m)| (*name, m.replicas)).collect();
        let placement: Vec<(&str, u64)> = fleet.placement.into_iter().collect();
        prop_assert_eq!(works, placement);
    }
}
