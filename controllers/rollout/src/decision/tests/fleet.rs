//! A fleet whose binding controller, members and clock do as the test says.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use karmada_api::rollout::{
    RolloutPhase, RolloutPolicySpec, RolloutRequest, RolloutSpec, RolloutStatus, StageApproval,
    StageJobStatus,
};
use serde_json::{Value, json};

use crate::decision::{
    DecisionInput, JobObservation, JobOutcome, ObservedReplicas, ObservedTarget, RolloutDecision,
    plan_next_step,
};

/// How many replicas each cluster has.
pub(super) const REPLICAS: u64 = 10;
/// More steps at one instant are an endless loop.
const MAX_STEPS_AT_ONCE: usize = 200;

/// How far a member is with a Work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// All replicas that may be updated are down.
    Begun,
    Complete,
}

#[derive(Clone, Debug)]
pub(super) struct Fleet {
    pub(super) policy: RolloutPolicySpec,
    pub(super) policy_id: String,
    pub(super) spec: RolloutSpec,
    pub(super) has_partition: bool,
    pub(super) has_prometheus: bool,
    pub(super) target: String,
    pub(super) status: Option<RolloutStatus>,
    pub(super) clusters: Vec<ObservedTarget>,
    pub(super) leaving: Vec<ObservedTarget>,
    pub(super) unusable_revisions: BTreeMap<String, String>,
    /// The revisions with which no cluster becomes healthy, or only the named one does not.
    pub(super) broken: BTreeSet<(String, String)>,
    /// The outcome of each Job.
    pub(super) job_outcome: JobOutcome,
    pub(super) now: Timestamp,
}

impl Fleet {
    /// A fleet of clusters with the index of their stage, which all have the revision `1`.
    pub(super) fn new(policy: Value, clusters: &[(&str, usize)]) -> Self {
        let mut fleet = Self {
            policy: serde_json::from_value(policy).unwrap(),
            policy_id: "p".into(),
            spec: RolloutSpec::default(),
            has_partition: true,
            has_prometheus: true,
            target: "1".into(),
            status: None,
            clusters: Vec::new(),
            leaving: Vec::new(),
            unusable_revisions: BTreeMap::new(),
            broken: BTreeSet::new(),
            job_outcome: JobOutcome::Succeeded,
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
        };
        for (name, stage) in clusters {
            fleet.join(name, *stage);
        }
        fleet.run_to_rest();
        fleet.pass(3600);
        fleet
    }

    /// Three stages with a, b and c, d; each cluster soaks for a minute.
    pub(super) fn three_stages(more: Value) -> Self {
        let gates = json!({"healthyFor": "1m"});
        let stages: Value = ["first", "second", "third"]
            .map(|name| json!({"name": name, "gates": gates}))
            .into();
        let mut policy = json!({"stages": stages, "progressDeadline": "10m"});
        policy
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        Self::new(policy, &[("a", 0), ("b", 1), ("c", 2), ("d", 2)])
    }

    pub(super) fn join(&mut self, name: &str, stage: usize) {
        self.clusters.push(ObservedTarget {
            name: name.into(),
            stage,
            reachable: true,
            replicas: ObservedReplicas {
                desired: REPLICAS,
                in_manifest: Some(REPLICAS),
                available: Some(0),
                ..ObservedReplicas::default()
            },
            ..ObservedTarget::default()
        });
        self.clusters.sort_by(|a, b| a.name.cmp(&b.name));
    }

    pub(super) fn leave(&mut self, name: &str) {
        self.clusters.retain(|cluster| cluster.name != name);
    }

    /// A cluster is no target any more, and has its Work still.
    pub(super) fn depart(&mut self, name: &str) {
        let mut departed = self.cluster(name).clone();
        departed.replicas.desired = 0;
        self.leave(name);
        self.leaving.push(departed);
    }

    /// A cluster that has departed is a target again, with the Work that it had.
    pub(super) fn come_back(&mut self, name: &str) {
        let index = self.leaving.iter().position(|c| c.name == name);
        let mut returned = self.leaving.remove(index.unwrap());
        returned.replicas.desired = REPLICAS;
        self.clusters.push(returned);
        self.clusters.sort_by(|a, b| a.name.cmp(&b.name));
    }

    pub(super) fn cluster(&mut self, name: &str) -> &mut ObservedTarget {
        let mut clusters = self.clusters.iter_mut();
        clusters.find(|cluster| cluster.name == name).unwrap()
    }

    /// Lets no cluster become healthy with a revision.
    pub(super) fn break_revision(&mut self, revision: &str) {
        for cluster in &self.clusters {
            self.broken.insert((cluster.name.clone(), revision.into()));
        }
    }

    /// The Jobs of the status that run, as they are observed.
    fn jobs(&self) -> Vec<JobObservation> {
        let stages = self.status.iter().flat_map(|status| &status.stages);
        let jobs = stages.filter_map(|stage| stage.job.as_ref());
        let jobs = jobs.filter(|job| job.has_started() && !job.state.is_final());
        let observe = |job: &StageJobStatus| JobObservation {
            name: job.name.clone(),
            outcome: self.job_outcome.clone(),
        };
        jobs.map(observe).collect()
    }

    /// The Job of a stage as `state: message`; empty without one.
    pub(super) fn job_text(&self, stage: usize) -> String {
        let status = self.status.as_ref().unwrap();
        let job = status.stages[stage].job.as_ref();
        let text = job.map(|job| format!("{}: {}", job.state.as_str(), job.message));
        text.unwrap_or_default()
    }

