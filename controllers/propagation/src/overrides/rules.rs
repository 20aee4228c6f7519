//! One rule's overriders, in their order: image, command, args, labels,
//! annotations, field, plaintext.
//!
//! Enters: a manifest and overriders. Leaves: the changed manifest, or which entry of
//! the rule cannot be applied, where and why. Pure.

use std::fmt;

use openapi::karmada::policy::{CommandOverrider, FieldOverrider, MapOverrider, Overriders};
use serde_json::{Map, Value, json};

use super::json_text::Document;
use super::{image, patch, yaml_text};

/// An entry of a rule that cannot be applied.
#[derive(Debug, PartialEq)]
pub(super) struct Refusal {
    /// Its field below the rule's `overriders`.
    pub(super) entry: String,
    /// What it is about in the manifest.
    pub(super) path: String,
    pub(super) why: String,
}

impl Refusal {
    pub(super) fn new(entry: String, path: &str, why: impl fmt::Display) -> Self {
        Self {
            entry,
            path: path.to_owned(),
            why: why.to_string(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, path, why } = self;
        write!(f, "{entry}: {path:?}: {why}")
    }
}

/// Applies one rule. On an error the manifest is not to be used.
pub(super) fn override_all(manifest: &mut Value, rule: &Overriders) -> Result<(), Refusal> {
    for (at, overrider) in rule.image_overrider.iter().enumerate() {
        image::apply(manifest, overrider)
            .map_err(|(path, why)| Refusal::new(format!("imageOverrider[{at}]"), &path, why))?;
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
    for (at, overrider) in rule.field_overrider.iter().enumerate() {
        field(manifest, overrider, &format!("fieldOverrider[{at}]"))?;
    }
    for (at, entry) in rule.plaintext.iter().enumerate() {
        patch::apply(manifest, &entry.operator, &entry.path, &entry.value)
            .map_err(|why| Refusal::new(format!("plaintext[{at}]"), &entry.path, why))?;
    }
    if manifest["kind"].as_str().is_none_or(str::is_empty) {
        let why = "the manifest no longer says what it is";
        return Err(Refusal::new("plaintext".into(), "/kind", why));
    }
    Ok(())
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
        if overrider.operator != "add" || overrider.value.is_empty() {
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
fn field(manifest: &mut Value, overrider: &FieldOverrider, entry: &str) -> Result<(), Refusal> {
    let path = &overrider.field_path;
    let here = |why: String| Refusal::new(entry.to_owned(), path, why);
    let text = match manifest.pointer_mut(path) {
        Some(Value::String(text)) => text,
        Some(_) => return Err(here("what is there is no text".into())),
        None => return Err(here(patch::Missing::Target.to_string())),
    };
    let inside = |form: &str, at: usize, sub_path: &str, why: patch::Missing| {
        let entry = format!("{entry}.{form}[{at}]");
        let why = format!("{sub_path:?} in the text: {why}");
        Refusal::new(entry, path, why)
    };
    if !overrider.yaml.is_empty() {
        // As YAML 1.1 has it, like the rest of Kubernetes.
        let options = serde_saphyr::options! {
            legacy_octal_numbers: true,
            duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        };
        let mut document: Value = serde_saphyr::from_str_with_options(text, options)
            .map_err(|e| here(format!("the text is no YAML: {e}")))?;
        for (at, o) in overrider.yaml.iter().enumerate() {
            patch::apply(&mut document, &o.operator, &o.sub_path, &o.value)
                .map_err(|why| inside("yaml", at, &o.sub_path, why))?;
        }
        *text = yaml_text::write(&document);
    } else if !overrider.json.is_empty() {
        let mut document =
            Document::parse(text).map_err(|e| here(format!("the text is no JSON: {e}")))?;
        for (at, o) in overrider.json.iter().enumerate() {
            document
                .apply(&o.operator, &o.sub_path, &o.value)
                .map_err(|why| inside("json", at, &o.sub_path, why))?;
        }
        *text = document.to_string();
    }
    Ok(())
}
