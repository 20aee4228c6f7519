//! The scheduling algorithm: which clusters, and how many replicas on each. Pure.
//!
//! [`ScheduleRequest`] + [`SchedulingContext`] ──filter──► feasible ──score, select──► chosen ──assign──► target clusters
//!
//! A [`SchedulingDecision`] keeps the result of every step, so that a [`DecisionTrace`]
//! can be built on demand and costs nothing otherwise.
//!
//! Source of the rules: Karmada's `pkg/scheduler/core` and `framework/plugins`.

mod accurate_estimates;
mod assignment;
mod capacity_estimator;
mod filter;
pub mod reservations;
mod resource_models;
mod resource_request;
mod scheduling_rules;
mod select;
mod snapshot;
mod trace;
pub mod webster;
pub mod workload_affinity;

use std::cmp::Ordering;

use openapi::karmada::placement::{ClusterAffinityTerm, Placement};
use openapi::karmada::{BindingSpec, TargetCluster};
use serde::Serialize;

use assignment::ReplicaAssignment;
use filter::{ClusterFilter, FilterResult};
use reservations::ReservationSnapshot;
use select::ClusterSelection;
use workload_affinity::AffinityPeers;

pub use accurate_estimates::{AccurateEstimate, AccurateEstimates};
pub use assignment::AssignmentMode;
pub use capacity_estimator::EstimateSource;
pub(crate) use capacity_estimator::is_estimated;
pub use resource_request::{AssumedWorkload, ReplicaResourceRequest, ResourceName};
pub use scheduling_rules::{
    SchedulerPlugin, SchedulerPluginSet, SchedulingRules, UnknownPluginError,
};
pub(crate) use snapshot::ApiKindHash;
pub use snapshot::{ClusterInfo, ClusterSnapshot};
pub use trace::{ClusterTrace, DecisionTrace, RegionTrace, RejectionTrace};

/// A binding's spec to schedule, with the affinity term to try if it has terms.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleRequest<'a> {
    pub spec: &'a BindingSpec,
    pub placement: &'a Placement,
    pub term: Option<&'a ClusterAffinityTerm>,
    /// Ignore the present assignment, because a reschedule was triggered.
    pub fresh: bool,
}

/// The inputs of a decision besides the request.
#[derive(Clone, Copy, Debug)]
pub struct SchedulingContext<'a> {
    pub snapshot: &'a ClusterSnapshot,
    pub rules: SchedulingRules,
    /// Where the other bindings of its affinity groups are.
    pub peers: &'a AffinityPeers,
    /// Capacity reserved by recent decisions.
    pub reservations: ReservationSnapshot<'a>,
    /// The accurate estimates so far, if estimators are used.
    pub accurate_estimates: Option<&'a AccurateEstimates>,
}

impl<'a> SchedulingContext<'a> {
    /// A context of clusters alone.
    pub fn from_snapshot(snapshot: &'a ClusterSnapshot) -> Self {
        Self {
            snapshot,
            rules: snapshot.rules(),
            peers: AffinityPeers::NONE,
            reservations: ReservationSnapshot::EMPTY,
            accurate_estimates: None,
        }
    }
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchedulingFailure {
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

impl SchedulingFailure {
    fn with_context(self, what: &str) -> Self {
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
pub(crate) struct CurrentTarget {
    pub(crate) replicas: i64,
    /// Index in `spec.clusters`.
    pub(crate) position: usize,
}

/// The binding's present assignment, by cluster.
#[derive(Debug)]
pub(crate) struct CurrentTargets<'a>(Vec<(&'a str, CurrentTarget)>);

impl<'a> CurrentTargets<'a> {
    fn from_spec(spec: &'a BindingSpec) -> Self {
        let targets = spec.clusters.iter().enumerate().map(|(position, target)| {
            let replicas = target.replicas;
            (target.name.as_str(), CurrentTarget { replicas, position })
        });
        let mut targets: Vec<_> = targets.collect();
        targets.sort_by_key(|(name, _)| *name);
        targets.dedup_by_key(|(name, _)| *name);
        Self(targets)
    }

    pub(crate) fn for_cluster(&self, member: &ClusterInfo) -> Option<CurrentTarget> {
        if self.0.is_empty() {
            return None;
        }
        self.get(member.name())
    }

    fn get(&self, cluster: &str) -> Option<CurrentTarget> {
        let at = self.0.binary_search_by(|(name, _)| (*name).cmp(cluster));
        Some(self.0[at.ok()?].1)
    }
}

/// A feasible cluster on its way through the steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterCandidate<'a> {
    pub(crate) member: &'a ClusterInfo,
    pub(crate) score: i64,
    /// Replicas it can take in addition.
    pub(crate) allocatable: i64,
    /// `allocatable` plus the replicas it has already.
    pub(crate) available: i64,
    /// Source of the estimate.
    pub(crate) source: EstimateSource,
    pub(crate) target: Option<CurrentTarget>,
    /// Index of the overflow tier; 0 for the affinity itself.
    pub(crate) tier: usize,
}

/// Orders candidates, best first.
pub(crate) fn compare_candidates(a: &ClusterCandidate<'_>, b: &ClusterCandidate<'_>) -> Ordering {
    let key = |c: &ClusterCandidate<'_>| (c.tier, -c.score, -c.available);
    let names = || a.member.name().cmp(b.member.name());
    key(a).cmp(&key(b)).then_with(names)
}

/// How replicas are divided among clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum AssignmentStrategy {
    Duplicated,
    StaticWeight,
    Aggregated,
    DynamicWeight,
}

