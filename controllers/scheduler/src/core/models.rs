//! Estimates capacity by resource models: per node instead of by cluster totals.
//!
//! From `spec.resourceModels` and `status.resourceSummary.allocatableModelings` of a
//! cluster this computes how many replicas, or sets of components, fit by first fit.
//! Source of the rules: Karmada's `pkg/estimator/client/general.go` and
//! `pkg/estimator/scheduling_simulator_components.go`.

use std::collections::BTreeMap;

use openapi::karmada::Cluster;

use super::demand::{Demand, Part, Resource};

/// Pods assumed to fit on a node.
const PODS_PER_NODE: i64 = 110;

/// The nodes of a cluster by grade, each with the minimum of its grade.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Nodes {
    /// The resources of the nodes besides pods.
    resources: Vec<Resource>,
    runs: Vec<Run>,
    /// Free amounts of a node, group by group, resource by resource.
    amounts: Vec<i64>,
}

/// Consecutive nodes with the same free capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    nodes: i64,
    /// Free pods of each node.
    pods: i64,
}

/// The request of a replica: the index of each resource, if nodes have it, and the amount.
type Each = Vec<(Option<usize>, i64)>;

impl Nodes {
    /// `None` if a cluster reports no grades or invalid ones.
    pub(crate) fn of(cluster: &Cluster) -> Option<Self> {
        let modelings = &cluster
            .status
            .resource_summary
            .as_ref()?
            .allocatable_modelings;
        let models = &cluster.spec.resource_models;
        if modelings.is_empty()
            || models.is_empty()
            || modelings.iter().any(|grade| grade.count < 0)
        {
            return None;
        }
        let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
        for grade in modelings {
            *counts.entry(grade.grade).or_default() += grade.count;
        }
        // Of several models of one grade, or ranges of one resource, the last counts.
        let grades: BTreeMap<i64, BTreeMap<Resource, i64>> = models
            .iter()
            .map(|model| {
                let ranges = model.ranges.iter().map(|range| {
                    let resource = Resource::named(&range.name);
                    let least = resource.units(range.min);
                    (resource, least)
                });
                let free = ranges.filter(|(resource, _)| resource.is_modelled());
                (model.grade, free.collect())
            })
            .collect();
        let mut resources: Vec<Resource> =
            grades.values().flat_map(|r| r.keys().cloned()).collect();
        resources.sort();
        resources.dedup();
        let mut nodes = Self {
            resources,
            runs: Vec::new(),
            amounts: Vec::new(),
        };
        for (grade, free) in grades {
            let count = counts.get(&grade).copied().unwrap_or(0);
            let amounts: Vec<i64> = nodes
                .resources
                .iter()
                .map(|resource| free.get(resource).copied().unwrap_or(0))
                .collect();
            nodes.push(count, PODS_PER_NODE, &amounts);
        }
        Some(nodes)
    }

    /// How many replicas fit.
    pub(crate) fn replicas(&self, demand: &Demand) -> i64 {
        let each = self.each(Some(demand));
        let fit = self.rooms().map(|(run, amounts)| {
            let fits = fits(run.pods, amounts, &each);
            run.nodes.saturating_mul(fits)
        });
        fit.fold(0, i64::saturating_add)
    }

    /// How many sets of components fit, at most `bound`.
    pub(crate) fn sets(&self, set: &[Part], bound: i64) -> i64 {
        let mut nodes = self.clone();
        let set = nodes.prepared(set);
        let mut sets = 0;
        while sets < bound && nodes.take(&set) {
            sets += 1;
        }
        sets
    }

    /// Places a workload on the nodes; replicas that do not fit are left out.
    pub(crate) fn place(&mut self, parts: &[Part]) {
        let parts = self.prepared(parts);
        self.take(&parts);
    }

    fn each(&self, demand: Option<&Demand>) -> Each {
        let index = |of: &Resource| self.resources.iter().position(|r| r == of);
        let modeled = demand.into_iter().flat_map(Demand::modelled);
        modeled.map(|(of, units)| (index(of), units)).collect()
    }

    fn prepared(&self, parts: &[Part]) -> Vec<(Each, i64)> {
        let prepare = |part: &Part| (self.each(part.demand.as_ref()), part.replicas.max(0));
        parts.iter().map(prepare).collect()
    }

    fn rooms(&self) -> impl Iterator<Item = (Run, &[i64])> {
        let width = self.resources.len();
        let runs = self.runs.iter().enumerate();
        runs.map(move |(at, run)| (*run, &self.amounts[at * width..(at + 1) * width]))
    }

    /// Adds nodes; groups with the same free capacity are merged.
    fn push(&mut self, nodes: i64, pods: i64, amounts: &[i64]) {
        if nodes <= 0 {
            return;
        }
        let same = self.amounts.ends_with(amounts);
        match self.runs.last_mut() {
            Some(last) if last.pods == pods && same => last.nodes += nodes,
            _ => {
                self.runs.push(Run { nodes, pods });
                self.amounts.extend_from_slice(amounts);
            }
        }
    }

    /// Occupies capacity. Returns false if not everything fits; whatever fits is still placed.
    fn take(&mut self, parts: &[(Each, i64)]) -> bool {
        parts
            .iter()
            .all(|(each, replicas)| self.take_part(each, *replicas))
    }

    fn take_part(&mut self, each: &Each, replicas: i64) -> bool {
        let mut left = replicas;
        let mut after = Self {
            resources: std::mem::take(&mut self.resources),
            runs: Vec::with_capacity(self.runs.len() + 2),
            amounts: Vec::with_capacity(self.amounts.len() + 2),
        };
        let width = after.resources.len();
        for (at, run) in self.runs.iter().enumerate() {
            let amounts = &self.amounts[at * width..(at + 1) * width];
            let fits = fits(run.pods, amounts, each);
            let full = if fits == 0 {
                0
            } else {
                run.nodes.min(left / fits)
            };
            left -= full * fits;
            let partly = if full < run.nodes { left.min(fits) } else { 0 };
            left -= partly;
            let used = full + i64::from(partly > 0);
            for (nodes, taken) in [(full, fits), (used - full, partly), (run.nodes - used, 0)] {
                let rest = less(amounts, each, taken);
                after.push(nodes, (run.pods - taken).max(0), &rest);
            }
        }
        *self = after;
        left == 0
    }
}

/// How many replicas fit on a node. A resource that the node lacks counts as zero.
fn fits(pods: i64, amounts: &[i64], each: &Each) -> i64 {
    let by_amount = each.iter().map(|(index, units)| {
        let amount = index.map_or(0, |index| amounts[index]);
        amount / (*units).max(1)
    });
    by_amount.fold(pods, i64::min).max(0)
}

fn less(amounts: &[i64], each: &Each, replicas: i64) -> Vec<i64> {
    let mut amounts = amounts.to_vec();
    for (index, units) in each {
        if let Some(index) = index {
            let taken = units.saturating_mul(replicas);
            amounts[*index] = amounts[*index].saturating_sub(taken).max(0);
        }
    }
    amounts
}
