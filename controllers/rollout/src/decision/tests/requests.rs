//! Scenarios of retries and aborts.

use karmada_api::rollout::RolloutRequest;
use serde_json::json;

use super::fleet::Fleet;

// proves: ROL-retry
#[test]
fn failed_clusters_begin_again_once_for_each_retry() {
    let mut fleet = Fleet::three_stages(json!({}));
    fleet.break_revision("2");
    fleet.change("2");
    fleet.pass(600);
    let failed = "FailureBudgetExceeded: a=2 Failed, b=1 Blocked, c=1 Pending, d=1 Pending";
    fleet.check(failed);
    for _ in 0..2 {
        fleet.retry();
        fleet.run_to_rest();
        let updating = "Progressing: a=2 Updating, b=1 Pending, c=1 Pending, d=1 Pending";
        fleet.check(updating);
        fleet.pass(599);
        fleet.check(updating);
        fleet.pass(1);
        fleet.check(failed);
    }
    assert_eq!(fleet.status.as_ref().unwrap().handled_request, 2);
    // In a rollout that has ended with failures, too.
    let mut fleet = Fleet::three_stages(json!({"onFailure": "Continue"}));
    fleet.broken.insert(("a".into(), "2".into()));
    fleet.change("2");
    fleet.pass(600);
    fleet.pass(60);
    fleet.pass(60);
    fleet.check("Degraded: a=2 Failed, b=2 Done, c=2 Done, d=2 Done");
    fleet.retry();
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Updating, b=2 Done, c=2 Done, d=2 Done");
}

// proves: ROL-retry
#[test]
fn a_rollout_that_was_rolled_back_begins_again() {
    let mut fleet = Fleet::three_stages(json!({"onFailure": "Rollback"}));
    fleet.change("2");
    fleet.broken.insert(("b".into(), "2".into()));
    fleet.pass(60);
    fleet.pass(600);
    fleet.pass(60);
    fleet.check("RolledBack: a=1 Done, b=1 Done, c=1 Done, d=1 Done");
    fleet.broken.clear();
    fleet.retry();
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Soaking, b=1 Pending, c=1 Pending, d=1 Pending");
    for _ in 0..3 {
        fleet.pass(60);
    }
    fleet.check("Completed: a=2 Done, b=2 Done, c=2 Done, d=2 Done");
}

// proves: ROL-abort
#[test]
fn an_abort_returns_all_clusters_until_the_template_changes() {
    let mut fleet = Fleet::three_stages(json!({}));
    fleet.change("2");
    fleet.pass(60);
    fleet.check("Progressing: a=2 Done, b=2 Soaking, c=1 Pending, d=1 Pending");
    fleet.spec.paused = true;
    fleet.abort();
    fleet.run_to_rest();
    fleet.check("RolledBack: a=1 Soaking, b=1 Soaking, c=1 Soaking, d=1 Soaking");
    fleet.spec.paused = false;
    fleet.pass(60);
    fleet.check("RolledBack: a=1 Done, b=1 Done, c=1 Done, d=1 Done");
    fleet.change("3");
    fleet.check("Progressing: a=3 Soaking, b=1 Pending, c=1 Pending, d=1 Pending");
    // The abort was about the rollout before: the revision may come again.
    fleet.change("2");
    fleet.check("Progressing: a=2 Soaking, b=1 Pending, c=1 Pending, d=1 Pending");
    // A retry after an abort undoes it.
    fleet.abort();
    fleet.run_to_rest();
    fleet.retry();
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Soaking, b=1 Pending, c=1 Pending, d=1 Pending");
}

// proves: ROL-retry-return
#[test]
fn a_retry_waits_until_all_clusters_have_returned() {
    let mut fleet = Fleet::three_stages(json!({"minAvailable": 30}));
    fleet.change("2");
    for _ in 0..2 {
        fleet.pass(60);
    }
    fleet.check("Progressing: a=2 Done, b=2 Done, c=2 Soaking, d=2 Soaking");
    // Members that are slow to return keep the others from it.
    fleet.broken.insert(("a".into(), "1".into()));
    fleet.abort();
    fleet.run_to_rest();
    let returning = "RolledBack: a=1 Updating, b=2 Blocked, c=2 Blocked, d=2 Blocked";
    fleet.check(returning);
    fleet.retry();
    fleet.run_to_rest();
    fleet.check(returning);
    fleet.broken.clear();
    for _ in 0..3 {
        fleet.run_to_rest();
    }
    let text = fleet.text();
    assert!(text.contains("b=1") && text.contains("c=1"), "{text}");
    assert_eq!(fleet.status.as_ref().unwrap().handled_request, 2);
    for _ in 0..6 {
        fleet.pass(60);
    }
    fleet.check("Completed: a=2 Done, b=2 Done, c=2 Done, d=2 Done");
}

// proves: ROL-abort
#[test]
fn outdated_requests_have_no_effect() {
    let mut fleet = Fleet::three_stages(json!({}));
    // Nothing is left to return to.
    fleet.abort();
    fleet.run_to_rest();
    fleet.check("Completed: a=1 Done, b=1 Done, c=1 Done, d=1 Done");
    let outdated = RolloutRequest {
        revision: "1".into(),
        number: 2,
    };
    "2".clone_into(&mut fleet.target);
    fleet.spec.abort = Some(outdated.clone());
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Soaking, b=1 Pending, c=1 Pending, d=1 Pending");
    assert_eq!(fleet.status.as_ref().unwrap().handled_request, 2);
    // A number that was there before means nothing.
    fleet.spec.abort = Some(RolloutRequest {
        revision: "2".into(),
        ..outdated
    });
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Soaking, b=1 Pending, c=1 Pending, d=1 Pending");
}
