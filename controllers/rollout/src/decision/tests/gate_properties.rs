//! Property tests of gates: whatever happens to the template, the clusters and the approvals, no cluster
//! gets more of the target than its stage allows, and each rollout ends once nothing holds it.

use std::collections::{BTreeMap, BTreeSet};

use karmada_api::rollout::{ClusterRolloutStatus, RolloutPhase, RolloutStatus};
use proptest::prelude::*;
use serde_json::json;

use super::fleet::Fleet;

#[derive(Clone, Debug)]
enum Event {
    Change(u8),
    Reach(usize, bool),
    Break(usize, u8),
    Repair,
    /// The cluster is no target any more, and has its Work still.
    Depart(usize),
    /// The cluster is a target again, with its Work or without.
    Return(usize, bool),
    Pause(bool),
    Approve(usize),
    TakeApprovalsAway,
    Window(bool),
    Abort,
    Retry,
    Pass(i64),
    Deliver,
    RunToRest,
    /// The process dies after the decision, before it is written.
    Lose,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const STAGES: usize = 3;

fn events() -> impl Strategy<Value = Vec<Event>> {
    let cluster = || 0..NAMES.len();
    let event = prop_oneof![
        4 => (2..4u8).prop_map(Event::Change),
        2 => (cluster(), any::<bool>()).prop_map(|(c, up)| Event::Reach(c, up)),
        1 => (cluster(), 2..4u8).prop_map(|(c, r)| Event::Break(c, r)),
        1 => Just(Event::Repair),
        2 => cluster().prop_map(Event::Depart),
        2 => (cluster(), any::<bool>()).prop_map(|(c, kept)| Event::Return(c, kept)),
        2 => any::<bool>().prop_map(Event::Pause),
        4 => (0..STAGES).prop_map(Event::Approve),
        1 => Just(Event::TakeApprovalsAway),
        1 => any::<bool>().prop_map(Event::Window),
        1 => Just(Event::Abort),
        1 => Just(Event::Retry),
        4 => (0..200i64).prop_map(Event::Pass),
        2 => Just(Event::Deliver),
        4 => Just(Event::RunToRest),
        1 => Just(Event::Lose),
    ];
    prop::collection::vec(event, 1..60)
}

fn depart(fleet: &mut Fleet, name: &str) {
    if fleet.clusters.iter().any(|c| c.name == name) {
        fleet.depart(name);
    }
}

fn come_back(fleet: &mut Fleet, cluster: usize, has_work: bool) {
    let name = NAMES[cluster];
    if !fleet.leaving.iter().any(|c| c.name == name) {
        return;
    }
    match has_work {
        true => fleet.come_back(name),
        false => {
            fleet.leaving.retain(|c| c.name != name);
            fleet.join(name, cluster.min(STAGES - 1));
        }
    }
}

fn close_windows(fleet: &mut Fleet, is_closed: bool) {
    let windows = match is_closed {
        true => json!([{"schedule": "0 0 29 2 *", "duration": "1m"}]),
        false => json!([]),
    };
    fleet.policy.windows = serde_json::from_value(windows).unwrap();
}

/// How much of the target each cluster has, in percent of its replicas.
fn shares(status: &RolloutStatus, target: &str) -> BTreeMap<String, i64> {
    let share = |percent: i64| if percent == 0 { 100 } else { percent };
    let clusters = status.stages.iter().flat_map(|stage| &stage.clusters);
    let clusters = clusters.map(|c| (&c.name, &c.revision, c.batch_percent));
    let kept = status.replicas.iter();
    let kept = kept.map(|kept| (&kept.cluster, &kept.revision, kept.batch_percent));
    let mut shares = BTreeMap::new();
    for (name, revision, percent) in clusters.chain(kept) {
        if revision == target {
            let most = shares.entry(name.clone()).or_insert(0);
            *most = share(percent).max(*most);
        }
    }
    shares
}

/// Who has passed the gates since the target became the target.
#[derive(Clone, Default)]
struct GatePasses {
    target: String,
    stages: BTreeSet<String>,
    clusters: BTreeSet<String>,
}

impl GatePasses {
    /// Checks a step, and records who has passed the gates with it.
    fn check_step(&mut self, fleet: &Fleet, before: &RolloutStatus, after: &RolloutStatus) {
        let target = &after.target_revision;
        let is_staged = *target != before.stable_revision && after.rejected_revision != *target;
        if self.target != *target || !is_staged {
            *self = Self {
                target: target.clone(),
                ..Self::default()
            };
        }
        if !is_staged {
            return;
        }
        let approvals = fleet.spec.approvals.iter();
        let approvals = approvals.filter(|approval| approval.revision == *target);
        let approved: BTreeSet<String> = approvals.map(|a| a.stage.clone()).collect();
        self.stages.extend(approved.clone());
        let shares = shares(before, target);
        for stage in &after.stages {
            let is_first = stage.name == "s0";
            let is_open = fleet.policy.windows.is_empty();
            for cluster in &stage.clusters {
                let name = &cluster.name;
                if cluster.phase == RolloutPhase::Skipped {
                    self.clusters.remove(name);
                    continue;
                }
                let begins = begins(cluster, target, shares.get(name).copied().unwrap_or(0));
                let is_new = cluster.revision == *target
                    && cluster.batch > 0
                    && !self.clusters.contains(name);
                if !begins && !is_new {
                    continue;
                }
                // Whoever joins a stage that has ended has its approval from before.
                let was_target = |c: &ClusterRolloutStatus| c.phase != RolloutPhase::Skipped;
                let joins = !before.cluster(name).is_some_and(was_target);
                let may_begin = is_open && (is_first || approved.contains(&stage.name))
                    || joins && (is_first || self.stages.contains(&stage.name))
                    || self.clusters.contains(name);
                assert!(!fleet.spec.paused && may_begin, "{before:?} {cluster:?}");
                self.clusters.insert(name.clone());
            }
        }
        if after.stable_revision == *target {
            let clusters = after.stages.iter().flat_map(|stage| &stage.clusters);
            let mut divided =
                clusters.filter(|c| c.phase != RolloutPhase::Skipped && c.is_divided());
            assert!(
                divided.all(|c| self.clusters.contains(&c.name)),
                "{after:?}"
            );
        }
    }
}

/// Whether a cluster may have more of the target than before.
fn begins(cluster: &ClusterRolloutStatus, target: &str, share: i64) -> bool {
    let next = match cluster.is_divided() {
        true => cluster.batch_percent,
        false => 100,
    };
    cluster.revision == target && next > share
}

fn apply(fleet: &mut Fleet, event: &Event) {
    match event {
        Event::Change(revision) => fleet.target = revision.to_string(),
        Event::Reach(cluster, reachable) => {
            let mut clusters = fleet.clusters.iter_mut();
            if let Some(cluster) = clusters.find(|c| c.name == NAMES[*cluster]) {
                cluster.reachable = *reachable;
            }
        }
        Event::Break(cluster, revision) => {
            let broken = (NAMES[*cluster].to_owned(), revision.to_string());
            fleet.broken.insert(broken);
        }
        Event::Repair => fleet.broken.clear(),
        Event::Depart(cluster) => depart(fleet, NAMES[*cluster]),
        Event::Return(cluster, has_work) => come_back(fleet, *cluster, *has_work),
        Event::Pause(paused) => fleet.spec.paused = *paused,
        Event::Approve(stage) => fleet.add_approval(&format!("s{stage}"), false),
        Event::TakeApprovalsAway => fleet.spec.approvals.clear(),
        Event::Window(is_closed) => close_windows(fleet, *is_closed),
        Event::Abort => fleet.abort(),
        Event::Retry => fleet.retry(),
        Event::Pass(seconds) => fleet.now += jiff::SignedDuration::from_secs(*seconds),
        Event::Deliver => fleet.deliver(),
        Event::RunToRest | Event::Lose => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    // proves: ROL-gates-invariant, ROL-batch-from-before
    #[test]
    fn nobody_passes_a_gate_and_each_rollout_ends(
        events in events(),
        limit in 1..3u32,
        budget in 0..3u32,
        required in 0..=30u64,
        divides in any::<bool>(),
        on_failure in prop_oneof![Just("Pause"), Just("Rollback"), Just("Continue")],
    ) {
        let batches = if divides { vec!["10%", "45%", "100%"] } else { Vec::new() };
        let stages: Vec<_> = (0..STAGES).map(|stage| json!({
            "name": format!("s{stage}"), "maxConcurrency": limit, "batches": batches,
            "gates": {"healthyFor": "30s", "approval": stage > 0},
        })).collect();
        let policy = json!({"stages": stages, "progressDeadline": "5m", "failureBudget": budget,
            "onFailure": on_failure, "minAvailable": required});
        let mut fleet = Fleet::new(policy, &[("a", 0), ("b", 1), ("c", 2), ("d", 2)]);
        let mut passes = GatePasses::default();
        for event in &events {
            apply(&mut fleet, event);
            let steps = if matches!(event, Event::RunToRest) { 20 } else { 1 };
            for _ in 0..steps {
                let before = fleet.status.clone().unwrap();
                let mut recorded = passes.clone();
                fleet.step();
                recorded.check_step(&fleet, &before, fleet.status.as_ref().unwrap());
                match event {
                    Event::Lose => fleet.status = Some(before),
                    _ => passes = recorded,
                }
                if steps > 1 {
                    fleet.deliver();
                }
            }
        }
        fleet.broken.clear();
        fleet.spec.paused = false;
        close_windows(&mut fleet, false);
        fleet.leaving.clear();
        fleet.policy.min_available = Some(json!(0));
        for cluster in &mut fleet.clusters {
            cluster.reachable = true;
        }
        for stage in 0..STAGES {
            fleet.add_approval(&format!("s{stage}"), true);
        }
        fleet.run_to_rest();
        let clusters = fleet.status.iter().flat_map(|status| &status.stages).flat_map(|s| &s.clusters);
        if clusters.into_iter().any(|c| c.failed) {
            fleet.retry();
        }
        for _ in 0..30 {
            fleet.pass(60);
        }
        if fleet.clusters.is_empty() {
            return Ok(());
        }
        let status = fleet.status.unwrap();
        prop_assert!(["Completed", "RolledBack"].contains(&&*status.state), "{:?}", status);
        let clusters = status.stages.iter().flat_map(|stage| &stage.clusters);
        let mut clusters = clusters.filter(|c| c.phase != RolloutPhase::Skipped);
        prop_assert!(clusters.all(|c| c.phase == RolloutPhase::Done && !c.is_divided()), "{:?}", status);
    }
}
