//! Traces a decision: why it came out as it did, as a plain value.
//!
//! A [`DecisionTrace`] has per cluster the rejections of the filters, the score, the
//! available replicas with the source of the estimate, and the assigned replicas. It is
//! built on demand and of bounded size: the most relevant clusters come first, and the
//! omitted ones are counted.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use super::assignment::ClusterReplicaShare;
use super::filter::{ClusterFilter, FilterRejection};
use super::{
    AssignmentRule, AssignmentStrategy, ClusterCandidate, ClusterInfo, CurrentTargets,
    EstimateSource, SchedulerPluginName, SchedulingDecision,
};

/// Approximate size of a trace in JSON.
const TRACE_BUDGET_BYTES: usize = 14 * 1024;
/// Approximate bytes of a cluster's trace besides its texts.
const CLUSTER_TRACE_BYTES: usize = 180;
const MAX_REGIONS: usize = 40;
const MAX_REASONS: usize = 20;
const MAX_FAILED_ESTIMATORS: usize = 8;

/// The trace of one decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionTrace {
    /// The affinity term that was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<AssignmentStrategy>,
    /// The rule by which replicas were assigned.
    pub rule: AssignmentRule,
    /// The name of the ReplicaSchedulingPreference that divides the replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_preference: Option<String>,
    /// Desired replicas.
    pub replicas: i64,
    pub total_clusters: usize,
    pub feasible_clusters: usize,
    pub chosen_clusters: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// First reason against a cluster → number of clusters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refusals: BTreeMap<String, usize>,
    /// Clusters whose estimators failed, so that no accurate estimate counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_estimators: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<RegionTrace>,
    /// Clusters with replicas first, then the feasible ones in order, then the rejected ones.
    pub clusters: Vec<ClusterTrace>,
    /// Clusters omitted to bound the size.
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted_clusters: usize,
}

/// A region considered by the spread constraints.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RegionTrace {
    pub name: String,
    pub clusters: usize,
    pub score: i64,
    pub chosen: bool,
}

/// A cluster's results in each step.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTrace {
    pub name: String,
    /// The filters that reject it; empty if it is feasible.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RejectionTrace>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<i64>,
    /// Index of the overflow tier it belongs to, from 1; 0 for the affinity itself.
    #[serde(skip_serializing_if = "is_zero")]
    pub overflow_tier: usize,
    /// Replicas by the last result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_replicas: Option<i64>,
    /// Replicas it can take in addition to those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i64>,
    /// Source of that estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimateSource>,
    pub chosen: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// The weight by which replicas were divided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
}

/// The rejection by a filter plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RejectionTrace {
    pub plugin: SchedulerPluginName,
    pub reason: String,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// Collects cluster traces until the budget is used up.
struct ClusterTraceBuffer {
    clusters: Vec<ClusterTrace>,
    remaining_bytes: usize,
    omitted: usize,
}

impl ClusterTraceBuffer {
    /// `name`: its size is checked before the trace itself is built.
    fn push(&mut self, name: &str, row: impl FnOnce() -> ClusterTrace) {
        if self.remaining_bytes < CLUSTER_TRACE_BYTES + name.len() {
            self.omitted += 1;
            return;
        }
        let row = row();
        let texts: usize = row.refused.iter().map(|v| v.reason.len() + 48).sum();
        let size = CLUSTER_TRACE_BYTES + name.len() + texts;
        if self.remaining_bytes < size {
            self.remaining_bytes = 0;
            self.omitted += 1;
            return;
        }
        self.remaining_bytes -= size;
        self.clusters.push(row);
    }
}

impl<'a> SchedulingDecision<'a> {
    /// Builds the trace of this decision.
    pub fn trace(&self) -> DecisionTrace {
        let selection = &self.selection;
        let regions = selection.regions.iter().take(MAX_REGIONS);
        let mut trace = DecisionTrace {
            affinity_name: self.request.term.map(|t| t.affinity_name.clone()),
            strategy: AssignmentStrategy::from_placement(self.request.placement),
            rule: self.assignment.rule,
            // It has the name of the workload.
            replica_preference: (self.context.replica_preference)
                .map(|_| self.request.spec.resource.name.clone()),
            replicas: self.request.spec.replicas,
            total_clusters: self.filter_result.total,
            feasible_clusters: self.candidates.len(),
            chosen_clusters: selection.chosen.len(),
            failure: self.failure.as_ref().map(ToString::to_string),
            refusals: self.count_reasons(),
            failed_estimators: self.failed_estimators(),
            regions: regions
                .map(|region| RegionTrace {
                    name: region.name.to_owned(),
                    clusters: region.clusters,
                    score: region.score,
                    chosen: region.chosen,
                })
                .collect(),
            ..DecisionTrace::default()
        };
        let texts = trace.refusals.keys().map(|reason| reason.len() + 8);
        let regions = trace.regions.iter().map(|region| region.name.len() + 64);
        let failed = trace.failed_estimators.iter().map(|name| name.len() + 4);
        let spent: usize = texts.chain(regions).chain(failed).sum();
        let rows = self.cluster_traces(TRACE_BUDGET_BYTES.saturating_sub(spent));
        trace.clusters = rows.clusters;
        trace.omitted_clusters = rows.omitted;
        trace
    }

