//! Where bindings would go, one after the other, if nothing else happened.
//!
//! Enters: bindings as they would be written, and those that are there. Leaves: where
//! the scheduler would bring each, with the room and the clusters that those before it
//! would have counted as taken. Pure; time is an argument.

use std::collections::HashMap;
use std::time::Instant;

use machinery::Object;
use openapi::karmada::{Binding, BindingSpec, TargetCluster};
use serde_json::Value;

use crate::core::ledger::Ledger;
use crate::core::{Failure, Rules, Snapshot, World};
use crate::decide::{LeftAlone, Verdict, judge, left_alone, place};
use crate::explain::{Explanation, peers};

/// Where a binding would be once the scheduler has looked at it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Foresight {
    pub clusters: Vec<TargetCluster>,
    /// Why nothing was found.
    pub failure: Option<Failure>,
    /// Why the scheduler does not look at it.
    pub left_alone: Option<LeftAlone>,
    /// There is none where nothing would be decided.
    pub explanation: Option<Explanation>,
}

/// What was foreseen so far. Room that a binding would leave is not taken for free: its
/// cluster tells of that later.
pub struct Rehearsal {
    now: Instant,
    ledger: Ledger,
    /// Bindings as they would be, by key.
    placed: HashMap<String, Object>,
}

impl Rehearsal {
    /// Nothing is foreseen yet.
    pub fn new(now: Instant) -> Self {
        Self {
            now,
            ledger: Ledger::default(),
            placed: HashMap::new(),
        }
    }

    /// What the scheduler of this name would make of a binding, which is not written;
    /// `others` are those that may share a group with it.
    pub fn foresee(
        &mut self,
        binding: &Object,
        others: &[Object],
        scheduler: &str,
        snapshot: &Snapshot,
    ) -> Result<Foresight, machinery::object::Malformed> {
        let view = binding.view::<Binding>()?;
        let key = binding.head().key();
        let is_there = |other: &&Object| !self.placed.contains_key(&other.head().key());
        let unmoved = others.iter().filter(is_there);
        let others: Vec<Object> = unmoved.chain(self.placed.values()).cloned().collect();
        let peers = peers(binding, &view, &others);
        let world = World {
            rules: Rules {
                reserve: true,
                ..snapshot.rules()
            },
            peers: &peers,
            assumed: self.ledger.at(self.now),
            ..World::of(snapshot)
        };
        let generation = binding.head().generation + 1;
        let seen = foresee(&view, generation, scheduler, &world);
        let gained = gained(&view.spec, &seen.clusters);
        self.ledger.assume(&key, &view.spec, &gained, self.now);
        let mut after = binding.value()?;
        let names = seen.clusters.iter();
        after["spec"]["clusters"] = names
            .map(|target| serde_json::json!({"name": target.name, "replicas": target.replicas}))
            .collect::<Value>();
        self.placed.insert(key, Object::from_value(&after)?);
        Ok(seen)
    }
}

/// What clusters would have beside what they have.
fn gained(spec: &BindingSpec, targets: &[TargetCluster]) -> Vec<TargetCluster> {
    let mut gained = targets.to_vec();
    gained.retain_mut(|target| {
        let had = spec.clusters.iter().find(|t| t.name == target.name);
        target.replicas -= had.map_or(0, |t| t.replicas);
        had.is_none() || (spec.components.is_empty() && target.replicas > 0)
    });
    gained
}

/// What the scheduler of this name would make of a binding.
pub(crate) fn foresee(
    binding: &Binding,
    generation: i64,
    scheduler: &str,
    world: &World<'_>,
) -> Foresight {
    let there = Foresight {
        clusters: binding.spec.clusters.clone(),
        left_alone: left_alone(binding, scheduler),
        ..Foresight::default()
    };
    let Some(placement) = &binding.spec.placement else {
        return there;
    };
    if there.left_alone.is_some() {
        return there;
    }
    let snapshot = world.snapshot;
    let is_ending = |cluster: &str| snapshot.get(cluster).is_some_and(|m| m.is_terminating());
    let verdict = judge(binding, placement, world.rules, is_ending);
    let Verdict::Schedule { fresh, .. } = verdict else {
        return there;
    };
    let mut outcome = place(binding, placement, fresh, world, &mut |_| {});
    let explanation = Explanation::of(&mut outcome, generation, fresh);
    Foresight {
        clusters: if outcome.is_result() {
            outcome.targets
        } else {
            there.clusters
        },
        failure: outcome.failure,
        left_alone: None,
        explanation: Some(explanation),
    }
}

#[cfg(test)]
pub(crate) mod tests;
