//! The graph of owners and dependents, from the heads of all objects. Pure.

use std::collections::{HashMap, HashSet};

use machinery::{Gvr, Object};

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) resource: Gvr,
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
}

struct Node {
    place: Place,
    /// Owner uid, and whether its foreground deletion waits for this object.
    owners: Box<[(Box<str>, bool)]>,
    deleting: bool,
}

impl Node {
    fn blocks(&self, owner: &str) -> bool {
        self.owners
            .iter()
            .any(|(o, blocks)| &**o == owner && *blocks)
    }
}

/// Who belongs to whom.
#[derive(Default)]
pub(crate) struct Graph {
    nodes: HashMap<Box<str>, Node>,
    dependents: HashMap<Box<str>, HashSet<Box<str>>>,
}

impl Graph {
    /// Takes in the present state of an object; gives owners whose deletion it holds
    /// up no longer.
    pub(crate) fn observe(&mut self, resource: &Gvr, object: &Object) -> Vec<Place> {
        let head = object.head();
        self.unlink(&head.uid);
        for owner in &head.owners {
            self.dependents
                .entry(owner.uid.clone())
                .or_default()
                .insert(head.uid.clone());
        }
        let node = Node {
            place: Place {
                resource: resource.clone(),
                namespace: head.namespace.clone(),
                name: head.name.clone(),
                uid: head.uid.clone(),
            },
            owners: head
                .owners
                .iter()
                .map(|o| (o.uid.clone(), o.block_owner_deletion))
                .collect(),
            deleting: head.deleting,
        };
        let Some(before) = self.nodes.insert(head.uid.clone(), node) else {
            return Vec::new();
        };
        let released = before
            .owners
            .iter()
            .filter(|(o, blocks)| *blocks && !self.nodes[&head.uid].blocks(o));
        released.filter_map(|(o, _)| self.waiting(o)).collect()
    }

    /// Whether there may be something to do about an object: it is being deleted, or
    /// an owner is unknown, on its way out or in another namespace.
    pub(crate) fn suspicious(&self, uid: &str) -> bool {
        let Some(node) = self.nodes.get(uid) else {
            return false;
        };
        let sound = |owner: &Node| {
            let namespace = &owner.place.namespace;
            !owner.deleting && (namespace.is_empty() || *namespace == node.place.namespace)
        };
        let mut owners = node.owners.iter();
        node.deleting || owners.any(|(o, _)| self.nodes.get(o).is_none_or(|o| !sound(o)))
    }

    /// Forgets an object; its dependents are to be looked at, and so are owners that
    /// may wait for it.
    pub(crate) fn forget(&mut self, uid: &str) -> Vec<Place> {
        self.unlink(uid);
        let Some(node) = self.nodes.remove(uid) else {
            return Vec::new();
        };
        let owners = node.owners.iter().filter_map(|(uid, _)| self.waiting(uid));
        owners.chain(self.dependents(uid)).collect()
    }

    fn unlink(&mut self, uid: &str) {
        let Some(node) = self.nodes.get(uid) else {
            return;
        };
        for (owner, _) in &node.owners {
            if let Some(siblings) = self.dependents.get_mut(owner) {
                siblings.remove(uid);
                if siblings.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }

    fn waiting(&self, uid: &str) -> Option<Place> {
        let node = self.nodes.get(uid).filter(|n| n.deleting)?;
        Some(node.place.clone())
    }

    pub(crate) fn place(&self, uid: &str) -> Option<Place> {
        self.nodes.get(uid).map(|n| n.place.clone())
    }

    /// Everything that names `uid` as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Place> {
        let of = self.dependents.get(uid);
        of.into_iter()
            .flatten()
            .filter_map(|d| self.place(d))
            .collect()
    }

    /// Whether a foreground deletion of `uid` still waits for a dependent.
    pub(crate) fn blocked(&self, uid: &str) -> bool {
        let mut of = self.dependents.get(uid).into_iter().flatten();
        of.any(|d| self.nodes.get(d).is_some_and(|n| n.blocks(uid)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PODS: Gvr = Gvr::constant("", "v1", "pods");

    fn object(uid: &str, owners: &[(&str, bool)]) -> Object {
        let owners: Vec<_> = owners
            .iter()
            .map(|(uid, block)| json!({"uid": uid, "blockOwnerDeletion": block}))
            .collect();
        Object::from_value(&json!({"metadata": {"name": uid, "namespace": "n", "uid": uid, "ownerReferences": owners}})).unwrap()
    }

    fn names(places: Vec<Place>) -> Vec<String> {
        let mut names: Vec<String> = places.into_iter().map(|p| p.name.to_string()).collect();
        names.sort();
        names
    }

    #[test]
    fn dependents_are_found_and_forgotten() {
        let mut graph = Graph::default();
        graph.observe(&PODS, &object("child", &[("owner", true)]));
        assert!(graph.suspicious("child"), "the owner is not known yet");
        graph.observe(&PODS, &object("owner", &[]));
        assert!(!graph.suspicious("child") && !graph.suspicious("owner"));
        assert!(graph.blocked("owner"));
        assert_eq!(names(graph.dependents("owner")), ["child"]);
        assert_eq!(names(graph.forget("owner")), ["child"]);
        assert_eq!(names(graph.forget("child")), [] as [&str; 0]);
        assert!(!graph.blocked("owner"));
    }

    #[test]
    fn a_changed_reference_moves_the_object() {
        let mut graph = Graph::default();
        graph.observe(&PODS, &object("a", &[]));
        graph.observe(&PODS, &object("c", &[("a", false)]));
        assert!(!graph.blocked("a"));
        graph.observe(&PODS, &object("c", &[]));
        assert!(graph.dependents("a").is_empty());
    }

    #[test]
    fn an_owner_in_deletion_hears_that_it_is_free() {
        let mut graph = Graph::default();
        graph.observe(&PODS, &object("a", &[]));
        graph.observe(&PODS, &object("c", &[("a", true)]));
        let mut leaving = object("a", &[]).value().unwrap();
        leaving["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
        graph.observe(&PODS, &Object::from_value(&leaving).unwrap());
        assert!(graph.suspicious("c"));
        assert_eq!(names(graph.observe(&PODS, &object("c", &[]))), ["a"]);
    }

    #[test]
    fn an_owner_of_another_namespace_is_suspicious() {
        let mut graph = Graph::default();
        let mut elsewhere = object("a", &[]).value().unwrap();
        elsewhere["metadata"]["namespace"] = "m".into();
        graph.observe(&PODS, &Object::from_value(&elsewhere).unwrap());
        graph.observe(&PODS, &object("c", &[("a", false)]));
        assert!(graph.suspicious("c"));
    }
}
