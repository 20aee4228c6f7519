//! Selects the best set of groups within the bounds on groups and clusters: the one with
//! the greatest weight.
//!
//! Karmada (`select_groups.go`) searches all sets depth first;
//! [`group_search`](super::group_search) finds the same set without that search.
//!
//! The result of the depth-first search: order the groups in a row by (clusters, weight
//! descending, name). A set is a *candidate* if it satisfies the bounds and does not
//! without its last group in the row. The candidate with the greatest weight wins, then
//! the one with the most clusters, then the first in the order of the row. If the heaviest
//! few of its groups are a candidate by themselves, those are the result.

use std::cmp::Reverse;

use super::group_bounds::GroupBounds;
use super::group_search::best_candidate;

/// A group to select from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpreadGroup<'a> {
    pub(super) name: &'a str,
    /// Number of its clusters; at least one.
    pub(super) clusters: usize,
    /// Its weight.
    pub(super) weight: i64,
}

impl SpreadGroup<'_> {
    /// The position of the group in the row.
    fn row_key(&self) -> (usize, Reverse<i64>, &str) {
        (self.clusters, Reverse(self.weight), self.name)
    }
}

/// The indexes of the selected groups, heaviest first; `None` if no set satisfies the bounds.
pub(super) fn select_groups(
    groups: &[SpreadGroup<'_>],
    bounds: &GroupBounds,
) -> Option<Vec<usize>> {
    // Users choose the bounds, and the size of the search table depends on them.
    if groups.iter().map(|group| group.clusters).sum::<usize>() < bounds.min_clusters {
        return None;
    }
    let bounds = GroupBounds {
        min_groups: bounds.min_groups.max(1),
        max_groups: bounds.max_groups.min(groups.len()),
        ..*bounds
    };
    let mut row: Vec<usize> = (0..groups.len()).collect();
    row.sort_by_key(|index| groups[*index].row_key());
    let sizes_and_weights: Vec<(usize, i64)> = row
        .iter()
        .map(|index| (groups[*index].clusters, groups[*index].weight))
        .collect();
    let positions = best_candidate(&bounds, &sizes_and_weights)?;
    let mut selected: Vec<usize> = positions.into_iter().map(|at| row[at]).collect();
    selected.sort_by_key(|index| (Reverse(groups[*index].weight), groups[*index].name));
    if let Some(length) = shorter_candidate(groups, &bounds, &selected) {
        selected.truncate(length);
    }
    Some(selected)
}

/// How many of the heaviest groups of a selection are a candidate by themselves, if fewer than
/// all are.
fn shorter_candidate(
    groups: &[SpreadGroup<'_>],
    bounds: &GroupBounds,
    selected: &[usize],
) -> Option<usize> {
    (bounds.min_groups..selected.len()).find(|length| {
        let heaviest = || selected[..*length].iter().map(|index| &groups[*index]);
        let clusters: usize = heaviest().map(|group| group.clusters).sum();
        let last = heaviest().max_by_key(|group| group.row_key());
        let clusters_of_last = last.map_or(0, |group| group.clusters);
        bounds.is_satisfied(*length, clusters)
            && !bounds.is_satisfied(*length - 1, clusters - clusters_of_last)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type GroupSketch = (&'static str, usize, i64);
    /// Groups; minimum and maximum groups, minimum clusters; expected result.
    type SelectGroupsCase = (
        &'static [GroupSketch],
        usize,
        usize,
        usize,
        Option<&'static [&'static str]>,
    );

    fn bounds(min_groups: usize, max_groups: usize, min_clusters: usize) -> GroupBounds {
        GroupBounds {
            min_groups,
            max_groups,
            min_clusters,
        }
    }

    fn units<'a>(all: &[(&'a str, usize, i64)]) -> Vec<SpreadGroup<'a>> {
        let unit = |(name, value, weight): &(&'a str, usize, i64)| SpreadGroup {
            name,
            clusters: *value,
            weight: *weight,
        };
        all.iter().map(unit).collect()
    }

    // proves: SCH-region-set, SCH-region-shorter
    #[test]
    fn weight_decides_then_clusters_then_order() {
        #[rustfmt::skip]
        let table: &[SelectGroupsCase] = &[
            (&[("a", 1, 10), ("b", 1, 20), ("c", 1, 5)], 1, 1, 1, Some(&["b"])),
            (&[("a", 1, 10), ("b", 1, 20), ("c", 1, 5)], 2, 2, 2, Some(&["b", "a"])),
            (&[("a", 2, 10), ("b", 1, 20), ("c", 4, 5)], 1, 2, 4, Some(&["b", "c"])),
            (&[("a", 1, 10), ("b", 1, 10), ("c", 1, 10)], 2, 2, 0, Some(&["a", "b"])),
            (&[("a", 1, 10), ("b", 3, 10)], 1, 1, 1, Some(&["b"])),
            (&[("a", 1, 10), ("b", 1, 20)], 1, 2, 3, None),
            (&[("a", 1, 10)], 2, 3, 1, None),
            (&[("a", 1, 10), ("b", 1, 10)], 1, 2, usize::MAX, None),
            (&[], 1, 1, 0, None),
            // The depth-first search stops as soon as a set satisfies the bounds.
            (&[("a", 2, 10), ("b", 3, 20), ("c", 4, 30)], 1, 3, 5, Some(&["c", "b"])),
            // The heaviest of the best set suffice.
            (&[("a", 1, 1), ("b", 2, 5), ("c", 4, 9)], 1, 2, 4, Some(&["c"])),
        ];
        for (groups, least, most, clusters, chosen) in table {
            let units = units(groups);
            let best = select_groups(&units, &bounds(*least, *most, *clusters));
            let names = best.map(|best| best.iter().map(|at| units[*at].name).collect::<Vec<_>>());
            assert_eq!(
                names.as_deref(),
                *chosen,
                "{groups:?} {least}..{most} {clusters}"
            );
        }
    }

    /// The definition: every set, depth first.
    fn exhaustive_best_set(
        units: &[SpreadGroup<'_>],
        least: usize,
        most: usize,
        clusters: usize,
    ) -> Option<Vec<usize>> {
        fn walk(
            row: &[usize],
            from: usize,
            set: &mut Vec<usize>,
            accept: &dyn Fn(&[usize]) -> bool,
            most: usize,
            candidates: &mut Vec<Vec<usize>>,
        ) {
            if accept(set) {
                candidates.push(set.clone());
                return;
            }
            if set.len() >= most {
                return;
            }
            for index in from..row.len() {
                set.push(row[index]);
                walk(row, index + 1, set, accept, most, candidates);
                set.pop();
            }
        }
        let mut row: Vec<usize> = (0..units.len()).collect();
        row.sort_by_key(|at| (units[*at].clusters, -units[*at].weight, units[*at].name));
        let accept = |set: &[usize]| {
            let value: usize = set.iter().map(|at| units[*at].clusters).sum();
            value >= clusters && (least..=most).contains(&set.len())
        };
        let mut candidates = Vec::new();
        walk(&row, 0, &mut Vec::new(), &accept, most, &mut candidates);
        for set in &mut candidates {
            set.sort_by_key(|at| (-units[*at].weight, units[*at].name));
        }
        let sum = |set: &Vec<usize>| {
            let weight: i64 = set.iter().map(|at| units[*at].weight).sum();
            let value: usize = set.iter().map(|at| units[*at].clusters).sum();
            (Reverse(weight), Reverse(value))
        };
        candidates.sort_by_key(sum);
        let mut last = candidates.first()?.clone();
        for set in &candidates[1..] {
            if set.len() < last.len() && last.starts_with(set) {
                last.clone_from(set);
            }
        }
        Some(last)
    }

    proptest! {
        #[test]
        fn the_search_finds_the_same_set(
            groups in prop::collection::vec((1_usize..6, 0_i64..4), 0..9),
            least in 1_usize..5,
            more in 0_usize..5,
            clusters in 0_usize..14,
        ) {
            let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
            let units: Vec<SpreadGroup<'_>> = groups
                .iter()
                .zip(names)
                .map(|((value, weight), name)| SpreadGroup { name, clusters: *value, weight: *weight })
                .collect();
            let most = least + more;
            prop_assert_eq!(
                select_groups(&units, &bounds(least, most, clusters)),
                exhaustive_best_set(&units, least, most, clusters)
            );
        }
    }
}
