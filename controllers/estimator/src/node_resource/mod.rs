//! Estimates how many replicas fit on the nodes of a cluster.
//!
//! subject, assumed workloads ──► [`ParsedEstimateRequest`] ──nodes──► [`FreeCapacityOfNodes`] ──► a number
//!
//! Pure; copies only numbers from the nodes, so that they are not locked while replicas
//! are counted. Source of the rules: Karmada's `NodeResourceEstimator`
//! (`pkg/estimator/server/framework/plugins/noderesource`) and
//! `pkg/estimator/scheduling_simulator_components.go`.

use karmada_api::binding::Component;
use members::{NodeInfo, NodeInfos};
use scheduler::EstimateSubject;
use scheduler::core::{AssumedWorkload, ReplicaResourceRequest, ResourceName};
use serde_json::Value;

use crate::UNBOUNDED_REPLICAS;
use crate::node_claim::NodeClaimMatcher;

/// The requests of one pod to a node.
struct PodRequest {
    node_matcher: NodeClaimMatcher,
    resource_request: ReplicaResourceRequest,
}

impl PodRequest {
    fn from_requirements(requirements: Option<&Value>) -> Result<Self, String> {
        let demand = requirements
            .map(ReplicaResourceRequest::from_requirements)
            .unwrap_or_default();
        if demand.is_unreadable() {
            return Err("resourceRequest: invalid quantity".into());
        }
        Ok(Self {
            node_matcher: NodeClaimMatcher::from_requirements(requirements)?,
            resource_request: demand,
        })
    }
}

/// The objects to count.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ReplicasOrComponentSets {
    Replicas,
    Sets,
}

/// A parsed estimate request.
pub(crate) struct ParsedEstimateRequest {
    unit: ReplicasOrComponentSets,
    /// All distinct pods, of the request and of assumed workloads.
    pods: Vec<PodRequest>,
    /// Assumed workloads: for each the indexes of pods and their numbers.
    assumed: Vec<Vec<(usize, i64)>>,
    /// The requested pods: indexes and numbers.
    requested: Vec<(usize, i64)>,
}

impl ParsedEstimateRequest {
    pub(crate) fn from_subject(
        asked: EstimateSubject<'_>,
        assumed: &[impl AsRef<AssumedWorkload>],
    ) -> Result<Self, String> {
        let mut demand = Self {
            unit: ReplicasOrComponentSets::Replicas,
            pods: Vec::new(),
            assumed: Vec::new(),
            requested: Vec::new(),
        };
        for workload in assumed {
            let parts = demand.add_components(&workload.as_ref().components)?;
            demand.assumed.push(parts);
        }
        match asked {
            EstimateSubject::Replicas(requirements) => {
                demand.requested.push((demand.pods.len(), 1));
                demand
                    .pods
                    .push(PodRequest::from_requirements(requirements)?);
            }
            EstimateSubject::Sets { components, .. } => {
                demand.unit = ReplicasOrComponentSets::Sets;
                demand.requested = demand.add_components(components)?;
            }
        }
        Ok(demand)
    }

    fn add_components(&mut self, components: &[Component]) -> Result<Vec<(usize, i64)>, String> {
        let mut parts = Vec::with_capacity(components.len());
        for component in components {
            let pod = PodRequest::from_requirements(component.replica_requirements.as_ref());
            let pod = pod.map_err(|e| format!("component {:?}: {e}", component.name))?;
            parts.push((self.pods.len(), component.replicas.max(0)));
            self.pods.push(pod);
        }
        Ok(parts)
    }

