//! Assigns replicas to the chosen clusters.
//!
//! A ReplicaSchedulingPreference divides by [`replica_preference_planner`]. Source of the other
//! rules: Karmada's `pkg/scheduler/core/{common,assignment,
//! division_algorithm}.go`.

use std::collections::{BTreeMap, HashMap, HashSet};

use karmada_api::binding::TargetComponent;
use karmada_api::replica_preference::RecordedReplicaPreference;
use karmada_api::{ResourceBindingSpec, TargetCluster};
use serde::Serialize;

use super::assignment_strategy::unsupported_strategy;
use super::filter::effective_term;
use super::replica_preference_planner::{self, PlannedCluster};
use super::webster::{TieBreak, apportion};
use super::{
    AssignmentStrategy, ClusterCandidate, ScheduleRequest, SchedulingContext, SchedulingFailure,
    schedules_component_sets,
};

/// The rule by which replicas were assigned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum AssignmentRule {
    /// No replicas are assigned: every chosen cluster gets the object.
    #[default]
    Object,
    /// All components go together as a set.
    ComponentSet,
    Duplicated,
    StaticWeight,
    /// A ReplicaSchedulingPreference divides the replicas.
    ReplicaSchedulingPreference,
    /// The present assignment already matches.
    Keep,
    ScaleUp,
    ScaleDown,
    /// The present assignment is ignored.
    Fresh,
}

/// The replicas of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClusterReplicaShare<'a> {
    pub(crate) name: &'a str,
    pub(crate) replicas: i64,
    /// Replicas that it already had.
    pub(crate) current_replicas: i64,
    /// The weight by which the other replicas were divided.
    pub(crate) weight: i64,
}

/// The assignment to all clusters.
#[derive(Debug, Default)]
pub(crate) struct Assignment<'a> {
    /// In the order of the result.
    pub(crate) shares: Vec<ClusterReplicaShare<'a>>,
    /// With overflow tiers, the mode of the last tier.
    pub(crate) rule: AssignmentRule,
}

impl Assignment<'_> {
    /// The targets as written to the binding.
    pub(crate) fn targets(&self, spec: &ResourceBindingSpec) -> Vec<TargetCluster> {
        let components = || {
            let parts = spec.components.iter().map(|part| TargetComponent {
                name: part.name.clone(),
                replicas: part.replicas,
            });
            parts.collect()
        };
        let target = |share: &ClusterReplicaShare<'_>| TargetCluster {
            name: share.name.to_owned(),
            replicas: share.replicas,
            components: if self.rule == AssignmentRule::ComponentSet {
                components()
            } else {
                Vec::new()
            },
        };
        self.shares.iter().map(target).collect()
    }
}

/// Assigns replicas to every chosen cluster.
pub(crate) fn assign_replicas<'a>(
    request: &ScheduleRequest<'_>,
    context: &SchedulingContext<'_>,
    strategy: Option<AssignmentStrategy>,
    chosen: &[ClusterCandidate<'a>],
) -> Result<Assignment<'a>, SchedulingFailure> {
    let spec = request.spec;
    if chosen.is_empty() {
        return Err(SchedulingFailure::Error(
            "no clusters available to schedule".into(),
        ));
    }
    if let Some(preference) = context.replica_preference {
        return Ok(assign_by_preference(request, preference, chosen));
    }
    let counted = spec.replicas > 0 || spec.replica_requirements.is_some();
    if !counted || spec.components.len() > 1 {
        let is_set = spec.components.len() > 1
            && schedules_component_sets(spec, request.placement, context.settings);
        let mode = if is_set {
            AssignmentRule::ComponentSet
        } else {
            AssignmentRule::Object
        };
        let shares = chosen.iter().map(|c| share(c, 0)).collect();
        return Ok(Assignment { shares, rule: mode });
    }
    let strategy = strategy.ok_or_else(|| unsupported_strategy(request.placement))?;
    let assignment = ReplicaAssigner { request, strategy };
    let has_tiers = effective_term(request).is_some_and(|t| !t.overflow_affinities.is_empty());
    let mut division = if has_tiers {
        assignment.assign_by_tier(chosen)?
    } else {
        assignment.assign(chosen, spec.replicas)?
    };
    division.shares.retain(|share| share.replicas > 0);
    if context.settings.empty_workloads {
        let assigned: HashSet<&str> = division.shares.iter().map(|s| s.name).collect();
        let mut empty: Vec<ClusterReplicaShare<'a>> = chosen.iter().map(|c| share(c, 0)).collect();
        empty.retain(|share| !assigned.contains(share.name));
        division.shares.append(&mut empty);
    }
    Ok(division)
}

