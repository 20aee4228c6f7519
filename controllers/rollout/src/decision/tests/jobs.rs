//! Scenarios of the Jobs that stages await.

use karmada_api::rollout::{RolloutPhase, StageJobStatus};
use serde_json::{Value, json};

use super::fleet::Fleet;
use crate::decision::JobOutcome;

/// Two stages, of which the first one has the clusters a and b and awaits a Job.
fn fleet(more: Value) -> Fleet {
    let gates = json!({"job": {"cronJob": "smoke"}});
    let stages = json!([{"name": "first", "gates": gates}, {"name": "second"}]);
    let mut policy = json!({"stages": stages, "progressDeadline": "10m"});
    let fields = policy.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let mut fleet = Fleet::new(policy, &[("a", 0), ("b", 0), ("c", 1)]);
    fleet.job_outcome = JobOutcome::Running;
    fleet
}

fn job(fleet: &Fleet) -> StageJobStatus {
    let stages = &fleet.status.as_ref().unwrap().stages;
    stages[0].job.clone().unwrap()
}

// proves: ROL-job
#[test]
fn a_stage_ends_once_its_job_has_succeeded() {
    let mut fleet = fleet(json!({"failureBudget": 1}));
    assert_eq!(fleet.job_text(0), "", "the first revision is no change");
    // A cluster that has failed within the budget has no Job, and holds it up no longer.
    fleet.broken.insert(("b".into(), "2".into()));
    fleet.change("2");
    assert_eq!(fleet.job_text(0), "");
    fleet.pass(600);
    fleet.check("Progressing: a=2 Done, b=2 Failed, c=1 Pending");
    assert_eq!(fleet.job_text(0), "Running: ");
    let status = fleet.status.clone().unwrap();
    assert_eq!(status.stages[0].phase, RolloutPhase::Soaking);
    assert_eq!((&*status.stage, status.started_jobs), ("first", 1));
    let name = job(&fleet).name;
    assert!(name.starts_with("smoke-") && name.len() == 16, "{name}");
    // It goes on while the rollout is paused.
    fleet.spec.paused = true;
    fleet.pass(60);
    fleet.job_outcome = JobOutcome::Succeeded;
    fleet.run_to_rest();
    assert_eq!(fleet.job_text(0), "Succeeded: ");
    fleet.check("Paused: a=2 Done, b=2 Failed, c=1 Blocked");
    fleet.spec.paused = false;
    fleet.run_to_rest();
    fleet.check("Degraded: a=2 Done, b=2 Failed, c=2 Done");
    // The next rollout has a Job of its own.
    fleet.change("3");
    fleet.check("Completed: a=3 Done, b=3 Done, c=3 Done");
    assert_ne!(job(&fleet).name, name);
    assert_eq!(fleet.status.unwrap().started_jobs, 2);
}

// proves: ROL-job-once
#[test]
fn a_job_is_named_before_it_is_made_and_keeps_its_name() {
    let mut fleet = fleet(json!({}));
    fleet.spec.paused = true;
    fleet.change("2");
    fleet.spec.paused = false;
    fleet.step();
    fleet.deliver();
    fleet.step();
    let pending = job(&fleet);
    assert_eq!(pending.state.as_str(), "Pending");
    for _ in 0..3 {
        // Whoever continues finds the same name.
        let mut successor = fleet.clone();
        successor.step();
        fleet.step();
        assert_eq!(successor.status, fleet.status);
        assert_eq!(job(&fleet).name, pending.name);
    }
    assert_eq!(fleet.status.unwrap().started_jobs, 1);
}

// proves: ROL-job-failed
#[test]
fn a_failed_job_is_a_failure_of_its_stage() {
    let failed = JobOutcome::Failed("backoff limit".into());
    for (on_failure, expected, text) in [
        (
            "Pause",
            "JobFailed: a=2 Done, b=2 Done, c=1 Pending",
            "Failed: backoff limit",
        ),
        (
            "Rollback",
            "RolledBack: a=1 Done, b=1 Done, c=1 Done",
            "Failed: backoff limit",
        ),
        (
            "Continue",
            "Degraded: a=2 Done, b=2 Done, c=2 Done",
            "Failed: backoff limit",
        ),
    ] {
        let mut fleet = fleet(json!({"onFailure": on_failure, "failureBudget": 3}));
        fleet.job_outcome = failed.clone();
        fleet.change("2");
        fleet.check(expected);
        assert_eq!(fleet.job_text(0), text, "{on_failure}");
        let conditions = &fleet.status.as_ref().unwrap().conditions;
        let mut degraded = conditions.iter().filter(|c| c.condition_type == "Degraded");
        assert!(degraded.all(|condition| condition.status == "True"));
        // A retry runs it again, under another name.
        let name = job(&fleet).name;
        fleet.job_outcome = JobOutcome::Succeeded;
        fleet.retry();
        fleet.run_to_rest();
        fleet.check("Completed: a=2 Done, b=2 Done, c=2 Done");
        assert_ne!(job(&fleet).name, name, "{on_failure}");
    }
}

