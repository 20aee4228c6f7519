//! A fleet whose template moves between clusters, with a binding controller and members that act when
//! the test says.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use karmada_api::rollout::{RolloutPolicySpec, RolloutSpec, RolloutStatus};
use serde_json::{Value, json};

use crate::decision::{DecisionInput, ObservedReplicas, ObservedTarget, plan_next_step};

/// A member, and the Work for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    pub(super) revision: String,
    /// 0: there is no Work.
    pub(super) replicas: u64,
    pub(super) available: u64,
    pub(super) is_updated: bool,
    pub(super) unreachable: bool,
}

#[derive(Clone, Debug)]
pub(super) struct MovingFleet {
    policy: RolloutPolicySpec,
    pub(super) target: String,
    /// The replicas of each cluster by the binding.
    pub(super) placement: BTreeMap<&'static str, u64>,
    /// Whether a placement without clusters is one that no cluster fits.
    pub(super) fits_none: bool,
    pub(super) generation: i64,
    pub(super) members: BTreeMap<&'static str, Member>,
    pub(super) status: Option<RolloutStatus>,
    pub(super) given_up: Vec<String>,
    /// Writes of Works that have taken replicas below `minAvailable`.
    pub(super) violations: Vec<String>,
    pub(super) now: Timestamp,
}

