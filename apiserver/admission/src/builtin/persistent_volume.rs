//! Validates PersistentVolume, and the amounts and classes that claims share with it.

use machinery::names::validate_dns1123_subdomain;
use machinery::{FieldError, Quantity};
use serde_json::Value;

use super::pod_scheduling::validate_node_selector;
use super::volumes::validate_host_path;
use crate::unstructured::{
    entries, get, has, items, report_invalid, text, validate_immutable_field,
};

const ACCESS_MODES: &[&str] = &[
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
const RECLAIM_POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
/// The fields of the spec that are volume sources.
const SOURCES: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "glusterfs",
    "hostPath",
    "iscsi",
    "local",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = get(new, "/spec");
    validate_access_modes("spec", spec, "", errors);
    validate_capacity(get(spec, "/capacity"), errors);
    let mut sources = SOURCES.iter().filter(|name| has(spec, &format!("/{name}")));
    if sources.next().is_none() {
        errors.push(FieldError::required("spec", "must specify a volume type"));
    }
    for extra in sources {
        errors.push(FieldError::forbidden(
            format!("spec.{extra}"),
            "may not specify more than 1 volume type",
        ));
    }
    validate_source_fields(spec, errors);
    let policy = text(spec, "/persistentVolumeReclaimPolicy");
    if !policy.is_empty() && !RECLAIM_POLICIES.contains(&policy) {
        errors.push(FieldError::not_supported(
            "spec.persistentVolumeReclaimPolicy",
            &policy.into(),
            &RECLAIM_POLICIES,
        ));
    }
    if policy == "Recycle" && text(spec, "/hostPath/path") == "/" {
        errors.push(FieldError::forbidden(
            "spec.persistentVolumeReclaimPolicy",
            "may not be 'recycle' for a hostPath mount of '/'",
        ));
    }
    validate_class_and_mode("spec", spec, errors);
    if has(spec, "/nodeAffinity/required") {
        let required = get(spec, "/nodeAffinity/required");
        validate_node_selector("spec.nodeAffinity.required", required, errors);
    } else if has(spec, "/local") {
        let why = "Local volume requires node affinity";
        errors.push(FieldError::required("spec.nodeAffinity", why));
    }
    if let Some(old) = old {
        validate_update(new, old, errors);
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let changed = |name: &str| {
        let path = format!("/spec/{name}");
        // The driver of a CSI volume may change its secrets.
        name != "csi" && get(new, &path) != get(old, &path)
    };
    if SOURCES.iter().any(|name| changed(name)) {
        errors.push(FieldError::forbidden(
            "spec.persistentvolumesource",
            "spec.persistentvolumesource is immutable after creation",
        ));
    }
    validate_immutable_field(new, old, "spec.volumeMode", errors);
}

fn validate_source_fields(spec: &Value, errors: &mut Vec<FieldError>) {
    for (source, required) in [
        ("hostPath", &["path"][..]),
        ("local", &["path"]),
        ("nfs", &["server", "path"]),
        ("csi", &["driver", "volumeHandle"]),
    ] {
        let value = get(spec, &format!("/{source}"));
        for name in required.iter().filter(|_| !value.is_null()) {
            if text(value, &format!("/{name}")).is_empty() {
                errors.push(FieldError::required(format!("spec.{source}.{name}"), ""));
            }
        }
    }
    validate_host_path("spec.hostPath", get(spec, "/hostPath"), errors);
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
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        errors.push(FieldError::forbidden(
            &field,
            "may not use ReadWriteOncePod with other access modes",
        ));
    }
}

fn validate_capacity(capacity: &Value, errors: &mut Vec<FieldError>) {
    let mut amounts = entries(capacity, "").peekable();
    if amounts.peek().is_none() {
        errors.push(FieldError::required("spec.capacity", ""));
        return;
    }
    if capacity.get("storage").is_none() || amounts.count() > 1 {
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
