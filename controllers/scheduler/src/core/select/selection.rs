//! The clusters and regions that a selection has chosen.

use openapi::karmada::placement::SpreadConstraint;

use crate::core::ClusterCandidate;

/// The selected clusters.
#[derive(Debug, Default)]
pub(crate) struct ClusterSelection<'a> {
    /// Best first.
    pub(crate) chosen: Vec<ClusterCandidate<'a>>,
    /// All regions, if clusters were selected by region.
    pub(crate) regions: Vec<SpreadRegion<'a>>,
}

/// A region considered by the spread constraints.
#[derive(Clone, Debug)]
pub(crate) struct SpreadRegion<'a> {
    pub(crate) name: &'a str,
    pub(crate) clusters: usize,
    pub(crate) score: i64,
    pub(crate) chosen: bool,
}

/// The bounds of a constraint. `maxGroups` 0 means no upper bound; Karmada takes it
/// literally and finds nothing.
pub(crate) fn group_bounds(constraint: &SpreadConstraint) -> (usize, usize) {
    let least = usize::try_from(constraint.min_groups).unwrap_or(0);
    let most = usize::try_from(constraint.max_groups).unwrap_or(0);
    (least, if most == 0 { usize::MAX } else { most })
}