    fn decision(&self) -> RolloutDecision {
        plan_next_step(DecisionInput {
            policy: &self.policy,
            policy_id: &self.policy_id,
            spec: &self.spec,
            has_partition: self.has_partition,
            has_prometheus: self.has_prometheus,
            target: &self.target,
            unusable_revisions: &self.unusable_revisions,
            rollout_uid: "uid",
            previous: self.status.as_ref(),
            targets: &self.clusters,
            jobs: &self.jobs(),
            binding_generation: 1,
            is_unplaced: false,
            leaving: &self.leaving,
            now: self.now,
        })
    }

    /// One decision, which is written.
    pub(super) fn step(&mut self) -> bool {
        let decision = self.decision();
        let changed = self.status.as_ref() != Some(&decision.status);
        self.status = Some(decision.status);
        changed
    }

    /// Works get the revisions of their clusters, and reachable members report about them.
    pub(super) fn deliver(&mut self) {
        for index in 0..self.clusters.len() {
            self.deliver_to(index, Delivery::Complete);
        }
    }

    /// The Work of one cluster gets its revision, and its member does as far as it gets.
    pub(super) fn deliver_to(&mut self, index: usize, delivery: Delivery) {
        let cluster = &mut self.clusters[index];
        let status = self.status.as_ref();
        let Some(state) = status.and_then(|status| status.cluster(&cluster.name)) else {
            return;
        };
        cluster.has_work = true;
        cluster.work_revision.clone_from(&state.revision);
        if !cluster.reachable {
            return;
        }
        let batch = match u64::try_from(state.batch_percent).unwrap() {
            percent @ 1..100 => (REPLICAS * percent).div_ceil(100),
            _ => REPLICAS,
        };
        let changes = cluster.reported_revision != state.revision
            || !cluster.replicas.are_updated && cluster.replicas.updated < batch;
        if delivery == Delivery::Begun && !changes {
            return;
        }
        cluster.reported_revision.clone_from(&state.revision);
        let is_broken = (cluster.name.clone(), state.revision.clone());
        let is_down = delivery == Delivery::Begun || self.broken.contains(&is_broken);
        let updated = match delivery {
            Delivery::Begun => batch - 1,
            Delivery::Complete => batch,
        };
        cluster.healthy = !is_down && updated == REPLICAS;
        cluster.replicas.available = Some(if is_down { REPLICAS - batch } else { REPLICAS });
        cluster.replicas.in_manifest = Some(REPLICAS);
        cluster.replicas.updated = updated;
        cluster.replicas.is_current = true;
        cluster.replicas.are_updated = updated == REPLICAS;
    }

    /// The replicas that are available in all clusters.
    pub(super) fn available(&self) -> u64 {
        let available = self.clusters.iter().map(|c| c.replicas.available);
        available.map(|available| available.unwrap_or(0)).sum()
    }

    /// Steps until nothing changes.
    pub(super) fn run_to_rest(&mut self) {
        for _ in 0..MAX_STEPS_AT_ONCE {
            let changed = self.step();
            self.deliver();
            if !changed && !self.step() {
                return;
            }
        }
        panic!("no end: {:?}", self.status);
    }

    pub(super) fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
        self.run_to_rest();
    }

    /// Lets the time pass after which time alone allows the next step.
    pub(super) fn pass_to_next(&mut self) {
        self.now += self.decision().next.unwrap();
        self.run_to_rest();
    }

    pub(super) fn change(&mut self, target: &str) {
        target.clone_into(&mut self.target);
        self.run_to_rest();
    }

    fn next_request(&self) -> RolloutRequest {
        let requests = [&self.spec.retry, &self.spec.abort];
        let numbers = requests.into_iter().flatten().map(|r| r.number);
        RolloutRequest {
            revision: self.target.clone(),
            number: numbers.max().unwrap_or(0) + 1,
        }
    }

    pub(super) fn retry(&mut self) {
        self.spec.retry = Some(self.next_request());
    }

    pub(super) fn abort(&mut self) {
        self.spec.abort = Some(self.next_request());
    }

    /// Approves a stage for the target.
    pub(super) fn approve(&mut self, stage: &str, without_clusters: bool) {
        self.add_approval(stage, without_clusters);
        self.run_to_rest();
    }

    /// The same, before any step.
    pub(super) fn add_approval(&mut self, stage: &str, without_clusters: bool) {
        self.spec.approvals.push(StageApproval {
            stage: stage.into(),
            revision: self.target.clone(),
            without_clusters,
        });
    }

    pub(super) fn phase(&self, cluster: &str) -> Option<RolloutPhase> {
        let status = self.status.as_ref()?;
        Some(status.cluster(cluster)?.phase)
    }

    /// The state, and the revision and phase of each cluster.
    pub(super) fn text(&self) -> String {
        let status = self.status.as_ref().unwrap();
        let clusters = status.stages.iter().flat_map(|stage| &stage.clusters);
        let clusters: Vec<String> = clusters
            .map(|c| format!("{}={} {}", c.name, c.revision, c.phase.as_str()))
            .collect();
        format!("{}: {}", status.state, clusters.join(", "))
    }

    pub(super) fn check(&self, expected: &str) {
        assert_eq!(self.text(), expected);
    }
}
