//! Selects a number of regions, and clusters of them (Karmada's
//! `select_clusters_by_region.go` and `group_clusters.go`).

use ahash::AHashMap;
use karmada_api::placement::SpreadConstraint;

use super::group_bounds::{GroupBounds, constraint_bounds};
use super::select_groups::{SpreadGroup, select_groups};
use super::selection::{ClusterSelection, SpreadRegion};
use crate::core::{
    ClusterCandidate, ScheduleRequest, SchedulingFailure, compare_candidates, is_duplicated,
};

/// The weight of one replica or cluster; the scores of clusters only break ties.
const REPLICA_WEIGHT: i64 = 1000;

/// Selects the best cluster of each chosen region, then the best of their other clusters.
pub(super) fn select_regions<'a>(
    request: &ScheduleRequest<'_>,
    by_region: &SpreadConstraint,
    by_cluster: Option<&SpreadConstraint>,
    candidates: &[ClusterCandidate<'a>],
) -> Result<ClusterSelection<'a>, SchedulingFailure> {
    let regions = clusters_by_region(candidates);
    let (min_groups, max_groups) = constraint_bounds(by_region);
    if regions.len() < min_groups {
        return Err(SchedulingFailure::Error(
            "the number of feasible region is less than spreadConstraint.MinGroups".into(),
        ));
    }
    let (min_clusters, max_clusters) = by_cluster.map_or((0, 0), constraint_bounds);
    let bounds = GroupBounds {
        min_groups,
        max_groups,
        min_clusters,
    };
    let groups: Vec<SpreadGroup<'a>> = regions
        .iter()
        .map(|(name, clusters)| SpreadGroup {
            name,
            clusters: clusters.len(),
            weight: region_score(request, &bounds, clusters),
        })
        .collect();
    let Some(chosen) = select_groups(&groups, &bounds) else {
        return Err(SchedulingFailure::Error(
            "the number of clusters is less than the cluster spreadConstraint.MinGroups".into(),
        ));
    };
    let chosen_regions = || chosen.iter().map(|index| &regions[*index].1);
    let mut selected: Vec<ClusterCandidate<'a>> =
        chosen_regions().map(|clusters| clusters[0]).collect();
    let other_clusters = chosen_regions().flat_map(|clusters| &clusters[1..]);
    let mut rest: Vec<ClusterCandidate<'a>> = other_clusters.copied().collect();
    rest.sort_by(compare_candidates);
    let more = max_clusters.saturating_sub(selected.len());
    selected.extend(rest.into_iter().take(more));
    let regions = groups
        .iter()
        .enumerate()
        .map(|(index, group)| SpreadRegion {
            name: group.name,
            clusters: group.clusters,
            score: group.weight,
            chosen: chosen.contains(&index),
        });
    Ok(ClusterSelection {
        chosen: selected,
        regions: regions.collect(),
    })
}

/// The candidates of each region, by its name. A cluster without a region is left out.
fn clusters_by_region<'a>(
    candidates: &[ClusterCandidate<'a>],
) -> Vec<(&'a str, Vec<ClusterCandidate<'a>>)> {
    let mut by_name: AHashMap<&'a str, Vec<ClusterCandidate<'a>>> = AHashMap::new();
    for candidate in candidates {
        let region = candidate.member.cluster.spec.region.as_str();
        if !region.is_empty() {
            by_name.entry(region).or_default().push(*candidate);
        }
    }
    let mut regions: Vec<_> = by_name.into_iter().collect();
    regions.sort_unstable_by_key(|(name, _)| *name);
    regions
}

/// Scores a region, whose clusters are sorted, for the workload.
fn region_score(
    request: &ScheduleRequest<'_>,
    bounds: &GroupBounds,
    clusters: &[ClusterCandidate<'_>],
) -> i64 {
    let replicas = request.spec.replicas;
    if is_duplicated(request.placement) {
        let fitting = || clusters.iter().filter(|c| c.available >= replicas);
        let count = fitting().count() as i64;
        let sum: i64 = fitting().map(|c| c.score).sum();
        return if count == 0 {
            0
        } else {
            count * REPLICA_WEIGHT + sum / count
        };
    }
    let regions = bounds.min_groups.max(1) as i64;
    let share = (replicas + regions - 1) / regions;
    let enough = bounds.min_clusters.max(bounds.min_groups);
    let (mut capacity, mut sum, mut used) = (0_i64, 0_i64, 0_usize);
    for cluster in clusters {
        capacity += cluster.available;
        sum += cluster.score;
        used += 1;
        if used >= enough && capacity >= share {
            break;
        }
    }
    let (worth, among) = if capacity < share {
        (capacity, clusters.len())
    } else {
        (share, used)
    };
    worth * REPLICA_WEIGHT + sum / among.max(1) as i64
}
