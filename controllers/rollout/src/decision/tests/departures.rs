//! Scenarios of clusters that leave a stage before it has ended.

use karmada_api::rollout::{
    ClusterRolloutStatus, LEFT_AFTER_END, LEFT_AFTER_FAILURE, LEFT_BEFORE_END, RolloutPhase,
};
use serde_json::{Value, json};

use super::fleet::Fleet;
use crate::decision::JobOutcome;

const SOAKING: &str = "Progressing: a=2 Soaking, b=1 Pending, c=1 Pending, d=1 Pending";
const HELD: &str = "AwaitingCluster: a=2 Skipped, b=1 Pending, c=1 Pending, d=1 Pending";

/// The reason of a cluster that has left.
fn departure(fleet: &Fleet, name: &str) -> String {
    let stages = &fleet.status.as_ref().unwrap().stages;
    let mut clusters = stages.iter().flat_map(|stage| &stage.clusters);
    let is_departure =
        |c: &&ClusterRolloutStatus| c.name == name && c.phase == RolloutPhase::Skipped;
    clusters.find(is_departure).unwrap().reason.clone()
}

/// A rollout whose first stage has lost its only cluster while that soaked.
fn held_fleet(more: Value) -> Fleet {
    let mut fleet = Fleet::three_stages(more);
    fleet.change("2");
    fleet.check(SOAKING);
    fleet.leave("a");
    fleet.run_to_rest();
    fleet
}

// proves: ROL-lost-stage
#[test]
fn a_stage_that_has_lost_its_clusters_does_not_pass() {
    let mut fleet = held_fleet(json!({}));
    fleet.check(HELD);
    fleet.pass(100_000);
    fleet.check(HELD);
    assert_eq!(departure(&fleet, "a"), LEFT_BEFORE_END);
    let status = fleet.status.as_ref().unwrap();
    assert_eq!(&*status.stage, "first");
    assert_eq!(status.stages[0].phase, RolloutPhase::Blocked);
    assert!(status.stages[0].has_lost_clusters());
    let message = "all clusters of stage first have left before they had ended: a; it goes on with a cluster \
        that joins the stage, or after flotilla rollout approve --stage first --without-clusters";
    assert_eq!(status.message, message);
    let mut conditions = status.conditions.iter();
    let paused = conditions.find(|c| c.condition_type == "Paused").unwrap();
    assert!(paused.status == "True" && paused.message.ends_with(message));
    // A retry and a pause change nothing about it.
    fleet.retry();
    fleet.run_to_rest();
    fleet.check(HELD);
    fleet.spec.paused = true;
    fleet.run_to_rest();
    fleet.check("Paused: a=2 Skipped, b=1 Pending, c=1 Pending, d=1 Pending");
    fleet.spec.paused = false;
    fleet.run_to_rest();
    fleet.check(HELD);
}

// proves: ROL-lost-stage
#[test]
fn a_failed_cluster_that_leaves_has_ended_within_the_budget_alone() {
    for (more, expected, reason) in [
        (json!({}), HELD, LEFT_BEFORE_END),
        (
            json!({"failureBudget": 1}),
            "Progressing: a=2 Skipped, b=2 Soaking, c=1 Pending, d=1 Pending",
            LEFT_AFTER_FAILURE,
        ),
        (
            json!({"onFailure": "Continue"}),
            "Progressing: a=2 Skipped, b=2 Soaking, c=1 Pending, d=1 Pending",
            LEFT_AFTER_FAILURE,
        ),
    ] {
        let mut fleet = Fleet::three_stages(more);
        fleet.cluster("a").reachable = false;
        fleet.change("2");
        fleet.leave("a");
        fleet.run_to_rest();
        fleet.check(expected);
        assert_eq!(departure(&fleet, "a"), reason);
    }
}

// proves: ROL-lost-stage
#[test]
fn a_stage_whose_cluster_left_after_its_end_has_passed() {
    let mut fleet = Fleet::three_stages(json!({}));
    fleet.change("2");
    fleet.pass(60);
    fleet.leave("a");
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Skipped, b=2 Soaking, c=1 Pending, d=1 Pending");
    assert_eq!(departure(&fleet, "a"), LEFT_AFTER_END);
}

