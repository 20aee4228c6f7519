//! Running totals of the nodes and pods of a member: each object is added and subtracted
//! as amounts by resource. Synchronous.
//!
//! Karmada: `pkg/controllers/status/cluster_status_controller.go` and `pkg/modeling`. One
//! deliberate difference: a node without free pod slots is skipped in the models; Karmada
//! stops there and ignores the nodes after it.

use std::collections::BTreeMap;

use ahash::AHashMap;
use machinery::Quantity;

use crate::nodes::{NodeInfo as NodeView, NodeSchedulingInfo};
use crate::running_total::{AmountsByResourceId, RunningTotalsByResourceId};

/// The part of the Cluster's status about nodes and resources (`nodeSummary`,
/// `resourceSummary`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterResourceSummary {
    pub total_nodes: i64,
    pub ready_nodes: i64,
    /// The allocatable amounts of all nodes. Includes `pods`, as do the other two.
    pub allocatable: BTreeMap<String, Quantity>,
    /// Requested by pods without a node.
    pub allocating: BTreeMap<String, Quantity>,
    /// Requested by pods with a node that have not terminated.
    pub allocated: BTreeMap<String, Quantity>,
}

/// A grade of `spec.resourceModels`: the minimum a node must have free of each resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceModelGradeMinimums {
    pub minimums: Vec<(String, Quantity)>,
}

/// The amounts of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TrackedNode {
    pub(crate) ready: bool,
    pub(crate) allocatable: AmountsByResourceId,
    /// Kept only if single nodes are tracked.
    pub(crate) scheduling: Option<Box<NodeSchedulingInfo>>,
}

/// The amounts of a pod; its requests include `pods: 1`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TrackedPod {
    /// `None`: not scheduled.
    pub(crate) node: Option<Box<str>>,
    /// Succeeded or Failed.
    pub(crate) terminated: bool,
    pub(crate) requests: AmountsByResourceId,
}

/// A node and the requests of its pods; pods may arrive before their node.
#[derive(Default)]
struct TrackedNodeUsage {
    node: Option<TrackedNode>,
    used: RunningTotalsByResourceId,
}

/// The nodes of a member cluster with the requests of their pods, and the sums over all.
#[derive(Default)]
pub(crate) struct ResourceTotals {
    resource_names: Vec<Box<str>>,
    resource_ids: AHashMap<Box<str>, u16>,
    usage_by_node: AHashMap<Box<str>, TrackedNodeUsage>,
    total_nodes: i64,
    ready_nodes: i64,
    allocatable: RunningTotalsByResourceId,
    allocating: RunningTotalsByResourceId,
    allocated: RunningTotalsByResourceId,
}

impl ResourceTotals {
    /// The id of a resource name, assigned on first use; `None` after 65536 names.
    pub(crate) fn intern_resource(&mut self, name: &str) -> Option<u16> {
        if let Some(id) = self.resource_ids.get(name) {
            return Some(*id);
        }
        let id = u16::try_from(self.resource_names.len()).ok()?;
        self.resource_names.push(name.into());
        self.resource_ids.insert(name.into(), id);
        Some(id)
    }

    /// The id of a resource name, if it has one.
    pub(crate) fn find_resource(&self, name: &str) -> Option<u16> {
        self.resource_ids.get(name).copied()
    }

