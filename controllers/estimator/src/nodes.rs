//! Estimates how many replicas fit on the nodes of a cluster.
//!
//! subject, assumed workloads ──► [`NodeEstimate`] ──nodes──► [`NodeCapacity`] ──► a number
//!
//! Pure; copies only numbers from the nodes, so that they are not locked while replicas
//! are counted. Source of the rules: Karmada's `NodeResourceEstimator`
//! (`pkg/estimator/server/framework/plugins/noderesource`) and
//! `pkg/estimator/scheduling_simulator_components.go`.

use members::{Node, Nodes};
use openapi::karmada::binding::Component;
use scheduler::Asked;
use scheduler::core::{AssumedWorkload, Demand, Resource};
use serde_json::Value;

use crate::UNBOUNDED;
use crate::claim::Claim;

/// What one pod requests from a node.
struct Pod {
    claim: Claim,
    demand: Demand,
}

impl Pod {
    fn of(requirements: Option<&Value>) -> Result<Self, String> {
        let demand = requirements.map(Demand::of).unwrap_or_default();
        if demand.is_unreadable() {
            return Err("resourceRequest: invalid quantity".into());
        }
        Ok(Self {
            claim: Claim::of(requirements)?,
            demand,
        })
    }
}

/// What to count.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Goal {
    Replicas,
    Sets,
}

/// A parsed estimate request.
pub(crate) struct Estimate {
    goal: Goal,
    /// All distinct pods, of the request and of assumed workloads.
    pods: Vec<Pod>,
    /// Assumed workloads: for each the indexes of pods and their numbers.
    assumed: Vec<Vec<(usize, i64)>>,
    /// The requested pods: indexes and numbers.
    asked: Vec<(usize, i64)>,
}

impl Estimate {
    pub(crate) fn of(
        asked: Asked<'_>,
        assumed: &[impl AsRef<AssumedWorkload>],
    ) -> Result<Self, String> {
        let mut it = Self {
            goal: Goal::Replicas,
            pods: Vec::new(),
            assumed: Vec::new(),
            asked: Vec::new(),
        };
        for workload in assumed {
            let parts = it.parts(&workload.as_ref().components)?;
            it.assumed.push(parts);
        }
        match asked {
            Asked::Replicas(requirements) => {
                it.asked.push((it.pods.len(), 1));
                it.pods.push(Pod::of(requirements)?);
            }
            Asked::Sets { components, .. } => {
                it.goal = Goal::Sets;
                it.asked = it.parts(components)?;
            }
        }
        Ok(it)
    }

    fn parts(&mut self, components: &[Component]) -> Result<Vec<(usize, i64)>, String> {
        let mut parts = Vec::with_capacity(components.len());
        for component in components {
            let pod = Pod::of(component.replica_requirements.as_ref());
            let pod = pod.map_err(|e| format!("component {:?}: {e}", component.name))?;
            parts.push((self.pods.len(), component.replicas.max(0)));
            self.pods.push(pod);
        }
        Ok(parts)
    }

    /// The free capacity of nodes, for the resources that any pod requests.
    pub(crate) fn rooms(&self, nodes: Nodes<'_>) -> Rooms {
        let requested = self.pods.iter().flat_map(|pod| pod.demand.modelled());
        let mut resources: Vec<&Resource> = requested.map(|(resource, _)| resource).collect();
        resources.sort();
        resources.dedup();
        let ids: Vec<_> = resources
            .iter()
            .map(|resource| nodes.resource(resource.name()))
            .collect();
        let slots = nodes.resource(Resource::Pods.name());
        let mut nodes: Vec<Node<'_>> = nodes.iter().collect();
        if self.goal == Goal::Sets || !self.assumed.is_empty() {
            // The result of first fit depends on the order.
            nodes.sort_by_key(|node| node.name);
        }
        let mut free = Vec::with_capacity(nodes.len() * resources.len());
        for node in &nodes {
            let amounts = resources
                .iter()
                .zip(&ids)
                .map(|(resource, id)| id.map_or(0, |id| resource.units(node.free(id)).max(0)));
            free.extend(amounts);
        }
        let pods = nodes.iter().map(|node| {
            let slots = slots.map_or(0, |id| Resource::Pods.units(node.free(id)));
            slots.max(0)
        });
        let ready = self.pods.iter().map(|pod| {
            let each = pod.demand.modelled().filter_map(|(resource, units)| {
                let index = resources.binary_search(&resource).ok()?;
                Some((index, units.max(1)))
            });
            Ready {
                each: each.collect(),
                open: nodes.iter().map(|n| pod.claim.is_met_by(n)).collect(),
                first: 0,
            }
        });
        Rooms {
            width: resources.len(),
            ready: ready.collect(),
            pods: pods.collect(),
            free,
        }
    }

    /// How many replicas or sets fit.
    pub(crate) fn count(&self, mut capacity: Rooms) -> i64 {
        for workload in &self.assumed {
            capacity.take(workload);
        }
        if self.goal == Goal::Replicas {
            let pod = self.asked.first().map_or(0, |(pod, _)| *pod);
            return capacity.replicas(pod).min(UNBOUNDED);
        }
        // A set without pods always fits.
        if self.asked.iter().all(|(_, replicas)| *replicas == 0) {
            return UNBOUNDED;
        }
        let mut sets = 0;
        while sets < UNBOUNDED && capacity.take(&self.asked) {
            sets += 1;
        }
        sets
    }
}

/// How one pod fits on the nodes.
struct Ready {
    /// Requested amounts, with the index of their resource.
    each: Vec<(usize, i64)>,
    /// Whether the pod may run on each node.
    open: Vec<bool>,
    /// The first node that may have capacity for it; nodes are only ever filled.
    first: usize,
}

/// The free capacity of nodes, while they are filled.
pub(crate) struct Rooms {
    /// Number of resources.
    width: usize,
    ready: Vec<Ready>,
    /// Free pods of each node.
    pods: Vec<i64>,
    /// Free amounts of each node, resource by resource.
    free: Vec<i64>,
}

impl Rooms {
    pub(crate) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    fn fits(&self, ready: &Ready, node: usize) -> i64 {
        if !ready.open[node] {
            return 0;
        }
        let free = &self.free[node * self.width..(node + 1) * self.width];
        let by_amount = ready.each.iter().map(|(index, units)| free[*index] / units);
        by_amount.fold(self.pods[node], i64::min)
    }

    fn replicas(&self, pod: usize) -> i64 {
        let ready = &self.ready[pod];
        let fits = (0..self.pods.len()).map(|node| self.fits(ready, node));
        fits.fold(0, i64::saturating_add)
    }

    /// Places pods on nodes. Returns false if not all fit; those that fit are still placed.
    fn take(&mut self, parts: &[(usize, i64)]) -> bool {
        parts.iter().all(|(pod, replicas)| {
            let mut left = *replicas;
            while left > 0 && self.ready[*pod].first < self.pods.len() {
                let (ready, node) = (&self.ready[*pod], self.ready[*pod].first);
                let fits = self.fits(ready, node);
                let taken = fits.min(left);
                for (index, units) in &ready.each {
                    self.free[node * self.width + index] -= units * taken;
                }
                self.pods[node] -= taken;
                left -= taken;
                if taken == fits {
                    self.ready[*pod].first += 1;
                }
            }
            left == 0
        })
    }
}

#[cfg(test)]
#[path = "nodes_tests.rs"]
mod tests;