// proves: ROL-job-failed
#[test]
fn a_job_that_does_not_complete_has_failed() {
    let mut fleet = fleet(json!({}));
    fleet.change("2");
    fleet.pass(599);
    assert_eq!(fleet.job_text(0), "Running: ");
    fleet.pass_to_next();
    let text = "Failed: it has not completed within progressDeadline";
    assert_eq!(fleet.job_text(0), text);
    fleet.check("JobFailed: a=2 Done, b=2 Done, c=1 Pending");
    // A later outcome changes nothing.
    fleet.job_outcome = JobOutcome::Succeeded;
    fleet.pass(60);
    assert_eq!(fleet.job_text(0), text);
}

// proves: ROL-job-not-applied
#[test]
fn a_job_that_a_member_does_not_have_says_why() {
    let mut fleet = fleet(json!({}));
    fleet.job_outcome = JobOutcome::NotApplied("in a: exceeded quota".into());
    fleet.change("2");
    assert_eq!(fleet.job_text(0), "Running: in a: exceeded quota");
    let mut applied = fleet.clone();
    applied.job_outcome = JobOutcome::Running;
    applied.run_to_rest();
    assert_eq!(applied.job_text(0), "Running: ");
    fleet.pass(600);
    let text = "Failed: it has not completed within progressDeadline: in a: exceeded quota";
    assert_eq!(fleet.job_text(0), text);
}

/// A fleet whose rollout to `2` has passed a Job that failed, and a cluster of its stage that did.
fn degraded_fleet() -> Fleet {
    let mut fleet = fleet(json!({"onFailure": "Continue"}));
    fleet.job_outcome = JobOutcome::Failed("backoff limit".into());
    fleet.broken.insert(("b".into(), "2".into()));
    fleet.change("2");
    fleet.pass(600);
    fleet.check("Degraded: a=2 Done, b=2 Failed, c=2 Done");
    assert_eq!(fleet.job_text(0), "Failed: backoff limit");
    fleet
}

// proves: ROL-job-rerun-ended
#[test]
fn a_retry_runs_the_failed_job_of_a_rollout_that_has_ended() {
    let waits =
        "Pending: it runs again once the earlier stages and the clusters of its own have ended";
    let mut fleet = degraded_fleet();
    let name = job(&fleet).name;
    fleet.job_outcome = JobOutcome::Running;
    fleet.retry();
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Done, b=2 Updating, c=2 Done");
    assert_eq!(fleet.job_text(0), waits);
    assert_ne!(job(&fleet).name, name);
    assert!(!job(&fleet).has_started());
    // It runs in the cluster that has recovered, too, and has a deadline of its own.
    fleet.pass(300);
    fleet.broken.clear();
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Done, b=2 Done, c=2 Done");
    assert_eq!(fleet.job_text(0), "Running: ");
    let status = fleet.status.clone().unwrap();
    assert_eq!((&*status.stage, status.started_jobs), ("first", 2));
    assert_eq!(status.stages[0].phase, RolloutPhase::Soaking);
    fleet.pass(599);
    assert_eq!(fleet.job_text(0), "Running: ");
    fleet.job_outcome = JobOutcome::Succeeded;
    fleet.run_to_rest();
    fleet.check("Completed: a=2 Done, b=2 Done, c=2 Done");
    // One that has succeeded is not run again.
    fleet.retry();
    fleet.run_to_rest();
    fleet.check("Completed: a=2 Done, b=2 Done, c=2 Done");
    assert_eq!(fleet.status.unwrap().started_jobs, 2);
}

// proves: ROL-job-rerun-ended
#[test]
fn a_job_that_fails_again_leaves_the_rollout_degraded() {
    let mut fleet = degraded_fleet();
    fleet.spec.paused = true;
    fleet.retry();
    fleet.run_to_rest();
    fleet.pass(600);
    fleet.check("Paused: a=2 Done, b=2 Failed, c=2 Done");
    assert!(!job(&fleet).has_started());
    fleet.spec.paused = false;
    // Without `Continue`, too.
    fleet.policy.on_failure = "Rollback".into();
    fleet.run_to_rest();
    fleet.check("Degraded: a=2 Done, b=2 Failed, c=2 Done");
    assert_eq!(fleet.job_text(0), "Failed: backoff limit");
    // A newer revision has no use for the next one.
    fleet.job_outcome = JobOutcome::Running;
    fleet.retry();
    fleet.run_to_rest();
    fleet.pass(600);
    assert_eq!(fleet.job_text(0), "Running: ");
    let name = job(&fleet).name;
    fleet.change("3");
    assert_ne!(job(&fleet).name, name);
}

