//! The graph of owners and dependents, built from the metadata of all objects. Pure.
//!
//! Nodes share their objects with the informers, because copies of all metadata would need
//! as much memory as the indexes of all controllers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use machinery::{Gvr, Object, ObjectMeta};

/// Identifies an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectIdentity {
    pub(crate) resource: Gvr,
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
}

struct OwnerGraphNode {
    resource: Arc<Gvr>,
    object: Object,
}

impl OwnerGraphNode {
    fn head(&self) -> &ObjectMeta {
        self.object.meta()
    }

    fn identity(&self) -> ObjectIdentity {
        let head = self.head();
        ObjectIdentity {
            resource: (*self.resource).clone(),
            namespace: head.namespace.clone(),
            name: head.name.clone(),
            uid: head.uid.clone(),
        }
    }

    /// Whether the foreground deletion of an owner waits for this object.
    fn blocks(&self, owner: &str) -> bool {
        let mut owners = self.head().owner_references.iter();
        owners.any(|o| &*o.uid == owner && o.block_owner_deletion)
    }
}

/// Owners and dependents, by uid.
#[derive(Default)]
pub(crate) struct OwnerGraph {
    nodes: HashMap<Box<str>, OwnerGraphNode>,
    dependents: HashMap<Box<str>, HashSet<Box<str>>>,
}

impl OwnerGraph {
    /// Updates an object. Returns owners whose foreground deletion it no longer blocks.
    pub(crate) fn observe(&mut self, resource: &Arc<Gvr>, object: &Object) -> Vec<ObjectIdentity> {
        let head = object.meta();
        let known = self.nodes.get(&head.uid);
        if known.is_none_or(|node| node.head().owner_references != head.owner_references) {
            self.unlink(&head.uid);
            for owner in &head.owner_references {
                self.dependents
                    .entry(owner.uid.clone())
                    .or_default()
                    .insert(head.uid.clone());
            }
        }
        let node = OwnerGraphNode {
            resource: Arc::clone(resource),
            object: object.clone(),
        };
        let Some(before) = self.nodes.insert(head.uid.clone(), node) else {
            return Vec::new();
        };
        let owners = before.head().owner_references.iter();
        let released =
            owners.filter(|o| o.block_owner_deletion && !self.nodes[&head.uid].blocks(&o.uid));
        released
            .filter_map(|o| self.deleting_owner(&o.uid))
            .collect()
    }

    /// Whether the collector may have to act on an object: it is being deleted, or an owner is
    /// unknown, being deleted or in another namespace.
    pub(crate) fn needs_processing(&self, uid: &str) -> bool {
        let Some(node) = self.nodes.get(uid) else {
            return false;
        };
        let sound = |owner: &OwnerGraphNode| {
            let (owner, own) = (owner.head(), &node.head().namespace);
            !owner.deleting && (owner.namespace.is_empty() || owner.namespace == *own)
        };
        let head = node.head();
        let mut owners = head.owner_references.iter();
        head.deleting || owners.any(|o| self.nodes.get(&o.uid).is_none_or(|o| !sound(o)))
    }

    /// Removes an object. Returns its dependents, and owners that may have waited for it: all
    /// of them need processing.
    pub(crate) fn remove(&mut self, uid: &str) -> Vec<ObjectIdentity> {
        self.unlink(uid);
        let Some(node) = self.nodes.remove(uid) else {
            return Vec::new();
        };
        let owners = node.head().owner_references.iter();
        let waiting = owners.filter_map(|o| self.deleting_owner(&o.uid));
        waiting.chain(self.dependents(uid)).collect()
    }

    fn unlink(&mut self, uid: &str) {
        let Some(node) = self.nodes.get(uid) else {
            return;
        };
        for owner in &node.head().owner_references {
            if let Some(siblings) = self.dependents.get_mut(&owner.uid) {
                siblings.remove(uid);
                if siblings.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
    }

    fn deleting_owner(&self, uid: &str) -> Option<ObjectIdentity> {
        let node = self.nodes.get(uid).filter(|n| n.head().deleting)?;
        Some(node.identity())
    }

    pub(crate) fn identity(&self, uid: &str) -> Option<ObjectIdentity> {
        self.nodes.get(uid).map(OwnerGraphNode::identity)
    }

    /// All objects with `uid` as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<ObjectIdentity> {
        let of = self.dependents.get(uid);
        of.into_iter()
            .flatten()
            .filter_map(|d| self.identity(d))
            .collect()
    }

    /// Whether a dependent still blocks the foreground deletion of `uid`.
    pub(crate) fn is_deletion_blocked(&self, uid: &str) -> bool {
        let mut of = self.dependents.get(uid).into_iter().flatten();
        of.any(|d| self.nodes.get(d).is_some_and(|n| n.blocks(uid)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pods() -> Arc<Gvr> {
        Arc::new(Gvr::from_static("", "v1", "pods"))
    }

    fn object(uid: &str, owners: &[(&str, bool)]) -> Object {
        let owners: Vec<_> = owners
            .iter()
            .map(|(uid, block)| json!({"uid": uid, "blockOwnerDeletion": block}))
            .collect();
        Object::from_value(&json!({"metadata": {"name": uid, "namespace": "n", "uid": uid, "ownerReferences": owners}})).unwrap()
    }

    fn names(places: Vec<ObjectIdentity>) -> Vec<String> {
        let mut names: Vec<String> = places.into_iter().map(|p| p.name.to_string()).collect();
        names.sort();
        names
    }

    #[test]
    fn dependents_are_found_and_forgotten() {
        let mut graph = OwnerGraph::default();
        graph.observe(&pods(), &object("child", &[("owner", true)]));
        assert!(
            graph.needs_processing("child"),
            "the owner is not known yet"
        );
        graph.observe(&pods(), &object("owner", &[]));
        assert!(!graph.needs_processing("child") && !graph.needs_processing("owner"));
        assert!(graph.is_deletion_blocked("owner"));
        assert_eq!(names(graph.dependents("owner")), ["child"]);
        assert_eq!(names(graph.remove("owner")), ["child"]);
        assert_eq!(names(graph.remove("child")), [] as [&str; 0]);
        assert!(!graph.is_deletion_blocked("owner"));
    }

    #[test]
    fn a_changed_reference_moves_the_object() {
        let mut graph = OwnerGraph::default();
        graph.observe(&pods(), &object("a", &[]));
        graph.observe(&pods(), &object("c", &[("a", false)]));
        assert!(!graph.is_deletion_blocked("a"));
        graph.observe(&pods(), &object("c", &[]));
        assert!(graph.dependents("a").is_empty());
    }

    #[test]
    fn a_deleting_owner_is_returned_when_unblocked() {
        let mut graph = OwnerGraph::default();
        graph.observe(&pods(), &object("a", &[]));
        graph.observe(&pods(), &object("c", &[("a", true)]));
        let mut leaving = object("a", &[]).value().unwrap();
        leaving["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
        graph.observe(&pods(), &Object::from_value(&leaving).unwrap());
        assert!(graph.needs_processing("c"));
        assert_eq!(names(graph.observe(&pods(), &object("c", &[]))), ["a"]);
    }

    #[test]
    fn an_owner_of_another_namespace_needs_processing() {
        let mut graph = OwnerGraph::default();
        let mut elsewhere = object("a", &[]).value().unwrap();
        elsewhere["metadata"]["namespace"] = "m".into();
        graph.observe(&pods(), &Object::from_value(&elsewhere).unwrap());
        graph.observe(&pods(), &object("c", &[("a", false)]));
        assert!(graph.needs_processing("c"));
    }
}