impl AssignmentStrategy {
    /// `None`: the placement asks for an unknown strategy.
    pub(crate) fn from_placement(placement: &Placement) -> Option<Self> {
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

fn unsupported_strategy(placement: &Placement) -> SchedulingFailure {
    let scheduling = placement.replica_scheduling.as_ref();
    let of = |get: fn(&openapi::karmada::placement::ReplicaSchedulingStrategy) -> &String| {
        scheduling.map_or("", |s| get(s).as_str())
    };
    let kind = of(|s| &s.replica_scheduling_type);
    let preference = of(|s| &s.replica_division_preference);
    SchedulingFailure::Error(format!(
        "unsupported replica scheduling strategy, replicaSchedulingType: {kind}, \
         replicaDivisionPreference: {preference}, please try another scheduling strategy"
    ))
}

/// Whether the components of a workload are scheduled as a set, which has to go to exactly
/// one cluster.
pub(crate) fn schedules_component_sets(
    spec: &BindingSpec,
    placement: &Placement,
    rules: SchedulingRules,
) -> bool {
    let one = placement
        .spread_constraints
        .iter()
        .any(|c| c.spread_by_field == "cluster" && c.min_groups == 1 && c.max_groups == 1);
    rules.component_sets && !spec.components.is_empty() && one
}

/// The steps of the scheduling algorithm, in order; the values of Karmada's `schedule_step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulingStep {
    Filter,
    Score,
    Select,
    AssignReplicas,
}

/// Numbers of clusters that passed a filter step or plugin and that it rejected; for other
/// steps, whether the step itself succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassedCount {
    pub passed: usize,
    pub rejected: usize,
}

impl PassedCount {
    fn from_success(success: bool) -> Self {
        Self {
            passed: usize::from(success),
            rejected: usize::from(!success),
        }
    }
}

/// A step or plugin that has just finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepCompletion {
    Step(SchedulingStep, PassedCount),
    /// A plugin, over all clusters.
    Plugin(SchedulerPlugin, PassedCount),
}

/// The result of a decision, with the results of its steps.
pub struct SchedulingDecision<'a> {
    request: ScheduleRequest<'a>,
    context: SchedulingContext<'a>,
    filter_result: FilterResult<'a>,
    unestimated_clusters: Vec<String>,
    /// Best first.
    candidates: Vec<ClusterCandidate<'a>>,
    selection: ClusterSelection<'a>,
    assignment: ReplicaAssignment<'a>,
    failure: Option<SchedulingFailure>,
}

impl SchedulingDecision<'_> {
    /// The target clusters; none after a failure.
    pub fn targets(&self) -> Vec<TargetCluster> {
        self.assignment.targets(self.request.spec)
    }

    /// Why there is no result.
    pub fn failure(&self) -> Option<&SchedulingFailure> {
        self.failure.as_ref()
    }

    /// Clusters that estimators must be asked about before the decision can be made.
    pub fn unestimated_clusters(&self) -> &[String] {
        &self.unestimated_clusters
    }
}

/// Schedules a binding's resource.
pub fn schedule(
    request: &ScheduleRequest<'_>,
    world: &SchedulingContext<'_>,
) -> Result<Vec<TargetCluster>, SchedulingFailure> {
    let decision = make_decision(request, world, &mut |_| {});
    match decision.failure {
        None => Ok(decision.targets()),
        Some(failure) => Err(failure),
    }
}

/// Like [`schedule`], but returns the results of all steps. Calls `ended` after each step
/// and each plugin.
pub fn make_decision<'a>(
    request: &ScheduleRequest<'a>,
    world: &SchedulingContext<'a>,
    ended: &mut dyn FnMut(StepCompletion),
) -> SchedulingDecision<'a> {
    let mut decision = SchedulingDecision {
        request: *request,
        context: *world,
        filter_result: FilterResult::default(),
        unestimated_clusters: Vec::new(),
        candidates: Vec::new(),
        selection: ClusterSelection::default(),
        assignment: ReplicaAssignment::default(),
        failure: None,
    };
    decision.failure = decision.run(ended).err();
    decision
}

