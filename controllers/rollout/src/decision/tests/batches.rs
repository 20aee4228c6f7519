//! Scenarios of batches: clusters have ten replicas each.

use serde_json::{Value, json};

use super::fleet::{Delivery, Fleet, REPLICAS};
use crate::decision::QueryObservation;

/// A cluster with batches, and one without.
fn fleet_in_batches(more: Value) -> Fleet {
    let divided = json!({"name": "divided", "batches": ["10%", "45%", "100%"], "gates": {"healthyFor": "1m"}});
    let mut policy = json!({"stages": [divided, {"name": "whole"}], "progressDeadline": "10m"});
    let fields = policy.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    Fleet::new(policy, &[("a", 0), ("b", 1)])
}

/// The batch, the percentage and the reason of the first cluster.
fn check_batch(fleet: &Fleet, batch: i64, percent: i64, reason: &str) {
    let status = fleet.status.as_ref().unwrap();
    let cluster = status.cluster("a").unwrap();
    let actual = (cluster.batch, cluster.batch_percent, &*cluster.reason);
    assert_eq!(actual, (batch, percent, reason));
}

/// A stage whose cluster soaks for a minute, and one with batches, whose only cluster is the first by name.
fn fleet_of_two_stages() -> Fleet {
    let stages = json!([{"name": "whole", "gates": {"healthyFor": "1m"}},
        {"name": "divided", "batches": ["10%", "100%"], "gates": {"healthyFor": "20s"}}]);
    Fleet::new(json!({"stages": stages}), &[("a", 1), ("b", 0)])
}

/// A rollout has ended with a cluster that failed in its first batch, within the budget.
fn fleet_with_a_failed_batch() -> Fleet {
    let policy = json!({"stages": [{"name": "divided", "batches": ["10%", "100%"],
        "gates": {"healthyFor": "20s"}}], "progressDeadline": "1m", "failureBudget": 1});
    let mut fleet = Fleet::new(policy, &[("a", 0), ("b", 0)]);
    fleet.broken.insert(("a".into(), "2".into()));
    fleet.change("2");
    fleet.pass(60);
    fleet.pass(20);
    fleet.check("Degraded: a=2 Failed, b=2 Done");
    check_batch(&fleet, 1, 10, "ProgressDeadlineExceeded");
    fleet.broken.clear();
    fleet
}

// proves: ROL-batches
#[test]
fn a_cluster_is_updated_in_batches() {
    let mut fleet = fleet_in_batches(json!({}));
    check_batch(&fleet, 0, 0, "");
    fleet.change("2");
    fleet.check("Progressing: a=2 Soaking, b=1 Pending");
    check_batch(&fleet, 1, 10, "");
    fleet.pass(59);
    check_batch(&fleet, 1, 10, "");
    fleet.pass(1);
    fleet.check("Progressing: a=2 Soaking, b=1 Pending");
    check_batch(&fleet, 2, 45, "");
    assert_eq!(fleet.cluster("a").replicas.updated, 5);
    fleet.pass(60);
    fleet.check("Progressing: a=2 Soaking, b=1 Pending");
    check_batch(&fleet, 3, 100, "");
    assert_eq!(fleet.cluster("a").replicas.updated, REPLICAS);
    fleet.pass(60);
    fleet.check("Completed: a=2 Done, b=2 Done");
    check_batch(&fleet, 3, 100, "");
    assert_eq!(
        fleet.status.as_ref().unwrap().cluster("b").unwrap().batch,
        0
    );
    // The next revision begins with the first batch.
    fleet.change("3");
    check_batch(&fleet, 1, 10, "");
}

