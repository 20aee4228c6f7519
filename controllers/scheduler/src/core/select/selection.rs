//! The clusters and regions that a selection has chosen.

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
