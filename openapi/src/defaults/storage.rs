//! Defaults of PersistentVolumes, their claims, StorageClasses and Secrets (Kubernetes
//! `pkg/apis/{core,storage}/v1/defaults.go`, `conversion.go`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{Fields, fill, within, within_new};

pub(super) fn claim(claim: &mut Fields) {
    within(claim, "spec", claim_spec);
    within_new(claim, "status", |status| fill(status, "phase", "Pending"));
}

pub(super) fn claim_spec(spec: &mut Fields) {
    fill(spec, "volumeMode", "Filesystem");
}

pub(super) fn volume(volume: &mut Fields) {
    within(volume, "spec", |spec| {
        fill(spec, "persistentVolumeReclaimPolicy", "Retain");
        fill(spec, "volumeMode", "Filesystem");
        within(spec, "hostPath", |source| fill(source, "type", ""));
    });
    within_new(volume, "status", |status| fill(status, "phase", "Pending"));
}

pub(super) fn storage_class(class: &mut Fields) {
    fill(class, "reclaimPolicy", "Delete");
    fill(class, "volumeBindingMode", "Immediate");
}

/// Sets the type, and moves the write-only `stringData` into `data`, where it takes
/// precedence.
pub(super) fn secret(secret: &mut Fields) {
    fill(secret, "type", "Opaque");
    let Some(Value::Object(plain)) = secret.remove("stringData") else {
        return;
    };
    if plain.is_empty() {
        return;
    }
    within_new(secret, "data", |data| {
        for (key, value) in plain {
            let text = value.as_str().unwrap_or_default();
            data.insert(key, STANDARD.encode(text).into());
        }
    });
}
