//! The decision: which clusters, and how many replicas on each. Pure.
//!
//! [`Request`] + [`Snapshot`] ──filter──► feasible ──score, select──► chosen ──divide──► target clusters
//!
//! Source of the rules: Karmada's `pkg/scheduler/core` and `framework/plugins`.

mod divide;
mod estimate;
mod filter;
mod select;
mod snapshot;
pub mod webster;

use openapi::karmada::placement::{AffinityTerm, Placement};
use openapi::karmada::{BindingSpec, TargetCluster};

pub use snapshot::{Member, Snapshot};

/// What is asked: a binding's spec with the affinity term to try, if it has terms.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub spec: &'a BindingSpec,
    pub placement: &'a Placement,
    pub term: Option<&'a AffinityTerm>,
    /// Forget where replicas are: a reschedule was asked for.
    pub fresh: bool,
}

/// Why there is no result, by what the caller does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No cluster passes the filters; trying again changes nothing by itself.
    #[error("{0}")]
    NoFit(String),
    /// Not enough room now.
    #[error("{0}")]
    Unschedulable(String),
    /// The placement cannot be carried out.
    #[error("{0}")]
    Error(String),
}

/// A cluster on its way through the stages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) member: &'a Member,
    pub(crate) score: i64,
    /// Free for new replicas.
    pub(crate) allocatable: i64,
    /// That, and what is here already.
    pub(crate) available: i64,
    /// Rank of the overflow tier; 0 for the affinity itself.
    pub(crate) tier: usize,
}

/// How replicas are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    Duplicated,
    StaticWeight,
    Aggregated,
    DynamicWeight,
}

impl Strategy {
    pub(crate) fn of(placement: &Placement) -> Self {
        let Some(scheduling) = &placement.replica_scheduling else {
            return Self::Duplicated;
        };
        if scheduling.replica_scheduling_type == "Duplicated" {
            return Self::Duplicated;
        }
        if scheduling.replica_division_preference == "Aggregated" {
            return Self::Aggregated;
        }
        match &scheduling.weight_preference {
            Some(weights) if !weights.dynamic_weight.is_empty() => Self::DynamicWeight,
            _ => Self::StaticWeight,
        }
    }
}

/// The steps of a decision, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Filter,
    Score,
    Select,
    AssignReplicas,
}

/// Decides where a binding's resource goes.
pub fn schedule(request: &Request<'_>, snapshot: &Snapshot) -> Result<Vec<TargetCluster>, Failure> {
    schedule_in_steps(request, snapshot, &mut |_, _| {})
}

/// [`schedule`]; `ended` hears of each step when it is over, and whether it gave a
/// result.
pub fn schedule_in_steps(
    request: &Request<'_>,
    snapshot: &Snapshot,
    ended: &mut dyn FnMut(Step, bool),
) -> Result<Vec<TargetCluster>, Failure> {
    let feasible = filter::filter(request, snapshot);
    ended(Step::Filter, feasible.is_ok());
    let feasible = feasible?;
    let strategy = Strategy::of(request.placement);
    let mut candidates: Vec<Candidate<'_>> = feasible
        .into_iter()
        .map(|member| {
            let current = request
                .spec
                .clusters
                .iter()
                .find(|t| t.name == member.name());
            let allocatable = estimate::available(request.spec, &member.cluster);
            Candidate {
                member,
                score: if current.is_some() { 100 } else { 0 },
                allocatable,
                available: allocatable.saturating_add(current.map_or(0, |t| t.replicas)),
                tier: filter::tier(request.term, member),
            }
        })
        .collect();
    candidates.sort_by(|a, b| {
        let key = |c: &Candidate<'_>| (c.tier, -c.score, -c.available);
        key(a)
            .cmp(&key(b))
            .then_with(|| a.member.name().cmp(b.member.name()))
    });
    ended(Step::Score, true);
    let chosen = select::select(request, strategy, candidates);
    ended(Step::Select, chosen.is_ok());
    let chosen = chosen.map_err(|e| e.while_doing("select clusters"))?;
    let divided = divide::divide(request, strategy, &chosen);
    ended(Step::AssignReplicas, divided.is_ok());
    divided.map_err(|e| e.while_doing("assign replicas"))
}

impl Failure {
    fn while_doing(self, what: &str) -> Self {
        let told = |why| format!("failed to {what}: {why}");
        match self {
            Self::NoFit(why) => Self::NoFit(why),
            Self::Unschedulable(why) => Self::Unschedulable(told(why)),
            Self::Error(why) => Self::Error(told(why)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