/// Every chosen cluster gets the object, even without replicas: they may come later, as in KubeFed.
/// A triggered reschedule does not keep what clusters have.
fn assign_by_preference<'a>(
    request: &ScheduleRequest<'_>,
    preference: &RecordedReplicaPreference,
    chosen: &[ClusterCandidate<'a>],
) -> Assignment<'a> {
    let current = |c: &ClusterCandidate<'_>| c.target.map_or(0, |target| target.replicas);
    let clusters = chosen.iter().map(|c| PlannedCluster {
        name: c.member.name(),
        current_replicas: if request.fresh { 0 } else { current(c) },
        capacity: preference.capacity.get(c.member.name()).copied(),
    });
    let clusters: Vec<PlannedCluster<'_>> = clusters.collect();
    let workload = &request.spec.resource;
    let key = format!("{}/{}", workload.namespace, workload.name);
    let planned = replica_preference_planner::plan(&preference.spec, &key, &clusters);
    let mut shares: Vec<ClusterReplicaShare<'a>> = chosen
        .iter()
        .zip(planned)
        .map(|(candidate, planned)| ClusterReplicaShare {
            current_replicas: current(candidate),
            weight: planned.weight,
            ..share(candidate, planned.replicas.saturating_add(planned.overflow))
        })
        .collect();
    shares.sort_unstable_by_key(|share| share.name);
    Assignment {
        shares,
        rule: AssignmentRule::ReplicaSchedulingPreference,
    }
}

fn share<'a>(candidate: &ClusterCandidate<'a>, replicas: i64) -> ClusterReplicaShare<'a> {
    ClusterReplicaShare {
        name: candidate.member.name(),
        replicas,
        current_replicas: 0,
        weight: 0,
    }
}

fn current_share<'a>(candidate: &ClusterCandidate<'a>, replicas: i64) -> ClusterReplicaShare<'a> {
    ClusterReplicaShare {
        current_replicas: replicas,
        ..share(candidate, replicas)
    }
}

struct ReplicaAssigner<'r> {
    request: &'r ScheduleRequest<'r>,
    strategy: AssignmentStrategy,
}

/// Candidates with a number: weight, available replicas or assigned replicas.
type WeightedCandidates<'c, 'a> = Vec<(&'c ClusterCandidate<'a>, i64)>;

fn sum(counted: &WeightedCandidates<'_, '_>) -> i64 {
    counted.iter().map(|(_, n)| n).sum()
}

