//! Selects feasible clusters by spread constraints: how many, and which.
//!
//! Source of the rules: Karmada's `pkg/scheduler/core/spreadconstraint`.

mod cluster;
mod region;
mod search;
mod sets;

use openapi::karmada::Placement;
use openapi::karmada::placement::SpreadConstraint;

use super::{Candidate, Failure, Request, Strategy};

/// The selected clusters.
#[derive(Debug, Default)]
pub(crate) struct Selection<'a> {
    /// Best first.
    pub(crate) chosen: Vec<Candidate<'a>>,
    /// All regions, if clusters were selected by region.
    pub(crate) regions: Vec<Region<'a>>,
}

/// A region considered by the spread constraints.
#[derive(Clone, Debug)]
pub(crate) struct Region<'a> {
    pub(crate) name: &'a str,
    pub(crate) clusters: usize,
    pub(crate) score: i64,
    pub(crate) chosen: bool,
}

/// Selects from candidates that are sorted best first. `sets`: the workload is scheduled
/// as a set.
pub(crate) fn select<'a>(
    request: &Request<'_>,
    strategy: Option<Strategy>,
    sets: bool,
    candidates: &[Candidate<'a>],
) -> Result<Selection<'a>, Failure> {
    let placement = request.placement;
    if placement.spread_constraints.is_empty() || weighs_by_list(placement) {
        return Ok(Selection {
            chosen: candidates.to_vec(),
            regions: Vec::new(),
        });
    }
    let by = |field: &str| {
        let mut constraints = placement.spread_constraints.iter();
        constraints.rfind(|c| c.spread_by_field == field)
    };
    match (by("region"), by("cluster")) {
        (Some(region), cluster) => region::choose(request, region, cluster, candidates),
        (None, Some(cluster)) => {
            let need = if sets { 1 } else { request.spec.replicas };
            let need = (strategy != Some(Strategy::Duplicated)).then_some(need);
            cluster::choose(cluster, need, candidates.to_vec()).map(|chosen| Selection {
                chosen,
                regions: Vec::new(),
            })
        }
        (None, None) => Err(Failure::Error(
            "just support cluster and region spread constraint".into(),
        )),
    }
}

/// Whether static weights already determine the clusters (Karmada's
/// `shouldIgnoreSpreadConstraint`).
fn weighs_by_list(placement: &Placement) -> bool {
    placement.replica_scheduling.as_ref().is_some_and(|s| {
        s.replica_scheduling_type == "Divided"
            && s.replica_division_preference == "Weighted"
            && s.weight_preference.as_ref().is_none_or(|weights| {
                !weights.static_weight_list.is_empty() && weights.dynamic_weight.is_empty()
            })
    })
}

/// The bounds of a constraint. `maxGroups` 0 means no upper bound; Karmada takes it
/// literally and finds nothing.
fn bounds(constraint: &SpreadConstraint) -> (usize, usize) {
    let least = usize::try_from(constraint.min_groups).unwrap_or(0);
    let most = usize::try_from(constraint.max_groups).unwrap_or(0);
    (least, if most == 0 { usize::MAX } else { most })
}