    /// The free capacity of nodes, for the resources that any pod requests.
    pub(crate) fn node_capacity(&self, nodes: NodeInfos<'_>) -> FreeCapacityOfNodes {
        let requested = self
            .pods
            .iter()
            .flat_map(|pod| pod.resource_request.modeled());
        let mut resources: Vec<&ResourceName> = requested.map(|(resource, _)| resource).collect();
        resources.sort();
        resources.dedup();
        let ids: Vec<_> = resources
            .iter()
            .map(|resource| nodes.resource_id(resource.name()))
            .collect();
        let slots = nodes.resource_id(ResourceName::Pods.name());
        let mut nodes: Vec<NodeInfo<'_>> = nodes.iter().collect();
        if self.unit == ReplicasOrComponentSets::Sets || !self.assumed.is_empty() {
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
            let slots = slots.map_or(0, |id| ResourceName::Pods.units(node.free(id)));
            slots.max(0)
        });
        let ready = self.pods.iter().map(|pod| {
            let each = pod
                .resource_request
                .modeled()
                .filter_map(|(resource, units)| {
                    let index = resources.binary_search(&resource).ok()?;
                    Some((index, units.max(1)))
                });
            PodFitOnNodes {
                amounts: each.collect(),
                allowed: nodes.iter().map(|n| pod.node_matcher.matches(n)).collect(),
                first_free_node: 0,
            }
        });
        FreeCapacityOfNodes {
            resource_count: resources.len(),
            pod_fits: ready.collect(),
            pods: pods.collect(),
            free,
        }
    }

    /// How many replicas or sets fit.
    pub(crate) fn count(&self, mut capacity: FreeCapacityOfNodes) -> i64 {
        for workload in &self.assumed {
            capacity.occupy(workload);
        }
        if self.unit == ReplicasOrComponentSets::Replicas {
            let pod = self.requested.first().map_or(0, |(pod, _)| *pod);
            return capacity.fit_replicas(pod).min(UNBOUNDED_REPLICAS);
        }
        // A set without pods always fits.
        if self.requested.iter().all(|(_, replicas)| *replicas == 0) {
            return UNBOUNDED_REPLICAS;
        }
        let mut sets = 0;
        while sets < UNBOUNDED_REPLICAS && capacity.occupy(&self.requested) {
            sets += 1;
        }
        sets
    }
}

/// How one pod fits on the nodes.
struct PodFitOnNodes {
    /// Requested amounts, with the index of their resource.
    amounts: Vec<(usize, i64)>,
    /// Whether the pod may run on each node.
    allowed: Vec<bool>,
    /// The first node that may have capacity for it; nodes are only ever filled.
    first_free_node: usize,
}

/// The free capacity of nodes, while they are filled.
pub(crate) struct FreeCapacityOfNodes {
    /// Number of resources.
    resource_count: usize,
    pod_fits: Vec<PodFitOnNodes>,
    /// Free pods of each node.
    pods: Vec<i64>,
    /// Free amounts of each node, resource by resource.
    free: Vec<i64>,
}

impl FreeCapacityOfNodes {
    pub(crate) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    fn fits(&self, ready: &PodFitOnNodes, node: usize) -> i64 {
        if !ready.allowed[node] {
            return 0;
        }
        let free = &self.free[node * self.resource_count..(node + 1) * self.resource_count];
        let by_amount = ready
            .amounts
            .iter()
            .map(|(index, units)| free[*index] / units);
        by_amount.fold(self.pods[node], i64::min)
    }

    fn fit_replicas(&self, pod: usize) -> i64 {
        let ready = &self.pod_fits[pod];
        let fits = (0..self.pods.len()).map(|node| self.fits(ready, node));
        fits.fold(0, i64::saturating_add)
    }

    /// Places pods on nodes. Returns false if not all fit; those that fit are still placed.
    fn occupy(&mut self, parts: &[(usize, i64)]) -> bool {
        parts.iter().all(|(pod, replicas)| {
            let mut left = *replicas;
            while left > 0 && self.pod_fits[*pod].first_free_node < self.pods.len() {
                let (ready, node) = (&self.pod_fits[*pod], self.pod_fits[*pod].first_free_node);
                let fits = self.fits(ready, node);
                let taken = fits.min(left);
                for (index, units) in &ready.amounts {
                    self.free[node * self.resource_count + index] -= units * taken;
                }
                self.pods[node] -= taken;
                left -= taken;
                if taken == fits {
                    self.pod_fits[*pod].first_free_node += 1;
                }
            }
            left == 0
        })
    }
}

#[cfg(test)]
mod tests;