// proves: ROL-batch-health
#[test]
fn a_batch_is_judged_by_the_report_about_it() {
    let changes: [&dyn Fn(&mut Fleet); 6] = [
        &|fleet| fleet.cluster("a").replicas.updated = 0,
        &|fleet| fleet.cluster("a").replicas.available = Some(9),
        &|fleet| fleet.cluster("a").replicas.available = None,
        &|fleet| fleet.cluster("a").replicas.is_current = false,
        &|fleet| fleet.cluster("a").replicas.in_manifest = None,
        &|fleet| fleet.cluster("a").reported_revision = "1".into(),
    ];
    for change in changes {
        let mut fleet = fleet_in_batches(json!({}));
        "2".clone_into(&mut fleet.target);
        fleet.step();
        fleet.deliver();
        change(&mut fleet);
        assert!(!fleet.step());
        fleet.check("Progressing: a=2 Updating, b=1 Pending");
        fleet.now += jiff::SignedDuration::from_secs(600);
        fleet.step();
        fleet.check("FailureBudgetExceeded: a=2 Failed, b=1 Blocked");
        check_batch(&fleet, 1, 10, "ProgressDeadlineExceeded");
        // Once it is healthy, it goes on with the same batch.
        fleet.deliver();
        fleet.step();
        fleet.check("Progressing: a=2 Soaking, b=1 Pending");
        check_batch(&fleet, 1, 10, "");
        fleet.pass(60);
        check_batch(&fleet, 2, 45, "");
    }
}

// proves: ROL-batch-held
#[test]
fn a_held_batch_keeps_its_soak_time() {
    let mut fleet = fleet_in_batches(json!({}));
    fleet.change("2");
    fleet.spec.paused = true;
    fleet.pass(60);
    check_batch(&fleet, 1, 10, "Paused");
    fleet.check("Paused: a=2 Soaking, b=1 Pending");
    fleet.pass(60);
    assert!(!fleet.step());
    fleet.spec.paused = false;
    fleet.step();
    check_batch(&fleet, 2, 45, "");
    fleet.check("Progressing: a=2 Updating, b=1 Pending");
}

// proves: ROL-batch-held, ROL-query-failed
#[test]
fn a_held_batch_whose_query_is_not_satisfied_any_more_soaks_anew() {
    let mut fleet = fleet_in_batches(json!({}));
    let gates = &mut fleet.policy.stages[0].gates;
    let query = json!({"expression": "errors", "threshold": 0.5, "failureLimit": 1});
    gates.query = Some(serde_json::from_value(query).unwrap());
    let answer = |fleet: &mut Fleet, value: f64| {
        fleet.cluster("a").query = Some(QueryObservation {
            asked_at: fleet.now,
            outcome: Ok(value),
        });
        fleet.run_to_rest();
    };
    fleet.change("2");
    answer(&mut fleet, 0.0);
    fleet.spec.paused = true;
    fleet.pass(60);
    check_batch(&fleet, 1, 10, "Paused");
    // It is held for longer than a query may take.
    fleet.pass(10_000);
    answer(&mut fleet, 1.0);
    fleet.check("Paused: a=2 Soaking, b=1 Pending");
    check_batch(&fleet, 1, 10, "");
    fleet.spec.paused = false;
    fleet.pass(59);
    answer(&mut fleet, 0.0);
    check_batch(&fleet, 1, 10, "");
    fleet.pass(1);
    check_batch(&fleet, 2, 45, "");
    fleet.check("Progressing: a=2 Soaking, b=1 Pending");
}

// proves: ROL-batch-held, ROL-min-available
#[test]
fn a_batch_waits_for_the_replicas_of_other_clusters() {
    let mut fleet = fleet_in_batches(json!({"minAvailable": 10}));
    fleet.change("2");
    check_batch(&fleet, 1, 10, "");
    fleet.cluster("b").replicas.available = Some(9);
    fleet.cluster("b").healthy = false;
    fleet.now += jiff::SignedDuration::from_secs(60);
    fleet.step();
    check_batch(&fleet, 1, 10, "AwaitingAvailability");
    fleet.check("AwaitingAvailability: a=2 Soaking, b=1 Pending");
    fleet.run_to_rest();
    check_batch(&fleet, 2, 45, "");
}

/// The cluster of the first stage is the only one that no batch divides. The others count, too.
// proves: ROL-min-available-counted
#[test]
fn replicas_of_an_overtaken_batch_count() {
    let divided =
        json!({"name": "second", "batches": ["10%", "100%"], "gates": {"healthyFor": "1h"}});
    let policy = json!({"stages": [{"name": "first"}, divided], "minAvailable": 20});
    let mut fleet = Fleet::new(policy, &[("a", 0), ("b", 1), ("c", 1)]);
    fleet.change("2");
    fleet.check("Progressing: a=2 Done, b=2 Soaking, c=2 Soaking");
    fleet.change("3");
    fleet.check("Progressing: a=3 Done, b=3 Soaking, c=3 Soaking");
    // While the batch is not updated, its cluster does not count.
    fleet.cluster("c").replicas.updated = 0;
    "4".clone_into(&mut fleet.target);
    fleet.step();
    fleet.check("AwaitingAvailability: a=3 Blocked, b=3 Pending, c=3 Pending");
}

