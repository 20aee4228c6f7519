//! Property tests: on random fleets, with failures, pauses, changes and lost writes, the invariants
//! hold at every step, and each rollout ends once nothing disturbs it.

use std::collections::BTreeMap;

use karmada_api::rollout::{ClusterRolloutStatus, RolloutPhase, RolloutStatus, StageJobState};
use proptest::prelude::*;
use serde_json::json;

use super::fleet::Fleet;
use crate::decision::JobOutcome;

#[derive(Clone, Debug)]
enum Event {
    Change(u8),
    Break(usize, u8),
    Repair,
    Reach(usize, bool),
    Join(usize, usize),
    Leave(usize),
    Pause(bool),
    Retry,
    Abort,
    Job(JobOutcome),
    Approve(usize),
    Pass(i64),
    Deliver,
    /// The process dies after the decision, before it is written.
    Lose,
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const STAGES: usize = 3;

fn events() -> impl Strategy<Value = Vec<Event>> {
    let cluster = 0..NAMES.len();
    let event = prop_oneof![
        (1..5u8).prop_map(Event::Change),
        (cluster.clone(), 1..5u8).prop_map(|(c, r)| Event::Break(c, r)),
        Just(Event::Repair),
        (cluster.clone(), any::<bool>()).prop_map(|(c, up)| Event::Reach(c, up)),
        (cluster.clone(), 0..=STAGES).prop_map(|(c, s)| Event::Join(c, s)),
        cluster.prop_map(Event::Leave),
        any::<bool>().prop_map(Event::Pause),
        Just(Event::Retry),
        Just(Event::Abort),
        Just(Event::Job(JobOutcome::Running)),
        Just(Event::Job(JobOutcome::NotApplied("test".to_owned()))),
        Just(Event::Job(JobOutcome::Succeeded)),
        Just(Event::Job(JobOutcome::Failed("test".to_owned()))),
        (0..STAGES).prop_map(Event::Approve),
        (0..400i64).prop_map(Event::Pass),
        Just(Event::Deliver),
        Just(Event::Deliver),
        Just(Event::Lose),
    ];
    prop::collection::vec(event, 1..40)
}

fn apply(fleet: &mut Fleet, event: &Event) {
    match event {
        Event::Change(revision) => fleet.target = revision.to_string(),
        Event::Break(cluster, revision) => {
            let broken = (NAMES[*cluster].to_owned(), revision.to_string());
            fleet.broken.insert(broken);
        }
        Event::Repair => fleet.broken.clear(),
        Event::Reach(cluster, reachable) => {
            let mut clusters = fleet.clusters.iter_mut();
            if let Some(cluster) = clusters.find(|c| c.name == NAMES[*cluster]) {
                cluster.reachable = *reachable;
            }
        }
        Event::Join(cluster, stage) => {
            fleet.leave(NAMES[*cluster]);
            fleet.join(NAMES[*cluster], *stage);
        }
        Event::Leave(cluster) => fleet.leave(NAMES[*cluster]),
        Event::Pause(paused) => fleet.spec.paused = *paused,
        Event::Retry => fleet.retry(),
        Event::Abort => fleet.abort(),
        Event::Job(outcome) => fleet.job_outcome = outcome.clone(),
        Event::Approve(stage) => fleet.add_approval(&format!("s{stage}"), true),
        Event::Pass(seconds) => fleet.now += jiff::SignedDuration::from_secs(*seconds),
        Event::Deliver => fleet.deliver(),
        Event::Lose => {}
    }
}

/// The clusters that each stage has had with a target, and whether their part of it has ended.
#[derive(Clone, Default)]
struct StageMembers {
    target: String,
    members: BTreeMap<(usize, String), bool>,
}

impl StageMembers {
    fn record(&mut self, status: &RolloutStatus) {
        let target = &status.target_revision;
        if self.target != *target {
            self.target.clone_from(target);
            self.members.clear();
        }
        for (index, stage) in status.stages.iter().enumerate() {
            for cluster in &stage.clusters {
                let has_ended = match cluster.phase {
                    RolloutPhase::Skipped => continue,
                    RolloutPhase::Done | RolloutPhase::Failed => cluster.revision == *target,
                    _ => false,
                };
                let key = (index, cluster.name.clone());
                self.members.insert(key, has_ended);
            }
        }
    }

