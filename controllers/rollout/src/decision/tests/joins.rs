//! Scenarios of clusters that join a rollout, or come back to it, while it is held, and of those that have
//! failed and leave.

use karmada_api::rollout::RolloutPhase;
use serde_json::{Value, json};

use super::fleet::Fleet;

/// Three clusters of one stage, of which one at a time is updated and soaks for a minute.
fn one_by_one(more: Value) -> Fleet {
    let stage = json!({"name": "all", "maxConcurrency": 1, "gates": {"healthyFor": "1m"}});
    let mut policy = json!({"stages": [stage], "progressDeadline": "10m"});
    let fields = policy.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    Fleet::new(policy, &[("a", 0), ("b", 0), ("c", 0)])
}

/// The rollout of a revision with which no cluster becomes healthy: the first one has failed.
fn failed_fleet(more: Value) -> Fleet {
    let mut fleet = one_by_one(more);
    fleet.break_revision("2");
    fleet.change("2");
    fleet.pass(600);
    fleet
}

fn message(fleet: &Fleet) -> &str {
    &fleet.status.as_ref().unwrap().message
}

// proves: ROL-joined-held
#[test]
fn a_cluster_that_joins_while_failures_hold_the_rollout_waits() {
    let stages = json!([{"name": "canary", "maxConcurrency": 1}, {"name": "everywhere"}]);
    let policy = json!({"stages": stages, "progressDeadline": "10m"});
    let mut fleet = Fleet::new(policy, &[("a", 0), ("b", 0), ("c", 1)]);
    fleet.break_revision("2");
    fleet.change("2");
    fleet.pass(600);
    fleet.check("FailureBudgetExceeded: a=2 Failed, b=1 Blocked, c=1 Pending");
    // One that leaves and comes back, and a new one.
    fleet.leave("b");
    fleet.run_to_rest();
    fleet.join("b", 0);
    fleet.join("d", 0);
    fleet.run_to_rest();
    let expected = "FailureBudgetExceeded: a=2 Failed, b=1 Blocked, d=1 Blocked, c=1 Pending";
    fleet.check(expected);
    fleet.pass(100_000);
    fleet.check(expected);
    fleet.broken.clear();
    fleet.run_to_rest();
    fleet.check("Completed: a=2 Done, b=2 Done, d=2 Done, c=2 Done");
}

// proves: ROL-joined-held, ROL-end-held
#[test]
fn a_rollout_that_failures_hold_does_not_end_by_losing_those_that_wait() {
    let mut fleet = failed_fleet(json!({}));
    fleet.check("FailureBudgetExceeded: a=2 Failed, b=1 Blocked, c=1 Blocked");
    fleet.leave("b");
    fleet.leave("c");
    fleet.run_to_rest();
    fleet.check("FailureBudgetExceeded: a=2 Failed, b=1 Skipped, c=1 Skipped");
    let status = fleet.status.as_ref().unwrap();
    assert_eq!((&*status.stage, &*status.stable_revision), ("all", "1"));
    let help = "failed with this revision: a; flotilla rollout retry lets them begin again, flotilla rollout abort lets \
        all clusters return";
    assert_eq!(message(&fleet), help);
    fleet.join("b", 0);
    fleet.join("c", 0);
    fleet.run_to_rest();
    fleet.check("FailureBudgetExceeded: a=2 Failed, b=1 Blocked, c=1 Blocked");
    // An abort is still possible.
    fleet.abort();
    fleet.run_to_rest();
    fleet.pass(60);
    fleet.check("RolledBack: a=1 Done, b=1 Done, c=1 Done");
}

