//! Defaults of PersistentVolumes, their claims, StorageClasses, CSIDrivers and Secrets (Kubernetes
//! `pkg/apis/{core,storage}/v1/defaults.go`, `conversion.go`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{JsonObjectMap, is_empty, set_default, with_object, with_object_or_create};

pub(super) fn set_defaults_persistent_volume_claim(claim: &mut JsonObjectMap) {
    with_object(claim, "spec", set_defaults_persistent_volume_claim_spec);
    with_object_or_create(claim, "status", |status| {
        set_default(status, "phase", "Pending")
    });
}

pub(super) fn set_defaults_persistent_volume_claim_spec(spec: &mut JsonObjectMap) {
    set_default(spec, "volumeMode", "Filesystem");
}

pub(super) fn set_defaults_persistent_volume(volume: &mut JsonObjectMap) {
    with_object(volume, "spec", |spec| {
        set_default(spec, "persistentVolumeReclaimPolicy", "Retain");
        set_default(spec, "volumeMode", "Filesystem");
        with_object(spec, "hostPath", |source| set_default(source, "type", ""));
    });
    with_object_or_create(volume, "status", |status| {
        set_default(status, "phase", "Pending")
    });
}

pub(super) fn set_defaults_storage_class(class: &mut JsonObjectMap) {
    set_default(class, "reclaimPolicy", "Delete");
    set_default(class, "volumeBindingMode", "Immediate");
}

pub(super) fn set_defaults_csi_driver(driver: &mut JsonObjectMap) {
    with_object(driver, "spec", |spec| {
        set_default(spec, "attachRequired", true);
        set_default(spec, "podInfoOnMount", false);
        set_default(spec, "storageCapacity", false);
        set_default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        if is_empty(spec, "volumeLifecycleModes") {
            spec.insert("volumeLifecycleModes".into(), json!(["Persistent"]));
        }
        set_default(spec, "requiresRepublish", false);
        set_default(spec, "seLinuxMount", false);
    });
}

/// Sets the type, and moves the write-only `stringData` into `data`, where it takes
/// precedence.
pub(super) fn set_defaults_secret(secret: &mut JsonObjectMap) {
    set_default(secret, "type", "Opaque");
    let Some(Value::Object(string_data)) = secret.remove("stringData") else {
        return;
    };
    if string_data.is_empty() {
        return;
    }
    with_object_or_create(secret, "data", |data| {
        for (key, value) in string_data {
            let text = value.as_str().unwrap_or_default();
            data.insert(key, STANDARD.encode(text).into());
        }
    });
}
