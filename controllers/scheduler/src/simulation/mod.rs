//! Simulates where the scheduler would place bindings, one after the other.
//!
//! Each simulated binding reserves capacity and counts for its affinity groups, as if its
//! result had been written. Pure; time is an argument.

use std::collections::HashMap;
use std::time::Instant;

use karmada_api::{ResourceBinding, ResourceBindingSpec, TargetCluster};
use machinery::Object;
use serde_json::Value;

use crate::core::reservations::Reservations;
use crate::core::{ClusterSnapshot, SchedulingContext, SchedulingFailure, SchedulingSettings};
use crate::explain::{DecisionExplanation, affinity_peers};
use crate::reconcile::{
    SchedulingAction, SchedulingSkipReason, schedule_binding, scheduling_action, skip_reason,
};

/// Where the scheduler would place a binding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BindingSimulationResult {
    pub clusters: Vec<TargetCluster>,
    /// Why there is no result.
    pub failure: Option<SchedulingFailure>,
    /// Why the scheduler ignores the binding.
    pub skip_reason: Option<SchedulingSkipReason>,
    /// `None` if nothing would be decided.
    pub explanation: Option<DecisionExplanation>,
}

/// The bindings simulated so far. Capacity that a binding would release is not reused: its
/// cluster reports it as free only later.
pub struct SchedulingSimulation {
    now: Instant,
    reservations: Reservations,
    /// Simulated bindings, by key.
    simulated_bindings: HashMap<String, Object>,
}

impl SchedulingSimulation {
    /// A simulation without any bindings.
    pub fn new(now: Instant) -> Self {
        Self {
            now,
            reservations: Reservations::default(),
            simulated_bindings: HashMap::new(),
        }
    }

    /// Simulates the scheduler of this name on a binding that is not written; `others` are
    /// the bindings that may share a group with it.
    pub fn simulate(
        &mut self,
        binding: &Object,
        others: &[Object],
        scheduler: &str,
        snapshot: &ClusterSnapshot,
    ) -> Result<BindingSimulationResult, machinery::object::MalformedObject> {
        let view = binding.decode::<ResourceBinding>()?;
        let key = binding.meta().key();
        let is_there = |other: &&Object| !self.simulated_bindings.contains_key(&other.meta().key());
        let unmoved = others.iter().filter(is_there);
        let others: Vec<Object> = unmoved
            .chain(self.simulated_bindings.values())
            .cloned()
            .collect();
        let peers = affinity_peers(binding, &view, &others);
        let context = SchedulingContext {
            settings: SchedulingSettings {
                reserve: true,
                ..snapshot.settings()
            },
            peers: &peers,
            reservations: self.reservations.snapshot(self.now),
            ..SchedulingContext::from_snapshot(snapshot)
        };
        let generation = binding.meta().generation + 1;
        let simulated = simulate(&view, generation, scheduler, &context);
        let gained = added_targets(&view.spec, &simulated.clusters);
        self.reservations
            .assume(&key, &view.spec, &gained, self.now);
        let mut after = binding.value()?;
        let names = simulated.clusters.iter();
        after["spec"]["clusters"] = names
            .map(|target| serde_json::json!({"name": target.name, "replicas": target.replicas}))
            .collect::<Value>();
        self.simulated_bindings
            .insert(key, Object::from_value(&after)?);
        Ok(simulated)
    }
}

/// The replicas that clusters would have in addition to the present ones.
fn added_targets(spec: &ResourceBindingSpec, targets: &[TargetCluster]) -> Vec<TargetCluster> {
    let mut gained = targets.to_vec();
    gained.retain_mut(|target| {
        let had = spec.clusters.iter().find(|t| t.name == target.name);
        target.replicas -= had.map_or(0, |t| t.replicas);
        had.is_none() || (spec.components.is_empty() && target.replicas > 0)
    });
    gained
}

/// The decision that the scheduler of this name would make about a binding.
pub(crate) fn simulate(
    binding: &ResourceBinding,
    generation: i64,
    scheduler: &str,
    context: &SchedulingContext<'_>,
) -> BindingSimulationResult {
    let there = BindingSimulationResult {
        clusters: binding.spec.clusters.clone(),
        skip_reason: skip_reason(binding, scheduler),
        ..BindingSimulationResult::default()
    };
    let Some(placement) = &binding.spec.placement else {
        return there;
    };
    if there.skip_reason.is_some() {
        return there;
    }
    let snapshot = context.snapshot;
    let is_ending = |cluster: &str| snapshot.get(cluster).is_some_and(|m| m.is_terminating());
    let verdict = scheduling_action(binding, placement, context.settings, is_ending);
    let SchedulingAction::Schedule { fresh, .. } = verdict else {
        return there;
    };
    let mut outcome = schedule_binding(binding, placement, fresh, context, &mut |_| {});
    let explanation = DecisionExplanation::from_result(&mut outcome, generation, fresh);
    BindingSimulationResult {
        clusters: if outcome.is_result() {
            outcome.targets
        } else {
            there.clusters
        },
        failure: outcome.failure,
        skip_reason: None,
        explanation: Some(explanation),
    }
}

#[cfg(test)]
pub(crate) mod tests;