// proves: ROL-lost-stage
#[test]
fn a_rollout_does_not_end_by_losing_its_last_stages() {
    let mut fleet = Fleet::three_stages(json!({}));
    fleet.change("2");
    fleet.pass(60);
    for name in ["b", "c", "d"] {
        fleet.leave(name);
    }
    fleet.run_to_rest();
    let expected = "AwaitingCluster: a=2 Done, b=2 Skipped, c=1 Skipped, d=1 Skipped";
    fleet.check(expected);
    // Whoever comes back goes through its stage.
    let mut back = fleet.clone();
    back.spec.paused = true;
    for (name, stage) in [("b", 1), ("c", 2)] {
        back.join(name, stage);
    }
    back.run_to_rest();
    back.check("Paused: a=2 Done, b=1 Blocked, c=1 Pending, d=1 Skipped");
    back.spec.paused = false;
    back.run_to_rest();
    back.check("Progressing: a=2 Done, b=2 Soaking, c=1 Pending, d=1 Skipped");
    fleet.approve("second", true);
    fleet.check(expected);
    fleet.approve("third", true);
    fleet.check("Completed: a=2 Done");
}

// proves: ROL-joined
#[test]
fn the_first_cluster_of_a_stage_that_had_none_goes_through_its_gates() {
    let gates = json!({"approval": true});
    let stages = json!([{"name": "first"}, {"name": "second", "gates": gates}, {"name": "third", "gates": gates}]);
    let mut fleet = Fleet::new(json!({"stages": stages}), &[("a", 0), ("c", 2)]);
    fleet.change("2");
    fleet.check("AwaitingApproval: a=2 Done, c=1 Blocked");
    fleet.join("b", 1);
    fleet.run_to_rest();
    fleet.check("AwaitingApproval: a=2 Done, b=1 Blocked, c=1 Pending");
    fleet.approve("second", false);
    fleet.check("AwaitingApproval: a=2 Done, b=2 Done, c=1 Blocked");
}

// proves: ROL-lost-stage-joined
#[test]
fn a_cluster_that_joins_a_lost_stage_begins_in_its_turn() {
    for name in ["a", "aa"] {
        let mut fleet = held_fleet(json!({}));
        fleet.spec.paused = true;
        fleet.join(name, 0);
        fleet.run_to_rest();
        let status = fleet.status.as_ref().unwrap();
        let joined = status.cluster(name).unwrap();
        assert_eq!(
            (&*joined.revision, joined.phase),
            ("1", RolloutPhase::Blocked)
        );
        assert_eq!(status.state, "Paused");
        fleet.spec.paused = false;
        fleet.run_to_rest();
        assert_eq!(fleet.phase(name), Some(RolloutPhase::Soaking));
        fleet.pass(59);
        assert_eq!(fleet.phase("b"), Some(RolloutPhase::Pending));
        fleet.pass(1);
        assert_eq!(fleet.phase("b"), Some(RolloutPhase::Soaking));
    }
    // In another stage it is no cluster of the first one.
    let mut fleet = held_fleet(json!({}));
    fleet.join("a", 1);
    fleet.run_to_rest();
    let expected =
        "AwaitingCluster: a=2 Skipped, a=1 Pending, b=1 Pending, c=1 Pending, d=1 Pending";
    fleet.check(expected);
    fleet.leave("a");
    fleet.run_to_rest();
    fleet.join("a", 0);
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Soaking, a=1 Skipped, b=1 Pending, c=1 Pending, d=1 Pending");
    // While no cluster is left, nothing ends.
    let mut fleet = held_fleet(json!({}));
    for name in ["b", "c", "d"] {
        fleet.leave(name);
    }
    fleet.run_to_rest();
    fleet.join("b", 1);
    fleet.run_to_rest();
    fleet.check("AwaitingCluster: a=2 Skipped, b=1 Pending, c=1 Skipped, d=1 Skipped");
}

// proves: ROL-lost-stage-approved
#[test]
fn an_approval_without_clusters_lets_a_lost_stage_pass() {
    let mut fleet = held_fleet(json!({}));
    // Neither one of another revision or stage, nor a plain one.
    fleet.approve("second", true);
    fleet.approve("first", false);
    fleet.check(HELD);
    fleet.spec.approvals[0].stage = "first".into();
    fleet.spec.approvals[0].revision = "1".into();
    fleet.run_to_rest();
    fleet.check(HELD);
    fleet.approve("first", true);
    fleet.check("Progressing: a=2 Skipped, b=2 Soaking, c=1 Pending, d=1 Pending");
    fleet.pass(60);
    fleet.pass(60);
    fleet.check("Completed: b=2 Done, c=2 Done, d=2 Done");
}

