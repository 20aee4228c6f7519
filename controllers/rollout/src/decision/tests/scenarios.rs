//! One scenario for each rule, among them one for each way in which other tools fail.

use karmada_api::rollout::{RolloutPhase, StageApproval};
use serde_json::json;

use super::fleet::Fleet;

fn condition(fleet: &Fleet, condition_type: &str) -> String {
    let conditions = &fleet.status.as_ref().unwrap().conditions;
    let mut conditions = conditions.iter();
    let condition = conditions.find(|c| c.condition_type == condition_type);
    condition.unwrap().status.clone()
}

// proves: ROL-at-once
#[test]
fn a_revision_that_goes_to_all_clusters_at_once_is_in_no_stage() {
    let mut fleet = Fleet::three_stages(json!({}));
    let text = |fleet: &Fleet| {
        let status = fleet.status.as_ref().unwrap();
        format!("{} {:?}: {}", status.state, status.stage, status.message)
    };
    let at_once =
        "Progressing \"\": clusters get this revision at once, and not through the stages";
    let mut first = fleet.clone();
    first.status = None;
    first.clusters.clear();
    first.join("a", 0);
    first.run_to_rest();
    first.check("Progressing: a=1 Soaking");
    assert_eq!(text(&first), at_once);
    first.pass(60);
    assert_eq!(text(&first), "Completed \"\": ");
    fleet.change("2");
    assert_eq!(text(&fleet), "Progressing \"first\": ");
    fleet.change("1");
    assert_eq!(text(&fleet), at_once);
    fleet.pass(60);
    fleet.join("e", 0);
    fleet.run_to_rest();
    assert_eq!(text(&fleet), at_once);
}

// proves: ROL-undo-known
#[test]
fn the_status_names_the_revision_that_was_stable_before() {
    let mut fleet = Fleet::three_stages(json!({}));
    let stable = |fleet: &Fleet| {
        let status = fleet.status.as_ref().unwrap();
        (
            status.former_revision.clone(),
            status.stable_revision.clone(),
        )
    };
    let pass_stages = |fleet: &mut Fleet| (0..3).for_each(|_| fleet.pass(60));
    assert_eq!(stable(&fleet), ("".into(), "1".into()));
    fleet.change("2");
    assert_eq!(stable(&fleet), ("".into(), "1".into()));
    // One that is overtaken never was.
    fleet.change("3");
    pass_stages(&mut fleet);
    assert_eq!(stable(&fleet), ("1".into(), "3".into()));
    fleet.change("1");
    pass_stages(&mut fleet);
    assert_eq!(stable(&fleet), ("3".into(), "1".into()));
}

// proves: ROL-first, ROL-stages, ROL-soak, ROL-conditions
#[test]
fn a_change_goes_through_the_stages_and_soaks_in_each() {
    let mut fleet = Fleet::three_stages(json!({}));
    fleet.check("Completed: a=1 Done, b=1 Done, c=1 Done, d=1 Done");
    fleet.change("2");
    fleet.check("Progressing: a=2 Soaking, b=1 Pending, c=1 Pending, d=1 Pending");
    assert_eq!(condition(&fleet, "Progressing"), "True");
    assert_eq!(condition(&fleet, "Completed"), "False");
    fleet.pass(59);
    fleet.check("Progressing: a=2 Soaking, b=1 Pending, c=1 Pending, d=1 Pending");
    fleet.pass(1);
    fleet.check("Progressing: a=2 Done, b=2 Soaking, c=1 Pending, d=1 Pending");
    fleet.pass(60);
    fleet.check("Progressing: a=2 Done, b=2 Done, c=2 Soaking, d=2 Soaking");
    fleet.pass(60);
    fleet.check("Completed: a=2 Done, b=2 Done, c=2 Done, d=2 Done");
    assert_eq!(condition(&fleet, "Completed"), "True");
    let status = fleet.status.as_ref().unwrap();
    assert_eq!((&*status.stable_revision, &*status.progress), ("2", "4/4"));
}

/// Soak time is not counted from a report that had been there before the change.
// proves: ROL-health-exact
#[test]
fn an_old_report_is_no_health() {
    let mut fleet = Fleet::three_stages(json!({}));
    "2".clone_into(&mut fleet.target);
    fleet.step();
    // The Work still has the old revision, of which the member reports that it is healthy.
    for _ in 0..5 {
        fleet.now += jiff::SignedDuration::from_secs(100);
        fleet.step();
    }
    fleet.check("Progressing: a=2 Updating, b=1 Pending, c=1 Pending, d=1 Pending");
    // The Work has the new one, but the report is of the old one.
    "2".clone_into(&mut fleet.cluster("a").work_revision);
    fleet.step();
    fleet.check("Progressing: a=2 Updating, b=1 Pending, c=1 Pending, d=1 Pending");
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Soaking, b=1 Pending, c=1 Pending, d=1 Pending");
    fleet.pass(59);
    assert_eq!(fleet.phase("a"), Some(RolloutPhase::Soaking));
}