    /// Whether a stage has had clusters, and none of them has ended.
    fn is_lost(&self, stage: usize) -> bool {
        let members = self.members.iter().filter(|((of, _), _)| *of == stage);
        let mut members = members.map(|(_, has_ended)| *has_ended).peekable();
        members.peek().is_some() && members.all(|has_ended| !has_ended)
    }
}

/// Checks that a stage that was let go has had a cluster that had ended, or was approved without.
fn check_lost_stages(fleet: &Fleet, members: &StageMembers, stages: usize, begun: &str) {
    for stage in 0..stages {
        let name = format!("s{stage}");
        let mut approvals = fleet.spec.approvals.iter();
        let is_approved =
            approvals.any(|a| a.stage == name && a.revision == fleet.target && a.without_clusters);
        assert!(
            !members.is_lost(stage) || is_approved || fleet.policy.on_failure == "Continue",
            "{begun} began though {name} has lost its clusters: {:?}",
            fleet.status
        );
    }
}

/// Checks the invariants of one step.
fn check_step(
    fleet: &Fleet,
    members: &StageMembers,
    before: &RolloutStatus,
    after: &RolloutStatus,
) {
    let target = &after.target_revision;
    let is_staged = *target != before.stable_revision && after.rejected_revision != *target;
    if !is_staged {
        return;
    }
    let on_failure = &*fleet.policy.on_failure;
    let budget = fleet
        .policy
        .failure_budget
        .as_ref()
        .and_then(serde_json::Value::as_u64);
    let budget = usize::try_from(budget.unwrap_or(0)).unwrap();
    let begins = |name: &str| {
        before
            .cluster(name)
            .is_some_and(|old| old.revision != *target)
    };
    // One cluster that begins may be unreachable, and so exceed the budget.
    let clusters = after.stages.iter().flat_map(|stage| &stage.clusters);
    let failed_before = clusters
        .filter(|c| c.phase == RolloutPhase::Failed && !begins(&c.name))
        .count();
    for (index, stage) in after.stages.iter().enumerate() {
        for cluster in &stage.clusters {
            let has_begun = cluster.revision == *target
                && cluster.phase != RolloutPhase::Skipped
                && begins(&cluster.name);
            if !has_begun {
                continue;
            }
            assert!(!fleet.spec.paused, "{} began while paused", cluster.name);
            check_lost_stages(fleet, members, index, &cluster.name);
            let mut earlier = after.stages[..index]
                .iter()
                .flat_map(|stage| &stage.clusters);
            let has_ended = earlier.all(|c| {
                let has_target = c.revision == *target;
                match c.phase {
                    RolloutPhase::Skipped => true,
                    RolloutPhase::Done | RolloutPhase::Failed => has_target,
                    _ => false,
                }
            });
            assert!(
                has_ended,
                "{} is ahead of its stage: {after:?}",
                cluster.name
            );
            for (i, stage) in after.stages[..index].iter().enumerate() {
                let has_gate = fleet.policy.stages[i].gates.job.is_some();
                let mut clusters = stage.clusters.iter();
                let is_empty = clusters.all(|c| c.phase == RolloutPhase::Skipped);
                let state = stage.job.as_ref().map(|job| job.state);
                let has_passed = state == Some(StageJobState::Succeeded)
                    || state == Some(StageJobState::Failed) && on_failure == "Continue";
                assert!(
                    has_passed || !has_gate || is_empty,
                    "{} began before the Job of {}: {after:?}",
                    cluster.name,
                    stage.name
                );
            }
            assert!(
                on_failure == "Continue" || failed_before <= budget,
                "{} began beyond the budget: {after:?}",
                cluster.name
            );
        }
    }
}

/// Checks that whoever joins gets the target only while nothing holds the rollout.
fn check_joins(fleet: &Fleet, before: &RolloutStatus, after: &RolloutStatus) {
    let target = &after.target_revision;
    let is_staged = *target != before.stable_revision && before.rejected_revision != *target;
    let clusters = before.stages.iter().flat_map(|stage| &stage.clusters);
    let failed = clusters.filter(|c| c.counts_as_failed()).count();
    let budget = fleet.policy.failure_budget.as_ref();
    let budget = budget.and_then(serde_json::Value::as_u64).unwrap_or(0);
    let is_beyond = failed as u64 > budget && fleet.policy.on_failure != "Continue";
    let is_held = fleet.spec.paused || is_beyond;
    if !is_staged || before.target_revision != *target || !is_held {
        return;
    }
    let clusters = after.stages.iter().flat_map(|stage| &stage.clusters);
    let has_target =
        |c: &&ClusterRolloutStatus| c.phase != RolloutPhase::Skipped && c.revision == *target;
    let mut joined = clusters
        .filter(has_target)
        .filter(|c| before.cluster(&c.name).is_none());
    assert_eq!(
        joined.next(),
        None,
        "joined a rollout that is held: {before:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    // proves: ROL-invariants, ROL-restart, ROL-progress
    #[test]
    fn the_invariants_hold_on_random_fleets(
        events in events(),
        limit in 1..3u32,
        budget in 0..3u32,
        job_stages in prop::collection::btree_set(0..STAGES, 0..=STAGES),
        on_failure in prop_oneof![Just("Pause"), Just("Rollback"), Just("Continue")],
    ) {
        let stages: Vec<_> = (0..STAGES).map(|stage| {
            let mut gates = json!({"healthyFor": "1m"});
            if job_stages.contains(&stage) {
                gates["job"] = json!({"cronJob": "smoke"});
            }
            json!({"name": format!("s{stage}"), "maxConcurrency": limit, "gates": gates})
        }).collect();
        let policy = json!({"stages": stages, "progressDeadline": "5m", "failureBudget": budget, "onFailure": on_failure});
        let mut fleet = Fleet::new(policy, &[("a", 0), ("b", 0), ("c", 1), ("d", 2), ("e", 3)]);
        let mut members = StageMembers::default();
        for event in &events {
            apply(&mut fleet, event);
            let before = fleet.status.clone().unwrap();
            let mut again = fleet.clone();
            fleet.step();
            let after = fleet.status.clone().unwrap();
            members.record(&before);
            let mut recorded = members.clone();
            recorded.record(&after);
            check_step(&fleet, &recorded, &before, &after);
            check_joins(&fleet, &before, &after);
            // Only a step that starts a Job changes the names.
            let names = |status: &RolloutStatus| -> Vec<String> {
                let jobs = status.stages.iter().filter_map(|stage| stage.job.as_ref());
                jobs.map(|job| job.name.clone()).collect()
            };
            let new = names(&after).iter().filter(|name| !names(&before).contains(name)).count();
            prop_assert_eq!(i64::try_from(new).unwrap(), after.started_jobs - before.started_jobs);
            // Whoever takes over before the write decides the same.
            again.step();
            prop_assert_eq!(again.status.as_ref(), Some(&after));
            if matches!(event, Event::Lose) {
                fleet.status = Some(before);
            }
        }
        fleet.broken.clear();
        fleet.spec.paused = false;
        for cluster in &mut fleet.clusters {
            cluster.reachable = true;
        }
        fleet.job_outcome = JobOutcome::Succeeded;
        for stage in 0..STAGES {
            fleet.add_approval(&format!("s{stage}"), true);
        }
        fleet.run_to_rest();
        let stages = &fleet.status.as_ref().unwrap().stages;
        let mut jobs = stages.iter().filter_map(|stage| stage.job.as_ref());
        let mut clusters = stages.iter().flat_map(|stage| &stage.clusters);
        if jobs.any(|job| job.state == StageJobState::Failed) || clusters.any(|c| c.failed) {
            fleet.retry();
        }
        for _ in 0..20 {
            fleet.pass(60);
        }
        let status = fleet.status.unwrap();
        if fleet.clusters.is_empty() {
            return Ok(());
        }
        prop_assert!(["Completed", "RolledBack"].contains(&&*status.state), "{:?}", status);
        let expected = if status.state == "RolledBack" { &status.stable_revision } else { &status.target_revision };
        let clusters = status.stages.iter().flat_map(|stage| &stage.clusters);
        let mut clusters = clusters.filter(|c| c.phase != RolloutPhase::Skipped);
        prop_assert!(clusters.all(|c| c.phase == RolloutPhase::Done && c.revision == *expected), "{:?}", status);
    }
}
