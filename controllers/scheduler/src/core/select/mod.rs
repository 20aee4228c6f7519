//! Selects feasible clusters by spread constraints: how many, and which.
//!
//! constraints ──[`select_by_cluster`]──► clusters of any region
//! constraints ──[`select_by_region`]──► regions as groups ──[`select_groups`]──► bounds and a row of groups
//! ──[`group_search`]──► the best set of groups ──► clusters of these regions
//!
//! Source of the rules: Karmada's `pkg/scheduler/core/spreadconstraint`.

mod group_bounds;
mod group_search;
mod select_by_cluster;
mod select_by_region;
mod select_groups;
mod selection;

use karmada_api::Placement;

use crate::core::{AssignmentStrategy, ClusterCandidate, ScheduleRequest, SchedulingFailure};

pub(crate) use selection::ClusterSelection;

/// Selects from candidates that are sorted best first. `sets`: the workload is scheduled
/// as a set.
pub(crate) fn select<'a>(
    request: &ScheduleRequest<'_>,
    strategy: Option<AssignmentStrategy>,
    sets: bool,
    candidates: &[ClusterCandidate<'a>],
) -> Result<ClusterSelection<'a>, SchedulingFailure> {
    let placement = request.placement;
    if placement.spread_constraints.is_empty() || should_ignore_spread_constraints(placement) {
        return Ok(ClusterSelection {
            chosen: candidates.to_vec(),
            regions: Vec::new(),
        });
    }
    let by = |field: &str| {
        let mut constraints = placement.spread_constraints.iter();
        constraints.rfind(|c| c.spread_by_field == field)
    };
    match (by("region"), by("cluster")) {
        (Some(region), cluster) => {
            select_by_region::select_regions(request, region, cluster, candidates)
        }
        (None, Some(cluster)) => {
            let need = if sets { 1 } else { request.spec.replicas };
            let need = (strategy != Some(AssignmentStrategy::Duplicated)).then_some(need);
            select_by_cluster::select_clusters(cluster, need, candidates.to_vec()).map(|chosen| {
                ClusterSelection {
                    chosen,
                    regions: Vec::new(),
                }
            })
        }
        (None, None) => Err(SchedulingFailure::Error(
            "just support cluster and region spread constraint".into(),
        )),
    }
}

/// Whether static weights already determine the clusters (Karmada's
/// `shouldIgnoreSpreadConstraint`).
fn should_ignore_spread_constraints(placement: &Placement) -> bool {
    placement.replica_scheduling.as_ref().is_some_and(|s| {
        s.replica_scheduling_type == "Divided"
            && s.replica_division_preference == "Weighted"
            && s.weight_preference.as_ref().is_none_or(|weights| {
                !weights.static_weight_list.is_empty() && weights.dynamic_weight.is_empty()
            })
    })
}
