//! Tracks the free capacity of nodes and which pods use it. Pure.

use std::collections::HashMap;

use machinery::Quantity;

/// The capacity of a node or the requests of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Room {
    pub(crate) cpu: Quantity,
    pub(crate) memory: Quantity,
    pub(crate) pods: i64,
}

impl Room {
    fn holds(&self, requests: &Self) -> bool {
        self.cpu >= requests.cpu && self.memory >= requests.memory && self.pods >= requests.pods
    }

    fn take(&mut self, requests: &Self) {
        self.cpu -= requests.cpu;
        self.memory -= requests.memory;
        self.pods -= requests.pods;
    }

    fn give(&mut self, requests: &Self) {
        self.cpu += requests.cpu;
        self.memory += requests.memory;
        self.pods += requests.pods;
    }
}

struct Node {
    name: String,
    free: Room,
}

/// The free capacity of all nodes, and the node of each pod.
#[derive(Default)]
pub(crate) struct Capacity {
    nodes: Vec<Node>,
    placed: HashMap<String, (usize, Room)>,
}

impl Capacity {
    pub(crate) fn new(names: impl Iterator<Item = String>, each: Room) -> Self {
        let nodes = names.map(|name| Node { name, free: each }).collect();
        Self {
            nodes,
            placed: HashMap::new(),
        }
    }

    pub(crate) fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|n| &*n.name)
    }

    /// Assigns the emptiest node with enough capacity to a pod; a pod with a node keeps it.
    pub(crate) fn place(&mut self, pod: &str, requests: Room) -> Option<&str> {
        let at = match self.placed.get(pod) {
            Some((at, _)) => *at,
            None => {
                let at = (0..self.nodes.len())
                    .filter(|i| self.nodes[*i].free.holds(&requests))
                    .max_by_key(|i| (self.nodes[*i].free.pods, self.nodes.len() - i))?;
                self.book(pod, at, requests);
                at
            }
        };
        Some(&self.nodes[at].name)
    }

    /// Records a node that another process assigned; unknown nodes are ignored.
    pub(crate) fn observe(&mut self, pod: &str, node: &str, requests: Room) {
        if !self.placed.contains_key(pod)
            && let Some(at) = self.nodes.iter().position(|n| n.name == node)
        {
            self.book(pod, at, requests);
        }
    }

    /// Frees the capacity of a pod. Returns whether it had any.
    pub(crate) fn release(&mut self, pod: &str) -> bool {
        let Some((at, requests)) = self.placed.remove(pod) else {
            return false;
        };
        self.nodes[at].free.give(&requests);
        true
    }

    fn book(&mut self, pod: &str, at: usize, requests: Room) {
        self.nodes[at].free.take(&requests);
        self.placed.insert(pod.to_owned(), (at, requests));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(pods: i64) -> Room {
        Room {
            cpu: Quantity::from_milli(pods * 1000),
            memory: Quantity::from_bytes(1 << 30),
            pods,
        }
    }

    fn ask(milli: i64) -> Room {
        Room {
            cpu: Quantity::from_milli(milli),
            memory: Quantity::default(),
            pods: 1,
        }
    }

    #[test]
    fn pods_spread_until_the_nodes_are_full() {
        let mut capacity = Capacity::new(["a", "b"].map(String::from).into_iter(), room(2));
        assert_eq!(capacity.place("p1", ask(1000)), Some("a"));
        assert_eq!(
            capacity.place("p1", ask(1000)),
            Some("a"),
            "a pod stays where it is"
        );
        assert_eq!(capacity.place("p2", ask(1500)), Some("b"));
        assert_eq!(capacity.place("p3", ask(600)), Some("a"));
        assert_eq!(
            capacity.place("p4", ask(600)),
            None,
            "no node has that much left"
        );
        assert!(capacity.release("p2") && !capacity.release("p2"));
        assert_eq!(capacity.place("p4", ask(600)), Some("b"));
    }

    #[test]
    fn pods_bound_by_others_count_once() {
        let mut capacity = Capacity::new(["a"].map(String::from).into_iter(), room(1));
        capacity.observe("p", "a", ask(0));
        capacity.observe("p", "a", ask(0));
        capacity.observe("q", "elsewhere", ask(0));
        assert_eq!(capacity.place("r", ask(0)), None);
        capacity.release("p");
        assert_eq!(capacity.place("r", ask(0)), Some("a"));
    }
}
