//! Tracks the free capacity of nodes and which pods use it. Pure.

use std::collections::HashMap;

use machinery::Quantity;

/// The capacity of a node or the requests of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ComputeResources {
    pub(crate) cpu: Quantity,
    pub(crate) memory: Quantity,
    pub(crate) pods: i64,
}

impl ComputeResources {
    fn fits(&self, requests: &Self) -> bool {
        self.cpu >= requests.cpu && self.memory >= requests.memory && self.pods >= requests.pods
    }

    fn subtract(&mut self, requests: &Self) {
        self.cpu -= requests.cpu;
        self.memory -= requests.memory;
        self.pods -= requests.pods;
    }

    fn add(&mut self, requests: &Self) {
        self.cpu += requests.cpu;
        self.memory += requests.memory;
        self.pods += requests.pods;
    }
}

struct HollowNodeFreeCapacity {
    name: String,
    free: ComputeResources,
}

/// The free capacity of all nodes, and the node of each pod.
#[derive(Default)]
pub(crate) struct HollowClusterAllocations {
    nodes: Vec<HollowNodeFreeCapacity>,
    assigned_pods: HashMap<String, (usize, ComputeResources)>,
}

impl HollowClusterAllocations {
    pub(crate) fn new(names: impl Iterator<Item = String>, each: ComputeResources) -> Self {
        let nodes = names
            .map(|name| HollowNodeFreeCapacity { name, free: each })
            .collect();
        Self {
            nodes,
            assigned_pods: HashMap::new(),
        }
    }

    pub(crate) fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|n| &*n.name)
    }

    /// Assigns the emptiest node with enough capacity to a pod; a pod with a node keeps it.
    pub(crate) fn assign_node(&mut self, pod: &str, requests: ComputeResources) -> Option<&str> {
        let at = match self.assigned_pods.get(pod) {
            Some((at, _)) => *at,
            None => {
                let at = (0..self.nodes.len())
                    .filter(|i| self.nodes[*i].free.fits(&requests))
                    .max_by_key(|i| (self.nodes[*i].free.pods, self.nodes.len() - i))?;
                self.allocate(pod, at, requests);
                at
            }
        };
        Some(&self.nodes[at].name)
    }

    /// Records a node that another process assigned; unknown nodes are ignored.
    pub(crate) fn observe(&mut self, pod: &str, node: &str, requests: ComputeResources) {
        if !self.assigned_pods.contains_key(pod)
            && let Some(at) = self.nodes.iter().position(|n| n.name == node)
        {
            self.allocate(pod, at, requests);
        }
    }

    /// Frees the capacity of a pod. Returns whether it had any.
    pub(crate) fn release(&mut self, pod: &str) -> bool {
        let Some((at, requests)) = self.assigned_pods.remove(pod) else {
            return false;
        };
        self.nodes[at].free.add(&requests);
        true
    }

    fn allocate(&mut self, pod: &str, at: usize, requests: ComputeResources) {
        self.nodes[at].free.subtract(&requests);
        self.assigned_pods.insert(pod.to_owned(), (at, requests));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod_slots(pods: i64) -> ComputeResources {
        ComputeResources {
            cpu: Quantity::from_milli(pods * 1000),
            memory: Quantity::from_bytes(1 << 30),
            pods,
        }
    }

    fn cpu_request(milli: i64) -> ComputeResources {
        ComputeResources {
            cpu: Quantity::from_milli(milli),
            memory: Quantity::default(),
            pods: 1,
        }
    }

    #[test]
    fn pods_spread_until_the_nodes_are_full() {
        let mut capacity =
            HollowClusterAllocations::new(["a", "b"].map(String::from).into_iter(), pod_slots(2));
        assert_eq!(capacity.assign_node("p1", cpu_request(1000)), Some("a"));
        assert_eq!(
            capacity.assign_node("p1", cpu_request(1000)),
            Some("a"),
            "a pod stays where it is"
        );
        assert_eq!(capacity.assign_node("p2", cpu_request(1500)), Some("b"));
        assert_eq!(capacity.assign_node("p3", cpu_request(600)), Some("a"));
        assert_eq!(
            capacity.assign_node("p4", cpu_request(600)),
            None,
            "no node has that much left"
        );
        assert!(capacity.release("p2") && !capacity.release("p2"));
        assert_eq!(capacity.assign_node("p4", cpu_request(600)), Some("b"));
    }

    #[test]
    fn pods_bound_by_others_count_once() {
        let mut capacity =
            HollowClusterAllocations::new(["a"].map(String::from).into_iter(), pod_slots(1));
        capacity.observe("p", "a", cpu_request(0));
        capacity.observe("p", "a", cpu_request(0));
        capacity.observe("q", "elsewhere", cpu_request(0));
        assert_eq!(capacity.assign_node("r", cpu_request(0)), None);
        capacity.release("p");
        assert_eq!(capacity.assign_node("r", cpu_request(0)), Some("a"));
    }
}
