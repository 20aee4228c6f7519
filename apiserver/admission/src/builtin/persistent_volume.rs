//! Validates PersistentVolume, and the classes and modes that claims share with it.

use machinery::names::validate_dns1123_subdomain;
use machinery::{FieldError, Quantity};
use serde_json::{Value, json};

use super::pod_scheduling::{LabelValues, validate_node_selector};
use super::volume_sources;
use crate::unstructured::{entries, get, has, items, report_invalid, text};

const ACCESS_MODES: &[&str] = &[
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
const RECLAIM_POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
/// The fields of the spec that are volume sources, in the order in which Kubernetes looks at them.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];
/// Labels of nodes that have a new name, which a node affinity may take over.
const RENAMED_LABELS: [(&str, &str); 5] = [
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    (
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
    ),
];

pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = get(new, "/spec");
    validate_access_modes("spec", spec, "", errors);
    validate_capacity(get(spec, "/capacity"), errors);
    let policy = text(spec, "/persistentVolumeReclaimPolicy");
    if !policy.is_empty() && !RECLAIM_POLICIES.contains(&policy) {
        errors.push(FieldError::not_supported(
            "spec.persistentVolumeReclaimPolicy",
            &policy.into(),
            &RECLAIM_POLICIES,
        ));
    }
    if has(spec, "/nodeAffinity") {
        validate_node_affinity(spec, old, errors);
    }
    validate_source(new, errors);
    let path = text(spec, "/hostPath/path");
    let is_root = path.starts_with('/') && path.split('/').all(|part| matches!(part, "" | "."));
    if policy == "Recycle" && is_root {
        errors.push(FieldError::forbidden(
            "spec.persistentVolumeReclaimPolicy",
            "may not be 'recycle' for a hostPath mount of '/'",
        ));
    }
    validate_class_and_mode("spec", spec, errors);
    validate_attributes_class(spec, errors);
    if let Some(old) = old {
        validate_update(new, old, errors);
    }
}

fn validate_node_affinity(spec: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let field = "spec.nodeAffinity.required";
    let path = "/nodeAffinity/required";
    if !has(spec, path) {
        let detail = "must specify required node constraints";
        errors.push(FieldError::required(field, detail));
        return;
    }
    let old = old.map_or(&Value::Null, |old| get(old, "/spec/nodeAffinity/required"));
    let values = LabelValues::of_old(old);
    validate_node_selector(field, get(spec, path), values, errors);
}

/// Validates the first source that the volume has, and requires that it has no other.
fn validate_source(volume: &Value, errors: &mut Vec<FieldError>) {
    let spec = get(volume, "/spec");
    let mut present = SOURCES.iter().filter(|name| has(spec, &format!("/{name}")));
    let Some(first) = present.next() else {
        errors.push(FieldError::required("spec", "must specify a volume type"));
        return;
    };
    let source = get(spec, &format!("/{first}"));
    let path = volume_sources::error_path("spec", first);
    if *first == "iscsi" {
        let name = text(volume, "/metadata/name");
        let at_portal = format!("{path}.targetportal");
        let error_field = (&*at_portal, text(source, "/targetPortal"));
        volume_sources::validate_iscsi(&path, source, name, error_field, errors);
        if has(source, "/secretRef") {
            let secret = get(source, "/secretRef");
            volume_sources::require(&format!("{path}.secretRef"), secret, &["name"], errors);
        }
    } else {
        volume_sources::validate(&path, first, source, true, errors);
    }
    if *first == "local" && !has(spec, "/nodeAffinity") {
        let detail = "Local volume requires node affinity";
        errors.push(FieldError::required("spec.nodeAffinity", detail));
    }
    for extra in present {
        let field_name = if *extra == "cephfs" { "cephFS" } else { extra };
        errors.push(FieldError::forbidden(
            format!("spec.{field_name}"),
            "may not specify more than 1 volume type",
        ));
    }
}

fn validate_attributes_class(spec: &Value, errors: &mut Vec<FieldError>) {
    if !has(spec, "/volumeAttributesClassName") {
        return;
    }
    let class = text(spec, "/volumeAttributesClassName");
    let field = "spec.volumeAttributesClassName";
    if class.is_empty() {
        errors.push(FieldError::required(field, "an empty string is disallowed"));
    } else {
        report_invalid(field, class, validate_dns1123_subdomain(class), errors);
    }
    if !has(spec, "/csi") {
        let detail = "has to be specified when using volumeAttributesClassName";
        errors.push(FieldError::required("spec.csi", detail));
    }
}