impl SchedulingDecision<'_> {
    fn run(&mut self, ended: &mut dyn FnMut(StepCompletion)) -> Result<(), SchedulingFailure> {
        let (request, world) = (self.request, self.context);
        let targets = CurrentTargets::from_spec(request.spec);
        let filter = ClusterFilter::new(&request, &world, &targets);
        self.filter_result =
            filter.run(&mut |plugin, count| ended(StepCompletion::Plugin(plugin, count)));
        let (passed, refused) = (&self.filter_result.feasible, &self.filter_result.rejected);
        let count = PassedCount {
            passed: passed.len(),
            rejected: refused.len(),
        };
        ended(StepCompletion::Step(SchedulingStep::Filter, count));
        if self.filter_result.feasible.is_empty() {
            return Err(self.filter_result.failure());
        }
        if let Some(answers) = world.accurate_estimates
            && is_estimated(request.spec)
        {
            self.unestimated_clusters = answers.missing(self.filter_result.feasible_names());
            if !self.unestimated_clusters.is_empty() {
                return Ok(());
            }
        }
        let scored = score_clusters(world.rules, &targets, &self.filter_result);
        if world.rules.plugins.has(SchedulerPlugin::ClusterLocality) {
            let count = PassedCount {
                passed: scored.len(),
                rejected: 0,
            };
            ended(StepCompletion::Plugin(
                SchedulerPlugin::ClusterLocality,
                count,
            ));
        }
        ended(StepCompletion::Step(
            SchedulingStep::Score,
            PassedCount::from_success(true),
        ));
        let strategy = AssignmentStrategy::from_placement(request.placement);
        let sets = schedules_component_sets(request.spec, request.placement, world.rules);
        self.candidates = rank_candidates(&request, &world, sets, scored);
        let selection = select::select(&request, strategy, sets, &self.candidates);
        ended(StepCompletion::Step(
            SchedulingStep::Select,
            PassedCount::from_success(selection.is_ok()),
        ));
        self.selection = selection.map_err(|e| e.with_context("select clusters"))?;
        let division =
            assignment::assign_replicas(&request, &world, strategy, &self.selection.chosen);
        ended(StepCompletion::Step(
            SchedulingStep::AssignReplicas,
            PassedCount::from_success(division.is_ok()),
        ));
        self.assignment = division.map_err(|e| e.with_context("assign replicas"))?;
        Ok(())
    }
}

/// A feasible cluster with its score.
struct ScoredCluster<'a> {
    cluster: filter::FeasibleCluster<'a>,
    target: Option<CurrentTarget>,
    score: i64,
}

fn score_clusters<'a>(
    rules: SchedulingRules,
    targets: &CurrentTargets<'_>,
    filtered: &FilterResult<'a>,
) -> Vec<ScoredCluster<'a>> {
    let locality = rules.plugins.has(SchedulerPlugin::ClusterLocality);
    let score = |passed: &filter::FeasibleCluster<'a>| {
        let target = targets.for_cluster(passed.member);
        ScoredCluster {
            cluster: *passed,
            target,
            score: if locality && target.is_some() { 100 } else { 0 },
        }
    };
    filtered.feasible.iter().map(score).collect()
}

/// The feasible clusters with their available replicas, best first.
fn rank_candidates<'a>(
    request: &ScheduleRequest<'_>,
    world: &SchedulingContext<'_>,
    sets: bool,
    scored: Vec<ScoredCluster<'a>>,
) -> Vec<ClusterCandidate<'a>> {
    let names = scored.iter().map(|scored| scored.cluster.member.name());
    let accurate = world.accurate_estimates;
    let accurate = accurate.filter(|all| all.failed_clusters(names).next().is_none());
    let estimator = capacity_estimator::CapacityEstimator::new(request.spec, sets, world, accurate);
    let candidate = |scored: ScoredCluster<'a>| {
        let (member, target) = (scored.cluster.member, scored.target);
        let (allocatable, source) = estimator.available(member);
        ClusterCandidate {
            member,
            score: scored.score,
            allocatable,
            available: allocatable + target.map_or(0, |t| t.replicas),
            source,
            target,
            tier: scored.cluster.tier,
        }
    };
    let mut candidates: Vec<ClusterCandidate<'a>> = scored.into_iter().map(candidate).collect();
    // Stable sort: candidates arrive ordered by name, and equal ones keep that order.
    candidates.sort_by_key(|c| (c.tier, -c.score, -c.available));
    candidates
}

#[cfg(test)]
pub(crate) mod tests;
