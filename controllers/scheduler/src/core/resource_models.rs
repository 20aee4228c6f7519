//! Estimates capacity by resource models: per node instead of by cluster totals.
//!
//! From `spec.resourceModels` and `status.resourceSummary.allocatableModelings` of a
//! cluster this computes how many replicas, or sets of components, fit by first fit.
//! Source of the rules: Karmada's `pkg/estimator/client/general.go` and
//! `pkg/estimator/scheduling_simulator_components.go`.

use std::collections::BTreeMap;

use karmada_api::Cluster;

use super::resource_request::{ComponentResourceRequest, ReplicaResourceRequest, ResourceName};

/// Pods assumed to fit on a node.
const PODS_PER_NODE: i64 = 110;

/// The nodes of a cluster by grade, each with the minimum of its grade.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModeledNodes {
    /// The resources of the nodes besides pods.
    resources: Vec<ResourceName>,
    groups: Vec<ModeledNodeGroup>,
    /// Free amounts of a node, group by group, resource by resource.
    amounts: Vec<i64>,
}

/// Consecutive nodes with the same free capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ModeledNodeGroup {
    nodes: i64,
    /// Free pods of each node.
    pods: i64,
}

/// The request of a replica: the index of each resource, if nodes have it, and the amount.
type IndexedResourceRequest = Vec<(Option<usize>, i64)>;

impl ModeledNodes {
    /// `None` if a cluster reports no grades or invalid ones.
    pub(crate) fn from_cluster(cluster: &Cluster) -> Option<Self> {
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
        let grades: BTreeMap<i64, BTreeMap<ResourceName, i64>> = models
            .iter()
            .map(|model| {
                let ranges = model.ranges.iter().map(|range| {
                    let resource = ResourceName::from_name(&range.name);
                    let least = resource.units(range.min);
                    (resource, least)
                });
                let free = ranges.filter(|(resource, _)| resource.is_modeled());
                (model.grade, free.collect())
            })
            .collect();
        let mut resources: Vec<ResourceName> =
            grades.values().flat_map(|r| r.keys().cloned()).collect();
        resources.sort();
        resources.dedup();
        let mut nodes = Self {
            resources,
            groups: Vec::new(),
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
    pub(crate) fn fit_replicas(&self, demand: &ReplicaResourceRequest) -> i64 {
        let each = self.index_request(Some(demand));
        let fit = self.group_amounts().map(|(run, amounts)| {
            let fits = replicas_per_node(run.pods, amounts, &each);
            run.nodes.saturating_mul(fits)
        });
        fit.fold(0, i64::saturating_add)
    }

    /// How many sets of components fit, at most `bound`.
    pub(crate) fn fit_sets(&self, set: &[ComponentResourceRequest], bound: i64) -> i64 {
        let mut nodes = self.clone();
        let set = nodes.index_components(set);
        let mut sets = 0;
        while sets < bound && nodes.occupy(&set) {
            sets += 1;
        }
        sets
    }

    /// Places a workload on the nodes; replicas that do not fit are left out.
    pub(crate) fn place(&mut self, parts: &[ComponentResourceRequest]) {
        let parts = self.index_components(parts);
        self.occupy(&parts);
    }

    fn index_request(&self, demand: Option<&ReplicaResourceRequest>) -> IndexedResourceRequest {
        let index = |of: &ResourceName| self.resources.iter().position(|r| r == of);
        let modeled = demand.into_iter().flat_map(ReplicaResourceRequest::modeled);
        modeled.map(|(of, units)| (index(of), units)).collect()
    }

    fn index_components(
        &self,
        parts: &[ComponentResourceRequest],
    ) -> Vec<(IndexedResourceRequest, i64)> {
        let prepare = |part: &ComponentResourceRequest| {
            (
                self.index_request(part.request.as_ref()),
                part.replicas.max(0),
            )
        };
        parts.iter().map(prepare).collect()
    }

    fn group_amounts(&self) -> impl Iterator<Item = (ModeledNodeGroup, &[i64])> {
        let width = self.resources.len();
        let runs = self.groups.iter().enumerate();
        runs.map(move |(at, run)| (*run, &self.amounts[at * width..(at + 1) * width]))
    }

    /// Adds nodes; groups with the same free capacity are merged.
    fn push(&mut self, nodes: i64, pods: i64, amounts: &[i64]) {
        if nodes <= 0 {
            return;
        }
        let same = self.amounts.ends_with(amounts);
        match self.groups.last_mut() {
            Some(last) if last.pods == pods && same => last.nodes += nodes,
            _ => {
                self.groups.push(ModeledNodeGroup { nodes, pods });
                self.amounts.extend_from_slice(amounts);
            }
        }
    }

    /// Occupies capacity. Returns false if not everything fits; whatever fits is still placed.
    fn occupy(&mut self, parts: &[(IndexedResourceRequest, i64)]) -> bool {
        parts
            .iter()
            .all(|(each, replicas)| self.occupy_component(each, *replicas))
    }

    fn occupy_component(&mut self, each: &IndexedResourceRequest, replicas: i64) -> bool {
        let mut left = replicas;
        let mut after = Self {
            resources: std::mem::take(&mut self.resources),
            groups: Vec::with_capacity(self.groups.len() + 2),
            amounts: Vec::with_capacity(self.amounts.len() + 2),
        };
        let width = after.resources.len();
        for (at, run) in self.groups.iter().enumerate() {
            let amounts = &self.amounts[at * width..(at + 1) * width];
            let fits = replicas_per_node(run.pods, amounts, each);
            let full = if fits == 0 {
                0
            } else {
                run.nodes.min(left / fits)
            };
            left -= full * fits;
            let partly = if full < run.nodes { left.min(fits) } else { 0 };
            left -= partly;
            let used = full + i64::from(partly > 0);
            for (nodes, replicas_taken) in
                [(full, fits), (used - full, partly), (run.nodes - used, 0)]
            {
                let rest = subtract_replicas(amounts, each, replicas_taken);
                after.push(nodes, (run.pods - replicas_taken).max(0), &rest);
            }
        }
        *self = after;
        left == 0
    }
}

/// How many replicas fit on a node. A resource that the node lacks counts as zero.
fn replicas_per_node(pods: i64, amounts: &[i64], each: &IndexedResourceRequest) -> i64 {
    let by_amount = each.iter().map(|(index, units)| {
        let amount = index.map_or(0, |index| amounts[index]);
        amount / (*units).max(1)
    });
    by_amount.fold(pods, i64::min).max(0)
}

fn subtract_replicas(amounts: &[i64], each: &IndexedResourceRequest, replicas: i64) -> Vec<i64> {
    let mut amounts = amounts.to_vec();
    for (index, units) in each {
        if let Some(index) = index {
            let used = units.saturating_mul(replicas);
            amounts[*index] = amounts[*index].saturating_sub(used).max(0);
        }
    }
    amounts
}
