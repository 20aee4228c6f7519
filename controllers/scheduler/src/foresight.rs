//! Simulates where the scheduler would place bindings, one after the other.
//!
//! Each simulated binding reserves capacity and counts for its affinity groups, as if its
//! result had been written. Pure; time is an argument.

use std::collections::HashMap;
use std::time::Instant;

use machinery::Object;
use openapi::karmada::{Binding, BindingSpec, TargetCluster};
use serde_json::Value;

use crate::core::ledger::Ledger;
use crate::core::{Failure, Rules, Snapshot, World};
use crate::decide::{LeftAlone, Verdict, judge, left_alone, place};
use crate::explain::{Explanation, peers};

/// Where the scheduler would place a binding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Foresight {
    pub clusters: Vec<TargetCluster>,
    /// Why there is no result.
    pub failure: Option<Failure>,
    /// Why the scheduler ignores the binding.
    pub left_alone: Option<LeftAlone>,
    /// `None` if nothing would be decided.
    pub explanation: Option<Explanation>,
}

/// The bindings simulated so far. Capacity that a binding would release is not reused: its
/// cluster reports it as free only later.
pub struct Rehearsal {
    now: Instant,
    ledger: Ledger,
    /// Simulated bindings, by key.
    placed: HashMap<String, Object>,
}

impl Rehearsal {
    /// A simulation without any bindings.
    pub fn new(now: Instant) -> Self {
        Self {
            now,
            ledger: Ledger::default(),
            placed: HashMap::new(),
        }
    }

    /// Simulates the scheduler of this name on a binding that is not written; `others` are
    /// the bindings that may share a group with it.
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
        let simulated = foresee(&view, generation, scheduler, &world);
        let gained = gained(&view.spec, &simulated.clusters);
        self.ledger.assume(&key, &view.spec, &gained, self.now);
        let mut after = binding.value()?;
        let names = simulated.clusters.iter();
        after["spec"]["clusters"] = names
            .map(|target| serde_json::json!({"name": target.name, "replicas": target.replicas}))
            .collect::<Value>();
        self.placed.insert(key, Object::from_value(&after)?);
        Ok(simulated)
    }
}

/// The replicas that clusters would have in addition to the present ones.
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
