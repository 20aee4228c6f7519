//! The scheduling algorithm: which clusters, and how many replicas on each. Pure.
//!
//! [`ScheduleRequest`] + [`SchedulingContext`] ──filter──► feasible ──score, select──► chosen ──assign──► target clusters
//!
//! A [`SchedulingDecision`] keeps the result of every step, so that a [`DecisionTrace`]
//! can be built on demand and costs nothing otherwise.
//!
//! Source of the rules: Karmada's `pkg/scheduler/core` and `framework/plugins`.

mod answers;
mod demand;
mod divide;
mod estimate;
mod filter;
pub mod ledger;
mod models;
pub mod peers;
mod rules;
mod select;
mod snapshot;
mod trace;
pub mod webster;

use std::cmp::Ordering;

use openapi::karmada::placement::{AffinityTerm, Placement};
use openapi::karmada::{BindingSpec, TargetCluster};
use serde::Serialize;

use divide::Division;
use filter::{Filter, Filtered};
use ledger::Assumed;
use peers::Peers;
use select::Selection;

pub use answers::{Answer, Answers};
pub use demand::{AssumedWorkload, Demand, Resource};
pub use divide::Mode;
pub use estimate::Source;
pub(crate) use estimate::is_estimated;
pub use rules::{Plugin, Plugins, Rules, UnknownPlugin};
pub(crate) use snapshot::ApiKey;
pub use snapshot::{Member, Snapshot};
pub use trace::{ClusterTrace, RegionTrace, Trace, Verdict};

/// A binding's spec to schedule, with the affinity term to try if it has terms.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub spec: &'a BindingSpec,
    pub placement: &'a Placement,
    pub term: Option<&'a AffinityTerm>,
    /// Ignore the present assignment, because a reschedule was triggered.
    pub fresh: bool,
}

/// The inputs of a decision besides the request.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    pub snapshot: &'a Snapshot,
    pub rules: Rules,
    /// Where the other bindings of its affinity groups are.
    pub peers: &'a Peers,
    /// Capacity reserved by recent decisions.
    pub assumed: Assumed<'a>,
    /// The accurate estimates so far, if estimators are used.
    pub answers: Option<&'a Answers>,
}

impl<'a> World<'a> {
    /// A context of clusters alone.
    pub fn of(snapshot: &'a Snapshot) -> Self {
        Self {
            snapshot,
            rules: snapshot.rules(),
            peers: Peers::NONE,
            assumed: Assumed::NOTHING,
            answers: None,
        }
    }
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No cluster passes the filters; a retry alone does not help.
    #[error("{0}")]
    NoFit(String),
    /// The clusters lack capacity at present.
    #[error("{0}")]
    Unschedulable(String),
    /// The placement cannot be satisfied or is invalid.
    #[error("{0}")]
    Error(String),
}

impl Failure {
    fn while_doing(self, what: &str) -> Self {
        let context = |why| format!("failed to {what}: {why}");
        match self {
            Self::NoFit(why) => Self::NoFit(why),
            Self::Unschedulable(why) => Self::Unschedulable(context(why)),
            Self::Error(why) => Self::Error(context(why)),
        }
    }
}

/// The present assignment of one cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) replicas: i64,
    /// Index in `spec.clusters`.
    pub(crate) place: usize,
}

/// The binding's present assignment, by cluster.
#[derive(Debug)]
pub(crate) struct Targets<'a>(Vec<(&'a str, Target)>);

impl<'a> Targets<'a> {
    fn of(spec: &'a BindingSpec) -> Self {
        let targets = spec.clusters.iter().enumerate().map(|(position, target)| {
            let replicas = target.replicas;
            (
                target.name.as_str(),
                Target {
                    replicas,
                    place: position,
                },
            )
        });
        let mut targets: Vec<_> = targets.collect();
        targets.sort_by_key(|(name, _)| *name);
        targets.dedup_by_key(|(name, _)| *name);
        Self(targets)
    }

    pub(crate) fn of_member(&self, member: &Member) -> Option<Target> {
        if self.0.is_empty() {
            return None;
        }
        self.get(member.name())
    }

    fn get(&self, cluster: &str) -> Option<Target> {
        let at = self.0.binary_search_by(|(name, _)| (*name).cmp(cluster));
        Some(self.0[at.ok()?].1)
    }
}