// proves: ROL-batch-overtaken
#[test]
fn a_newer_revision_begins_with_the_first_batch_and_a_return_has_none() {
    let mut fleet = fleet_in_batches(json!({}));
    fleet.change("2");
    fleet.pass(60);
    check_batch(&fleet, 2, 45, "");
    // Until its turn, the cluster keeps what it has.
    fleet.spec.paused = true;
    fleet.change("3");
    fleet.check("Paused: a=2 Blocked, b=1 Pending");
    check_batch(&fleet, 0, 45, "Paused");
    fleet.spec.paused = false;
    fleet.run_to_rest();
    check_batch(&fleet, 1, 10, "");
    fleet.change("1");
    fleet.check("Progressing: a=1 Soaking, b=1 Done");
    check_batch(&fleet, 0, 100, "");
}

// proves: ROL-batch-from-before
#[test]
fn a_batch_from_before_waits_for_the_earlier_stages() {
    let mut fleet = fleet_of_two_stages();
    fleet.change("2");
    fleet.pass(60);
    check_batch(&fleet, 1, 10, "");
    // A newer revision begins, and the template returns to the one of the batch.
    fleet.change("3");
    fleet.check("Progressing: b=3 Soaking, a=2 Pending");
    fleet.change("2");
    fleet.pass(59);
    fleet.check("Progressing: b=2 Soaking, a=2 Pending");
    check_batch(&fleet, 0, 10, "WaitingForStage");
    fleet.pass(1);
    fleet.check("Progressing: b=2 Done, a=2 Soaking");
    check_batch(&fleet, 1, 10, "");
    fleet.pass(20);
    check_batch(&fleet, 2, 100, "");
    fleet.pass(20);
    fleet.check("Completed: b=2 Done, a=2 Done");
}

// proves: ROL-batch-held
#[test]
fn a_batch_waits_for_a_stage_that_a_changed_policy_puts_before_it() {
    let mut fleet = fleet_in_batches(json!({}));
    fleet.change("2");
    check_batch(&fleet, 1, 10, "");
    fleet.policy.stages.reverse();
    fleet.policy.stages[0].gates.healthy_for = "90s".into();
    fleet.cluster("a").stage = 1;
    fleet.cluster("b").stage = 0;
    "q".clone_into(&mut fleet.policy_id);
    fleet.run_to_rest();
    fleet.pass(60);
    fleet.check("Progressing: b=2 Soaking, a=2 Soaking");
    check_batch(&fleet, 1, 10, "WaitingForStage");
    fleet.pass(30);
    check_batch(&fleet, 2, 45, "");
}

/// Three stages, of which the second has batches and an approval. Its cluster has a batch of a revision
/// from before, whose approval was taken away.
fn fleet_with_a_batch_from_before(more: Value) -> Fleet {
    let divided = json!({"name": "divided", "batches": ["10%", "100%"],
        "gates": {"healthyFor": "20s", "approval": true}});
    let first = json!({"name": "whole", "gates": {"healthyFor": "1m"}});
    let mut policy = json!({"stages": [first, divided, {"name": "rest"}]});
    let fields = policy.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let mut fleet = Fleet::new(policy, &[("a", 1), ("b", 0), ("c", 2)]);
    fleet.change("2");
    fleet.pass(60);
    fleet.approve("divided", false);
    check_batch(&fleet, 1, 10, "");
    fleet.change("3");
    fleet.spec.approvals.clear();
    fleet.change("2");
    fleet.pass(60);
    fleet.check("AwaitingApproval: b=2 Done, a=2 Blocked, c=1 Pending");
    check_batch(&fleet, 0, 10, "AwaitingApproval");
    fleet
}

