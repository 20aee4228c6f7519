//! Single nodes of a member, with the resources that each has free. They are read in
//! place; what decides about scheduling is kept as compactly as possible.

use karmada_api::cluster::Taint;
use machinery::Quantity;
use machinery::object::Label;

use crate::running_total::{AmountsByResourceId, RunningTotalsByResourceId};

/// The facts that decide whether a pod can be scheduled to a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeSchedulingInfo {
    /// `key=value` pairs separated by commas; neither character occurs in a key or a
    /// value.
    labels: Box<str>,
    taints: Box<[Taint]>,
    unschedulable: bool,
}

impl NodeSchedulingInfo {
    pub(crate) fn new(labels: &[Label], taints: Vec<Taint>, unschedulable: bool) -> Self {
        let pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let mut taints = taints;
        for taint in &mut taints {
            taint.time_added = None;
        }
        Self {
            labels: pairs.join(",").into(),
            taints: taints.into(),
            unschedulable,
        }
    }
}

/// The id of a resource name, valid for the nodes of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceNameId(pub(crate) u16);

/// An existing node and what its pods use (kube-scheduler's `NodeInfo`).
#[derive(Clone, Copy)]
pub struct NodeInfo<'a> {
    pub name: &'a str,
    pub(crate) scheduling: &'a NodeSchedulingInfo,
    pub(crate) allocatable: &'a AmountsByResourceId,
    pub(crate) used: &'a RunningTotalsByResourceId,
}

impl<'a> NodeInfo<'a> {
    pub fn label(&self, key: &str) -> Option<&'a str> {
        let pairs = self.scheduling.labels.split(',');
        let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
        pairs.find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    pub fn taints(&self) -> &'a [Taint] {
        &self.scheduling.taints
    }

    pub fn is_unschedulable(&self) -> bool {
        self.scheduling.unschedulable
    }

    /// The allocatable amount of a resource minus the requests of the node's pods.
    pub fn free(&self, resource: ResourceNameId) -> Quantity {
        let ResourceNameId(id) = resource;
        let has = self.allocatable.iter().find(|(k, _)| *k == id);
        has.map_or(Quantity::ZERO, |(_, q)| *q) - self.used.get(id)
    }
}