/// A feasible cluster on its way through the steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) member: &'a Member,
    pub(crate) score: i64,
    /// Replicas it can take in addition.
    pub(crate) allocatable: i64,
    /// `allocatable` plus the replicas it has already.
    pub(crate) available: i64,
    /// Source of the estimate.
    pub(crate) source: Source,
    pub(crate) target: Option<Target>,
    /// Index of the overflow tier; 0 for the affinity itself.
    pub(crate) tier: usize,
}

/// Orders candidates, best first.
pub(crate) fn order(a: &Candidate<'_>, b: &Candidate<'_>) -> Ordering {
    let key = |c: &Candidate<'_>| (c.tier, -c.score, -c.available);
    let names = || a.member.name().cmp(b.member.name());
    key(a).cmp(&key(b)).then_with(names)
}

/// How replicas are divided among clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Strategy {
    Duplicated,
    StaticWeight,
    Aggregated,
    DynamicWeight,
}

impl Strategy {
    /// `None`: the placement asks for an unknown strategy.
    pub(crate) fn of(placement: &Placement) -> Option<Self> {
        if is_duplicated(placement) {
            return Some(Self::Duplicated);
        }
        let scheduling = placement.replica_scheduling.as_ref()?;
        let preference = scheduling.replica_division_preference.as_str();
        if scheduling.replica_scheduling_type != "Divided" {
            return None;
        }
        let weights = scheduling.weight_preference.as_ref();
        match preference {
            "Aggregated" => Some(Self::Aggregated),
            "Weighted" if weights.is_some_and(|w| !w.dynamic_weight.is_empty()) => {
                Some(Self::DynamicWeight)
            }
            "Weighted" => Some(Self::StaticWeight),
            _ => None,
        }
    }
}

pub(crate) fn is_duplicated(placement: &Placement) -> bool {
    let scheduling = placement.replica_scheduling.as_ref();
    scheduling.is_none_or(|s| s.replica_scheduling_type == "Duplicated")
}

fn unsupported(placement: &Placement) -> Failure {
    let scheduling = placement.replica_scheduling.as_ref();
    let of = |get: fn(&openapi::karmada::placement::ReplicaScheduling) -> &String| {
        scheduling.map_or("", |s| get(s).as_str())
    };
    let kind = of(|s| &s.replica_scheduling_type);
    let preference = of(|s| &s.replica_division_preference);
    Failure::Error(format!(
        "unsupported replica scheduling strategy, replicaSchedulingType: {kind}, \
         replicaDivisionPreference: {preference}, please try another scheduling strategy"
    ))
}

/// Whether the components of a workload are scheduled as a set, which has to go to exactly
/// one cluster.
pub(crate) fn places_sets(spec: &BindingSpec, placement: &Placement, rules: Rules) -> bool {
    let one = placement
        .spread_constraints
        .iter()
        .any(|c| c.spread_by_field == "cluster" && c.min_groups == 1 && c.max_groups == 1);
    rules.component_sets && !spec.components.is_empty() && one
}

/// The steps of the scheduling algorithm, in order; the values of Karmada's `schedule_step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Filter,
    Score,
    Select,
    AssignReplicas,
}

/// Numbers of clusters that passed a filter step or plugin and that it rejected; for other
/// steps, whether the step itself succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    pub passed: usize,
    pub refused: usize,
}

impl Count {
    fn of(success: bool) -> Self {
        Self {
            passed: usize::from(success),
            refused: usize::from(!success),
        }
    }
}

/// A step or plugin that has just finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Step(Step, Count),
    /// A plugin, over all clusters.
    Plugin(Plugin, Count),
}

/// The result of a decision, with the results of its steps.
pub struct Decision<'a> {
    request: Request<'a>,
    world: World<'a>,
    filtered: Filtered<'a>,
    lacking: Vec<String>,
    /// Best first.
    candidates: Vec<Candidate<'a>>,
    selection: Selection<'a>,
    division: Division<'a>,
    failure: Option<Failure>,
}

impl Decision<'_> {
    /// The target clusters; none after a failure.
    pub fn targets(&self) -> Vec<TargetCluster> {
        self.division.targets(self.request.spec)
    }

    /// Why there is no result.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Clusters that estimators must be asked about before the decision can be made.
    pub fn lacking(&self) -> &[String] {
        &self.lacking
    }
}

/// Schedules a binding's resource.
pub fn schedule(request: &Request<'_>, world: &World<'_>) -> Result<Vec<TargetCluster>, Failure> {
    let decision = decide(request, world, &mut |_| {});
    match decision.failure {
        None => Ok(decision.targets()),
        Some(failure) => Err(failure),
    }
}

