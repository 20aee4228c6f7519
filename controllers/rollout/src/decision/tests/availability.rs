//! Scenarios of `minAvailable`: clusters have ten replicas each.

use karmada_api::rollout::RolloutPhase;
use serde_json::{Value, json};

use super::fleet::{Delivery, Fleet};

/// Four clusters of one stage.
fn fleet_keeping(min_available: &Value, more: Value) -> Fleet {
    let mut policy = json!({"stages": [{"name": "s"}], "progressDeadline": "10m", "minAvailable": min_available});
    let fields = policy.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    Fleet::new(policy, &[("a", 0), ("b", 0), ("c", 0), ("d", 0)])
}

fn message(fleet: &Fleet, cluster: &str) -> String {
    let status = fleet.status.as_ref().unwrap();
    let cluster = status.cluster(cluster).unwrap();
    format!("{}: {}", cluster.reason, cluster.message)
}

// proves: ROL-min-available
#[test]
fn a_cluster_begins_only_if_the_others_keep_enough() {
    for (min_available, begun) in [
        (json!(null), 4),
        (json!(0), 4),
        (json!(10), 3),
        (json!(11), 2),
        (json!("50%"), 2),
        // Rounded up to 21 of 40.
        (json!("51%"), 1),
        (json!(30), 1),
        (json!(31), 0),
        (json!(1000), 0),
    ] {
        let mut fleet = fleet_keeping(&min_available, json!({}));
        "2".clone_into(&mut fleet.target);
        fleet.step();
        let clusters = &fleet.status.as_ref().unwrap().stages[0].clusters;
        let updating = clusters.iter().filter(|c| c.revision == "2");
        assert_eq!(updating.count(), begun, "{min_available}");
        assert!(!fleet.step(), "{min_available}");
    }
}

// proves: ROL-min-available, ROL-min-available-state
#[test]
fn a_held_cluster_says_why_and_goes_on_when_others_are_available() {
    let mut fleet = fleet_keeping(&json!(30), json!({}));
    "2".clone_into(&mut fleet.target);
    fleet.step();
    fleet.check("Progressing: a=2 Updating, b=1 Blocked, c=1 Blocked, d=1 Blocked");
    assert_eq!(
        message(&fleet, "b"),
        "AwaitingAvailability: 30 of 40 replicas have to stay available, and the other clusters have 20"
    );
    // While it is updated, nothing changes.
    fleet.deliver_to(0, Delivery::Begun);
    assert!(!fleet.step());
    fleet.deliver_to(0, Delivery::Complete);
    fleet.step();
    fleet.check("Progressing: a=2 Done, b=2 Updating, c=1 Blocked, d=1 Blocked");
    // A replica of each other cluster fails: nothing goes on, though nothing is updated.
    fleet.deliver_to(1, Delivery::Complete);
    for name in ["c", "d"] {
        fleet.cluster(name).replicas.available = Some(9);
        fleet.cluster(name).healthy = false;
    }
    fleet.step();
    fleet.check("AwaitingAvailability: a=2 Done, b=2 Done, c=1 Blocked, d=1 Blocked");
    fleet.cluster("c").replicas.available = Some(10);
    fleet.run_to_rest();
    fleet.check("Completed: a=2 Done, b=2 Done, c=2 Done, d=2 Done");
}

// proves: ROL-min-available-counted
#[test]
fn only_replicas_count_that_the_rollout_does_not_take() {
    let check = |change: &dyn Fn(&mut Fleet), expected: &str| {
        let mut fleet = fleet_keeping(&json!(20), json!({}));
        change(&mut fleet);
        "2".clone_into(&mut fleet.target);
        fleet.step();
        fleet.check(expected);
    };
    check(
        &|_| {},
        "Progressing: a=2 Updating, b=2 Updating, c=1 Blocked, d=1 Blocked",
    );
    // A cluster that reports too many has no more than it should have.
    check(
        &|fleet| fleet.cluster("d").replicas.available = Some(u64::MAX),
        "Progressing: a=2 Updating, b=2 Updating, c=1 Blocked, d=1 Blocked",
    );
    // One whose object is still being changed, one that reports nothing, one with another object.
    let unsettled: [&dyn Fn(&mut Fleet); 3] = [
        &|fleet| fleet.cluster("d").replicas.are_updated = false,
        &|fleet| fleet.cluster("d").replicas.available = None,
        &|fleet| fleet.cluster("d").reported_revision.clear(),
    ];
    for change in unsettled {
        check(
            change,
            "Progressing: a=2 Updating, b=1 Blocked, c=1 Blocked, d=2 Updating",
        );
    }
    check(
        &|fleet| fleet.cluster("d").replicas.available = Some(5),
        "Progressing: a=2 Updating, b=1 Blocked, c=1 Blocked, d=2 Updating",
    );
    // A template without replicas is not held.
    check(
        &|fleet| {
            for cluster in &mut fleet.clusters {
                cluster.replicas.desired = 0;
            }
        },
        "Progressing: a=2 Updating, b=2 Updating, c=2 Updating, d=2 Updating",
    );
}

// proves: ROL-min-available-counted
#[test]
fn an_unreachable_cluster_has_no_replicas_and_spends_none() {
    let mut fleet = fleet_keeping(&json!(20), json!({"failureBudget": 1}));
    fleet.cluster("a").reachable = false;
    "2".clone_into(&mut fleet.target);
    fleet.step();
    fleet.check("Progressing: a=2 Failed, b=2 Updating, c=1 Blocked, d=1 Blocked");
}

// proves: ROL-min-available-repair
#[test]
fn a_fleet_without_available_replicas_is_repaired() {
    let mut fleet = fleet_keeping(&json!(30), json!({"onFailure": "Continue"}));
    for cluster in &mut fleet.clusters {
        cluster.replicas.available = Some(0);
        cluster.healthy = false;
    }
    fleet.cluster("d").replicas.available = Some(1);
    "2".clone_into(&mut fleet.target);
    fleet.step();
    fleet.check("Progressing: a=2 Updating, b=2 Updating, c=2 Updating, d=1 Blocked");
    fleet.run_to_rest();
    fleet.check("Completed: a=2 Done, b=2 Done, c=2 Done, d=2 Done");
}

// proves: ROL-min-available-return
#[test]
fn a_return_keeps_enough_replicas_too() {
    let stages = json!([{"name": "s", "gates": {"healthyFor": "1h"}}]);
    let mut fleet = fleet_keeping(&json!(20), json!({"stages": stages}));
    fleet.change("2");
    fleet.check("Progressing: a=2 Soaking, b=2 Soaking, c=2 Soaking, d=2 Soaking");
    "1".clone_into(&mut fleet.target);
    fleet.step();
    fleet.check("Progressing: a=1 Updating, b=1 Updating, c=2 Blocked, d=2 Blocked");
    fleet.deliver_to(0, Delivery::Complete);
    fleet.step();
    assert_eq!(fleet.phase("a"), Some(RolloutPhase::Soaking));
    fleet.check("Progressing: a=1 Soaking, b=1 Updating, c=1 Updating, d=2 Blocked");
    fleet.run_to_rest();
    fleet.pass(3600);
    fleet.check("Completed: a=1 Done, b=1 Done, c=1 Done, d=1 Done");
}
