//! Selects a number of regions, and clusters of them (Karmada's
//! `select_clusters_by_region.go` and `group_clusters.go`).

use ahash::AHashMap;
use openapi::karmada::placement::SpreadConstraint;

use super::select_groups::{SpreadGroup, select_groups};
use super::{
    ClusterCandidate, ClusterSelection, ScheduleRequest, SchedulingFailure, SpreadRegion,
    group_bounds,
};
use crate::core::{compare_candidates, is_duplicated};

/// The weight of one replica or cluster; the scores of clusters only break ties.
const REPLICA_WEIGHT: i64 = 1000;

/// Selects the best cluster of each chosen region, then the best of their other clusters.
pub(super) fn select_regions<'a>(
    request: &ScheduleRequest<'_>,
    by_region: &SpreadConstraint,
    by_cluster: Option<&SpreadConstraint>,
    candidates: &[ClusterCandidate<'a>],
) -> Result<ClusterSelection<'a>, SchedulingFailure> {
    let mut by_name: AHashMap<&'a str, Vec<ClusterCandidate<'a>>> = AHashMap::new();
    for candidate in candidates {
        let region = candidate.member.cluster.spec.region.as_str();
        if !region.is_empty() {
            by_name.entry(region).or_default().push(*candidate);
        }
    }
    let mut regions: Vec<_> = by_name.into_iter().collect();
    regions.sort_unstable_by_key(|(name, _)| *name);
    let (least, most) = group_bounds(by_region);
    if regions.len() < least {
        return Err(SchedulingFailure::Error(
            "the number of feasible region is less than spreadConstraint.MinGroups".into(),
        ));
    }
    let (least_clusters, most_clusters) = by_cluster.map_or((0, 0), group_bounds);
    let units: Vec<SpreadGroup<'a>> = regions
        .iter()
        .map(|(name, clusters)| SpreadGroup {
            name,
            clusters: clusters.len(),
            weight: region_score(request, least, least_clusters, clusters),
        })
        .collect();
    let Some(chosen) = select_groups(&units, least, most, least_clusters) else {
        return Err(SchedulingFailure::Error(
            "the number of clusters is less than the cluster spreadConstraint.MinGroups".into(),
        ));
    };
    let chosen_regions = || chosen.iter().map(|at| &regions[*at].1);
    let mut selected: Vec<ClusterCandidate<'a>> = chosen_regions().map(|of| of[0]).collect();
    let mut rest: Vec<ClusterCandidate<'a>> =
        chosen_regions().flat_map(|of| &of[1..]).copied().collect();
    rest.sort_by(compare_candidates);
    let more = most_clusters.saturating_sub(selected.len());
    selected.extend(rest.into_iter().take(more));
    let regions = units.iter().enumerate().map(|(at, unit)| SpreadRegion {
        name: unit.name,
        clusters: unit.clusters,
        score: unit.weight,
        chosen: chosen.contains(&at),
    });
    Ok(ClusterSelection {
        chosen: selected,
        regions: regions.collect(),
    })
}

/// Scores a region, whose clusters are sorted, for the workload.
fn region_score(
    request: &ScheduleRequest<'_>,
    least_regions: usize,
    least_clusters: usize,
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
    let regions = least_regions.max(1) as i64;
    let share = (replicas + regions - 1) / regions;
    let enough = least_clusters.max(least_regions);
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
