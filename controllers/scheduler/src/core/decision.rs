//! Runs the steps of one decision in order: filter, score, select, assign replicas.

use karmada_api::TargetCluster;

use super::assignment::{self, Assignment};
use super::assignment_strategy::{AssignmentStrategy, schedules_component_sets};
use super::candidate::{ClusterCandidate, CurrentTarget, CurrentTargets};
use super::capacity_estimator::{self, is_estimated};
use super::failure::SchedulingFailure;
use super::filter::{self, ClusterFilter, FilterResult};
use super::request::{ScheduleRequest, SchedulingContext};
use super::scheduling_settings::{ExtensionPoint, SchedulerPluginName, SchedulingSettings};
use super::scheduling_step::{FilterCounts, SchedulingStep, StepOrPluginCompletion};
use super::select::{self, ClusterSelection};

/// The result of a decision, with the results of its steps.
pub struct SchedulingDecision<'a> {
    pub(super) request: ScheduleRequest<'a>,
    pub(super) context: SchedulingContext<'a>,
    pub(super) filter_result: FilterResult<'a>,
    unestimated_clusters: Vec<String>,
    /// Best first.
    pub(super) candidates: Vec<ClusterCandidate<'a>>,
    pub(super) selection: ClusterSelection<'a>,
    pub(super) assignment: Assignment<'a>,
    pub(super) failure: Option<SchedulingFailure>,
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
    scheduling_context: &SchedulingContext<'_>,
) -> Result<Vec<TargetCluster>, SchedulingFailure> {
    let decision = make_decision(request, scheduling_context, &mut |_| {});
    match decision.failure {
        None => Ok(decision.targets()),
        Some(failure) => Err(failure),
    }
}

/// Like [`schedule`], but returns the results of all steps. Calls `ended` after each step
/// and each plugin.
pub fn make_decision<'a>(
    request: &ScheduleRequest<'a>,
    scheduling_context: &SchedulingContext<'a>,
    ended: &mut dyn FnMut(StepOrPluginCompletion),
) -> SchedulingDecision<'a> {
    let mut decision = SchedulingDecision {
        request: *request,
        context: *scheduling_context,
        filter_result: FilterResult::default(),
        unestimated_clusters: Vec::new(),
        candidates: Vec::new(),
        selection: ClusterSelection::default(),
        assignment: Assignment::default(),
        failure: None,
    };
    decision.failure = decision.run(ended).err();
    decision
}

impl SchedulingDecision<'_> {
    fn run(
        &mut self,
        ended: &mut dyn FnMut(StepOrPluginCompletion),
    ) -> Result<(), SchedulingFailure> {
        let (request, scheduling_context) = (self.request, self.context);
        let targets = CurrentTargets::from_spec(request.spec);
        self.filter_result = run_filters(&request, &scheduling_context, &targets, ended);
        if self.filter_result.feasible.is_empty() {
            return Err(self.filter_result.failure());
        }
        if let Some(answers) = scheduling_context.accurate_estimates
            && is_estimated(request.spec)
        {
            self.unestimated_clusters = answers.missing(self.filter_result.feasible_names());
            if !self.unestimated_clusters.is_empty() {
                return Ok(());
            }
        }
        let settings = scheduling_context.settings;
        let scored = score_clusters(settings, &targets, &self.filter_result, ended);
        let strategy = AssignmentStrategy::from_placement(request.placement);
        let sets = schedules_component_sets(request.spec, request.placement, settings);
        self.candidates = rank_candidates(&request, &scheduling_context, sets, scored);
        let selection = select::select(&request, strategy, sets, &self.candidates);
        ended(StepOrPluginCompletion::Step(
            SchedulingStep::Select,
            FilterCounts::from_success(selection.is_ok()),
        ));
        self.selection = selection.map_err(|e| e.with_context("select clusters"))?;
        let division = assignment::assign_replicas(
            &request,
            &scheduling_context,
            strategy,
            &self.selection.chosen,
        );
        ended(StepOrPluginCompletion::Step(
            SchedulingStep::AssignReplicas,
            FilterCounts::from_success(division.is_ok()),
        ));
        self.assignment = division.map_err(|e| e.with_context("assign replicas"))?;
        Ok(())
    }
}

/// Filters the clusters, and reports each filter and the step.
fn run_filters<'a>(
    request: &ScheduleRequest<'a>,
    context: &SchedulingContext<'a>,
    targets: &CurrentTargets<'_>,
    ended: &mut dyn FnMut(StepOrPluginCompletion),
) -> FilterResult<'a> {
    let filter = ClusterFilter::new(request, context, targets);
    let result = filter.run(&mut |plugin, count| {
        let point = ExtensionPoint::Filter;
        ended(StepOrPluginCompletion::Plugin(plugin, point, count));
    });
    let count = FilterCounts {
        passed: result.feasible.len(),
        rejected: result.rejected.len(),
    };
    ended(StepOrPluginCompletion::Step(SchedulingStep::Filter, count));
    result
}

/// A feasible cluster with its score.
struct ScoredCluster<'a> {
    cluster: filter::FeasibleCluster<'a>,
    target: Option<CurrentTarget>,
    score: i64,
}

/// Returns what a plugin adds to the score of a cluster, from 0 to 100.
type ScorePluginFn = fn(&ScoredCluster<'_>) -> i64;

/// The score plugins; the score of a cluster is the sum of theirs.
const SCORE_PLUGINS: [(SchedulerPluginName, ScorePluginFn); 1] =
    [(SchedulerPluginName::ClusterLocality, score_locality)];

fn score_locality(cluster: &ScoredCluster<'_>) -> i64 {
    if cluster.target.is_some() { 100 } else { 0 }
}

/// Scores the feasible clusters, and reports each score plugin and the step.
fn score_clusters<'a>(
    settings: SchedulingSettings,
    targets: &CurrentTargets<'_>,
    filter_result: &FilterResult<'a>,
    ended: &mut dyn FnMut(StepOrPluginCompletion),
) -> Vec<ScoredCluster<'a>> {
    let feasible = filter_result.feasible.iter();
    let mut clusters: Vec<ScoredCluster<'a>> = feasible
        .map(|cluster| ScoredCluster {
            cluster: *cluster,
            target: targets.for_cluster(cluster.member),
            score: 0,
        })
        .collect();
    let plugins = SCORE_PLUGINS.into_iter();
    for (plugin, score) in plugins.filter(|(plugin, _)| settings.plugins.has(*plugin)) {
        for cluster in &mut clusters {
            cluster.score += score(cluster);
        }
        let count = FilterCounts {
            passed: clusters.len(),
            rejected: 0,
        };
        ended(StepOrPluginCompletion::Plugin(
            plugin,
            ExtensionPoint::Score,
            count,
        ));
    }
    ended(StepOrPluginCompletion::Step(
        SchedulingStep::Score,
        FilterCounts::from_success(true),
    ));
    clusters
}

/// The feasible clusters with their available replicas, best first.
fn rank_candidates<'a>(
    request: &ScheduleRequest<'_>,
    scheduling_context: &SchedulingContext<'_>,
    sets: bool,
    scored: Vec<ScoredCluster<'a>>,
) -> Vec<ClusterCandidate<'a>> {
    let names = scored.iter().map(|scored| scored.cluster.member.name());
    let accurate = scheduling_context.accurate_estimates;
    let accurate = accurate.filter(|all| all.failed_clusters(names).next().is_none());
    let estimator = capacity_estimator::CapacityEstimator::new(
        request.spec,
        sets,
        scheduling_context,
        accurate,
    );
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