// proves: ROL-end-held
#[test]
fn a_rollout_whose_last_cluster_fails_beyond_the_budget_has_not_ended() {
    let mut fleet = Fleet::three_stages(json!({}));
    fleet.change("2");
    fleet.broken.insert(("d".into(), "2".into()));
    fleet.pass(60);
    fleet.pass(60);
    fleet.pass(600);
    let expected = "FailureBudgetExceeded: a=2 Done, b=2 Done, c=2 Done, d=2 Failed";
    fleet.check(expected);
    assert_eq!(fleet.status.as_ref().unwrap().stage, "third");
    fleet.join("e", 0);
    fleet.run_to_rest();
    fleet.check("FailureBudgetExceeded: a=2 Done, e=1 Blocked, b=2 Done, c=2 Done, d=2 Failed");
    fleet.leave("e");
    fleet.run_to_rest();
    let mut continued = fleet.clone();
    "Continue".clone_into(&mut continued.policy.on_failure);
    continued.run_to_rest();
    continued.check("Degraded: a=2 Done, b=2 Done, c=2 Done, d=2 Failed");
    fleet.broken.clear();
    fleet.run_to_rest();
    fleet.pass(60);
    fleet.check("Completed: a=2 Done, b=2 Done, c=2 Done, d=2 Done");
}

// proves: ROL-joined-held, ROL-end-held
#[test]
fn a_paused_rollout_gives_the_target_to_nobody_who_comes_back() {
    let mut fleet = one_by_one(json!({}));
    fleet.change("2");
    fleet.spec.paused = true;
    fleet.run_to_rest();
    fleet.check("Paused: a=2 Soaking, b=1 Blocked, c=1 Blocked");
    fleet.leave("b");
    fleet.leave("c");
    fleet.pass(60);
    fleet.check("Paused: a=2 Done, b=1 Skipped, c=1 Skipped");
    let ending = "no cluster is left to begin, and it ends once it is resumed";
    assert_eq!(message(&fleet), ending);
    fleet.join("b", 0);
    fleet.join("c", 0);
    fleet.join("d", 0);
    fleet.run_to_rest();
    fleet.check("Paused: a=2 Done, b=1 Blocked, c=1 Blocked, d=1 Blocked");
    // They go on by the rules of their stage.
    fleet.spec.paused = false;
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Done, b=2 Soaking, c=1 Pending, d=1 Pending");
}

// proves: ROL-returned
#[test]
fn a_cluster_that_left_before_its_end_takes_its_turn_when_it_is_back() {
    let windows = json!([{"schedule": "0 12 * * *", "duration": "1h"}]);
    let mut fleet = one_by_one(json!({"windows": windows}));
    fleet.pass(11 * 3600);
    fleet.change("2");
    fleet.pass(60);
    fleet.check("Progressing: a=2 Done, b=2 Soaking, c=1 Pending");
    fleet.leave("c");
    fleet.pass(3600);
    fleet.check("Completed: a=2 Done, b=2 Done");
    let mut fleet = one_by_one(json!({"windows": windows}));
    fleet.pass(11 * 3600);
    fleet.change("2");
    fleet.leave("b");
    fleet.leave("c");
    fleet.run_to_rest();
    fleet.join("b", 0);
    fleet.join("c", 0);
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Soaking, b=1 Pending, c=1 Pending");
    fleet.join("d", 1);
    fleet.pass(3600);
    fleet.check("OutsideWindow: a=2 Done, b=1 Blocked, c=1 Blocked, d=1 Pending");
    // One that was done waits, too, while its stage has not ended.
    fleet.leave("a");
    fleet.leave("b");
    fleet.run_to_rest();
    fleet.join("a", 0);
    fleet.join("b", 0);
    fleet.run_to_rest();
    fleet.check("OutsideWindow: a=1 Blocked, b=1 Blocked, c=1 Blocked, d=1 Pending");
}

