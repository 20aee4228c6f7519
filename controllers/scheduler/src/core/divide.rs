//! Assigns replicas to the chosen clusters.
//!
//! Source of the rules: Karmada's `pkg/scheduler/core/{common,assignment,
//! division_algorithm}.go`.

use std::collections::{BTreeMap, HashMap, HashSet};

use openapi::karmada::binding::TargetComponent;
use openapi::karmada::{BindingSpec, TargetCluster};
use serde::Serialize;

use super::filter::term_in_force;
use super::webster::{Tie, apportion};
use super::{Candidate, Failure, Request, Strategy, World, places_sets, unsupported};

/// The rule by which replicas were assigned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Mode {
    /// No replicas are assigned: every chosen cluster gets the object.
    #[default]
    Object,
    /// All components go together as a set.
    ComponentSet,
    Duplicated,
    StaticWeight,
    /// The present assignment already matches.
    Keep,
    ScaleUp,
    ScaleDown,
    /// The present assignment is ignored.
    Fresh,
}

/// The replicas of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share<'a> {
    pub(crate) name: &'a str,
    pub(crate) replicas: i64,
    /// Replicas that it already had.
    pub(crate) kept: i64,
    /// The weight by which the other replicas were divided.
    pub(crate) weight: i64,
}

/// The assignment to all clusters.
#[derive(Debug, Default)]
pub(crate) struct Division<'a> {
    /// In the order of the result.
    pub(crate) shares: Vec<Share<'a>>,
    /// With overflow tiers, the mode of the last tier.
    pub(crate) mode: Mode,
}

impl Division<'_> {
    /// The targets as written to the binding.
    pub(crate) fn targets(&self, spec: &BindingSpec) -> Vec<TargetCluster> {
        let components = || {
            let parts = spec.components.iter().map(|part| TargetComponent {
                name: part.name.clone(),
                replicas: part.replicas,
            });
            parts.collect()
        };
        let target = |share: &Share<'_>| TargetCluster {
            name: share.name.to_owned(),
            replicas: share.replicas,
            components: if self.mode == Mode::ComponentSet {
                components()
            } else {
                Vec::new()
            },
        };
        self.shares.iter().map(target).collect()
    }
}

/// Assigns replicas to every chosen cluster.
pub(crate) fn divide<'a>(
    request: &Request<'_>,
    world: &World<'_>,
    strategy: Option<Strategy>,
    chosen: &[Candidate<'a>],
) -> Result<Division<'a>, Failure> {
    let spec = request.spec;
    if chosen.is_empty() {
        return Err(Failure::Error("no clusters available to schedule".into()));
    }
    let counted = spec.replicas > 0 || spec.replica_requirements.is_some();
    if !counted || spec.components.len() > 1 {
        let is_set = spec.components.len() > 1 && places_sets(spec, request.placement, world.rules);
        let mode = if is_set {
            Mode::ComponentSet
        } else {
            Mode::Object
        };
        let shares = chosen.iter().map(|c| share(c, 0)).collect();
        return Ok(Division { shares, mode });
    }
    let strategy = strategy.ok_or_else(|| unsupported(request.placement))?;
    let assignment = Assignment { request, strategy };
    let has_tiers = term_in_force(request).is_some_and(|t| !t.overflow_affinities.is_empty());
    let mut division = if has_tiers {
        assignment.tier_by_tier(chosen)?
    } else {
        assignment.give(chosen, spec.replicas)?
    };
    division.shares.retain(|share| share.replicas > 0);
    if world.rules.empty_workloads {
        let assigned: HashSet<&str> = division.shares.iter().map(|s| s.name).collect();
        let mut empty: Vec<Share<'a>> = chosen.iter().map(|c| share(c, 0)).collect();
        empty.retain(|share| !assigned.contains(share.name));
        division.shares.append(&mut empty);
    }
    Ok(division)
}

fn share<'a>(candidate: &Candidate<'a>, replicas: i64) -> Share<'a> {
    Share {
        name: candidate.member.name(),
        replicas,
        kept: 0,
        weight: 0,
    }
}

fn keeping<'a>(candidate: &Candidate<'a>, replicas: i64) -> Share<'a> {
    Share {
        kept: replicas,
        ..share(candidate, replicas)
    }
}