// proves: ROL-soak-anew, ROL-stages
#[test]
fn a_cluster_that_becomes_unhealthy_soaks_anew_and_holds_later_stages() {
    let mut fleet = Fleet::three_stages(json!({}));
    fleet.change("2");
    fleet.pass(50);
    fleet.broken.insert(("a".into(), "2".into()));
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Updating, b=1 Pending, c=1 Pending, d=1 Pending");
    fleet.broken.clear();
    fleet.run_to_rest();
    fleet.pass(50);
    fleet.check("Progressing: a=2 Soaking, b=1 Pending, c=1 Pending, d=1 Pending");
    fleet.pass(10);
    fleet.check("Progressing: a=2 Done, b=2 Soaking, c=1 Pending, d=1 Pending");
    // A cluster of an earlier stage fails later: the third stage does not begin.
    fleet.broken.insert(("a".into(), "2".into()));
    fleet.run_to_rest();
    fleet.pass(60);
    fleet.check("Progressing: a=2 Updating, b=2 Done, c=1 Pending, d=1 Pending");
}

// proves: ROL-joined, ROL-left, ROL-empty-stage
#[test]
fn clusters_join_and_leave_in_the_middle() {
    let mut fleet = Fleet::three_stages(json!({}));
    fleet.change("2");
    // One joins its stage before it has ended, and another one a stage that has not begun.
    fleet.join("aa", 0);
    fleet.join("e", 2);
    fleet.run_to_rest();
    fleet.check(
        "Progressing: a=2 Soaking, aa=2 Soaking, b=1 Pending, c=1 Pending, d=1 Pending, e=1 Pending",
    );
    fleet.pass(60);
    // Another one joins a stage that has ended: it gets the target, and is awaited.
    fleet.join("ab", 0);
    fleet.run_to_rest();
    fleet.check(
        "Progressing: a=2 Done, aa=2 Done, ab=2 Soaking, b=2 Soaking, c=1 Pending, d=1 Pending, e=1 Pending",
    );
    fleet.pass(60);
    // The only cluster of the second stage leaves when it is done, and holds nobody.
    fleet.leave("b");
    fleet.run_to_rest();
    fleet.check(
        "Progressing: a=2 Done, aa=2 Done, ab=2 Done, b=2 Skipped, c=2 Soaking, d=2 Soaking, e=2 Soaking",
    );
    fleet.pass(60);
    fleet.check("Completed: a=2 Done, aa=2 Done, ab=2 Done, c=2 Done, d=2 Done, e=2 Done");
    fleet.join("f", 1);
    fleet.run_to_rest();
    assert_eq!(fleet.phase("f"), Some(RolloutPhase::Soaking));
    // A policy whose stages select nobody.
    let mut nobody = Fleet::new(json!({"stages": [{"name": "s"}]}), &[("x", 1)]);
    nobody.change("2");
    nobody.check("Completed: x=2 Done");
    // While the template is nowhere, a revision does not go through the stages.
    let mut fleet = Fleet::three_stages(json!({}));
    for name in ["a", "b", "c", "d"] {
        fleet.leave(name);
    }
    fleet.change("2");
    fleet.check("Progressing: ");
    fleet.join("a", 0);
    fleet.join("b", 1);
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Soaking, b=1 Pending");
    // One that was never anywhere comes as it is.
    let mut fleet = Fleet::new(json!({"stages": [{"name": "s"}]}), &[]);
    fleet.change("2");
    fleet.join("a", 0);
    fleet.join("b", 1);
    fleet.run_to_rest();
    fleet.check("Completed: a=2 Done, b=2 Done");
}

/// Within the budget a dead cluster blocks nobody, and catches up when it is back.
// proves: ROL-unreachable, ROL-budget
#[test]
fn a_dead_cluster_blocks_nobody_within_the_budget() {
    let mut fleet = Fleet::three_stages(json!({"failureBudget": 1}));
    fleet.cluster("a").reachable = false;
    fleet.change("2");
    fleet.check("Progressing: a=2 Failed, b=2 Soaking, c=1 Pending, d=1 Pending");
    fleet.pass(60);
    fleet.pass(60);
    fleet.check("Degraded: a=2 Failed, b=2 Done, c=2 Done, d=2 Done");
    assert_eq!(condition(&fleet, "Degraded"), "True");
    fleet.cluster("a").reachable = true;
    fleet.run_to_rest();
    fleet.pass(60);
    fleet.check("Completed: a=2 Done, b=2 Done, c=2 Done, d=2 Done");
    // Without a budget it holds the others until it is back.
    let mut fleet = Fleet::three_stages(json!({}));
    fleet.cluster("a").reachable = false;
    fleet.change("2");
    fleet.check("FailureBudgetExceeded: a=2 Failed, b=1 Blocked, c=1 Pending, d=1 Pending");
    assert_eq!(condition(&fleet, "Paused"), "True");
    fleet.cluster("a").reachable = true;
    fleet.run_to_rest();
    fleet.pass(60);
    fleet.check("Progressing: a=2 Done, b=2 Soaking, c=1 Pending, d=1 Pending");
}

