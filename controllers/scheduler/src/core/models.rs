//! Grades of nodes: room as whole nodes have it, not as a sum.
//!
//! Enters: `spec.resourceModels` and `status.resourceSummary.allocatableModelings`
//! of a cluster. Leaves: how many replicas, or sets of components, fit by first fit.
//! Source of the rules: Karmada's `pkg/estimator/client/general.go` and
//! `pkg/estimator/scheduling_simulator_components.go`.

use std::collections::BTreeMap;

use openapi::karmada::Cluster;

use super::demand::{Demand, Part, units};

/// Pods that a node is taken to hold.
const PODS_PER_NODE: i128 = 110;

/// Room of one node: pods, and amounts in the order of their names.
#[derive(Clone, Debug, PartialEq)]
struct Room {
    pods: i128,
    amounts: Vec<(Box<str>, i128)>,
}

/// Nodes with the same room, in a row.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    room: Room,
    nodes: i128,
}

/// The nodes of a cluster, by grade, each with the least that its grade has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Nodes(Vec<Run>);

/// What the simulation knows of; other plain names are not looked at.
fn is_modelled(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage")
        || name.contains('/')
        || name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
}

impl Nodes {
    /// `None` where a cluster tells no grades, or tells them wrongly.
    pub(crate) fn of(cluster: &Cluster) -> Option<Self> {
        let told = &cluster
            .status
            .resource_summary
            .as_ref()?
            .allocatable_modelings;
        let models = &cluster.spec.resource_models;
        if told.is_empty() || models.is_empty() || told.iter().any(|grade| grade.count < 0) {
            return None;
        }
        let mut counts: BTreeMap<i64, i128> = BTreeMap::new();
        for grade in told {
            *counts.entry(grade.grade).or_default() += i128::from(grade.count);
        }
        // Of several models of one grade the last counts.
        let rooms: BTreeMap<i64, Room> = models
            .iter()
            .map(|model| {
                let amounts: BTreeMap<Box<str>, i128> = model
                    .ranges
                    .iter()
                    .filter(|range| is_modelled(&range.name))
                    .map(|range| (range.name.as_str().into(), units(&range.name, range.min)))
                    .collect();
                let room = Room {
                    pods: PODS_PER_NODE,
                    amounts: amounts.into_iter().collect(),
                };
                (model.grade, room)
            })
            .collect();
        let runs = rooms.into_iter().filter_map(|(grade, room)| {
            let nodes = counts.get(&grade).copied().filter(|nodes| *nodes > 0)?;
            Some(Run { room, nodes })
        });
        Some(Self(runs.collect()))
    }

    /// How many replicas fit beside what is `assumed` to be there.
    pub(crate) fn replicas<'p>(
        &self,
        demand: &Demand,
        assumed: impl Iterator<Item = &'p [Part]>,
    ) -> i128 {
        let nodes = self.beside(assumed);
        let each = amounts(Some(demand));
        let fit = nodes
            .0
            .iter()
            .map(|run| run.nodes * run.room.fits(&each).max(0));
        fit.sum()
    }

    /// How many sets of components fit, at most `bound`.
    pub(crate) fn sets<'p>(
        &self,
        set: &[Part],
        assumed: impl Iterator<Item = &'p [Part]>,
        bound: i128,
    ) -> i128 {
        let mut nodes = self.beside(assumed);
        let set = prepared(set);
        let mut sets = 0;
        while sets < bound && nodes.take(&set) {
            sets += 1;
        }
        sets
    }

    fn beside<'p>(&self, assumed: impl Iterator<Item = &'p [Part]>) -> Self {
        let mut nodes = self.clone();
        for parts in assumed {
            nodes.take(&prepared(parts));
        }
        nodes
    }

    /// Occupies room; what does not fit whole still takes what there is.
    fn take(&mut self, parts: &[(Amounts<'_>, i128)]) -> bool {
        parts
            .iter()
            .all(|(each, replicas)| self.take_part(each, *replicas))
    }

    fn take_part(&mut self, each: &[(&str, i128)], replicas: i128) -> bool {
        let mut left = replicas;
        let mut runs: Vec<Run> = Vec::with_capacity(self.0.len() + 2);
        for run in self.0.drain(..) {
            let fits = run.room.fits(each).max(0);
            let full = if fits == 0 {
                0
            } else {
                run.nodes.min(left / fits)
            };
            left -= full * fits;
            let partly = if full < run.nodes && fits > 0 {
                left.min(fits)
            } else {
                0
            };
            left -= partly;
            let rest = run.nodes - full - i128::from(partly > 0);
            for (nodes, taken) in [(full, fits), (i128::from(partly > 0), partly), (rest, 0)] {
                push(&mut runs, run.room.less(each, taken), nodes);
            }
        }
        self.0 = runs;
        left == 0
    }
}

/// Runs with the same room become one.
fn push(runs: &mut Vec<Run>, room: Room, nodes: i128) {
    if nodes == 0 {
        return;
    }
    match runs.last_mut() {
        Some(last) if last.room == room => last.nodes += nodes,
        _ => runs.push(Run { room, nodes }),
    }
}

/// What each replica takes, in the units of [`Room`].
type Amounts<'a> = Vec<(&'a str, i128)>;

fn prepared(parts: &[Part]) -> Vec<(Amounts<'_>, i128)> {
    let each = |part: &Part| i128::from(part.replicas.max(0));
    let parts = parts.iter();
    parts
        .map(|part| (amounts(part.demand.as_ref()), each(part)))
        .collect()
}

fn amounts(demand: Option<&Demand>) -> Amounts<'_> {
    let amounts = demand.into_iter().flat_map(Demand::amounts);
    amounts
        .filter(|(name, _)| is_modelled(name))
        .map(|(name, amount)| (name, units(name, amount)))
        .collect()
}

impl Room {
    fn amount(&self, name: &str) -> i128 {
        let at = self.amounts.binary_search_by(|(n, _)| (**n).cmp(name));
        at.map_or(0, |at| self.amounts[at].1)
    }

    fn fits(&self, each: &[(&str, i128)]) -> i128 {
        let by_amount = each
            .iter()
            .filter(|(_, amount)| *amount > 0)
            .map(|(name, amount)| self.amount(name) / amount);
        by_amount.fold(self.pods, i128::min)
    }

    fn less(&self, each: &[(&str, i128)], replicas: i128) -> Self {
        let mut room = self.clone();
        room.pods = (room.pods - replicas).max(0);
        for (name, amount) in each {
            let at = room.amounts.binary_search_by(|(n, _)| (**n).cmp(*name));
            if let Ok(at) = at {
                let left = &mut room.amounts[at].1;
                *left = (*left - amount * replicas).max(0);
            }
        }
        room
    }
}