// proves: ROL-failed-left
#[test]
fn a_cluster_that_has_failed_counts_after_it_has_left() {
    let mut fleet = failed_fleet(json!({}));
    fleet.leave("a");
    fleet.run_to_rest();
    let expected = "FailureBudgetExceeded: a=2 Skipped, b=1 Blocked, c=1 Blocked";
    fleet.check(expected);
    let sentence = "a had failed with this revision, which counts until flotilla rollout retry";
    assert_eq!(message(&fleet), sentence);
    // It counts when it is back, and once.
    let mut back = fleet.clone();
    for _ in 0..2 {
        back.join("a", 0);
        back.run_to_rest();
        back.check("FailureBudgetExceeded: a=1 Blocked, b=1 Blocked, c=1 Blocked");
        assert_eq!(message(&back), sentence);
        back.leave("a");
        back.run_to_rest();
    }
    back.join("a", 1);
    back.run_to_rest();
    let count = |fleet: &Fleet| {
        let stages = fleet.status.as_ref().unwrap().stages.iter();
        let clusters = stages.flat_map(|stage| stage.clusters.iter());
        clusters.filter(|c| c.counts_as_failed()).count()
    };
    assert_eq!(count(&back), 1);
    // A retry, a newer revision or another policy lets the others begin.
    let mut retried = fleet.clone();
    retried.retry();
    retried.run_to_rest();
    retried.check("Progressing: a=2 Skipped, b=2 Updating, c=1 Pending");
    assert_eq!(message(&retried), "");
    let mut changed = fleet.clone();
    changed.change("3");
    changed.check("Progressing: b=3 Soaking, c=1 Pending");
    let mut passed = fleet.clone();
    passed.policy.failure_budget = Some(json!(1));
    passed.run_to_rest();
    passed.check("Progressing: a=2 Skipped, b=2 Updating, c=1 Pending");
    passed.pass(600);
    passed.leave("b");
    passed.run_to_rest();
    passed.check("FailureBudgetExceeded: a=2 Skipped, b=2 Skipped, c=1 Blocked");
    let mut restaged = fleet.clone();
    "other".clone_into(&mut restaged.policy.stages[0].name);
    "q".clone_into(&mut restaged.policy_id);
    restaged.run_to_rest();
    restaged.check("FailureBudgetExceeded: b=1 Blocked, c=1 Blocked, a=2 Skipped");
    let mut aborted = fleet.clone();
    aborted.abort();
    aborted.run_to_rest();
    aborted.pass(60);
    aborted.check("RolledBack: a=2 Skipped, b=1 Done, c=1 Done");
    assert_eq!(count(&aborted), 0);
}

// proves: ROL-failed-left
#[test]
fn a_cluster_that_was_merely_not_ready_counts_no_more_once_it_has_left() {
    let mut fleet = one_by_one(json!({}));
    fleet.cluster("a").reachable = false;
    fleet.change("2");
    fleet.check("FailureBudgetExceeded: a=2 Failed, b=1 Blocked, c=1 Blocked");
    assert_eq!(message(&fleet), "not Ready: a");
    fleet.leave("a");
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Skipped, b=2 Soaking, c=1 Pending");
    // One that had begun with the target before it was not Ready does, until it is done.
    let mut fleet = one_by_one(json!({}));
    fleet.change("2");
    fleet.cluster("a").reachable = false;
    fleet.run_to_rest();
    fleet.leave("a");
    fleet.run_to_rest();
    fleet.check("FailureBudgetExceeded: a=2 Skipped, b=1 Blocked, c=1 Blocked");
    let mut fleet = one_by_one(json!({}));
    fleet.change("2");
    fleet.cluster("a").reachable = false;
    fleet.run_to_rest();
    fleet.cluster("a").reachable = true;
    fleet.run_to_rest();
    fleet.check("FailureBudgetExceeded: a=2 Soaking, b=1 Blocked, c=1 Blocked");
    fleet.pass(60);
    fleet.check("Progressing: a=2 Done, b=2 Soaking, c=1 Pending");
    // So does one that had failed.
    let mut fleet = failed_fleet(json!({}));
    fleet.cluster("a").reachable = false;
    fleet.run_to_rest();
    fleet.leave("a");
    fleet.run_to_rest();
    fleet.check("FailureBudgetExceeded: a=2 Skipped, b=1 Blocked, c=1 Blocked");
}