struct Assignment<'r> {
    request: &'r Request<'r>,
    strategy: Strategy,
}

/// Candidates with a number: weight, available replicas or assigned replicas.
type Counted<'c, 'a> = Vec<(&'c Candidate<'a>, i64)>;

fn sum(counted: &Counted<'_, '_>) -> i64 {
    counted.iter().map(|(_, n)| n).sum()
}

impl Assignment<'_> {
    fn give<'a>(&self, chosen: &[Candidate<'a>], replicas: i64) -> Result<Division<'a>, Failure> {
        match self.strategy {
            Strategy::Duplicated => Ok(Division {
                shares: chosen.iter().map(|c| share(c, replicas)).collect(),
                mode: Mode::Duplicated,
            }),
            Strategy::StaticWeight => Ok(Division {
                shares: self.apportioned(&self.static_weights(chosen), replicas),
                mode: Mode::StaticWeight,
            }),
            Strategy::Aggregated | Strategy::DynamicWeight => self.by_room(chosen, replicas),
        }
    }

    /// Overflow: assigns to the affinity's own clusters first, then tier by tier, each up to
    /// its available replicas.
    fn tier_by_tier<'a>(&self, chosen: &[Candidate<'a>]) -> Result<Division<'a>, Failure> {
        let mut tiers: BTreeMap<usize, Vec<Candidate<'a>>> = BTreeMap::new();
        for candidate in chosen {
            tiers.entry(candidate.tier).or_default().push(*candidate);
        }
        let mut left = self.request.spec.replicas;
        let mut all = Division::default();
        for tier in tiers.into_values() {
            let capacity: i64 = tier.iter().map(|c| c.available).sum();
            let part = left.min(capacity);
            let division = self.give(&tier, part)?;
            all.mode = division.mode;
            all.shares.extend(division.shares);
            left -= part;
            if left <= 0 {
                return Ok(all);
            }
        }
        Err(Failure::Unschedulable(
            "Clusters available replicas are not enough to schedule.".into(),
        ))
    }

    fn apportioned<'a>(&self, votes: &Counted<'_, 'a>, seats: i64) -> Vec<Share<'a>> {
        let parties: Vec<(&str, i64)> = votes.iter().map(|(c, n)| (c.member.name(), *n)).collect();
        let tie = Tie::of_uid(&self.request.spec.resource.uid);
        let won = apportion(&parties, seats, tie);
        let mut shares: Vec<Share<'a>> = votes
            .iter()
            .zip(won)
            .map(|((candidate, votes), won)| Share {
                weight: *votes,
                ..share(candidate, won)
            })
            .collect();
        shares.sort_unstable_by_key(|share| share.name);
        shares
    }

    /// If several entries match a cluster, the largest weight counts; clusters that no entry
    /// matches get nothing, unless no cluster matches.
    fn static_weights<'c, 'a>(&self, chosen: &'c [Candidate<'a>]) -> Counted<'c, 'a> {
        let scheduling = self.request.placement.replica_scheduling.as_ref();
        let preference = scheduling.and_then(|s| s.weight_preference.as_ref());
        let rules: Vec<_> = preference
            .into_iter()
            .flat_map(|p| &p.static_weight_list)
            .map(|rule| (rule.target_cluster.matcher(), rule.weight))
            .collect();
        let weight = |c: &Candidate<'_>| {
            let facts = c.member.facts();
            let matching = rules.iter().filter(|(matcher, _)| matcher.matches(&facts));
            matching.map(|(_, weight)| *weight).max().unwrap_or(0)
        };
        let mut votes: Counted<'c, 'a> = chosen.iter().map(|c| (c, weight(c))).collect();
        votes.retain(|(_, weight)| *weight > 0);
        if votes.is_empty() {
            votes = chosen.iter().map(|c| (c, 1)).collect();
        }
        votes
    }

    /// Dynamic strategies: scheduled replicas stay, only the difference is divided.
    fn by_room<'a>(
        &self,
        chosen: &[Candidate<'a>],
        replicas: i64,
    ) -> Result<Division<'a>, Failure> {
        let scheduled = scheduled(chosen);
        let assigned = sum(&scheduled);
        let nothing = Vec::new();
        if self.request.fresh {
            let available = |c: &Candidate<'_>| c.allocatable + c.target.map_or(0, |t| t.replicas);
            let available = descending(chosen.iter().map(|c| (c, available(c))).collect());
            let shares = self.hand_out(replicas, available, &nothing);
            return named(shares, Mode::Fresh, "do fresh scale");
        }
        if assigned > replicas {
            let shares = self.hand_out(replicas, descending(scheduled), &nothing);
            return named(shares, Mode::ScaleDown, "scale down");
        }
        if assigned < replicas {
            let available = descending(chosen.iter().map(|c| (c, c.allocatable)).collect());
            let shares = self.hand_out(replicas - assigned, available, &scheduled);
            return named(shares, Mode::ScaleUp, "scale up");
        }
        let shares = scheduled.iter().map(|(c, replicas)| keeping(c, *replicas));
        Ok(Division {
            shares: shares.collect(),
            mode: Mode::Keep,
        })
    }

    fn hand_out<'a>(
        &self,
        seats: i64,
        mut available: Counted<'_, 'a>,
        scheduled: &Counted<'_, 'a>,
    ) -> Result<Vec<Share<'a>>, Failure> {
        let total = sum(&available);
        if total < seats {
            return Err(Failure::Unschedulable(format!(
                "Clusters available replicas {total} are not enough to schedule."
            )));
        }
        let present: HashMap<&str, i64> = scheduled
            .iter()
            .map(|(candidate, replicas)| (candidate.member.name(), *replicas))
            .collect();
        let kept = |name: &str| present.get(name).copied().unwrap_or(0);
        if self.strategy == Strategy::Aggregated {
            // Clusters that already have replicas first, then as few clusters as suffice.
            available.sort_by_key(|(candidate, _)| kept(candidate.member.name()) == 0);
            let mut sum = 0;
            let enough = available.iter().position(|(_, n)| {
                sum += n;
                sum >= seats
            });
            available.truncate(enough.map_or(available.len(), |at| at + 1));
        }
        let mut shares = self.apportioned(&available, seats);
        for share in &mut shares {
            share.kept = kept(share.name);
            share.replicas += share.kept;
        }
        let without_vote: Vec<Share<'a>> = scheduled
            .iter()
            .map(|(candidate, replicas)| keeping(candidate, *replicas))
            .filter(|old| shares.binary_search_by_key(&old.name, |s| s.name).is_err())
            .collect();
        shares.extend(without_vote);
        Ok(shares)
    }
}

