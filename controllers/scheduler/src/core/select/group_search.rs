//! Finds the best candidate among sets of groups, in a time that depends on the number of
//! different group sizes instead of the number of groups.
//!
//! Input is the row of groups, each as its number of clusters and its weight, and the
//! bounds; the result are indexes into the row.
//!
//! Groups with equally many clusters are a *class*; they are adjacent in the row, heaviest
//! first. Whether a set is a candidate depends only on how many groups it takes of each
//! class, so the best set takes the first ones of each. Class by class the table keeps the
//! best set for every number of groups and every number of clusters that is not yet
//! enough. Best means: the greatest weight, then the most clusters, then more groups of an
//! earlier class, which come first in the row. The weight of the first groups of a class
//! is a concave function of their number: if extending one of two sets reaches a larger
//! set with a better result, it also does for all larger sets. Sets that differ by a
//! number of groups of one class can therefore be searched by divide and conquer.

use std::cmp::Reverse;
use std::ops::Range;
use std::rc::Rc;

use super::group_bounds::GroupBounds;

/// The best candidate as indexes into the row, in order; groups have at least one cluster.
pub(super) fn best_candidate(bounds: &GroupBounds, row: &[(usize, i64)]) -> Option<Vec<usize>> {
    if bounds.min_groups > bounds.max_groups {
        return None;
    }
    let classes = size_classes(row);
    let mut table = BestGroupSets::new(bounds, classes.first()?.clusters);
    let mut best: Option<(PartialGroupSet, Vec<usize>)> = None;
    for class in &classes {
        table.close(class);
        if let Some(set) = table.candidate(class) {
            let places = set.indexes();
            let standing = |set: &PartialGroupSet, places: &Vec<usize>| {
                (set.weight, set.clusters, Reverse(places.clone()))
            };
            if best
                .as_ref()
                .is_none_or(|(b, of)| standing(&set, &places) > standing(b, of))
            {
                best = Some((set, places));
            }
        }
        table.extend(class);
        table.rank();
    }
    best.map(|(_, places)| places)
}

/// The classes of a row, in its order.
fn size_classes(row: &[(usize, i64)]) -> Vec<GroupSizeClass> {
    let mut first = 0;
    let classes = row.chunk_by(|a, b| a.0 == b.0).map(|groups| {
        let mut worth = vec![0];
        for (_, weight) in groups {
            worth.push(worth[worth.len() - 1] + weight);
        }
        let class = GroupSizeClass {
            clusters: groups[0].0,
            first,
            prefix_weights: worth,
        };
        first += groups.len();
        class
    });
    classes.collect()
}

/// Groups with equally many clusters.
struct GroupSizeClass {
    /// Clusters of each group.
    clusters: usize,
    /// Index of its first group in the row.
    first: usize,
    /// Total weight of the first n groups, by n.
    prefix_weights: Vec<i64>,
}

impl GroupSizeClass {
    fn size(&self) -> usize {
        self.prefix_weights.len() - 1
    }
}

/// Some groups of a class, and the picks from earlier classes.
struct GroupSizeClassPick {
    first: usize,
    count: usize,
    previous: Option<Rc<GroupSizeClassPick>>,
}

/// A set that is not a candidate yet.
#[derive(Clone)]
struct PartialGroupSet {
    weight: i64,
    clusters: usize,
    /// Its position in the order of the row, among the present sets.
    rank: u64,
    picks: Option<Rc<GroupSizeClassPick>>,
}

impl PartialGroupSet {
    fn ranking_key(&self) -> (i64, usize, Reverse<u64>) {
        (self.weight, self.clusters, Reverse(self.rank))
    }

    /// Adds the first `count` groups of a class. [`BestGroupSets::rank`] makes ranks small again.
    fn with(&self, class: &GroupSizeClass, count: usize) -> Self {
        let before = self.picks.clone();
        let pick = || GroupSizeClassPick {
            first: class.first,
            count,
            previous: before.clone(),
        };
        Self {
            weight: self.weight + class.prefix_weights[count],
            clusters: self.clusters + count * class.clusters,
            rank: self.rank << 32 | (u64::from(u32::MAX) - count as u64),
            picks: if count == 0 {
                before
            } else {
                Some(Rc::new(pick()))
            },
        }
    }

