//! The best set of groups: enough of them, with enough clusters, of the greatest
//! worth.
//!
//! Enters: groups with their number of clusters and their worth; bounds. Leaves: the
//! chosen ones, worthiest first. Karmada (`select_groups.go`) walks through all sets
//! depth first; the answer here is the same, but the time is that of a knapsack:
//! groups × size of a set × clusters wanted.
//!
//! What the walk amounts to: groups stand in a row by (clusters, worth descending,
//! name). A set is a *candidate* when it satisfies the bounds and does not without
//! its last one in the row. The candidate of the greatest worth wins, then that of
//! the most clusters, then the first in the order of the row; and if the worthiest
//! few of its groups are a candidate by themselves, those do.

use std::cmp::{Ordering, Reverse};

/// A group to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit<'a> {
    pub(super) name: &'a str,
    /// Its clusters; at least one.
    pub(super) value: usize,
    /// Its worth.
    pub(super) weight: i64,
}

/// The indexes of the chosen groups, or nothing when no set satisfies.
pub(super) fn best_set(
    units: &[Unit<'_>],
    least: usize,
    most: usize,
    clusters: usize,
) -> Option<Vec<usize>> {
    // Bounds come from whoever writes a policy; what is laid out below is as wide.
    if units.iter().map(|u| u.value).sum::<usize>() < clusters {
        return None;
    }
    let mut row: Vec<usize> = (0..units.len()).collect();
    row.sort_by_key(|at| {
        let unit = &units[*at];
        (unit.value, Reverse(unit.weight), unit.name)
    });
    let bounds = Bounds {
        least: least.max(1),
        most: most.min(units.len()),
        clusters,
    };
    let mut best = bounds.best(units, &row)?;
    best.sort_by_key(|at| (Reverse(units[*at].weight), units[*at].name));
    let place = |at: usize| {
        let unit = &units[at];
        (unit.value, Reverse(unit.weight), unit.name)
    };
    let shortest = (bounds.least..best.len()).find(|length| {
        let few = &best[..*length];
        let last = few.iter().copied().max_by_key(|at| place(*at));
        let value: usize = few.iter().map(|at| units[*at].value).sum();
        let of_last = last.map_or(0, |at| units[at].value);
        bounds.satisfied(*length, value) && !bounds.satisfied(*length - 1, value - of_last)
    });
    if let Some(length) = shortest {
        best.truncate(length);
    }
    Some(best)
}

struct Bounds {
    least: usize,
    most: usize,
    clusters: usize,
}

/// A set on the way: what it is worth, and by which steps it came about.
#[derive(Clone, Copy)]
struct Partial {
    weight: i64,
    value: usize,
    /// Index of the last step plus one; 0 for the empty set.
    last: usize,
}

/// A place in the row, and the step before it.
struct Step {
    place: usize,
    before: usize,
    /// Steps up to here.
    length: usize,
}

/// All steps that were worth a try; sets share their beginnings.
struct Steps(Vec<Step>);

impl Steps {
    fn get(&self, last: usize) -> Option<&Step> {
        self.0.get(last.checked_sub(1)?)
    }

    fn length(&self, last: usize) -> usize {
        self.get(last).map_or(0, |step| step.length)
    }

    fn places(&self, mut last: usize) -> Vec<usize> {
        let mut places = Vec::new();
        while let Some(step) = self.get(last) {
            places.push(step.place);
            last = step.before;
        }
        places.reverse();
        places
    }

    /// The order of the row: by the first place that differs. Neither is the beginning
    /// of the other.
    fn order(&self, mut a: usize, mut b: usize) -> Ordering {
        let shorter = self.length(a).min(self.length(b));
        for last in [&mut a, &mut b] {
            while let Some(step) = self.get(*last).filter(|step| step.length > shorter) {
                *last = step.before;
            }
        }
        let mut order = Ordering::Equal;
        while a != b
            && let (Some(of_a), Some(of_b)) = (self.get(a), self.get(b))
        {
            if of_a.place != of_b.place {
                order = of_a.place.cmp(&of_b.place);
            }
            (a, b) = (of_a.before, of_b.before);
        }
        order
    }

    /// Puts a place to a set, and keeps the result where it is better than the best
    /// one there.
    fn offer(&mut self, set: Partial, place: usize, best: &mut Option<Partial>) {
        let length = self.length(set.last) + 1;
        self.0.push(Step {
            place,
            before: set.last,
            length,
        });
        let last = self.0.len();
        let new = Partial { last, ..set };
        let worth = |set: &Partial| (set.weight, set.value);
        let better = best.is_none_or(|old| match worth(&new).cmp(&worth(&old)) {
            Ordering::Equal => self.order(new.last, old.last).is_lt(),
            by_worth => by_worth.is_gt(),
        });
        if better {
            *best = Some(new);
        } else {
            self.0.pop();
        }
    }
}

impl Bounds {
    fn satisfied(&self, length: usize, value: usize) -> bool {
        length >= self.least && value >= self.clusters
    }

    /// The best candidate. Of sets with as many groups and as many clusters (more
    /// than wanted count as wanted) only the best can lead to it.
    fn best(&self, units: &[Unit<'_>], row: &[usize]) -> Option<Vec<usize>> {
        // Each group has a cluster, so that larger sets are satisfied.
        let longest = self.most.min(self.least.max(self.clusters));
        let width = self.clusters + 1;
        let mut table: Vec<Option<Partial>> = vec![None; longest * width];
        let empty = Partial {
            weight: 0,
            value: 0,
            last: 0,
        };
        *table.first_mut()? = Some(empty);
        let mut steps = Steps(Vec::new());
        let mut found: Option<Partial> = None;
        for (place, at) in row.iter().enumerate() {
            let unit = &units[*at];
            for length in (0..longest.min(place + 1)).rev() {
                for value in 0..width {
                    let Some(set) = table[length * width + value] else {
                        continue;
                    };
                    let set = Partial {
                        weight: set.weight + unit.weight,
                        value: set.value + unit.value,
                        last: set.last,
                    };
                    let capped = (value + unit.value).min(self.clusters);
                    if self.satisfied(length + 1, capped) {
                        steps.offer(set, place, &mut found);
                    } else if length + 1 < longest {
                        let slot = &mut table[(length + 1) * width + capped];
                        steps.offer(set, place, slot);
                    }
                }
            }
        }
        let places = steps.places(found?.last);
        Some(places.into_iter().map(|place| row[place]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Group = (&'static str, usize, i64);
    /// Groups; least, most, clusters; chosen.
    type Row = (
        &'static [Group],
        usize,
        usize,
        usize,
        Option<&'static [&'static str]>,
    );

    fn units<'a>(all: &[(&'a str, usize, i64)]) -> Vec<Unit<'a>> {
        let unit = |(name, value, weight): &(&'a str, usize, i64)| Unit {
            name,
            value: *value,
            weight: *weight,
        };
        all.iter().map(unit).collect()
    }

    #[test]
    fn worth_decides_then_clusters_then_order() {
        #[rustfmt::skip]
        let table: &[Row] = &[
            (&[("a", 1, 10), ("b", 1, 20), ("c", 1, 5)], 1, 1, 1, Some(&["b"])),
            (&[("a", 1, 10), ("b", 1, 20), ("c", 1, 5)], 2, 2, 2, Some(&["b", "a"])),
            (&[("a", 2, 10), ("b", 1, 20), ("c", 4, 5)], 1, 2, 4, Some(&["b", "c"])),
            (&[("a", 1, 10), ("b", 1, 10), ("c", 1, 10)], 2, 2, 0, Some(&["a", "b"])),
            (&[("a", 1, 10), ("b", 3, 10)], 1, 1, 1, Some(&["b"])),
            (&[("a", 1, 10), ("b", 1, 20)], 1, 2, 3, None),
            (&[("a", 1, 10)], 2, 3, 1, None),
            (&[("a", 1, 10), ("b", 1, 10)], 1, 2, usize::MAX, None),
            (&[], 1, 1, 0, None),
            // Depth first the search stops as soon as a set satisfies.
            (&[("a", 2, 10), ("b", 3, 20), ("c", 4, 30)], 1, 3, 5, Some(&["c", "b"])),
            // The worthiest of the best set suffice.
            (&[("a", 1, 1), ("b", 2, 5), ("c", 4, 9)], 1, 2, 4, Some(&["c"])),
        ];
        for (groups, least, most, clusters, chosen) in table {
            let units = units(groups);
            let best = best_set(&units, *least, *most, *clusters);
            let names = best.map(|best| best.iter().map(|at| units[*at].name).collect::<Vec<_>>());
            assert_eq!(
                names.as_deref(),
                *chosen,
                "{groups:?} {least}..{most} {clusters}"
            );
        }
    }

    /// Every set, depth first, as the search is defined.
    fn plain(units: &[Unit<'_>], least: usize, most: usize, clusters: usize) -> Option<Vec<usize>> {
        fn walk(
            row: &[usize],
            from: usize,
            set: &mut Vec<usize>,
            accept: &dyn Fn(&[usize]) -> bool,
            most: usize,
            found: &mut Vec<Vec<usize>>,
        ) {
            if accept(set) {
                found.push(set.clone());
                return;
            }
            if set.len() >= most {
                return;
            }
            for place in from..row.len() {
                set.push(row[place]);
                walk(row, place + 1, set, accept, most, found);
                set.pop();
            }
        }
        let mut row: Vec<usize> = (0..units.len()).collect();
        row.sort_by_key(|at| (units[*at].value, -units[*at].weight, units[*at].name));
        let accept = |set: &[usize]| {
            let value: usize = set.iter().map(|at| units[*at].value).sum();
            value >= clusters && (least..=most).contains(&set.len())
        };
        let mut found = Vec::new();
        walk(&row, 0, &mut Vec::new(), &accept, most, &mut found);
        for set in &mut found {
            set.sort_by_key(|at| (-units[*at].weight, units[*at].name));
        }
        let sum = |set: &Vec<usize>| {
            let weight: i64 = set.iter().map(|at| units[*at].weight).sum();
            let value: usize = set.iter().map(|at| units[*at].value).sum();
            (Reverse(weight), Reverse(value))
        };
        found.sort_by_key(sum);
        let mut last = found.first()?.clone();
        for set in &found[1..] {
            if set.len() < last.len() && last.starts_with(set) {
                last.clone_from(set);
            }
        }
        Some(last)
    }

    proptest! {
        #[test]
        fn the_short_cut_changes_nothing(
            groups in prop::collection::vec((1_usize..6, 0_i64..4), 0..9),
            least in 1_usize..5,
            more in 0_usize..5,
            clusters in 0_usize..14,
        ) {
            let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
            let units: Vec<Unit<'_>> = groups
                .iter()
                .zip(names)
                .map(|((value, weight), name)| Unit { name, value: *value, weight: *weight })
                .collect();
            let most = least + more;
            prop_assert_eq!(
                best_set(&units, least, most, clusters),
                plain(&units, least, most, clusters)
            );
        }
    }
}