// proves: ROL-failed-left
#[test]
fn a_healthy_batch_ends_the_failure_of_a_cluster_that_was_not_ready() {
    let stage = json!({"name": "all", "batches": ["50%", "100%"], "gates": {"healthyFor": "1m"}});
    let policy = json!({"stages": [stage], "progressDeadline": "10m"});
    let mut fleet = Fleet::new(policy, &[("a", 0)]);
    fleet.change("2");
    fleet.cluster("a").reachable = false;
    fleet.run_to_rest();
    fleet.cluster("a").reachable = true;
    fleet.run_to_rest();
    fleet.check("FailureBudgetExceeded: a=2 Soaking");
    fleet.pass(60);
    fleet.check("Progressing: a=2 Soaking");
    fleet.pass(60);
    fleet.check("Completed: a=2 Done");
}

// proves: ROL-failed-left
#[test]
fn a_percentage_of_the_budget_is_also_of_those_that_have_failed_and_left() {
    let mut fleet = failed_fleet(json!({"failureBudget": "34%", "onFailure": "Rollback"}));
    fleet.check("Progressing: a=2 Failed, b=2 Updating, c=1 Pending");
    fleet.leave("a");
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Skipped, b=2 Updating, c=1 Pending");
    // One that takes its place makes the budget no greater.
    let stage = json!({"name": "all", "maxConcurrency": 1});
    let policy = json!({"stages": [stage], "progressDeadline": "10m", "failureBudget": "34%"});
    let mut fleet = Fleet::new(policy, &[("a", 0), ("b", 0)]);
    fleet.break_revision("2");
    fleet.change("2");
    fleet.pass(600);
    fleet.check("FailureBudgetExceeded: a=2 Failed, b=1 Blocked");
    fleet.leave("a");
    fleet.join("c", 0);
    fleet.run_to_rest();
    fleet.check("FailureBudgetExceeded: a=2 Skipped, b=1 Blocked, c=1 Blocked");
}

// proves: ROL-failed-left
#[test]
fn failed_clusters_and_those_in_their_place_count_once_in_a_percentage() {
    let check_hold = |base: i64, fleet: &Fleet| {
        let status = fleet.status.as_ref().unwrap();
        assert_eq!(
            (&*status.state, status.budget_base),
            ("FailureBudgetExceeded", base)
        );
    };
    let fleet_in = |budget: &str, names: &[&str]| {
        let stage = json!({"name": "all", "maxConcurrency": 1});
        let policy = json!({"stages": [stage], "progressDeadline": "10m", "failureBudget": budget});
        let clusters: Vec<(&str, usize)> = names.iter().map(|name| (*name, 0)).collect();
        let mut fleet = Fleet::new(policy, &clusters);
        for name in ["a", "b", "c", "d", "e"] {
            fleet.broken.insert((name.into(), "2".into()));
        }
        fleet
    };
    // A healthy cluster that has left leaves no room for one that takes the place of a failed one.
    let mut fleet = fleet_in("34%", &["a", "b", "c"]);
    fleet.change("2");
    fleet.leave("c");
    fleet.pass(600);
    check_hold(2, &fleet);
    fleet.leave("a");
    fleet.run_to_rest();
    fleet.join("d", 0);
    fleet.run_to_rest();
    check_hold(2, &fleet);
    // Nor do several, which come back one after the other.
    let mut fleet = fleet_in("80%", &["a", "b", "c", "d", "e"]);
    fleet.change("2");
    for name in ["b", "c", "d", "e"] {
        fleet.leave(name);
    }
    fleet.pass(600);
    check_hold(1, &fleet);
    fleet.leave("a");
    fleet.run_to_rest();
    fleet.join("b", 0);
    fleet.run_to_rest();
    check_hold(1, &fleet);
    // One that has failed counts after it has left, also among those that have joined since the start.
    let mut fleet = fleet_in("25%", &["a", "b"]);
    fleet.broken.retain(|(name, _)| name == "a");
    fleet.change("2");
    fleet.join("c", 0);
    fleet.join("d", 0);
    fleet.pass(600);
    fleet.leave("a");
    fleet.pass(600);
    fleet.check("Completed: b=2 Done, c=2 Done, d=2 Done");
    // Until a retry it is one of those of which the percentage is.
    let mut fleet = fleet_in("50%", &["a", "b", "c"]);
    fleet.change("2");
    fleet.pass(600);
    fleet.leave("a");
    fleet.pass(600);
    check_hold(3, &fleet);
    fleet.retry();
    fleet.run_to_rest();
    let status = fleet.status.as_ref().unwrap();
    assert_eq!((&*status.state, status.budget_base), ("Progressing", 2));
}

