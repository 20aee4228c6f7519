//! Explains decisions: why a binding is scheduled to its clusters.
//!
//! Builds a [`DecisionExplanation`] of bounded size from a binding, the clusters and the
//! other bindings of its affinity groups. Pure.

use karmada_api::ResourceBinding;
use machinery::Object;
use serde::Serialize;

use crate::assume_cache::AssumeCache;
use crate::core::workload_affinity::AffinityPeerClusters;
use crate::core::{AssignmentRule, DecisionTrace, SchedulingContext};
use crate::reconcile::{ScheduleResult, schedule_binding};

/// Upper bound of an explanation in JSON; with the metadata that a response adds it stays
/// below 16 KiB.
const MAX_EXPLANATION_BYTES: usize = 15 * 1024;
const MAX_FAILED_TERMS: usize = 8;
const MAX_TEXT_BYTES: usize = 512;

/// Why a binding is scheduled to its clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionExplanation {
    /// Generation of the binding that was scheduled.
    pub generation: i64,
    /// The previous assignment of replicas was ignored.
    pub fresh: bool,
    /// Affinity terms that were tried before the last one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_terms: Vec<FailedAffinityTermTrace>,
    /// The last attempt.
    #[serde(flatten)]
    pub trace: DecisionTrace,
}

/// An affinity term without a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedAffinityTermTrace {
    pub affinity_name: String,
    pub failure: String,
}

impl DecisionExplanation {
    /// Moves the trace out of `outcome` and bounds its size.
    pub(crate) fn from_result(outcome: &mut ScheduleResult, generation: i64, fresh: bool) -> Self {
        // The trace describes the last failed term, so it is not listed again.
        let last = usize::from(outcome.failure.is_some());
        let terms = outcome.failed_terms.iter();
        let terms = terms.take(outcome.failed_terms.len().saturating_sub(last));
        let failed_terms = terms
            .take(MAX_FAILED_TERMS)
            .map(|term| FailedAffinityTermTrace {
                affinity_name: truncate_text(term.affinity_name.clone()),
                failure: truncate_text(term.failure.to_string()),
            });
        let mut explanation = Self {
            generation,
            fresh,
            failed_terms: failed_terms.collect(),
            trace: std::mem::take(&mut outcome.trace),
        };
        explanation.trace.failure = explanation.trace.failure.map(truncate_text);
        explanation.truncate_to_limit();
        explanation
    }

    /// Explains a decision that was made outside the scheduler, about a binding without
    /// affinity terms.
    pub fn from_inline_decision(trace: DecisionTrace, generation: i64) -> Self {
        let mut explanation = Self {
            generation,
            trace,
            ..Self::default()
        };
        explanation.truncate_to_limit();
        explanation
    }

    /// The trace keeps to its own budget; together with the other fields it may still exceed
    /// the limit.
    fn truncate_to_limit(&mut self) {
        let alone = self.failed_terms.is_empty() && self.trace.failure.is_none();
        while !(alone && self.trace.regions.is_empty())
            && self.encoded_len() > MAX_EXPLANATION_BYTES
        {
            let Some(cluster) = self.trace.clusters.len().checked_sub(1) else {
                self.trace.regions.clear();
                self.failed_terms.clear();
                return;
            };
            let dropped = cluster / 8 + 1;
            self.trace.clusters.truncate(cluster + 1 - dropped);
            self.trace.omitted_clusters += dropped;
        }
    }

    fn encoded_len(&self) -> usize {
        serde_json::to_vec(self).map_or(usize::MAX, |text| text.len())
    }

    /// Whether this decision only kept what the earlier one assigned.
    pub(crate) fn confirms(&self, earlier: &Self) -> bool {
        let assigned = |explanation: &Self| {
            let clusters = explanation.trace.clusters.iter();
            let mut assigned: Vec<(String, i64)> = clusters
                .filter_map(|c| Some((c.name.clone(), c.replicas?)))
                .collect();
            assigned.sort_unstable();
            assigned
        };
        self.trace.rule == AssignmentRule::Keep
            && self.trace.failure.is_none()
            && earlier.trace.failure.is_none()
            && assigned(self) == assigned(earlier)
    }
}

fn truncate_text(mut text: String) -> String {
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        text.push('…');
    }
    text
}

/// Decides about a binding as the scheduler would now, to explain the result. `None` if
/// the binding has no placement.
pub fn explain(
    binding: &ResourceBinding,
    generation: i64,
    context: &SchedulingContext<'_>,
) -> Option<DecisionExplanation> {
    let placement = binding.spec.placement.as_ref()?;
    let fresh = binding.is_reschedule_triggered();
    let mut outcome = schedule_binding(binding, placement, fresh, context, &mut |_| {});
    Some(DecisionExplanation::from_result(
        &mut outcome,
        generation,
        fresh,
    ))
}

/// The clusters of the other bindings in a binding's affinity groups. `others` are all
/// bindings that may share a group.
pub fn affinity_peers(
    own: &Object,
    binding: &ResourceBinding,
    others: &[Object],
) -> AffinityPeerClusters {
    let groups = binding.spec.workload_affinity_groups.as_ref();
    AssumeCache::default().peers(own, groups, others)
}

#[cfg(test)]
mod tests;
