//! Selects a number of regions, and clusters of them (Karmada's
//! `select_clusters_by_region.go` and `group_clusters.go`).

use ahash::AHashMap;
use openapi::karmada::placement::SpreadConstraint;

use super::sets::{Unit, best_set};
use super::{Candidate, Failure, Region, Request, Selection, bounds};
use crate::core::{is_duplicated, order};

/// The weight of one replica or cluster; the scores of clusters only break ties.
const WEIGHT_UNIT: i64 = 1000;

/// Selects the best cluster of each chosen region, then the best of their other clusters.
pub(super) fn choose<'a>(
    request: &Request<'_>,
    by_region: &SpreadConstraint,
    by_cluster: Option<&SpreadConstraint>,
    candidates: &[Candidate<'a>],
) -> Result<Selection<'a>, Failure> {
    let mut by_name: AHashMap<&'a str, Vec<Candidate<'a>>> = AHashMap::new();
    for candidate in candidates {
        let region = candidate.member.cluster.spec.region.as_str();
        if !region.is_empty() {
            by_name.entry(region).or_default().push(*candidate);
        }
    }
    let mut regions: Vec<_> = by_name.into_iter().collect();
    regions.sort_unstable_by_key(|(name, _)| *name);
    let (least, most) = bounds(by_region);
    if regions.len() < least {
        return Err(Failure::Error(
            "the number of feasible region is less than spreadConstraint.MinGroups".into(),
        ));
    }
    let (least_clusters, most_clusters) = by_cluster.map_or((0, 0), bounds);
    let units: Vec<Unit<'a>> = regions
        .iter()
        .map(|(name, clusters)| Unit {
            name,
            value: clusters.len(),
            weight: score(request, least, least_clusters, clusters),
        })
        .collect();
    let Some(chosen) = best_set(&units, least, most, least_clusters) else {
        return Err(Failure::Error(
            "the number of clusters is less than the cluster spreadConstraint.MinGroups".into(),
        ));
    };
    let chosen_regions = || chosen.iter().map(|at| &regions[*at].1);
    let mut selected: Vec<Candidate<'a>> = chosen_regions().map(|of| of[0]).collect();
    let mut rest: Vec<Candidate<'a>> = chosen_regions().flat_map(|of| &of[1..]).copied().collect();
    rest.sort_by(order);
    let more = most_clusters.saturating_sub(selected.len());
    selected.extend(rest.into_iter().take(more));
    let regions = units.iter().enumerate().map(|(at, unit)| Region {
        name: unit.name,
        clusters: unit.value,
        score: unit.weight,
        chosen: chosen.contains(&at),
    });
    Ok(Selection {
        chosen: selected,
        regions: regions.collect(),
    })
}

/// Scores a region, whose clusters are sorted, for the workload.
fn score(
    request: &Request<'_>,
    least_regions: usize,
    least_clusters: usize,
    clusters: &[Candidate<'_>],
) -> i64 {
    let replicas = request.spec.replicas;
    if is_duplicated(request.placement) {
        let fitting = || clusters.iter().filter(|c| c.available >= replicas);
        let count = fitting().count() as i64;
        let sum: i64 = fitting().map(|c| c.score).sum();
        return if count == 0 {
            0
        } else {
            count * WEIGHT_UNIT + sum / count
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
    worth * WEIGHT_UNIT + sum / among.max(1) as i64
}
