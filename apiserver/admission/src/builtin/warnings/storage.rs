//! Warns of persistent volumes, claims and the classes that select nodes by labels.

use machinery::Quantity;
use serde_json::Value;

use super::volumes::persistent_volume_plugins;
use super::{annotation, node_labels};
use crate::unstructured::{entries, get, items, text};

const STORAGE_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const MOUNT_OPTIONS_ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";

fn warn_of_class_annotation(object: &Value, out: &mut Vec<String>) {
    if annotation(object, STORAGE_CLASS_ANNOTATION) {
        out.push(format!(
            "metadata.annotations[{STORAGE_CLASS_ANNOTATION}]: deprecated since v1.8; use \
             \"storageClassName\" attribute instead"
        ));
    }
}

pub(super) fn persistent_volume(volume: &Value, out: &mut Vec<String>) {
    warn_of_class_annotation(volume, out);
    if annotation(volume, MOUNT_OPTIONS_ANNOTATION) {
        out.push(format!(
            "metadata.annotations[{MOUNT_OPTIONS_ANNOTATION}]: deprecated since v1.31; use \
             \"mountOptions\" attribute instead"
        ));
    }
    let spec = get(volume, "/spec");
    if text(spec, "/persistentVolumeReclaimPolicy") == "Recycle" {
        out.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. \
             Instead, the recommended approach is to use dynamic provisioning."
                .to_owned(),
        );
    }
    let terms = items(spec, "/nodeAffinity/required/nodeSelectorTerms");
    for (i, term) in terms.iter().enumerate() {
        let field = format!("spec.nodeAffinity.required.nodeSelectorTerms[{i}]");
        node_labels::expressions(&field, items(term, "/matchExpressions"), out);
    }
    persistent_volume_plugins(spec, out);
}

pub(super) fn claim(claim: &Value, out: &mut Vec<String>) {
    warn_of_class_annotation(claim, out);
    claim_spec("spec", get(claim, "/spec"), out);
}

/// Warns of the amounts in the spec of a claim at `field`.
pub(super) fn claim_spec(field: &str, spec: &Value, out: &mut Vec<String>) {
    for side in ["requests", "limits"] {
        let amounts = get(spec, &format!("/resources/{side}"));
        warn_of_fraction(
            &format!("{field}.resources.{side}"),
            amounts,
            "storage",
            out,
        );
    }
}

/// Warns of an amount of bytes that is not whole.
pub(super) fn warn_of_fraction(
    field: &str,
    amounts: &Value,
    resource: &str,
    out: &mut Vec<String>,
) {
    let amount = amounts.get(resource).map(Quantity::from_value);
    if let Some(Ok(amount)) = amount
        && amount.milli_value() % 1000 != 0
    {
        out.push(format!(
            "{field}[{resource}]: fractional byte value \"{amount}\" is invalid, must be an integer"
        ));
    }
}

pub(super) fn storage_class(class: &Value, out: &mut Vec<String>) {
    for (i, topology) in items(class, "/allowedTopologies").iter().enumerate() {
        let expressions = items(topology, "/matchLabelExpressions");
        for (j, expression) in expressions.iter().enumerate() {
            let key = text(expression, "/key");
            if let Some(why) = node_labels::deprecation(key) {
                out.push(format!(
                    "allowedTopologies[{i}].matchLabelExpressions[{j}].key: {key} is {why}"
                ));
            }
        }
    }
}

pub(super) fn storage_capacity(capacity: &Value, out: &mut Vec<String>) {
    let expressions = items(capacity, "/nodeTopology/matchExpressions");
    node_labels::expressions("nodeTopology", expressions, out);
    for (label, _) in entries(capacity, "/nodeTopology/matchLabels") {
        if let Some(why) = node_labels::deprecation(label) {
            out.push(format!("nodeTopology.matchLabels.{label}: {why}"));
        }
    }
}

pub(super) fn runtime_class(class: &Value, out: &mut Vec<String>) {
    for (label, _) in entries(class, "/scheduling/nodeSelector") {
        if let Some(why) = node_labels::deprecation(label) {
            out.push(format!("scheduling.nodeSelector: {why}"));
        }
    }
}