// proves: ROL-batch-from-before
#[test]
fn a_cluster_with_a_batch_from_before_does_not_fail_before_its_turn() {
    let mut fleet = fleet_with_a_batch_from_before(json!({"failureBudget": 1}));
    for reachable in [false, true] {
        fleet.cluster("a").reachable = reachable;
        fleet.pass(3600);
        fleet.check("AwaitingApproval: b=2 Done, a=2 Blocked, c=1 Pending");
        check_batch(&fleet, 0, 10, "AwaitingApproval");
    }
    fleet.approve("divided", false);
    check_batch(&fleet, 1, 10, "");
    fleet.pass(20);
    check_batch(&fleet, 2, 100, "");
    fleet.pass(20);
    fleet.check("Completed: b=2 Done, a=2 Done, c=2 Done");
}

// proves: ROL-batch-from-before
#[test]
fn a_stage_is_lost_whose_cluster_leaves_with_a_batch_from_before() {
    let mut fleet = fleet_with_a_batch_from_before(json!({"failureBudget": 1}));
    fleet.cluster("a").reachable = false;
    fleet.run_to_rest();
    fleet.leave("a");
    fleet.pass(3600);
    fleet.check("AwaitingCluster: b=2 Done, a=2 Skipped, c=1 Pending");
}

// proves: ROL-batch-from-before
#[test]
fn batches_from_before_begin_as_many_at_once_as_others() {
    let divided = json!({"name": "divided", "batches": ["10%", "100%"], "maxConcurrency": 1,
        "gates": {"healthyFor": "20s"}});
    let first = json!({"name": "whole", "gates": {"healthyFor": "1m"}});
    let policy = json!({"stages": [first, divided]});
    let mut fleet = Fleet::new(policy, &[("a", 1), ("b", 0), ("c", 1)]);
    fleet.policy.stages[1].max_concurrency = None;
    fleet.change("2");
    fleet.pass(60);
    fleet.check("Progressing: b=2 Done, a=2 Soaking, c=2 Soaking");
    fleet.policy.stages[1].max_concurrency = Some(json!(1));
    fleet.change("3");
    fleet.change("2");
    fleet.pass(60);
    fleet.check("Progressing: b=2 Done, a=2 Soaking, c=2 Pending");
    for _batch in 0..2 {
        fleet.pass(20);
    }
    fleet.check("Progressing: b=2 Done, a=2 Done, c=2 Soaking");
    for _batch in 0..2 {
        fleet.pass(20);
    }
    fleet.check("Completed: b=2 Done, a=2 Done, c=2 Done");
}

fn close_windows(fleet: &mut Fleet) {
    let windows = json!([{"schedule": "0 3 * * *", "duration": "1h"}]);
    fleet.policy.windows = serde_json::from_value(windows).unwrap();
}

// proves: ROL-batch-from-before
#[test]
fn a_batch_from_before_begins_when_a_window_opens() {
    let mut fleet = fleet_of_two_stages();
    fleet.change("2");
    fleet.pass(60);
    check_batch(&fleet, 1, 10, "");
    fleet.change("3");
    fleet.change("2");
    close_windows(&mut fleet);
    fleet.pass(60);
    fleet.check("OutsideWindow: b=2 Done, a=2 Blocked");
    check_batch(&fleet, 0, 10, "OutsideWindow");
    fleet.pass_to_next();
    fleet.check("Progressing: b=2 Done, a=2 Soaking");
    check_batch(&fleet, 1, 10, "");
}

// proves: ROL-batch-overtaken
#[test]
fn a_return_to_the_revision_that_has_gone_through_all_stages_waits_for_nothing() {
    let ended = fleet_with_a_failed_batch();
    let mut fleet = ended.clone();
    fleet.spec.paused = true;
    fleet.change("3");
    close_windows(&mut fleet);
    fleet.change("2");
    fleet.check("Progressing: a=2 Soaking, b=2 Soaking");
    check_batch(&fleet, 0, 100, "");
    fleet.pass(20);
    fleet.check("Completed: a=2 Done, b=2 Done");

    // So does the return after an abort.
    let mut fleet = ended;
    fleet.spec.paused = true;
    fleet.change("3");
    fleet.check("Paused: a=2 Blocked, b=2 Blocked");
    check_batch(&fleet, 0, 10, "Paused");
    fleet.abort();
    fleet.run_to_rest();
    fleet.check("RolledBack: a=2 Soaking, b=2 Soaking");
    check_batch(&fleet, 0, 100, "");
}