    fn failed_estimators(&self) -> Vec<String> {
        let answers = self.context.accurate_estimates.into_iter();
        let failed =
            answers.flat_map(|all| all.failed_clusters(self.filter_result.feasible_names()));
        failed
            .take(MAX_FAILED_ESTIMATORS)
            .map(str::to_owned)
            .collect()
    }

    fn count_reasons(&self) -> BTreeMap<String, usize> {
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for (_, refusal) in &self.filter_result.rejected {
            let reason = refusal.reason();
            let is_listed = reasons.contains_key(&*reason) || reasons.len() < MAX_REASONS;
            let reason = if is_listed {
                reason
            } else {
                "other reasons".into()
            };
            *reasons.entry(reason.into_owned()).or_default() += 1;
        }
        reasons
    }

    fn cluster_traces(&self, left: usize) -> ClusterTraceBuffer {
        let mut rows = ClusterTraceBuffer {
            clusters: Vec::new(),
            remaining_bytes: left,
            omitted: 0,
        };
        let shares: BTreeMap<&str, &ClusterReplicaShare<'a>> =
            self.assignment.shares.iter().map(|s| (s.name, s)).collect();
        let chosen: HashSet<&str> = self
            .selection
            .chosen
            .iter()
            .map(|c| c.member.name())
            .collect();
        let gets = |c: &&ClusterCandidate<'a>| shares.contains_key(c.member.name());
        let chosen_only = |c: &&ClusterCandidate<'a>| !gets(c) && chosen.contains(c.member.name());
        let candidates = || self.candidates.iter();
        let in_order = candidates()
            .filter(gets)
            .chain(candidates().filter(chosen_only))
            .chain(candidates().filter(|c| !chosen.contains(c.member.name())));
        for candidate in in_order {
            let name = candidate.member.name();
            rows.push(name, || {
                feasible_trace(candidate, chosen.contains(name), shares.get(name).copied())
            });
        }
        let targets = CurrentTargets::from_spec(self.request.spec);
        let filter = ClusterFilter::new(&self.request, &self.context, &targets);
        let is_target = |(member, _): &&(&'a ClusterInfo, FilterRejection<'a>)| {
            targets.for_cluster(member).is_some()
        };
        let rejections = || self.filter_result.rejected.iter();
        for (member, _) in rejections()
            .filter(is_target)
            .chain(rejections().filter(|r| !is_target(r)))
        {
            rows.push(member.name(), || ClusterTrace {
                name: member.name().to_owned(),
                refused: filter
                    .all_rejections(member)
                    .into_iter()
                    .map(rejection_trace)
                    .collect(),
                current_replicas: targets.for_cluster(member).map(|t| t.replicas),
                ..ClusterTrace::default()
            });
        }
        rows
    }
}

fn feasible_trace(
    candidate: &ClusterCandidate<'_>,
    chosen: bool,
    share: Option<&ClusterReplicaShare<'_>>,
) -> ClusterTrace {
    ClusterTrace {
        name: candidate.member.name().to_owned(),
        score: Some(candidate.score),
        overflow_tier: candidate.tier,
        current_replicas: candidate.target.map(|t| t.replicas),
        available_replicas: Some(candidate.allocatable),
        estimate: Some(candidate.source),
        chosen,
        replicas: share.map(|s| s.replicas),
        weight: share.map(|s| s.weight).filter(|weight| *weight > 0),
        ..ClusterTrace::default()
    }
}

fn rejection_trace(refusal: FilterRejection<'_>) -> RejectionTrace {
    RejectionTrace {
        plugin: refusal.plugin(),
        reason: refusal.reason().into_owned(),
    }
}
