//! Warns of persistent volumes, claims and the classes that select nodes by labels.

use serde_json::Value;

use super::annotations::has_annotation;
use super::byte_amounts::claim_spec;
use super::node_labels;
use super::volumes::persistent_volume_plugins;
use crate::unstructured::{entries, get, items, text};

const STORAGE_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const MOUNT_OPTIONS_ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";

fn warn_of_class_annotation(object: &Value, out: &mut Vec<String>) {
    if has_annotation(object, STORAGE_CLASS_ANNOTATION) {
        out.push(format!(
            "metadata.annotations[{STORAGE_CLASS_ANNOTATION}]: deprecated since v1.8; use \
             \"storageClassName\" attribute instead"
        ));
    }
}

pub(super) fn persistent_volume(volume: &Value, out: &mut Vec<String>) {
    warn_of_class_annotation(volume, out);
    if has_annotation(volume, MOUNT_OPTIONS_ANNOTATION) {
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

pub(super) fn storage_class(class: &Value, out: &mut Vec<String>) {
    for (i, topology) in items(class, "/allowedTopologies").iter().enumerate() {
        let expressions = items(topology, "/matchLabelExpressions");
        for (j, expression) in expressions.iter().enumerate() {
            let key = text(expression, "/key");
            if let Some(detail) = node_labels::deprecation(key) {
                out.push(format!(
                    "allowedTopologies[{i}].matchLabelExpressions[{j}].key: {key} is {detail}"
                ));
            }
        }
    }
}

pub(super) fn storage_capacity(capacity: &Value, out: &mut Vec<String>) {
    let expressions = items(capacity, "/nodeTopology/matchExpressions");
    node_labels::expressions("nodeTopology", expressions, out);
    for (label, _) in entries(capacity, "/nodeTopology/matchLabels") {
        if let Some(detail) = node_labels::deprecation(label) {
            out.push(format!("nodeTopology.matchLabels.{label}: {detail}"));
        }
    }
}

pub(super) fn runtime_class(class: &Value, out: &mut Vec<String>) {
    for (label, _) in entries(class, "/scheduling/nodeSelector") {
        if let Some(detail) = node_labels::deprecation(label) {
            out.push(format!("scheduling.nodeSelector: {detail}"));
        }
    }
}