    /// The indexes of its groups, in the order of the row.
    fn indexes(&self) -> Vec<usize> {
        let picks = std::iter::successors(self.picks.as_ref(), |pick| pick.previous.as_ref());
        let mut ranges: Vec<Range<usize>> = picks.map(|p| p.first..p.first + p.count).collect();
        ranges.reverse();
        ranges.into_iter().flatten().collect()
    }
}

/// The best sets so far, by their number of groups.
struct BestGroupSets<'b> {
    bounds: &'b GroupBounds,
    /// Clusters of the smallest group.
    smallest_group: usize,
    /// Sets have fewer groups than this.
    lengths: usize,
    /// Upper bound (exclusive) of the clusters beyond those of as many smallest groups.
    width: usize,
    /// By number of groups and clusters beyond.
    clusters_unsatisfied: Vec<Option<PartialGroupSet>>,
    /// By number of groups: sets that any further groups make candidates.
    clusters_satisfied: Vec<Option<PartialGroupSet>>,
}

impl<'b> BestGroupSets<'b> {
    fn new(bounds: &'b GroupBounds, smallest: usize) -> Self {
        // Each group has a cluster, so larger sets are candidates.
        let lengths = bounds
            .max_groups
            .min(bounds.min_groups.max(bounds.min_clusters));
        let width = bounds
            .min_clusters
            .saturating_sub(bounds.min_groups * smallest);
        let mut table = Self {
            bounds,
            smallest_group: smallest,
            lengths,
            width,
            clusters_unsatisfied: vec![None; lengths * width],
            clusters_satisfied: vec![None; lengths.min(bounds.min_groups)],
        };
        let empty = PartialGroupSet {
            weight: 0,
            clusters: 0,
            rank: 0,
            picks: None,
        };
        let any = if width > 0 {
            table.clusters_unsatisfied.first_mut()
        } else {
            table.clusters_satisfied.first_mut()
        };
        if let Some(first) = any {
            *first = Some(empty);
        }
        table
    }

    /// The number of clusters beyond from which a set of this length needs only more groups,
    /// if all further ones are of `class` or larger.
    fn limit(&self, class: &GroupSizeClass, length: usize) -> usize {
        let least = self.bounds.min_groups;
        if length < least {
            let more = class.clusters - self.smallest_group;
            self.width.saturating_sub((least - length) * more)
        } else {
            self.width
                .saturating_sub((length - least) * self.smallest_group)
        }
    }

    /// Moves the sets that only need more groups.
    fn close(&mut self, class: &GroupSizeClass) {
        for length in 0..self.clusters_satisfied.len() {
            let row = length * self.width..(length + 1) * self.width;
            let from = row.start + self.limit(class, length);
            for at in from..row.end {
                let Some(set) = self.clusters_unsatisfied[at].take() else {
                    continue;
                };
                let slot = &mut self.clusters_satisfied[length];
                if slot
                    .as_ref()
                    .is_none_or(|k| set.ranking_key() > k.ranking_key())
                {
                    *slot = Some(set);
                }
            }
        }
    }

    /// The best candidate whose last group is of `class`.
    fn candidate(&self, class: &GroupSizeClass) -> Option<PartialGroupSet> {
        let GroupBounds {
            min_groups: least,
            max_groups: most,
            min_clusters: clusters,
        } = *self.bounds;
        let open = self
            .clusters_unsatisfied
            .iter()
            .enumerate()
            .filter_map(|(at, set)| {
                let (set, length) = (set.as_ref()?, at / self.width);
                let count = (clusters - set.clusters).div_ceil(class.clusters);
                Some((set, length, count.max(least.saturating_sub(length))))
            });
        let enough = self.clusters_satisfied.iter().enumerate();
        let enough =
            enough.filter_map(|(length, set)| Some((set.as_ref()?, length, least - length)));
        let fits = |(_, length, count): &(&PartialGroupSet, usize, usize)| {
            *count <= class.size() && length + count <= most
        };
        let all = open.chain(enough).filter(fits);
        let best = all.max_by_key(|(set, _, count)| {
            let weight = set.weight + class.prefix_weights[*count];
            (
                weight,
                set.clusters + count * class.clusters,
                Reverse(set.rank),
            )
        });
        best.map(|(set, _, count)| set.with(class, count))
    }

