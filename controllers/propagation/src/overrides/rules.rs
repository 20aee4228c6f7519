//! One rule's overriders, in their order: image, command, args, labels,
//! annotations, plaintext.
//!
//! Enters: a manifest and overriders. Leaves: the changed manifest, or why a rule
//! cannot be applied. Pure.

use openapi::karmada::policy::{CommandOverrider, MapOverrider, Overriders, Plaintext};
use serde_json::{Map, Value, json};

use super::image;

/// Applies one rule. On an error the manifest is not to be used.
pub(super) fn override_all(manifest: &mut Value, rule: &Overriders) -> Result<(), String> {
    for overrider in &rule.image_overrider {
        image::apply(manifest, overrider).map_err(|e| format!("imageOverrider: {e}"))?;
    }
    for overrider in &rule.command_overrider {
        command(manifest, "command", overrider);
    }
    for overrider in &rule.args_overrider {
        command(manifest, "args", overrider);
    }
    for overrider in &rule.labels_overrider {
        map(manifest, "labels", overrider);
    }
    for overrider in &rule.annotations_overrider {
        map(manifest, "annotations", overrider);
    }
    if !rule.field_overrider.is_empty() {
        return Err("fieldOverrider is not supported".into());
    }
    plaintext(manifest, &rule.plaintext).map_err(|e| format!("plaintext: {e}"))
}

/// Where kinds known to have pods keep the pod's spec.
pub(super) fn pod_spec(manifest: &Value) -> Option<&'static str> {
    match manifest["kind"].as_str()? {
        "Pod" => Some("/spec"),
        "ReplicaSet" | "Deployment" | "DaemonSet" | "StatefulSet" | "Job" => {
            Some("/spec/template/spec")
        }
        _ => None,
    }
}

fn command(manifest: &mut Value, field: &str, overrider: &CommandOverrider) {
    let Some(path) = pod_spec(manifest) else {
        return;
    };
    let containers = manifest
        .pointer_mut(&format!("{path}/containers"))
        .and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        if container["name"] != overrider.container_name.as_str() {
            continue;
        }
        let old = container[field].as_array().cloned().unwrap_or_default();
        let new: Vec<Value> = match overrider.operator.as_str() {
            "add" => {
                let more = overrider.value.iter().map(|v| json!(v));
                old.into_iter().chain(more).collect()
            }
            "remove" => {
                let gone = |v: &Value| overrider.value.iter().any(|r| v == r);
                old.into_iter().filter(|v| !gone(v)).collect()
            }
            _ => continue,
        };
        container[field] = new.into();
    }
}

fn map(manifest: &mut Value, field: &str, overrider: &MapOverrider) {
    let Some(metadata) = manifest.get_mut("metadata") else {
        return;
    };
    let Some(metadata) = metadata.as_object_mut() else {
        return;
    };
    if !metadata.get(field).is_some_and(Value::is_object) {
        if overrider.operator != "add" {
            return;
        }
        metadata.insert(field.into(), Map::new().into());
    }
    let Some(entries) = metadata.get_mut(field).and_then(Value::as_object_mut) else {
        return;
    };
    for (key, value) in &overrider.value {
        match overrider.operator.as_str() {
            "add" => drop(entries.insert(key.clone(), json!(value))),
            "replace" if entries.contains_key(key) => {
                entries.insert(key.clone(), json!(value));
            }
            "remove" => drop(entries.remove(key)),
            _ => {}
        }
    }
}

/// All entries are one JSON patch.
fn plaintext(manifest: &mut Value, entries: &[Plaintext]) -> Result<(), String> {
    if entries.is_empty() {
        return Ok(());
    }
    let operations: Vec<Value> = entries
        .iter()
        .map(|e| match e.operator.as_str() {
            "remove" => json!({"op": "remove", "path": e.path}),
            op => json!({"op": op, "path": e.path, "value": e.value}),
        })
        .collect();
    let patch: json_patch::Patch =
        serde_json::from_value(Value::Array(operations)).map_err(|e| e.to_string())?;
    json_patch::patch(manifest, &patch).map_err(|e| e.to_string())
}
