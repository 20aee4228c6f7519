//! How many groups, and how many clusters of them, a selection must have.

use karmada_api::placement::SpreadConstraint;

/// The bounds on a set of groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupBounds {
    pub(super) min_groups: usize,
    pub(super) max_groups: usize,
    /// The minimum number of clusters of all groups together.
    pub(super) min_clusters: usize,
}

impl GroupBounds {
    pub(super) fn is_satisfied(&self, groups: usize, clusters: usize) -> bool {
        groups >= self.min_groups && clusters >= self.min_clusters
    }
}

/// The minimum and maximum number of groups of a constraint. `maxGroups` 0 means no upper bound;
/// Karmada takes it literally and finds nothing.
pub(super) fn constraint_bounds(constraint: &SpreadConstraint) -> (usize, usize) {
    let min = usize::try_from(constraint.min_groups).unwrap_or(0);
    let max = usize::try_from(constraint.max_groups).unwrap_or(0);
    (min, if max == 0 { usize::MAX } else { max })
}