/// Kubernetes gives the paths of some fields without `spec`.
fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (old_spec, new_spec) = (get(old, "/spec"), get(new, "/spec"));
    let changed = |name: &&str| {
        let path = format!("/{name}");
        let mut source = get(new_spec, &path).clone();
        // The Secret to expand a volume with may be added.
        let secret = "controllerExpandSecretRef";
        if *name == "csi"
            && !has(old_spec, &format!("{path}/{secret}"))
            && has(old_spec, &path)
            && let Some(fields) = source.as_object_mut()
        {
            fields.remove(secret);
        }
        source != *get(old_spec, &path)
    };
    if SOURCES.iter().any(changed) {
        errors.push(FieldError::forbidden(
            "spec.persistentvolumesource",
            "spec.persistentvolumesource is immutable after creation",
        ));
    }
    validate_immutable_mode(new_spec, old_spec, errors);
    let (old_affinity, affinity) = (
        get(old_spec, "/nodeAffinity"),
        get(new_spec, "/nodeAffinity"),
    );
    if !old_affinity.is_null() && !is_renamed(old_affinity, affinity) {
        let detail = "field is immutable, except for updating from beta label to GA";
        errors.push(FieldError::invalid("nodeAffinity", affinity, detail));
    }
    let class = "/volumeAttributesClassName";
    if has(old_spec, class) && !has(new_spec, class) {
        errors.push(FieldError::forbidden(
            "spec.volumeAttributesClassName",
            "update from non-nil value to nil is forbidden",
        ));
    }
}

/// Whether a node affinity is the old one but for labels with a new name.
fn is_renamed(old: &Value, new: &Value) -> bool {
    let mut old = old.clone();
    let path = "/required/nodeSelectorTerms";
    for (i, term) in items(new, path).iter().enumerate() {
        for (j, expression) in items(term, "/matchExpressions").iter().enumerate() {
            let key = text(expression, "/key");
            let before = old.pointer_mut(&format!("{path}/{i}/matchExpressions/{j}/key"));
            if let Some(before) = before
                && RENAMED_LABELS
                    .iter()
                    .any(|(a, b)| *before == *a && key == *b)
            {
                *before = json!(key);
            }
        }
    }
    old == *new
}

/// Requires known access modes; `ReadWriteOncePod` excludes others.
pub(super) fn validate_access_modes(
    field: &str,
    spec: &Value,
    why_required: &str,
    errors: &mut Vec<FieldError>,
) {
    let field = format!("{field}.accessModes");
    let modes = items(spec, "/accessModes");
    if modes.is_empty() {
        errors.push(FieldError::required(&field, why_required));
    }
    for mode in modes {
        if !ACCESS_MODES.contains(&mode.as_str().unwrap_or_default()) {
            errors.push(FieldError::not_supported(&field, mode, ACCESS_MODES));
        }
    }
    let is_single = |mode: &&Value| **mode == "ReadWriteOncePod";
    let is_other = |mode: &str| mode != "ReadWriteOncePod" && ACCESS_MODES.contains(&mode);
    let mut names = modes.iter().filter_map(Value::as_str);
    if modes.iter().any(|mode| is_single(&mode)) && names.any(is_other) {
        errors.push(FieldError::forbidden(
            &field,
            "may not use ReadWriteOncePod with other access modes",
        ));
    }
}

fn validate_capacity(capacity: &Value, errors: &mut Vec<FieldError>) {
    let count = entries(capacity, "").count();
    if count == 0 {
        errors.push(FieldError::required("spec.capacity", ""));
    }
    if capacity.get("storage").is_none() || count > 1 {
        errors.push(FieldError::not_supported(
            "spec.capacity",
            capacity,
            &["storage"],
        ));
    }
    for (resource, amount) in entries(capacity, "") {
        validate_positive(&format!("spec.capacity[{resource}]"), amount, errors);
    }
}

/// Requires an amount above zero.
pub(super) fn validate_positive(field: &str, amount: &Value, errors: &mut Vec<FieldError>) {
    if Quantity::from_value(amount).is_ok_and(|amount| amount <= Quantity::ZERO) {
        errors.push(FieldError::invalid(
            field,
            amount,
            "must be greater than zero",
        ));
    }
}

/// The mode of a volume and of a claim does not change.
pub(super) fn validate_immutable_mode(spec: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let mode = get(spec, "/volumeMode");
    if mode != get(old, "/volumeMode") {
        errors.push(FieldError::invalid(
            "volumeMode",
            mode,
            "field is immutable",
        ));
    }
}

/// Validates storage class and volume mode of a volume or a claim.
pub(super) fn validate_class_and_mode(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    let class = text(spec, "/storageClassName");
    if !class.is_empty() {
        let result = validate_dns1123_subdomain(class);
        report_invalid(format!("{field}.storageClassName"), class, result, errors);
    }
    let mode = text(spec, "/volumeMode");
    if has(spec, "/volumeMode") && !VOLUME_MODES.contains(&mode) {
        errors.push(FieldError::not_supported(
            format!("{field}.volumeMode"),
            &mode.into(),
            &VOLUME_MODES,
        ));
    }
}