    /// Extends all sets by groups of `class`, as long as they are not candidates.
    fn extend(&mut self, class: &GroupSizeClass) {
        let more = class.clusters - self.smallest_group;
        for length in 0..self.lengths {
            for beyond in 0..self.width {
                if length > 0 && beyond >= more {
                    break;
                }
                let line: Vec<usize> = (length..self.lengths)
                    .zip(0..)
                    .map(|(length, step)| (length, beyond + step * more))
                    .take_while(|(length, beyond)| *beyond < self.limit(class, *length))
                    .map(|(length, beyond)| length * self.width + beyond)
                    .collect();
                let reached =
                    extend_line(class, &line, |at| self.clusters_unsatisfied[*at].as_ref());
                for (at, set) in line.into_iter().zip(reached) {
                    self.clusters_unsatisfied[at] = set;
                }
            }
        }
        self.clusters_satisfied = extend_line(class, &self.clusters_satisfied, Option::as_ref);
    }

    /// Replaces the ranks by small numbers in the same order.
    fn rank(&mut self) {
        let sets = |table: &Self| -> Vec<u64> {
            let all = table
                .clusters_unsatisfied
                .iter()
                .chain(&table.clusters_satisfied)
                .flatten();
            all.map(|set| set.rank).collect()
        };
        let mut ranks = sets(self);
        ranks.sort_unstable();
        for set in self
            .clusters_unsatisfied
            .iter_mut()
            .chain(&mut self.clusters_satisfied)
            .flatten()
        {
            let position = ranks.partition_point(|rank| *rank < set.rank);
            set.rank = position as u64;
        }
    }
}

/// Extends sets along a line on which each position has one group of `class` more than the
/// previous one: returns the best set at each position, from sets there or earlier.
fn extend_line<'s, T>(
    class: &GroupSizeClass,
    line: &'s [T],
    set: impl Fn(&'s T) -> Option<&'s PartialGroupSet>,
) -> Vec<Option<PartialGroupSet>> {
    let sets: Vec<Option<&PartialGroupSet>> = line.iter().map(set).collect();
    let mut sources = vec![None; sets.len()];
    if sets.iter().any(Option::is_some) {
        let all = 0..sets.len();
        best_sources(class, &sets, all.clone(), all, &mut sources);
    }
    let extended = sources.into_iter().enumerate().map(|(position, source)| {
        let source: usize = source?;
        Some(sets[source]?.with(class, position - source))
    });
    extended.collect()
}

/// Finds the best of `sources` for each of `places` by divide and conquer. Later places
/// have sources at the same position or later.
fn best_sources(
    class: &GroupSizeClass,
    sets: &[Option<&PartialGroupSet>],
    places: Range<usize>,
    sources: Range<usize>,
    found: &mut [Option<usize>],
) {
    if places.is_empty() || sources.is_empty() {
        return;
    }
    let middle = places.start + places.len() / 2;
    let near = sources.start.max(middle.saturating_sub(class.size()))..sources.end.min(middle + 1);
    let standing = |at: usize| {
        let (set, count) = (sets[at]?, middle - at);
        let weight = set.weight + class.prefix_weights[count];
        Some((
            weight,
            set.clusters + count * class.clusters,
            Reverse(set.rank),
        ))
    };
    let best = near
        .filter(|at| sets[*at].is_some())
        .max_by_key(|at| standing(*at));
    found[middle] = best;
    let (before, after) = match best {
        Some(best) => (sources.start..best + 1, best..sources.end),
        None => (
            sources.start..sources.end.min(middle.saturating_sub(class.size())),
            sources.start.max(middle + 1)..sources.end,
        ),
    };
    best_sources(class, sets, places.start..middle, before, found);
    best_sources(class, sets, middle + 1..places.end, after, found);
}