// proves: ROL-deadline, ROL-on-failure-pause
#[test]
fn a_cluster_that_does_not_become_healthy_fails_and_holds_the_rollout() {
    let mut fleet = Fleet::three_stages(json!({}));
    fleet.break_revision("2");
    fleet.change("2");
    fleet.pass(599);
    fleet.check("Progressing: a=2 Updating, b=1 Pending, c=1 Pending, d=1 Pending");
    fleet.pass(1);
    fleet.check("FailureBudgetExceeded: a=2 Failed, b=1 Blocked, c=1 Pending, d=1 Pending");
    fleet.pass(100_000);
    fleet.check("FailureBudgetExceeded: a=2 Failed, b=1 Blocked, c=1 Pending, d=1 Pending");
}

// proves: ROL-on-failure-rollback, ROL-return
#[test]
fn a_rollback_returns_all_clusters_until_the_template_changes() {
    let mut fleet = Fleet::three_stages(json!({"onFailure": "Rollback"}));
    fleet.change("2");
    fleet.broken.insert(("b".into(), "2".into()));
    fleet.pass(60);
    fleet.pass(600);
    fleet.check("RolledBack: a=1 Soaking, b=1 Soaking, c=1 Soaking, d=1 Soaking");
    fleet.pass(60);
    fleet.check("RolledBack: a=1 Done, b=1 Done, c=1 Done, d=1 Done");
    assert_eq!(condition(&fleet, "Degraded"), "True");
    assert_eq!(condition(&fleet, "Completed"), "False");
    fleet.pass(100_000);
    fleet.check("RolledBack: a=1 Done, b=1 Done, c=1 Done, d=1 Done");
    fleet.change("3");
    fleet.check("Progressing: a=3 Soaking, b=1 Pending, c=1 Pending, d=1 Pending");
    // The template itself returns, while the rollout is paused.
    fleet.spec.paused = true;
    fleet.change("1");
    fleet.pass(60);
    fleet.check("Completed: a=1 Done, b=1 Done, c=1 Done, d=1 Done");
}

// proves: ROL-on-failure-continue
#[test]
fn failures_are_passed_if_the_policy_says_so() {
    let mut fleet = Fleet::three_stages(json!({"onFailure": "Continue"}));
    fleet.broken.insert(("a".into(), "2".into()));
    fleet.change("2");
    fleet.pass(600);
    fleet.check("Progressing: a=2 Failed, b=2 Soaking, c=1 Pending, d=1 Pending");
    fleet.pass(60);
    fleet.pass(60);
    fleet.check("Degraded: a=2 Failed, b=2 Done, c=2 Done, d=2 Done");
}

// proves: ROL-supersede
#[test]
fn a_newer_revision_overtakes() {
    let mut fleet = Fleet::three_stages(json!({}));
    fleet.break_revision("2");
    fleet.change("2");
    fleet.pass(600);
    fleet.change("3");
    fleet.check("Progressing: a=3 Soaking, b=1 Pending, c=1 Pending, d=1 Pending");
    fleet.pass(60);
    // Two stages have the third revision when the fourth comes: the second one waits with it.
    fleet.change("4");
    fleet.check("Progressing: a=4 Soaking, b=3 Pending, c=1 Pending, d=1 Pending");
    assert_eq!(fleet.status.as_ref().unwrap().stable_revision, "1");
}

// proves: ROL-paused, ROL-approval
#[test]
fn a_stage_waits_for_the_user() {
    let stages = json!([{"name": "first"}, {"name": "second", "gates": {"approval": true}}, {"name": "third"}]);
    let mut fleet = Fleet::three_stages(json!({"stages": stages}));
    fleet.spec.paused = true;
    fleet.change("2");
    fleet.check("Paused: a=1 Blocked, b=1 Pending, c=1 Pending, d=1 Pending");
    fleet.spec.paused = false;
    fleet.policy.paused = true;
    fleet.run_to_rest();
    fleet.check("Paused: a=1 Blocked, b=1 Pending, c=1 Pending, d=1 Pending");
    fleet.policy.paused = false;
    fleet.run_to_rest();
    fleet.check("AwaitingApproval: a=2 Done, b=1 Blocked, c=1 Pending, d=1 Pending");
    let approval = |revision: &str| StageApproval {
        stage: "second".into(),
        revision: revision.into(),
        without_clusters: false,
    };
    fleet.spec.approvals.push(approval("1"));
    fleet.run_to_rest();
    fleet.check("AwaitingApproval: a=2 Done, b=1 Blocked, c=1 Pending, d=1 Pending");
    fleet.spec.approvals.push(approval("2"));
    fleet.run_to_rest();
    fleet.check("Completed: a=2 Done, b=2 Done, c=2 Done, d=2 Done");
}