// proves: ROL-lost-stage-approved
#[test]
fn one_approval_is_enough_for_a_lost_stage_that_needs_one() {
    let stages = json!([{"name": "first"}, {"name": "second", "gates": {"approval": true}}, {"name": "third"}]);
    let mut fleet = Fleet::three_stages(json!({"stages": stages}));
    fleet.change("2");
    fleet.check("AwaitingApproval: a=2 Done, b=1 Blocked, c=1 Pending, d=1 Pending");
    fleet.leave("b");
    fleet.run_to_rest();
    fleet.check("AwaitingCluster: a=2 Done, b=1 Skipped, c=1 Pending, d=1 Pending");
    fleet.approve("second", true);
    fleet.check("Completed: a=2 Done, c=2 Done, d=2 Done");
}

// proves: ROL-lost-stage
#[test]
fn a_newer_revision_takes_the_clusters_anew_and_a_changed_policy_keeps_those_that_have_left() {
    let mut fleet = held_fleet(json!({}));
    let mut changed = fleet.clone();
    changed.change("3");
    changed.check("Progressing: b=3 Soaking, c=1 Pending, d=1 Pending");
    "q".clone_into(&mut fleet.policy_id);
    fleet.run_to_rest();
    fleet.check(HELD);
    // The stage may be at another place, or be gone.
    fleet.policy.stages.swap(0, 2);
    "r".clone_into(&mut fleet.policy_id);
    fleet.run_to_rest();
    let mut members = fleet.status.as_ref().unwrap().stages[2].clusters.iter();
    assert!(members.any(|cluster| cluster.name == "a"));
    fleet.policy.stages.remove(2);
    "s".clone_into(&mut fleet.policy_id);
    fleet.run_to_rest();
    assert_eq!(fleet.status.as_ref().unwrap().cluster("a"), None);
    let fleet = held_fleet(json!({"onFailure": "Continue"}));
    fleet.check("Progressing: a=2 Skipped, b=2 Soaking, c=1 Pending, d=1 Pending");
}

// proves: ROL-lost-stage
#[test]
fn a_retry_after_a_return_still_knows_who_has_left() {
    let mut fleet = held_fleet(json!({}));
    fleet.abort();
    fleet.run_to_rest();
    fleet.pass(60);
    fleet.check("RolledBack: a=2 Skipped, b=1 Done, c=1 Done, d=1 Done");
    fleet.retry();
    fleet.run_to_rest();
    fleet.check(HELD);
    // One that was done before the return has to prove the target again.
    let mut fleet = Fleet::three_stages(json!({}));
    fleet.change("2");
    fleet.pass(60);
    fleet.leave("a");
    fleet.run_to_rest();
    fleet.abort();
    fleet.run_to_rest();
    fleet.pass(60);
    fleet.retry();
    fleet.run_to_rest();
    fleet.check(HELD);
    fleet.change("3");
    fleet.check("Progressing: b=3 Soaking, c=1 Pending, d=1 Pending");
}

// proves: ROL-lost-stage-job
#[test]
fn a_stage_whose_clusters_leave_before_its_job_has_succeeded_does_not_pass() {
    let gates = json!({"job": {"cronJob": "smoke"}});
    let stages = json!([{"name": "first", "gates": gates}, {"name": "second"}, {"name": "third"}]);
    let expected = "AwaitingCluster: a=2 Skipped, b=1 Pending, c=1 Pending, d=1 Pending";
    for outcome in [JobOutcome::Running, JobOutcome::Failed("no".into())] {
        let mut fleet = Fleet::three_stages(json!({"stages": stages, "failureBudget": 1}));
        fleet.job_outcome = outcome;
        fleet.change("2");
        fleet.leave("a");
        fleet.run_to_rest();
        fleet.check(expected);
        // The Job proves nothing about a cluster that has left, and another one is awaited.
        fleet.job_outcome = JobOutcome::Succeeded;
        fleet.pass(600);
        fleet.check(expected);
        fleet.retry();
        fleet.run_to_rest();
        fleet.check(expected);
        let mut rejoined = fleet.clone();
        rejoined.join("aa", 0);
        rejoined.run_to_rest();
        rejoined.check("Completed: aa=2 Done, b=2 Done, c=2 Done, d=2 Done");
        fleet.approve("first", true);
        let text = fleet.text();
        assert!(text.ends_with("b=2 Done, c=2 Done, d=2 Done"), "{text}");
    }
    let mut fleet = Fleet::three_stages(json!({"stages": stages}));
    fleet.change("2");
    fleet.check("Completed: a=2 Done, b=2 Done, c=2 Done, d=2 Done");
}
