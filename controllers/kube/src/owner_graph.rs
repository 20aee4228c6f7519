//! The graph of owners and dependents, built from the metadata of all objects. Pure.
//!
//! Nodes share their objects with the informers, because copies of all metadata would need
//! as much memory as the indexes of all controllers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use flotilla_runtime::RestMapping;
use machinery::names::split_api_version;
use machinery::object::OwnerReference;
use machinery::{Gvr, Object, ObjectMeta};

/// How many objects are looked at for a circle.
const MAX_WAITING_OBJECTS: usize = 10_000;

/// Identifies an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectIdentity {
    pub(crate) resource: Gvr,
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
}

struct OwnerGraphNode {
    mapping: Arc<RestMapping>,
    object: Object,
}

impl OwnerGraphNode {
    fn head(&self) -> &ObjectMeta {
        self.object.meta()
    }

    fn identity(&self) -> ObjectIdentity {
        let head = self.head();
        ObjectIdentity {
            resource: self.mapping.gvr.clone(),
            namespace: head.namespace.clone(),
            name: head.name.clone(),
            uid: head.uid.clone(),
        }
    }

    /// Whether a reference from an object of `namespace`, with the uid of this object, names it:
    /// its kind, whatever the version, its name, and a namespace in which it is looked up.
    fn is_named_by(&self, reference: &OwnerReference, namespace: &str) -> bool {
        let (head, kind) = (self.head(), &self.mapping.gvk);
        let (group, _) = split_api_version(&reference.api_version);
        *kind.group == *group
            && *kind.kind == *reference.kind
            && head.name == reference.name
            && (head.namespace.is_empty() || *head.namespace == *namespace)
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
    pub(crate) fn observe(
        &mut self,
        mapping: &Arc<RestMapping>,
        object: &Object,
    ) -> Vec<ObjectIdentity> {
        let head = object.meta();
        let existing_node = self.nodes.get(&head.uid);
        if existing_node.is_none_or(|node| node.head().owner_references != head.owner_references) {
            self.unlink(&head.uid);
            for owner in &head.owner_references {
                self.dependents
                    .entry(owner.uid.clone())
                    .or_default()
                    .insert(head.uid.clone());
            }
        }
        let node = OwnerGraphNode {
            mapping: Arc::clone(mapping),
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
    /// unknown, being deleted, or not the object that the reference names.
    pub(crate) fn needs_processing(&self, uid: &str) -> bool {
        let Some(node) = self.nodes.get(uid) else {
            return false;
        };
        let head = node.head();
        let is_sound = |reference: &OwnerReference| {
            let owner = self.nodes.get(&reference.uid);
            owner.is_some_and(|owner| {
                !owner.head().deleting && owner.is_named_by(reference, &head.namespace)
            })
        };
        head.deleting || !head.owner_references.iter().all(is_sound)
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

    pub(crate) fn is_deleting(&self, uid: &str) -> bool {
        self.nodes.get(uid).is_some_and(|n| n.head().deleting)
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

    /// The dependents that block the foreground deletion of `uid`. Those that wait for `uid` themselves
    /// do not: in a circle of owners whose objects are all being deleted, each would wait for the next.
    pub(crate) fn blocking_dependents(&self, uid: &str) -> Vec<ObjectIdentity> {
        let blocking = self.blocking_nodes(uid);
        let blocking = blocking.filter(|node| !self.waits_for(&node.head().uid, uid));
        blocking.map(OwnerGraphNode::identity).collect()
    }

    fn blocking_nodes(&self, uid: &str) -> impl Iterator<Item = &OwnerGraphNode> {
        let of = self.dependents.get(uid).into_iter().flatten();
        let nodes = of.filter_map(|dependent| self.nodes.get(dependent));
        nodes.filter(move |node| node.blocks(uid))
    }

    /// Whether the deletion of an object waits for that of another, over at most
    /// [`MAX_WAITING_OBJECTS`] objects that are being deleted.
    fn waits_for(&self, uid: &str, other: &str) -> bool {
        let (mut visited, mut open) = (HashSet::new(), vec![uid]);
        while let Some(next) = open.pop() {
            if next == other {
                return true;
            }
            if visited.len() < MAX_WAITING_OBJECTS && self.is_deleting(next) && visited.insert(next)
            {
                open.extend(self.blocking_nodes(next).map(|node| &*node.head().uid));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::Gvk;
    use serde_json::json;

    fn pods() -> Arc<RestMapping> {
        Arc::new(RestMapping {
            gvk: Gvk::from_static("", "v1", "Pod"),
            gvr: Gvr::from_static("", "v1", "pods"),
            api_version: "v1".into(),
            namespaced: true,
        })
    }

    fn object(uid: &str, owners: &[(&str, bool)]) -> Object {
        let owners: Vec<_> = owners
            .iter()
            .map(|(uid, block)| {
                json!({"apiVersion": "v1", "kind": "Pod", "name": uid, "uid": uid,
                    "blockOwnerDeletion": block})
            })
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
        assert_eq!(names(graph.blocking_dependents("owner")), ["child"]);
        assert_eq!(names(graph.dependents("owner")), ["child"]);
        assert_eq!(names(graph.remove("owner")), ["child"]);
        assert_eq!(names(graph.remove("child")), [] as [&str; 0]);
        assert!(graph.blocking_dependents("owner").is_empty());
    }

    #[test]
    fn a_changed_reference_moves_the_object() {
        let mut graph = OwnerGraph::default();
        graph.observe(&pods(), &object("a", &[]));
        graph.observe(&pods(), &object("c", &[("a", false)]));
        assert!(graph.blocking_dependents("a").is_empty());
        graph.observe(&pods(), &object("c", &[]));
        assert!(graph.dependents("a").is_empty());
    }

    #[test]
    fn the_objects_of_a_circle_do_not_wait_for_each_other() {
        let deleting = |uid: &str, owners: &[(&str, bool)]| {
            let mut object = object(uid, owners).value().unwrap();
            object["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
            Object::from_value(&object).unwrap()
        };
        let mut graph = OwnerGraph::default();
        // a owns b, b owns c, c owns a and itself, and c owns leaf.
        graph.observe(&pods(), &deleting("a", &[("c", true)]));
        graph.observe(&pods(), &deleting("b", &[("a", true)]));
        graph.observe(&pods(), &object("c", &[("b", true), ("c", true)]));
        graph.observe(&pods(), &object("leaf", &[("c", true)]));
        assert_eq!(names(graph.blocking_dependents("b")), ["c"]);
        graph.observe(&pods(), &deleting("c", &[("b", true), ("c", true)]));
        assert_eq!(names(graph.blocking_dependents("c")), ["leaf"]);
        assert!(graph.blocking_dependents("a").is_empty());
        assert!(graph.blocking_dependents("b").is_empty());
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

    #[test]
    fn an_owner_that_the_reference_does_not_name_needs_processing() {
        let mut graph = OwnerGraph::default();
        graph.observe(&pods(), &object("a", &[]));
        for (api_version, kind, name, needs) in [
            ("v1", "Pod", "a", false),
            ("v2", "Pod", "a", false),
            ("v1", "Secret", "a", true),
            ("g.io/v1", "Pod", "a", true),
            ("v1", "Pod", "b", true),
        ] {
            let mut child = object("c", &[("a", false)]).value().unwrap();
            let reference = &mut child["metadata"]["ownerReferences"][0];
            reference["apiVersion"] = api_version.into();
            reference["kind"] = kind.into();
            reference["name"] = name.into();
            graph.observe(&pods(), &Object::from_value(&child).unwrap());
            assert_eq!(
                graph.needs_processing("c"),
                needs,
                "{api_version} {kind} {name}"
            );
        }
    }
}