// proves: ROL-concurrency
#[test]
fn only_so_many_clusters_are_updated_at_once() {
    for (limit, expected) in [
        (json!(1), 1),
        (json!(2), 2),
        (json!("1%"), 1),
        (json!("50%"), 3),
        (json!(null), 5),
    ] {
        let stages = json!([{"name": "s", "maxConcurrency": limit, "gates": {"healthyFor": "1m"}}]);
        let all = [("a", 0), ("b", 0), ("c", 0), ("d", 0), ("e", 0)];
        let mut fleet = Fleet::new(json!({"stages": stages}), &all);
        fleet.change("2");
        let clusters = &fleet.status.as_ref().unwrap().stages[0].clusters;
        let begun: Vec<&str> = clusters
            .iter()
            .filter(|c| c.revision == "2")
            .map(|c| &*c.name)
            .collect();
        assert_eq!(begun, ["a", "b", "c", "d", "e"][..expected], "{limit}");
        for _ in 0..5 {
            fleet.pass(60);
        }
        fleet.check("Completed: a=2 Done, b=2 Done, c=2 Done, d=2 Done, e=2 Done");
    }
}

/// The Works say where a rollout was whose Rollout was deleted.
// proves: ROL-recovered
#[test]
fn a_deleted_rollout_is_taken_up_again() {
    let mut fleet = Fleet::three_stages(json!({}));
    fleet.change("2");
    fleet.pass(60);
    fleet.status = None;
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Soaking, b=2 Soaking, c=1 Pending, d=1 Pending");
    assert_eq!(fleet.status.as_ref().unwrap().stable_revision, "1");
}

// proves: ROL-policy-changed
#[test]
fn a_changed_policy_assigns_the_clusters_anew() {
    let mut fleet = Fleet::three_stages(json!({}));
    fleet.change("2");
    // A changed label alone moves no cluster.
    fleet.cluster("b").stage = 2;
    fleet.run_to_rest();
    assert_eq!(fleet.status.as_ref().unwrap().stages[1].clusters.len(), 1);
    "q".clone_into(&mut fleet.policy_id);
    fleet.run_to_rest();
    assert_eq!(fleet.status.as_ref().unwrap().stages[1].clusters.len(), 0);
    fleet.pass(60);
    fleet.check("Progressing: a=2 Done, b=2 Soaking, c=2 Soaking, d=2 Soaking");
}

// proves: ROL-revision-unusable
#[test]
fn a_revision_that_is_not_used_degrades_the_rollout_of_its_clusters() {
    let mut fleet = Fleet::three_stages(json!({}));
    fleet.spec.paused = true;
    fleet.change("2");
    let degraded = |fleet: &Fleet| {
        let status = fleet.status.as_ref().unwrap();
        let mut conditions = status.conditions.iter();
        let condition = conditions.find(|c| c.condition_type == "Degraded");
        let condition = condition.unwrap();
        (condition.status.clone(), condition.reason.clone())
    };
    let missing = |revision: &str| (revision.to_owned(), format!("{revision} not found"));
    // No cluster has this one.
    fleet.unusable_revisions.extend([missing("0")]);
    fleet.run_to_rest();
    assert_eq!(degraded(&fleet), ("False".into(), "Paused".into()));
    fleet.unusable_revisions.extend([missing("1")]);
    fleet.run_to_rest();
    assert_eq!(degraded(&fleet), ("True".into(), "RevisionUnusable".into()));
    let message = fleet.status.as_ref().unwrap().message.clone();
    let expected = "1 not found; the Works of a, b, c, d stay as they are";
    assert!(message.starts_with(expected), "{message}");
    // Time alone changes nothing.
    fleet.now += jiff::SignedDuration::from_secs(60);
    assert!(!fleet.step());
    // A Work that is gone does not stay.
    fleet.cluster("b").has_work = false;
    fleet.step();
    let message = fleet.status.as_ref().unwrap().message.clone();
    let expected = "1 not found; the Works of a, c, d stay as they are, the Works of b are gone and are not made until the template";
    assert!(message.starts_with(expected), "{message}");
    fleet.cluster("b").has_work = true;
    fleet.unusable_revisions.clear();
    fleet.run_to_rest();
    assert_eq!(degraded(&fleet), ("False".into(), "Paused".into()));
    assert_eq!(fleet.status.unwrap().message, "");
}
