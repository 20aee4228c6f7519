//! Selects a number of clusters in any region (Karmada's `select_clusters_by_cluster.go`).

use karmada_api::placement::SpreadConstraint;

use super::group_bounds::constraint_bounds;
use crate::core::{ClusterCandidate, SchedulingFailure};

/// Takes the best candidates; while they lack capacity for `need` replicas, swaps the last
/// ones for those of the rest with the most capacity.
pub(super) fn select_clusters<'a>(
    constraint: &SpreadConstraint,
    need: Option<i64>,
    candidates: Vec<ClusterCandidate<'a>>,
) -> Result<Vec<ClusterCandidate<'a>>, SchedulingFailure> {
    let total = candidates.len();
    let (min_clusters, max_clusters) = constraint_bounds(constraint);
    if total < min_clusters {
        return Err(SchedulingFailure::Error(
            "the number of feasible clusters is less than spreadConstraint.MinGroups".into(),
        ));
    }
    let mut chosen = candidates;
    let mut rest = chosen.split_off(total.min(max_clusters));
    let Some(need) = need else { return Ok(chosen) };
    let mut capacity: i64 = chosen.iter().map(|c| c.available).sum();
    for candidate in chosen.iter_mut().rev() {
        if capacity >= need {
            break;
        }
        let roomier = rest
            .iter_mut()
            .rev()
            .max_by_key(|other| other.available)
            .filter(|other| other.available > candidate.available);
        if let Some(other) = roomier {
            capacity += other.available - candidate.available;
            std::mem::swap(candidate, other);
        }
    }
    if capacity >= need {
        return Ok(chosen);
    }
    Err(SchedulingFailure::Error(format!(
        "no enough resource when selecting {} clusters",
        chosen.len()
    )))
}
