//! Decisions as they are told: why a binding is where it is.
//!
//! Enters: a binding, the clusters, the other bindings of its groups. Leaves: an
//! [`Explanation`], of bounded size. Pure.

use machinery::Object;
use openapi::karmada::Binding;
use serde::Serialize;

use crate::book::Book;
use crate::core::peers::Peers;
use crate::core::{Mode, Trace, World};
use crate::decide::{Outcome, place, rescheduled};

/// What an explanation takes in JSON at most; with the head that a reply adds it is
/// below 16 KiB.
const LIMIT: usize = 15 * 1024;
const TERMS: usize = 8;
const TEXT: usize = 512;

/// Why a binding is where it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Generation of the binding that was looked at.
    pub generation: i64,
    /// Where replicas were did not count.
    pub fresh: bool,
    /// Affinity terms that were tried before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_terms: Vec<TermTrace>,
    /// The last attempt.
    #[serde(flatten)]
    pub trace: Trace,
}

/// An affinity term that had no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TermTrace {
    pub affinity_name: String,
    pub failure: String,
}

impl Explanation {
    /// The trace goes over.
    pub(crate) fn of(outcome: &mut Outcome, generation: i64, fresh: bool) -> Self {
        // The last attempt is told at length.
        let last = usize::from(outcome.failure.is_some());
        let terms = outcome.failed_terms.iter();
        let terms = terms.take(outcome.failed_terms.len().saturating_sub(last));
        let told = terms.take(TERMS).map(|term| TermTrace {
            affinity_name: cut(term.affinity_name.clone()),
            failure: cut(term.failure.to_string()),
        });
        let mut it = Self {
            generation,
            fresh,
            failed_terms: told.collect(),
            trace: std::mem::take(&mut outcome.trace),
        };
        it.trace.failure = it.trace.failure.map(cut);
        it.fit();
        it
    }

    /// What a decision tells that was made beside the scheduler, of a binding without
    /// terms.
    pub fn ahead(trace: Trace, generation: i64) -> Self {
        let mut it = Self {
            generation,
            trace,
            ..Self::default()
        };
        it.fit();
        it
    }

    /// A trace keeps to its own budget; what else there is may be too much with it.
    fn fit(&mut self) {
        let alone = self.failed_terms.is_empty() && self.trace.failure.is_none();
        while !(alone && self.trace.regions.is_empty()) && self.size() > LIMIT {
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

    fn size(&self) -> usize {
        serde_json::to_vec(self).map_or(usize::MAX, |text| text.len())
    }

    /// Whether it only found what an earlier one had given.
    pub(crate) fn confirms(&self, earlier: &Self) -> bool {
        let given = |it: &Self| {
            let clusters = it.trace.clusters.iter();
            let mut given: Vec<(String, i64)> = clusters
                .filter_map(|c| Some((c.name.clone(), c.replicas?)))
                .collect();
            given.sort_unstable();
            given
        };
        self.trace.rule == Mode::Keep
            && self.trace.failure.is_none()
            && earlier.trace.failure.is_none()
            && given(self) == given(earlier)
    }
}

fn cut(mut text: String) -> String {
    if text.len() > TEXT {
        text.truncate(text.floor_char_boundary(TEXT));
        text.push('…');
    }
    text
}

/// Decides about a binding as it would be decided now, for the sake of the reasons.
/// `None` without a placement.
pub fn explain(binding: &Binding, generation: i64, world: &World<'_>) -> Option<Explanation> {
    let placement = binding.spec.placement.as_ref()?;
    let fresh = rescheduled(binding);
    let mut outcome = place(binding, placement, fresh, world, &mut |_| {});
    Some(Explanation::of(&mut outcome, generation, fresh))
}

/// Where the others of a binding's groups are, `others` being all bindings that may
/// share one.
pub fn peers(own: &Object, binding: &Binding, others: &[Object]) -> Peers {
    let groups = binding.spec.workload_affinity_groups.as_ref();
    Book::default().peers(own, groups, others)
}

#[cfg(test)]
mod tests;
