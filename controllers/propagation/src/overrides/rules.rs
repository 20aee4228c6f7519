//! One rule's overriders, in their order: image, command, args, labels,
//! annotations, field, plaintext.
//!
//! Enters: a manifest and overriders. Leaves: the changed manifest, or why a rule
//! cannot be applied. Pure.

use openapi::karmada::policy::{
    CommandOverrider, FieldOverrider, FieldPatch, MapOverrider, Overriders, Plaintext,
};
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
    for overrider in &rule.field_overrider {
        field(manifest, overrider).map_err(|e| format!("fieldOverrider: {e}"))?;
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

/// Changes a document that is the text of a field, as in a ConfigMap.
fn field(manifest: &mut Value, overrider: &FieldOverrider) -> Result<(), String> {
    let path = &overrider.field_path;
    let Some(Value::String(text)) = manifest.pointer_mut(path) else {
        return Err(format!("no string at {path}"));
    };
    let patched = |document: &mut Value, entries: &[FieldPatch]| {
        let operations = entries.iter();
        patch(
            document,
            operations.map(|e| (e.operator.as_str(), e.sub_path.as_str(), &e.value)),
        )
    };
    if !overrider.yaml.is_empty() {
        let mut document: Value = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
        patched(&mut document, &overrider.yaml)?;
        *text = serde_saphyr::to_string(&document).map_err(|e| e.to_string())?;
    } else if !overrider.json.is_empty() {
        let mut document: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        patched(&mut document, &overrider.json)?;
        *text = document.to_string();
    }
    Ok(())
}

/// All entries are one JSON patch.
fn plaintext(manifest: &mut Value, entries: &[Plaintext]) -> Result<(), String> {
    let operations = entries.iter();
    patch(
        manifest,
        operations.map(|e| (e.operator.as_str(), e.path.as_str(), &e.value)),
    )
}

/// Applies operations, paths and values as one JSON patch.
fn patch<'a>(
    document: &mut Value,
    operations: impl Iterator<Item = (&'a str, &'a str, &'a Value)>,
) -> Result<(), String> {
    let operations: Vec<Value> = operations
        .map(|(op, path, value)| match op {
            "remove" => json!({"op": op, "path": path}),
            _ => json!({"op": op, "path": path, "value": value}),
        })
        .collect();
    if operations.is_empty() {
        return Ok(());
    }
    let patch: json_patch::Patch =
        serde_json::from_value(Value::Array(operations)).map_err(|e| e.to_string())?;
    json_patch::patch(document, &patch).map_err(|e| e.to_string())
}