impl MovingFleet {
    /// A fleet in which all replicas of the placement are available with the revision `1`.
    pub(super) fn new(min_available: &Value, placement: &[(&'static str, u64)]) -> Self {
        let policy = json!({"stages": [{"name": "s"}], "progressDeadline": "10m",
            "minAvailable": min_available});
        let mut fleet = Self {
            policy: serde_json::from_value(policy).unwrap(),
            target: "1".into(),
            placement: BTreeMap::new(),
            fits_none: false,
            generation: 0,
            members: BTreeMap::new(),
            status: None,
            given_up: Vec::new(),
            violations: Vec::new(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
        };
        fleet.place(placement);
        fleet.run_to_end();
        fleet
    }

    pub(super) fn place(&mut self, placement: &[(&'static str, u64)]) {
        self.placement = placement.iter().copied().collect();
        self.generation += 1;
        for (name, _) in placement {
            self.members.entry(name).or_default();
        }
    }

    pub(super) fn member(&mut self, name: &'static str) -> &mut Member {
        self.members.get_mut(name).unwrap()
    }

    fn observe(&self, name: &str, desired: u64) -> ObservedTarget {
        let member = &self.members[name];
        let has_work = member.replicas > 0;
        let revision = if has_work { &*member.revision } else { "" };
        ObservedTarget {
            name: name.into(),
            reachable: !member.unreachable,
            work_revision: revision.into(),
            reported_revision: revision.into(),
            healthy: member.is_updated && member.available == member.replicas,
            replicas: ObservedReplicas {
                desired,
                in_manifest: has_work.then_some(member.replicas),
                available: Some(member.available),
                are_updated: member.is_updated,
                ..ObservedReplicas::default()
            },
            ..ObservedTarget::default()
        }
    }

    /// One decision, which is written; returns whether it changes the status.
    pub(super) fn step(&mut self) -> bool {
        let targets = self.placement.iter();
        let targets: Vec<ObservedTarget> = targets.map(|(n, r)| self.observe(n, *r)).collect();
        let kept = self.status.iter().flat_map(|status| &status.replicas);
        let leaving = kept.filter(|kept| !self.placement.contains_key(&*kept.cluster));
        let leaving: Vec<ObservedTarget> = leaving.map(|k| self.observe(&k.cluster, 0)).collect();
        let decision = plan_next_step(DecisionInput {
            policy: &self.policy,
            policy_id: "p",
            spec: &RolloutSpec::default(),
            has_partition: false,
            has_prometheus: false,
            target: &self.target,
            unusable_revisions: &BTreeMap::new(),
            rollout_uid: "uid",
            previous: self.status.as_ref(),
            targets: &targets,
            jobs: &[],
            binding_generation: self.generation,
            is_unplaced: self.fits_none && targets.is_empty(),
            leaving: &leaving,
            now: self.now,
        });
        let changed = self.status.as_ref() != Some(&decision.status);
        self.status = Some(decision.status);
        self.given_up.extend(decision.given_up);
        changed
    }

    pub(super) fn kept(&self, name: &str) -> u64 {
        let kept = self.status.iter().flat_map(|status| &status.replicas);
        let mut kept = kept.filter(|kept| kept.cluster == name);
        kept.next()
            .map_or(0, |kept| kept.replicas.try_into().unwrap())
    }

    /// Writes the Work of one cluster as the binding controller does, and lets the member lose what it
    /// loses by that.
    pub(super) fn apply(&mut self, name: &'static str) {
        let before = self.available();
        self.write_work(name);
        let required = self.policy.min_available.as_ref().and_then(Value::as_u64);
        let required = required.unwrap_or(0).min(self.placement.values().sum());
        let after = self.available();
        if after < before && after < required {
            self.violations.push(format!(
                "{name}: {after} of {before}, {required} are required"
            ));
        }
    }

    fn has_seen_placement(&self) -> bool {
        let generation = self.status.as_ref().map(|s| s.observed_binding_generation);
        generation == Some(self.generation) || self.policy.min_available.is_none()
    }

    fn write_work(&mut self, name: &'static str) {
        let Some(status) = self.status.as_ref().filter(|_| self.has_seen_placement()) else {
            return;
        };
        let kept = self.kept(name);
        let revision = status.cluster(name).map(|c| c.revision.clone());
        let desired = self.placement.get(name).copied();
        let member = self.members.get_mut(name).unwrap();
        match desired {
            Some(desired) => {
                member.replicas = desired.max(kept);
                if let Some(revision) = revision
                    && member.revision != revision
                {
                    member.revision = revision;
                    member.is_updated = false;
                    member.available = 0;
                }
            }
            None if kept == 0 => member.replicas = 0,
            None => {}
        }
        member.available = member.available.min(member.replicas);
    }

    /// One decision, which reaches all members: what one of them does after it is not taken by the
    /// control plane.
    pub(super) fn step_and_apply(&mut self) {
        self.step();
        for name in self.names() {
            self.apply(name);
        }
    }

    /// All pods of a member become available, once it has the Work that was decided last: others are
    /// about to go.
    pub(super) fn complete(&mut self, name: &'static str) {
        let has_work = self.has_seen_placement();
        self.apply(name);
        let member = self.member(name);
        if has_work && !member.unreachable {
            member.available = member.replicas;
            member.is_updated = true;
        }
    }

    pub(super) fn names(&self) -> Vec<&'static str> {
        self.members.keys().copied().collect()
    }

    /// Decides and applies until nothing changes, without that pods become available.
    pub(super) fn run_to_rest(&mut self) {
        while self.step() {
            for name in self.names() {
                self.apply(name);
            }
        }
    }

    /// Lets everything happen that is on its way.
    pub(super) fn run_to_end(&mut self) {
        for _ in 0..20 {
            self.run_to_rest();
            for name in self.names() {
                self.complete(name);
            }
        }
    }

    pub(super) fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
        self.run_to_rest();
    }

    /// The replicas that are available in clusters that are Ready.
    pub(super) fn available(&self) -> u64 {
        let ready = self.members.values().filter(|m| !m.unreachable);
        ready.map(|member| member.available).sum()
    }

    /// The replicas of all Works.
    pub(super) fn works(&self) -> String {
        let works = self.members.iter().filter(|(_, m)| m.replicas > 0);
        let works: Vec<String> = works.map(|(n, m)| format!("{n}={}", m.replicas)).collect();
        works.join(" ")
    }
}
