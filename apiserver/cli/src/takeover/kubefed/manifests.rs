//! Writes converted manifests into the control plane. A manifest that is there already is left
//! alone, so that an interrupted takeover can be repeated.

use std::time::Duration;

use anyhow::{Context, bail};
use client::{Api, ApiResource, Patch, ResourcePath, WriteOptions};
use machinery::Object;
use serde_json::{Value, json};
use tokio::time::Instant;

/// How long a kind may take to be served after its definition was created.
const KIND_TIMEOUT: Duration = Duration::from_secs(30);
const KIND_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The text by which messages name a manifest.
pub(super) fn manifest_text(manifest: &Value) -> String {
    let text = |key: &str| manifest["metadata"][key].as_str().unwrap_or_default();
    let kind = manifest["kind"].as_str().unwrap_or_default();
    match text("namespace") {
        "" => format!("{kind} {}", text("name")),
        namespace => format!("{kind} {namespace}/{}", text("name")),
    }
}

/// Creates the manifests in their order; returns how many did not exist.
pub(super) async fn create_all(control: &dyn Api, manifests: &[Value]) -> anyhow::Result<usize> {
    let mut served = control.discover().await?.resources;
    let mut created = 0;
    for manifest in manifests {
        let resource = wait_until_served(control, &mut served, manifest).await?;
        let written = create(control, &resource, manifest).await;
        created += usize::from(written.with_context(|| manifest_text(manifest))?);
    }
    Ok(created)
}

/// The resource of a manifest, whose definition may be among those that were just created.
async fn wait_until_served(
    control: &dyn Api,
    served: &mut Vec<ApiResource>,
    manifest: &Value,
) -> anyhow::Result<ApiResource> {
    let is_kind = |resource: &&ApiResource| {
        manifest["kind"] == *resource.kind
            && manifest["apiVersion"] == *resource.resource.api_version()
    };
    let deadline = Instant::now() + KIND_TIMEOUT;
    loop {
        if let Some(resource) = served.iter().find(is_kind) {
            return Ok(resource.clone());
        }
        if Instant::now() >= deadline {
            bail!(
                "{}: the control plane does not serve {} of {}; create its CustomResourceDefinition first",
                manifest_text(manifest),
                manifest["kind"].as_str().unwrap_or_default(),
                manifest["apiVersion"].as_str().unwrap_or_default(),
            );
        }
        tokio::time::sleep(KIND_POLL_INTERVAL).await;
        *served = control.discover().await?.resources;
    }
}

/// Creates a manifest; returns `false` if it exists with the same content. Missing labels and
/// annotations are added to what exists; another content is refused.
async fn create(
    control: &dyn Api,
    resource: &ApiResource,
    manifest: &Value,
) -> anyhow::Result<bool> {
    let text = |key: &str| manifest["metadata"][key].as_str().unwrap_or_default();
    let at = ResourcePath::object(&resource.resource, text("namespace"), text("name"));
    let options = WriteOptions::default();
    let body = manifest.clone().into();
    match control
        .create(ResourcePath { name: "", ..at }, body, &options)
        .await
    {
        Ok(_) => return Ok(true),
        Err(error) if error.is_already_exists() => {}
        Err(error) => return Err(error.into()),
    }
    let existing = control.get(at).await?;
    let dry_run = WriteOptions {
        dry_run: true,
        ..WriteOptions::default()
    };
    let patched = control
        .patch(at, Patch::Merge(manifest.clone()), &dry_run)
        .await?;
    if content(&existing)? != content(&patched)? {
        bail!(
            "it exists in the control plane with another content; delete it there, or take it out of KubeFed first"
        );
    }
    let metadata = &manifest["metadata"];
    let patch = json!({"metadata": {
        "labels": metadata["labels"].as_object().cloned().unwrap_or_default(),
        "annotations": metadata["annotations"].as_object().cloned().unwrap_or_default(),
    }});
    let has_metadata = has_entries(&existing.value()?["metadata"], &patch["metadata"]);
    if !has_metadata {
        control.patch(at, Patch::Merge(patch), &options).await?;
    }
    Ok(false)
}

/// Whether labels and annotations contain others.
fn has_entries(metadata: &Value, entries: &Value) -> bool {
    ["labels", "annotations"].iter().all(|map| {
        let entries = entries[*map].as_object();
        let mut entries = entries.into_iter().flatten();
        entries.all(|(key, value)| metadata[*map].get(key) == Some(value))
    })
}

/// An object without metadata and status.
fn content(object: &Object) -> anyhow::Result<Value> {
    let mut content = object.value()?;
    if let Some(fields) = content.as_object_mut() {
        fields.remove("metadata");
        fields.remove("status");
    }
    Ok(content)
}