    /// The existing nodes whose scheduling information is kept.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeView<'_>> {
        self.usage_by_node.iter().filter_map(|(name, usage)| {
            let node = usage.node.as_ref()?;
            Some(NodeView {
                name,
                scheduling: node.scheduling.as_deref()?,
                allocatable: &node.allocatable,
                used: &usage.used,
            })
        })
    }

    fn add_usage(&mut self, node: &str, requests: &AmountsByResourceId) {
        // An entry by name would copy the name of a known node.
        if let Some(usage) = self.usage_by_node.get_mut(node) {
            return usage.used.add(requests);
        }
        let mut usage = TrackedNodeUsage::default();
        usage.used.add(requests);
        self.usage_by_node.insert(node.into(), usage);
    }

    /// Replaces a node; `None`: it was deleted.
    pub(crate) fn set_node(&mut self, name: &str, node: Option<TrackedNode>) {
        let usage = self.usage_by_node.entry(name.into()).or_default();
        if let Some(old) = usage.node.take() {
            self.total_nodes -= 1;
            self.ready_nodes -= i64::from(old.ready);
            self.allocatable.subtract(&old.allocatable);
        }
        if let Some(new) = node {
            self.total_nodes += 1;
            self.ready_nodes += i64::from(new.ready);
            self.allocatable.add(&new.allocatable);
            usage.node = Some(new);
        }
        self.remove_if_unused(name);
    }

    pub(crate) fn add_pod(&mut self, pod: &TrackedPod) {
        match &pod.node {
            None => self.allocating.add(&pod.requests),
            Some(_) if pod.terminated => {}
            Some(node) => {
                self.allocated.add(&pod.requests);
                self.add_usage(node, &pod.requests);
            }
        }
    }

    pub(crate) fn remove_pod(&mut self, pod: &TrackedPod) {
        match &pod.node {
            None => self.allocating.subtract(&pod.requests),
            Some(_) if pod.terminated => {}
            Some(node) => {
                self.allocated.subtract(&pod.requests);
                if let Some(usage) = self.usage_by_node.get_mut(&**node) {
                    usage.used.subtract(&pod.requests);
                }
                self.remove_if_unused(node);
            }
        }
    }

    fn remove_if_unused(&mut self, name: &str) {
        let unused = |p: &TrackedNodeUsage| p.node.is_none() && p.used.is_empty();
        if self.usage_by_node.get(name).is_some_and(unused) {
            self.usage_by_node.remove(name);
        }
    }

    pub(crate) fn summary(&self) -> ClusterResourceSummary {
        let by_name = |total: &RunningTotalsByResourceId| {
            let name = |id: u16| self.resource_names[usize::from(id)].to_string();
            total.iter().map(|(id, q)| (name(id), q)).collect()
        };
        ClusterResourceSummary {
            total_nodes: self.total_nodes,
            ready_nodes: self.ready_nodes,
            allocatable: by_name(&self.allocatable),
            allocating: by_name(&self.allocating),
            allocated: by_name(&self.allocated),
        }
    }

    /// The number of nodes in each grade. For each resource a node's grade is the highest
    /// whose minimum it has free; the lowest of these grades counts.
    pub(crate) fn allocatable_modelings(&self, models: &[ResourceModelGradeMinimums]) -> Vec<i64> {
        let mut counts = vec![0; models.len()];
        // Resource → its minimum in each grade, ascending.
        let mut minima: BTreeMap<&str, Vec<Quantity>> = BTreeMap::new();
        for (name, min) in models.iter().flat_map(|m| &m.minimums) {
            minima.entry(name).or_default().push(*min);
        }
        if minima.is_empty() {
            return counts;
        }
        let pods = self.resource_ids.get("pods").copied();
        for usage in self.usage_by_node.values() {
            let Some(node) = &usage.node else { continue };
            let free_amount = |id: u16| {
                let has = node.allocatable.iter().find(|(k, _)| *k == id);
                has.map_or(Quantity::ZERO, |(_, q)| *q) - usage.used.get(id)
            };
            if pods.is_some_and(|id| free_amount(id) <= Quantity::ZERO) {
                continue;
            }
            let grade = minima.iter().map(|(name, minima)| {
                let free_amount = self
                    .resource_ids
                    .get(*name)
                    .map_or(Quantity::ZERO, |id| free_amount(*id));
                minima.partition_point(|min| *min <= free_amount)
            });
            // Grades count from one here; zero is below the first.
            if let Some(grade @ 1..) = grade.min()
                && let Some(count) = counts.get_mut(grade - 1)
            {
                *count += 1;
            }
        }
        counts
    }
}
