//! Division: how many replicas each chosen cluster gets.

use std::collections::BTreeMap;

use openapi::karmada::{BindingSpec, TargetCluster};

use super::webster::{Tie, apportion};
use super::{Candidate, Failure, Request, Strategy};

/// Name and number, in an order that matters to the strategy.
type Shares = Vec<(String, i64)>;

/// Gives every chosen cluster its share.
pub(crate) fn divide(
    request: &Request<'_>,
    strategy: Strategy,
    chosen: &[Candidate<'_>],
) -> Result<Vec<TargetCluster>, Failure> {
    let spec = request.spec;
    if chosen.is_empty() {
        return Err(Failure::Error("no clusters available to schedule".into()));
    }
    let with = |replicas: i64| {
        chosen
            .iter()
            .map(|c| TargetCluster {
                name: c.member.name().to_owned(),
                replicas,
            })
            .collect()
    };
    if !spec.is_workload() {
        return Ok(with(0));
    }
    let shares = match strategy {
        Strategy::Duplicated => return Ok(with(spec.replicas)),
        Strategy::StaticWeight => by_static_weight(request, chosen),
        Strategy::Aggregated | Strategy::DynamicWeight => by_room(request, strategy, chosen)?,
    };
    let targets = shares.into_iter().filter(|(_, replicas)| *replicas > 0);
    Ok(targets
        .map(|(name, replicas)| TargetCluster { name, replicas })
        .collect())
}

fn tie(spec: &BindingSpec) -> Tie {
    Tie::of_uid(&spec.resource.uid)
}

fn apportioned(spec: &BindingSpec, votes: &Shares, seats: i64) -> Shares {
    let parties: Vec<(&str, i64)> = votes.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    let won = apportion(&parties, seats, tie(spec));
    let mut shares: Shares = votes.iter().map(|(n, _)| n.clone()).zip(won).collect();
    shares.sort();
    shares
}

fn by_static_weight(request: &Request<'_>, chosen: &[Candidate<'_>]) -> Shares {
    let preference = request
        .placement
        .replica_scheduling
        .as_ref()
        .and_then(|s| s.weight_preference.as_ref());
    let rules: Vec<_> = preference
        .into_iter()
        .flat_map(|p| &p.static_weight_list)
        .map(|rule| (rule.target_cluster.matcher(), rule.weight))
        .collect();
    let weight = |c: &Candidate<'_>| {
        let matching = rules
            .iter()
            .filter(|(matcher, _)| matcher.matches(&c.member.facts()));
        matching.map(|(_, weight)| *weight).max().unwrap_or(0)
    };
    let mut votes: Shares = chosen
        .iter()
        .map(|c| (c.member.name().to_owned(), weight(c)))
        .collect();
    if votes.iter().all(|(_, weight)| *weight == 0) {
        for (_, weight) in &mut votes {
            *weight = 1;
        }
    }
    votes.retain(|(_, weight)| *weight > 0);
    apportioned(request.spec, &votes, request.spec.replicas)
}

/// Dynamic strategies: what is placed stays, and only the difference moves.
fn by_room(
    request: &Request<'_>,
    strategy: Strategy,
    chosen: &[Candidate<'_>],
) -> Result<Shares, Failure> {
    let spec = request.spec;
    let is_candidate = |t: &&TargetCluster| chosen.iter().any(|c| c.member.name() == t.name);
    let scheduled: Shares = spec
        .clusters
        .iter()
        .filter(is_candidate)
        .map(|t| (t.name.clone(), t.replicas))
        .collect();
    let assigned: i64 = scheduled.iter().map(|(_, n)| n).sum();
    let room = |extra: bool| -> Shares {
        let here = |c: &Candidate<'_>| {
            scheduled
                .iter()
                .find(|(n, _)| n == c.member.name())
                .map_or(0, |(_, n)| *n)
        };
        let free = |c: &Candidate<'_>| c.allocatable + if extra { here(c) } else { 0 };
        sorted(
            chosen
                .iter()
                .map(|c| (c.member.name().to_owned(), free(c)))
                .collect(),
        )
    };
    let tiers = request
        .term
        .is_some_and(|t| !t.overflow_affinities.is_empty());
    let give = |seats, available: Shares, scheduled: &Shares| {
        if tiers {
            tier_by_tier(request, strategy, chosen, seats, available, scheduled)
        } else {
            hand_out(spec, strategy, seats, available, scheduled)
        }
    };
    if request.fresh {
        return give(spec.replicas, room(true), &Shares::new());
    }
    if assigned > spec.replicas {
        return give(spec.replicas, sorted(scheduled), &Shares::new());
    }
    if assigned < spec.replicas {
        return give(spec.replicas - assigned, room(false), &scheduled);
    }
    Ok(scheduled)
}

fn sorted(mut shares: Shares) -> Shares {
    shares.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    shares
}

fn hand_out(
    spec: &BindingSpec,
    strategy: Strategy,
    seats: i64,
    mut available: Shares,
    scheduled: &Shares,
) -> Result<Shares, Failure> {
    let total: i64 = available.iter().map(|(_, n)| n).sum();
    if total < seats {
        return Err(Failure::Unschedulable(format!(
            "Clusters available replicas {total} are not enough to schedule."
        )));
    }
    if strategy == Strategy::Aggregated {
        // Where replicas are already goes first; then as few clusters as suffice.
        let here = |name: &str| {
            scheduled
                .iter()
                .any(|(n, replicas)| n == name && *replicas > 0)
        };
        available.sort_by_key(|(name, _)| !here(name));
        let mut sum = 0;
        let enough = available.iter().position(|(_, n)| {
            sum += n;
            sum >= seats
        });
        available.truncate(enough.map_or(available.len(), |at| at + 1));
    }
    Ok(merged(scheduled, apportioned(spec, &available, seats)))
}

/// Overflow: the affinity's own clusters first, then one tier after the other.
fn tier_by_tier(
    request: &Request<'_>,
    strategy: Strategy,
    chosen: &[Candidate<'_>],
    seats: i64,
    available: Shares,
    scheduled: &Shares,
) -> Result<Shares, Failure> {
    let tier = |name: &str| {
        chosen
            .iter()
            .find(|c| c.member.name() == name)
            .map_or(0, |c| c.tier)
    };
    let mut tiers: BTreeMap<usize, Shares> = BTreeMap::new();
    for (name, room) in available {
        tiers.entry(tier(&name)).or_default().push((name, room));
    }
    let mut left = seats;
    let mut shares = scheduled.clone();
    for room in tiers.into_values() {
        let part = left.min(room.iter().map(|(_, n)| n).sum());
        shares = hand_out(request.spec, strategy, part, room, &shares)?;
        left -= part;
    }
    if left > 0 {
        return Err(Failure::Unschedulable(format!(
            "Clusters available replicas {} are not enough to schedule.",
            seats - left
        )));
    }
    Ok(shares)
}

fn merged(old: &Shares, mut new: Shares) -> Shares {
    for (name, replicas) in old {
        match new.iter_mut().find(|(n, _)| n == name) {
            Some((_, sum)) => *sum += replicas,
            None => new.push((name.clone(), *replicas)),
        }
    }
    new
}
