//! Reads KubeFed's objects from its host cluster, and takes its finalizers off them at the end.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use client::{Api, ApiResource, Patch, ResourcePath, WriteOptions, ignore_not_found};
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use crate::conflicts::retry_on_conflict;
use crate::object_lists::list_selected;

static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
const GROUP_SUFFIX: &str = ".kubefed.io";
const TYPES_GROUP: &str = "types.kubefed.io";
/// Kinds that KubeFed's controllers write for themselves.
const INTERNAL_RESOURCES: [&str; 3] = [
    "propagatedversions",
    "clusterpropagatedversions",
    "federatedservicestatuses",
];
const FINALIZER_SUFFIX: &str = "kubefed.io";

/// KubeFed's objects on its host.
pub(super) struct HostObjects {
    /// Everything that the conversion reads.
    pub(super) documents: Vec<Value>,
    /// The federated objects, and their resources.
    pub(super) federated: Vec<(ApiResource, Object)>,
}

/// Reads all of KubeFed's objects, and the Secrets that its clusters name.
pub(super) async fn read(host: &dyn Api, namespace: &str) -> anyhow::Result<HostObjects> {
    let served = host
        .discover()
        .await
        .context("the kinds of KubeFed's host")?;
    let served = first_versions(served.resources);
    let mut documents = Vec::new();
    for resource in served.iter().filter(|r| is_own(&r.resource)) {
        for object in list(host, resource).await? {
            documents.push(object.value()?);
        }
    }
    ensure!(
        !documents.is_empty(),
        "the host has no objects of KubeFed; is it the host cluster of KubeFed?"
    );
    let federated_types = federated_types(&documents);
    let mut federated = Vec::new();
    for resource in served.iter().filter(|r| is_federated(r, &federated_types)) {
        for object in list(host, resource).await? {
            documents.push(object.value()?);
            federated.push((resource.clone(), object));
        }
    }
    documents.extend(cluster_secrets(host, namespace, &documents).await?);
    Ok(HostObjects {
        documents,
        federated,
    })
}

async fn list(host: &dyn Api, resource: &ApiResource) -> anyhow::Result<Vec<Object>> {
    let objects = list_selected(host, &resource.resource, "", "").await;
    objects.with_context(|| format!("{} of KubeFed's host", resource.resource.resource))
}

/// Each resource once, in the version that the server names first.
fn first_versions(resources: Vec<ApiResource>) -> Vec<ApiResource> {
    let mut names = BTreeSet::new();
    let listed = resources.into_iter().filter(|r| r.allows("list"));
    listed
        .filter(|r| names.insert((r.resource.group.clone(), r.resource.resource.clone())))
        .collect()
}

/// Whether objects of the resource are KubeFed's own, and no federated ones.
fn is_own(resource: &Gvr) -> bool {
    let Gvr {
        group, resource, ..
    } = resource;
    let is_internal = INTERNAL_RESOURCES.contains(&&**resource);
    group.ends_with(GROUP_SUFFIX) && group != TYPES_GROUP && !is_internal
}

/// The federated types of the type configurations, by group and kind.
fn federated_types(documents: &[Value]) -> BTreeSet<(String, String)> {
    let configs = documents
        .iter()
        .filter(|d| d["kind"] == "FederatedTypeConfig");
    let federated = configs.map(|config| &config["spec"]["federatedType"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    federated
        .map(|federated| (text(&federated["group"]), text(&federated["kind"])))
        .collect()
}

fn is_federated(resource: &ApiResource, types: &BTreeSet<(String, String)>) -> bool {
    let group = resource.resource.group.to_string();
    group == TYPES_GROUP || types.contains(&(group, resource.kind.clone()))
}

/// The Secrets beside KubeFed's clusters that these name.
async fn cluster_secrets(
    host: &dyn Api,
    namespace: &str,
    documents: &[Value],
) -> anyhow::Result<Vec<Value>> {
    let clusters = documents.iter().filter(|d| d["kind"] == "KubeFedCluster");
    let mut secrets = Vec::new();
    for cluster in clusters {
        let cluster_namespace = cluster["metadata"]["namespace"]
            .as_str()
            .unwrap_or(namespace);
        let Some(name) = cluster["spec"]["secretRef"]["name"].as_str() else {
            continue;
        };
        let at = ResourcePath::object(&SECRETS, cluster_namespace, name);
        if let Some(secret) = ignore_not_found(host.get(at).await)? {
            secrets.push(secret.value()?);
        }
    }
    Ok(secrets)
}

/// Takes KubeFed's finalizers off the federated objects, so that they can be deleted without
/// KubeFed. Returns how many had one.
pub(super) async fn remove_finalizers(
    host: &dyn Api,
    federated: &[(ApiResource, Object)],
) -> anyhow::Result<usize> {
    let mut changed = 0;
    for (resource, object) in federated {
        let at = ResourcePath::of_object(&resource.resource, object);
        let is_changed = retry_on_conflict(|| remove_finalizers_of(host, at));
        changed += usize::from(is_changed.await?);
    }
    Ok(changed)
}

async fn remove_finalizers_of(host: &dyn Api, at: ResourcePath<'_>) -> anyhow::Result<bool> {
    let Some(current) = ignore_not_found(host.get(at).await)? else {
        return Ok(false);
    };
    let finalizers = current.value()?["metadata"]["finalizers"].take();
    let finalizers: Vec<&str> = finalizers
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let others: Vec<&&str> = finalizers.iter().filter(|f| !is_own_finalizer(f)).collect();
    if others.len() == finalizers.len() {
        return Ok(false);
    }
    let patch = json!({"metadata": {
        "resourceVersion": current.revision().to_string(),
        "finalizers": others,
    }});
    let options = WriteOptions::default();
    host.patch(at, Patch::Merge(patch), &options).await?;
    Ok(true)
}

fn is_own_finalizer(finalizer: &str) -> bool {
    let domain = finalizer.split_once('/').map_or("", |(domain, _)| domain);
    domain == FINALIZER_SUFFIX || domain.ends_with(&format!(".{FINALIZER_SUFFIX}"))
}