/// Like [`schedule`], but returns the results of all steps. Calls `ended` after each step
/// and each plugin.
pub fn decide<'a>(
    request: &Request<'a>,
    world: &World<'a>,
    ended: &mut dyn FnMut(Ended),
) -> Decision<'a> {
    let mut decision = Decision {
        request: *request,
        world: *world,
        filtered: Filtered::default(),
        lacking: Vec::new(),
        candidates: Vec::new(),
        selection: Selection::default(),
        division: Division::default(),
        failure: None,
    };
    decision.failure = decision.run(ended).err();
    decision
}

impl Decision<'_> {
    fn run(&mut self, ended: &mut dyn FnMut(Ended)) -> Result<(), Failure> {
        let (request, world) = (self.request, self.world);
        let targets = Targets::of(request.spec);
        let filter = Filter::new(&request, &world, &targets);
        self.filtered = filter.run(&mut |plugin, count| ended(Ended::Plugin(plugin, count)));
        let (passed, refused) = (&self.filtered.passed, &self.filtered.refused);
        let count = Count {
            passed: passed.len(),
            refused: refused.len(),
        };
        ended(Ended::Step(Step::Filter, count));
        if self.filtered.passed.is_empty() {
            return Err(self.filtered.failure());
        }
        if let Some(answers) = world.answers
            && is_estimated(request.spec)
        {
            self.lacking = answers.lacking(self.filtered.names());
            if !self.lacking.is_empty() {
                return Ok(());
            }
        }
        let scored = scored(world.rules, &targets, &self.filtered);
        if world.rules.plugins.has(Plugin::ClusterLocality) {
            let count = Count {
                passed: scored.len(),
                refused: 0,
            };
            ended(Ended::Plugin(Plugin::ClusterLocality, count));
        }
        ended(Ended::Step(Step::Score, Count::of(true)));
        let strategy = Strategy::of(request.placement);
        let sets = places_sets(request.spec, request.placement, world.rules);
        self.candidates = ranked(&request, &world, sets, scored);
        let selection = select::select(&request, strategy, sets, &self.candidates);
        ended(Ended::Step(Step::Select, Count::of(selection.is_ok())));
        self.selection = selection.map_err(|e| e.while_doing("select clusters"))?;
        let division = divide::divide(&request, &world, strategy, &self.selection.chosen);
        ended(Ended::Step(
            Step::AssignReplicas,
            Count::of(division.is_ok()),
        ));
        self.division = division.map_err(|e| e.while_doing("assign replicas"))?;
        Ok(())
    }
}

/// A feasible cluster with its score.
struct Scored<'a> {
    passed: filter::Passed<'a>,
    target: Option<Target>,
    score: i64,
}

fn scored<'a>(rules: Rules, targets: &Targets<'_>, filtered: &Filtered<'a>) -> Vec<Scored<'a>> {
    let locality = rules.plugins.has(Plugin::ClusterLocality);
    let score = |passed: &filter::Passed<'a>| {
        let target = targets.of_member(passed.member);
        Scored {
            passed: *passed,
            target,
            score: if locality && target.is_some() { 100 } else { 0 },
        }
    };
    filtered.passed.iter().map(score).collect()
}

/// The feasible clusters with their available replicas, best first.
fn ranked<'a>(
    request: &Request<'_>,
    world: &World<'_>,
    sets: bool,
    scored: Vec<Scored<'a>>,
) -> Vec<Candidate<'a>> {
    let names = scored.iter().map(|scored| scored.passed.member.name());
    let accurate = world.answers;
    let accurate = accurate.filter(|all| all.failed(names).next().is_none());
    let estimator = estimate::Estimator::new(request.spec, sets, world, accurate);
    let candidate = |scored: Scored<'a>| {
        let (member, target) = (scored.passed.member, scored.target);
        let (allocatable, source) = estimator.available(member);
        Candidate {
            member,
            score: scored.score,
            allocatable,
            available: allocatable + target.map_or(0, |t| t.replicas),
            source,
            target,
            tier: scored.passed.tier,
        }
    };
    let mut candidates: Vec<Candidate<'a>> = scored.into_iter().map(candidate).collect();
    // Stable sort: candidates arrive ordered by name, and equal ones keep that order.
    candidates.sort_by_key(|c| (c.tier, -c.score, -c.available));
    candidates
}

#[cfg(test)]
pub(crate) mod tests;