/// The present replicas of the chosen clusters, in the order of the binding.
fn scheduled<'c, 'a>(chosen: &'c [Candidate<'a>]) -> Counted<'c, 'a> {
    let mut targets: Vec<_> = chosen.iter().filter_map(|c| Some((c, c.target?))).collect();
    targets.sort_by_key(|(_, target)| target.place);
    let replicas = targets.into_iter().map(|(c, target)| (c, target.replicas));
    replicas.collect()
}

/// Sorts by number, largest first; equal numbers keep their order.
fn descending<'c, 'a>(mut counted: Counted<'c, 'a>) -> Counted<'c, 'a> {
    counted.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    counted
}

fn named<'a>(
    shares: Result<Vec<Share<'a>>, Failure>,
    mode: Mode,
    what: &str,
) -> Result<Division<'a>, Failure> {
    let shares = shares.map_err(|failure| failure.while_doing(what))?;
    Ok(Division { shares, mode })
}

#[cfg(test)]
mod tests {
    use super::super::tests::table::{asked, placement};
    use super::super::{Snapshot, World};
    use super::*;

    // proves: SCH-nothing-chosen
    #[test]
    fn replicas_without_clusters_are_an_error() {
        let (asked, placement, snapshot) = (asked("n:2"), placement("dyn"), Snapshot::default());
        let request = Request {
            spec: &asked.binding.spec,
            placement: &placement,
            term: None,
            fresh: false,
        };
        let strategy = Strategy::of(&placement);
        let divided = divide(&request, &World::of(&snapshot), strategy, &[]);
        let nowhere = Failure::Error("no clusters available to schedule".into());
        assert_eq!(divided.map(|d| d.mode), Err(nowhere));
    }
}