/// A rollout that has ended goes on with a cluster that had failed within the budget.
// proves: ROL-batch-held
#[test]
fn a_paused_batch_of_a_rollout_that_has_ended_says_so() {
    let mut fleet = fleet_with_a_failed_batch();
    fleet.spec.paused = true;
    fleet.run_to_rest();
    fleet.pass(20);
    fleet.check("Paused: a=2 Soaking, b=2 Done");
    check_batch(&fleet, 1, 10, "Paused");
    fleet.spec.paused = false;
    fleet.run_to_rest();
    check_batch(&fleet, 2, 100, "");
}

// proves: ROL-batch-returned
#[test]
fn a_cluster_that_keeps_its_replicas_returns_to_its_batch() {
    for (target, expected) in [
        ("2", "Paused: a=2 Blocked, b=1 Pending"),
        // The new target has forgotten who has left.
        ("3", "Paused: a=2 Blocked, b=1 Pending"),
    ] {
        let mut fleet = fleet_in_batches(json!({"minAvailable": 10}));
        fleet.change("2");
        check_batch(&fleet, 1, 10, "");
        fleet.spec.paused = true;
        fleet.cluster("b").reachable = false;
        fleet.run_to_rest();
        fleet.depart("a");
        fleet.change(target);
        fleet.come_back("a");
        fleet.run_to_rest();
        fleet.check(expected);
        let cluster = fleet.status.as_ref().unwrap().cluster("a").unwrap();
        assert_eq!((cluster.batch, cluster.batch_percent), (0, 10));
        assert_eq!(fleet.cluster("a").replicas.updated, 1);
    }
}

// proves: ROL-batch-returned
#[test]
fn the_batch_is_the_one_of_the_revision_that_the_work_has() {
    let mut fleet = fleet_in_batches(json!({"minAvailable": 10}));
    fleet.change("2");
    check_batch(&fleet, 1, 10, "");
    // The Work does not get the next revision before the cluster leaves.
    "3".clone_into(&mut fleet.target);
    fleet.step();
    fleet.check("Progressing: a=3 Updating, b=1 Pending");
    fleet.cluster("b").reachable = false;
    fleet.depart("a");
    while fleet.step() {}
    assert_eq!(fleet.leaving[0].work_revision, "2");
    fleet.come_back("a");
    fleet.spec.paused = true;
    fleet.run_to_rest();
    fleet.check("Paused: a=2 Blocked, b=1 Pending");
    check_batch(&fleet, 0, 10, "Paused");
}

// proves: ROL-kept-replicas-back
#[test]
fn a_cluster_that_keeps_no_replicas_returns_to_the_revision_before() {
    let mut fleet = fleet_in_batches(json!({"minAvailable": 10}));
    fleet.change("2");
    check_batch(&fleet, 1, 10, "");
    fleet.spec.paused = true;
    fleet.depart("a");
    fleet.run_to_rest();
    // The others have enough, so that it may lose its Work, which is not gone yet.
    assert_eq!(fleet.leaving[0].work_revision, "2");
    fleet.come_back("a");
    fleet.step();
    fleet.check("Paused: a=1 Blocked, b=1 Pending");
    check_batch(&fleet, 0, 0, "Paused");
}

// proves: ROL-batch-policy-changed
#[test]
fn changed_batches_apply_from_the_next_one_on() {
    let mut fleet = fleet_in_batches(json!({}));
    fleet.change("2");
    check_batch(&fleet, 1, 10, "");
    fleet.policy.stages[0].batches = vec!["5%".into(), "70%".into(), "100%".into()];
    "q".clone_into(&mut fleet.policy_id);
    fleet.run_to_rest();
    check_batch(&fleet, 1, 10, "");
    fleet.pass(60);
    check_batch(&fleet, 2, 70, "");
    fleet.policy.stages[0].batches.clear();
    fleet.pass(60);
    check_batch(&fleet, 3, 100, "");
}

// proves: ROL-batch-kinds
#[test]
fn a_kind_without_a_partition_has_no_batches() {
    let mut fleet = fleet_in_batches(json!({}));
    fleet.has_partition = false;
    fleet.change("2");
    fleet.check("Progressing: a=2 Soaking, b=1 Pending");
    check_batch(&fleet, 0, 0, "");
    fleet.deliver_to(0, Delivery::Complete);
    fleet.pass(60);
    fleet.check("Completed: a=2 Done, b=2 Done");
}
