//! Finds objects that move while what they depend on stays behind. The controllers of the new
//! server would take it for deleted: the copies of a binding without template would leave members,
//! and the garbage collector would delete a dependent without owner.

use std::collections::{BTreeSet, HashSet};

use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS};
use machinery::names::split_api_version;
use serde_json::Value;

use crate::takeover::snapshot::{ResourceSnapshot, Snapshot, object_key, object_names};

/// Group, kind, namespace and name of a template.
type TemplateNames<'a> = (&'a str, &'a str, &'a str, &'a str);

/// The bindings that move without their template, and the dependents that move without any of their
/// owners, one line each. `served_kinds`: group and kind of what Karmada stores; an owner of another
/// kind proves nothing, and no server collects its dependents.
pub(super) fn left_references(
    moved: &Snapshot,
    served_kinds: &BTreeSet<(String, String)>,
) -> Vec<String> {
    let (mut templates, mut uids) = (HashSet::new(), HashSet::new());
    for (resource, object) in objects(moved) {
        let (namespace, name) = object_names(object);
        let kind = &resource.resource;
        templates.insert((kind.group.as_str(), kind.kind.as_str(), namespace, name));
        uids.extend(object["metadata"]["uid"].as_str());
    }
    let mut lines = Vec::new();
    for (resource, object) in objects(moved) {
        let kind = &resource.resource.kind;
        let key = object_key(object);
        if let Some(template) = left_template(resource, object, &templates) {
            lines.push(format!(
                "{kind} {key}: its template {template} does not move, and members would lose its \
                 copies: set preserveResourcesOnDeletion in its policy so that they keep them, take \
                 the template out of the policy, and delete the binding"
            ));
        } else if let Some(owner) = left_owner(object, &uids, served_kinds) {
            lines.push(format!(
                "{kind} {key}: its owner {owner} does not move, and the garbage collector would \
                 delete it: take the owner out of its metadata.ownerReferences"
            ));
        }
    }
    lines
}

fn objects(snapshot: &Snapshot) -> impl Iterator<Item = (&ResourceSnapshot, &Value)> {
    let resources = snapshot.resources.iter();
    resources.flat_map(|resource| resource.objects.values().map(move |o| (resource, o)))
}

/// The template of a binding if it does not move, as kind and key. A binding that Karmada was
/// deleting is none: its copies go because the user said so.
fn left_template(
    resource: &ResourceSnapshot,
    object: &Value,
    templates: &HashSet<TemplateNames<'_>>,
) -> Option<String> {
    let gvr = resource.resource.gvr();
    if ![&BINDINGS, &CLUSTER_BINDINGS].contains(&&gvr) || is_deleting(object) {
        return None;
    }
    let of = &object["spec"]["resource"];
    let text = |field: &str| of[field].as_str().unwrap_or_default();
    let (group, _) = split_api_version(text("apiVersion"));
    let (kind, namespace, name) = (text("kind"), text("namespace"), text("name"));
    let is_left = !templates.contains(&(group, kind, namespace, name));
    is_left.then(|| match namespace {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    })
}

/// The first owner of an object all of whose owners stay behind, as kind and name.
fn left_owner(
    object: &Value,
    uids: &HashSet<&str>,
    served_kinds: &BTreeSet<(String, String)>,
) -> Option<String> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let text = |owner: &Value, field: &str| owner[field].as_str().unwrap_or_default().to_owned();
    let is_left = |owner: &Value| {
        let api_version = text(owner, "apiVersion");
        let (group, _) = split_api_version(&api_version);
        let kind = (group.to_owned(), text(owner, "kind"));
        served_kinds.contains(&kind) && !uids.contains(text(owner, "uid").as_str())
    };
    let first = owners.first().filter(|_| !is_deleting(object))?;
    let (kind, name) = (text(first, "kind"), text(first, "name"));
    owners.iter().all(is_left).then(|| format!("{kind} {name}"))
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}