impl ReplicaAssigner<'_> {
    fn assign<'a>(
        &self,
        chosen: &[ClusterCandidate<'a>],
        replicas: i64,
    ) -> Result<Assignment<'a>, SchedulingFailure> {
        match self.strategy {
            AssignmentStrategy::Duplicated => Ok(Assignment {
                shares: chosen.iter().map(|c| share(c, replicas)).collect(),
                rule: AssignmentRule::Duplicated,
            }),
            AssignmentStrategy::StaticWeight => Ok(Assignment {
                shares: self.apportion_shares(&self.static_weights(chosen), replicas),
                rule: AssignmentRule::StaticWeight,
            }),
            AssignmentStrategy::Aggregated | AssignmentStrategy::DynamicWeight => {
                self.assign_by_available(chosen, replicas)
            }
        }
    }

    /// Overflow: assigns to the affinity's own clusters first, then tier by tier, each up to
    /// its available replicas.
    fn assign_by_tier<'a>(
        &self,
        chosen: &[ClusterCandidate<'a>],
    ) -> Result<Assignment<'a>, SchedulingFailure> {
        let mut tiers: BTreeMap<usize, Vec<ClusterCandidate<'a>>> = BTreeMap::new();
        for candidate in chosen {
            tiers.entry(candidate.tier).or_default().push(*candidate);
        }
        let mut left = self.request.spec.replicas;
        let mut all = Assignment::default();
        for tier in tiers.into_values() {
            let capacity: i64 = tier.iter().map(|c| c.available).sum();
            let part = left.min(capacity);
            let division = self.assign(&tier, part)?;
            all.rule = division.rule;
            all.shares.extend(division.shares);
            left -= part;
            if left <= 0 {
                return Ok(all);
            }
        }
        Err(SchedulingFailure::Unschedulable(
            "Clusters available replicas are not enough to schedule.".into(),
        ))
    }

    fn apportion_shares<'a>(
        &self,
        votes: &WeightedCandidates<'_, 'a>,
        seats: i64,
    ) -> Vec<ClusterReplicaShare<'a>> {
        let parties: Vec<(&str, i64)> = votes.iter().map(|(c, n)| (c.member.name(), *n)).collect();
        let tie = TieBreak::from_uid(&self.request.spec.resource.uid);
        let won = apportion(&parties, seats, tie);
        let mut shares: Vec<ClusterReplicaShare<'a>> = votes
            .iter()
            .zip(won)
            .map(|((candidate, votes), won)| ClusterReplicaShare {
                weight: *votes,
                ..share(candidate, won)
            })
            .collect();
        shares.sort_unstable_by_key(|share| share.name);
        shares
    }

    /// If several entries match a cluster, the largest weight counts; clusters that no entry
    /// matches get nothing, unless no cluster matches.
    fn static_weights<'c, 'a>(
        &self,
        chosen: &'c [ClusterCandidate<'a>],
    ) -> WeightedCandidates<'c, 'a> {
        let scheduling = self.request.placement.replica_scheduling.as_ref();
        let preference = scheduling.and_then(|s| s.weight_preference.as_ref());
        let rules: Vec<_> = preference
            .into_iter()
            .flat_map(|p| &p.static_weight_list)
            .map(|rule| (rule.target_cluster.matcher(), rule.weight))
            .collect();
        let weight = |c: &ClusterCandidate<'_>| {
            let facts = c.member.attributes();
            let matching = rules.iter().filter(|(matcher, _)| matcher.matches(&facts));
            matching.map(|(_, weight)| *weight).max().unwrap_or(0)
        };
        let mut votes: WeightedCandidates<'c, 'a> = chosen.iter().map(|c| (c, weight(c))).collect();
        votes.retain(|(_, weight)| *weight > 0);
        if votes.is_empty() {
            votes = chosen.iter().map(|c| (c, 1)).collect();
        }
        votes
    }

    /// Dynamic strategies: scheduled replicas stay, only the difference is divided.
    fn assign_by_available<'a>(
        &self,
        chosen: &[ClusterCandidate<'a>],
        replicas: i64,
    ) -> Result<Assignment<'a>, SchedulingFailure> {
        let scheduled = scheduled_replicas(chosen);
        let assigned = sum(&scheduled);
        let nothing = Vec::new();
        if self.request.fresh {
            let available =
                |c: &ClusterCandidate<'_>| c.allocatable + c.target.map_or(0, |t| t.replicas);
            let available = sort_descending(chosen.iter().map(|c| (c, available(c))).collect());
            let shares = self.distribute(replicas, available, &nothing);
            return with_mode(shares, AssignmentRule::Fresh, "do fresh scale");
        }
        if assigned > replicas {
            let shares = self.distribute(replicas, sort_descending(scheduled), &nothing);
            return with_mode(shares, AssignmentRule::ScaleDown, "scale down");
        }
        if assigned < replicas {
            let available = sort_descending(chosen.iter().map(|c| (c, c.allocatable)).collect());
            let shares = self.distribute(replicas - assigned, available, &scheduled);
            return with_mode(shares, AssignmentRule::ScaleUp, "scale up");
        }
        let shares = scheduled
            .iter()
            .map(|(c, replicas)| current_share(c, *replicas));
        Ok(Assignment {
            shares: shares.collect(),
            rule: AssignmentRule::Keep,
        })
    }

    fn distribute<'a>(
        &self,
        seats: i64,
        mut available: WeightedCandidates<'_, 'a>,
        scheduled: &WeightedCandidates<'_, 'a>,
    ) -> Result<Vec<ClusterReplicaShare<'a>>, SchedulingFailure> {
        let total = sum(&available);
        if total < seats {
            return Err(SchedulingFailure::Unschedulable(format!(
                "Clusters available replicas {total} are not enough to schedule."
            )));
        }
        let present: HashMap<&str, i64> = scheduled
            .iter()
            .map(|(candidate, replicas)| (candidate.member.name(), *replicas))
            .collect();
        let kept = |name: &str| present.get(name).copied().unwrap_or(0);
        if self.strategy == AssignmentStrategy::Aggregated {
            // Clusters that already have replicas first, then as few clusters as suffice.
            available.sort_by_key(|(candidate, _)| kept(candidate.member.name()) == 0);
            let mut sum = 0;
            let enough = available.iter().position(|(_, n)| {
                sum += n;
                sum >= seats
            });
            available.truncate(enough.map_or(available.len(), |at| at + 1));
        }
        let mut shares = self.apportion_shares(&available, seats);
        for share in &mut shares {
            share.current_replicas = kept(share.name);
            share.replicas += share.current_replicas;
        }
        let without_vote: Vec<ClusterReplicaShare<'a>> = scheduled
            .iter()
            .map(|(candidate, replicas)| current_share(candidate, *replicas))
            .filter(|old| shares.binary_search_by_key(&old.name, |s| s.name).is_err())
            .collect();
        shares.extend(without_vote);
        Ok(shares)
    }
}

/// The present replicas of the chosen clusters, in the order of the binding.
fn scheduled_replicas<'c, 'a>(chosen: &'c [ClusterCandidate<'a>]) -> WeightedCandidates<'c, 'a> {
    let mut targets: Vec<_> = chosen.iter().filter_map(|c| Some((c, c.target?))).collect();
    targets.sort_by_key(|(_, target)| target.position);
    let replicas = targets.into_iter().map(|(c, target)| (c, target.replicas));
    replicas.collect()
}

/// Sorts by number, largest first; equal numbers keep their order.
fn sort_descending<'c, 'a>(mut counted: WeightedCandidates<'c, 'a>) -> WeightedCandidates<'c, 'a> {
    counted.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    counted
}

fn with_mode<'a>(
    shares: Result<Vec<ClusterReplicaShare<'a>>, SchedulingFailure>,
    mode: AssignmentRule,
    what: &str,
) -> Result<Assignment<'a>, SchedulingFailure> {
    let shares = shares.map_err(|failure| failure.with_context(what))?;
    Ok(Assignment { shares, rule: mode })
}
