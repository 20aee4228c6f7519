//! Nodes one by one, and the room that each has left.
//!
//! Enters: what nodes tell of themselves beside numbers, as short as it can be told.
//! Leaves: a [`Node`] at a time, to be read where it is kept.

use machinery::Quantity;
use machinery::object::Label;
use openapi::karmada::cluster::Taint;

use crate::sums::{Amounts, Sums, Total};

/// What decides whether a pod may go to a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shape {
    /// `key=value`, with commas between: neither character is in a key or a value.
    labels: Box<str>,
    taints: Box<[Taint]>,
    unschedulable: bool,
}

impl Shape {
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

/// A resource, as the nodes of one member know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceId(pub(crate) u16);

/// A node that is there.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    pub name: &'a str,
    pub(crate) shape: &'a Shape,
    pub(crate) allocatable: &'a Amounts,
    pub(crate) used: &'a Total,
}

impl<'a> Node<'a> {
    pub fn label(&self, key: &str) -> Option<&'a str> {
        let pairs = self.shape.labels.split(',');
        let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
        pairs.find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    pub fn taints(&self) -> &'a [Taint] {
        &self.shape.taints
    }

    pub fn is_unschedulable(&self) -> bool {
        self.shape.unschedulable
    }

    /// What its pods leave of a resource.
    pub fn free(&self, resource: ResourceId) -> Quantity {
        let ResourceId(id) = resource;
        let has = self.allocatable.iter().find(|(k, _)| *k == id);
        has.map_or(Quantity::ZERO, |(_, q)| *q) - self.used.get(id)
    }
}

/// All nodes of a member.
#[derive(Clone, Copy)]
pub struct Nodes<'a>(pub(crate) &'a Sums);

impl<'a> Nodes<'a> {
    /// `None`: no node and no pod knows of it.
    pub fn resource(&self, name: &str) -> Option<ResourceId> {
        self.0.known(name).map(ResourceId)
    }

    /// In no order.
    pub fn iter(&self) -> impl Iterator<Item = Node<'a>> {
        self.0.nodes()
    }
}