// proves: ROL-job-rerun
#[test]
fn a_job_belongs_to_one_rollout() {
    let mut fleet = fleet(json!({}));
    fleet.change("2");
    let first = job(&fleet).name;
    // A rollout that returns has no use for it, and its retry runs another one.
    fleet.abort();
    fleet.run_to_rest();
    fleet.check("RolledBack: a=1 Done, b=1 Done, c=1 Done");
    assert_eq!(fleet.job_text(0), "");
    fleet.retry();
    fleet.run_to_rest();
    let second = job(&fleet).name;
    assert_ne!(second, first);
    // Nor has a newer revision that overtakes, which runs its own.
    fleet.change("3");
    let third = job(&fleet).name;
    // A cluster that joins its stage later does not run it again.
    fleet.job_outcome = JobOutcome::Succeeded;
    fleet.spec.paused = true;
    fleet.run_to_rest();
    fleet.join("d", 0);
    fleet.spec.paused = false;
    fleet.run_to_rest();
    fleet.check("Completed: a=3 Done, b=3 Done, d=3 Done, c=3 Done");
    assert_eq!(job(&fleet).name, third);
    assert_ne!(third, second);
    assert_eq!(fleet.status.unwrap().started_jobs, 3);
}

/// A fleet whose first stage has one cluster, which cannot be reached when its turn comes.
fn unreachable_canary(more: Value) -> Fleet {
    let mut fleet = fleet(more);
    fleet.leave("b");
    fleet.job_outcome = JobOutcome::Succeeded;
    fleet.cluster("a").reachable = false;
    fleet.change("2");
    fleet
}

// proves: ROL-job-awaits-cluster
#[test]
fn a_stage_does_not_pass_before_its_job_has_had_a_cluster() {
    let mut fleet = unreachable_canary(json!({"failureBudget": 1}));
    fleet.pass(3600);
    fleet.check("AwaitingCluster: a=2 Failed, c=1 Pending");
    assert_eq!(fleet.job_text(0), "");
    let message = fleet.status.as_ref().unwrap().message.clone();
    assert_eq!(
        message,
        "no cluster of the stage is done, in which its Job could run"
    );
    let conditions = &fleet.status.as_ref().unwrap().conditions;
    let mut paused = conditions.iter().filter(|c| c.condition_type == "Paused");
    assert!(paused.all(|c| c.status == "True" && c.message.contains("in which its Job could run")));
    // Another cluster of the stage is not held.
    let mut widened = fleet.clone();
    widened.join("d", 0);
    widened.run_to_rest();
    widened.check("Degraded: a=2 Failed, d=2 Done, c=2 Done");
    assert_eq!(widened.job_text(0), "Succeeded: ");
    // Nor does it pass when the last one leaves.
    let mut left = fleet.clone();
    left.leave("a");
    left.run_to_rest();
    left.check("AwaitingCluster: a=2 Skipped, c=1 Pending");
    left.approve("first", false);
    left.check("AwaitingCluster: a=2 Skipped, c=1 Pending");
    left.approve("first", true);
    left.check("Completed: c=2 Done");
    // It goes on when the cluster is back, and after a retry too.
    fleet.retry();
    fleet.run_to_rest();
    fleet.check("AwaitingCluster: a=2 Failed, c=1 Pending");
    fleet.cluster("a").reachable = true;
    fleet.run_to_rest();
    fleet.check("Completed: a=2 Done, c=2 Done");
    assert_eq!(fleet.job_text(0), "Succeeded: ");
}

// proves: ROL-job-awaits-cluster
#[test]
fn with_continue_a_job_without_a_cluster_has_failed_and_runs_after_a_retry() {
    let mut fleet = unreachable_canary(json!({"failureBudget": 1, "onFailure": "Continue"}));
    fleet.check("Degraded: a=2 Failed, c=2 Done");
    let failed = "Failed: no cluster of the stage is done, in which its Job could run";
    assert_eq!(fleet.job_text(0), failed);
    // The cluster alone does not end it.
    fleet.cluster("a").reachable = true;
    fleet.run_to_rest();
    fleet.check("Degraded: a=2 Done, c=2 Done");
    fleet.retry();
    fleet.run_to_rest();
    fleet.check("Completed: a=2 Done, c=2 Done");
    assert_eq!(fleet.job_text(0), "Succeeded: ");
}

// proves: ROL-job-awaits-cluster
#[test]
fn a_job_that_runs_holds_its_stage_when_its_cluster_is_lost() {
    let mut fleet = fleet(json!({"failureBudget": 2}));
    fleet.change("2");
    assert_eq!(fleet.job_text(0), "Running: ");
    fleet.cluster("a").reachable = false;
    fleet.cluster("b").reachable = false;
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Failed, b=2 Failed, c=1 Pending");
    fleet.pass(600);
    fleet.check("JobFailed: a=2 Failed, b=2 Failed, c=1 Pending");
}