// proves: ROL-lost-stage
#[test]
fn a_lost_last_stage_is_the_one_that_waits() {
    let mut fleet = Fleet::three_stages(json!({}));
    fleet.change("2");
    fleet.pass(60);
    fleet.pass(60);
    fleet.leave("c");
    fleet.leave("d");
    fleet.run_to_rest();
    fleet.check("AwaitingCluster: a=2 Done, b=2 Done, c=2 Skipped, d=2 Skipped");
    assert_eq!(fleet.status.as_ref().unwrap().stage, "third");
}

// proves: ROL-joined
#[test]
fn a_stage_whose_clusters_have_failed_proves_nothing_to_one_that_joins() {
    let mut fleet = Fleet::three_stages(json!({"failureBudget": 1}));
    fleet.broken.insert(("a".into(), "2".into()));
    fleet.change("2");
    fleet.pass(600);
    fleet.check("Progressing: a=2 Failed, b=2 Soaking, c=1 Pending, d=1 Pending");
    fleet.join("aa", 0);
    fleet.spec.paused = true;
    fleet.run_to_rest();
    fleet.check("Paused: a=2 Failed, aa=1 Blocked, b=2 Soaking, c=1 Pending, d=1 Pending");
    // Nor do they when they have left, whether they had failed or were merely not Ready.
    for is_reachable in [true, false] {
        let stages = json!([{"name": "first", "maxConcurrency": 1}, {"name": "second", "gates": {"approval": true}}, {"name": "third"}]);
        let mut fleet = Fleet::three_stages(json!({"failureBudget": 1, "stages": stages}));
        fleet.break_revision("2");
        fleet.cluster("a").reachable = is_reachable;
        fleet.change("2");
        fleet.pass(600);
        fleet.check("AwaitingApproval: a=2 Failed, b=1 Blocked, c=1 Pending, d=1 Pending");
        fleet.leave("a");
        fleet.run_to_rest();
        let names = ["aa", "ab", "a"];
        for name in names {
            fleet.join(name, 0);
        }
        fleet.break_revision("2");
        fleet.run_to_rest();
        let begun = names.map(|name| fleet.phase(name) == Some(RolloutPhase::Updating));
        assert_eq!(
            begun.iter().filter(|begun| **begun).count(),
            1,
            "{}",
            fleet.text()
        );
    }
}

// proves: ROL-nowhere
#[test]
fn a_template_that_was_somewhere_goes_through_the_stages_when_it_is_back() {
    let mut fleet = Fleet::three_stages(json!({}));
    for name in ["a", "b", "c", "d"] {
        fleet.leave(name);
    }
    fleet.run_to_rest();
    for revision in ["2", "3", "4"] {
        fleet.change(revision);
    }
    assert_eq!(fleet.status.as_ref().unwrap().stable_revision, "1");
    fleet.join("a", 0);
    fleet.join("b", 1);
    fleet.run_to_rest();
    fleet.check("Progressing: a=4 Soaking, b=1 Pending");
    assert_eq!(fleet.phase("b"), Some(RolloutPhase::Pending));
}
