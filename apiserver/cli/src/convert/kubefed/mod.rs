//! Converts KubeFed's objects. Source: KubeFed v0.10's API types, `pkg/controller/sync/resource.go`,
//! `pkg/controller/util/placement.go` and `overrides.go`, and its user guide.
//!
//! documents ──► [`inventory`] (by role) ──► [`cluster`], [`federated_object`] ──► manifests
//! placement of the object ∩ placement of its namespace ──► [`cluster_set`]; replicas ──► [`replica_preference`]

pub(crate) mod cluster;
mod cluster_set;
mod federated_object;
mod fields;
mod inventory;
mod malformed_objects;
mod overrides;
mod replica_preference;
#[cfg(test)]
mod tests;

use anyhow::Context;
use inventory::Inventory;
use karmada_api::TYPE_CONFIG_NAMESPACE;
use karmada_api::well_known_keys::SKIP_AUTO_PROPAGATION;
use malformed_objects::MalformedObjects;
use replica_preference::ReplicaPreference;
use serde_json::{Value, json};

use super::conversion::{Conversion, Severity};

/// Converts all documents at once.
///
/// # Errors
///
/// The documents that KubeFed's API would have refused, by object and field.
pub(crate) fn convert(documents: Vec<Value>) -> anyhow::Result<Conversion> {
    let inventory = Inventory::new(documents)?;
    let mut conversion = Conversion::default();
    let mut malformed = MalformedObjects::default();
    conversion.prerequisites.extend(type_switches(&inventory));
    for cluster in &inventory.clusters {
        let converted = cluster::convert(cluster, &inventory, &mut conversion);
        malformed.check(converted.with_context(|| inventory::object_text(cluster)));
    }
    for object in &inventory.federated {
        let converted = federated_object::convert(object, &inventory, &mut conversion);
        malformed.check(converted.with_context(|| inventory::object_text(object)));
    }
    for preference in inventory.unused_preferences() {
        let text = inventory::object_text(preference);
        let manifest = ReplicaPreference::new(preference).with_context(|| text.clone())?;
        let manifest = manifest.into_unchanged_manifest();
        conversion.policies.push(manifest);
        let message = "its target is not among the manifests";
        conversion.report(Severity::Note, &text, "spec.targetKind", message);
    }
    for object in &inventory.unequaled {
        let text = inventory::object_text(object);
        let message = "Flotilla has no such kind; the object is left out";
        conversion.report(Severity::Loss, &text, "kind", message);
    }
    for object in &inventory.others {
        let manifest = keep(object.clone(), &inventory, &mut conversion);
        let manifest = malformed.check(manifest.with_context(|| inventory::object_text(object)));
        conversion.prerequisites.extend(manifest.flatten());
    }
    malformed.into_result()?;
    Ok(conversion)
}

/// The FederatedTypeConfigs that switch a kind or its status off, and their namespace.
fn type_switches(inventory: &Inventory) -> Vec<Value> {
    let mut switches = inventory.switches.clone();
    for switch in &mut switches {
        let metadata = json!({"namespace": TYPE_CONFIG_NAMESPACE, "name": inventory::name(switch)});
        switch["metadata"] = metadata;
        if let Some(fields) = switch.as_object_mut() {
            fields.remove("status");
        }
    }
    let mut others = inventory.others.iter();
    let has_namespace =
        others.any(|o| o["kind"] == "Namespace" && inventory::name(o) == TYPE_CONFIG_NAMESPACE);
    if !switches.is_empty() && !has_namespace {
        let labels = json!({SKIP_AUTO_PROPAGATION: "true"});
        let metadata = json!({"name": TYPE_CONFIG_NAMESPACE, "labels": labels});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        switches.insert(0, namespace);
    }
    switches
}

/// An object that is not KubeFed's stays as it is. A namespace that was not federated must not
/// be created in every cluster, as namespaces are here.
fn keep(
    mut object: Value,
    inventory: &Inventory,
    conversion: &mut Conversion,
) -> anyhow::Result<Option<Value>> {
    if object["kind"] == "Namespace" && object["apiVersion"] == "v1" {
        let name = inventory::name(&object);
        if inventory.namespace_placement(name).is_some() {
            return Ok(None);
        }
        fields::text_map(&object["metadata"]["labels"], "metadata.labels")?;
        object["metadata"]["labels"][SKIP_AUTO_PROPAGATION] = json!("true");
        let message = "the namespace was not federated; its label keeps it out of the members";
        let text = inventory::object_text(&object);
        conversion.report(Severity::Note, &text, "metadata.labels", message);
    }
    if is_of_unknown_federated_type(&object) {
        let message = "no FederatedTypeConfig among the manifests has this federated type, so that it is left out; pass it";
        let text = inventory::object_text(&object);
        conversion.report(Severity::Loss, &text, "apiVersion", message);
        return Ok(None);
    }
    Ok(Some(object))
}

/// Whether an object looks like one of a federated type in a group of its own.
fn is_of_unknown_federated_type(object: &Value) -> bool {
    let kind = object["kind"].as_str().unwrap_or_default();
    kind.starts_with("Federated") && object["spec"].get("placement").is_some()
}
