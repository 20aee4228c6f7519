//! The copies of KubeFed in its clusters: which there are, whether the Works have adopted them, and
//! the label of KubeFed, which is taken off at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, bail};
use client::{ApiResource, Patch, ResourcePath, WriteOptions, ignore_not_found};
use karmada_api::well_known_keys::{MANAGED, MANAGED_VALUE};
use machinery::Object;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::member_clusters::KubefedCluster;
use crate::object_lists::list_selected;
use crate::output;
use crate::takeover::snapshot::object_key;

/// The label of KubeFed's copies.
const KUBEFED_MANAGED: &str = "kubefed.io/managed";
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// An object in a cluster with KubeFed's label.
pub(super) struct MemberCopy {
    /// The index of the cluster.
    cluster: usize,
    resource: ApiResource,
    object: Object,
    /// Whether a Work has adopted it.
    is_adopted: bool,
}

/// Lists the copies of templates: objects with KubeFed's label, whose template is among the
/// manifests. Others are not KubeFed's any more, and are left alone.
pub(super) async fn list(
    clusters: &[KubefedCluster],
    templates: &[&Value],
) -> anyhow::Result<Vec<MemberCopy>> {
    let kind = |t: &Value| (t["apiVersion"].to_string(), t["kind"].to_string());
    let kinds: BTreeSet<(String, String)> = templates.iter().map(|t| kind(t)).collect();
    let keys: BTreeMap<(String, String), BTreeSet<String>> = kinds
        .iter()
        .map(|of_kind| {
            let templates = templates.iter().filter(|t| kind(t) == *of_kind);
            (of_kind.clone(), templates.map(|t| object_key(t)).collect())
        })
        .collect();
    let selector = format!("{KUBEFED_MANAGED}=true");
    let mut copies = Vec::new();
    for (index, cluster) in clusters.iter().enumerate() {
        let cannot_read = || format!("the objects of cluster {}", cluster.name);
        let served = cluster.api.discover().await.with_context(cannot_read)?;
        for resource in &served.resources {
            let api_version = json!(resource.resource.api_version()).to_string();
            let of_kind = keys.get(&(api_version, json!(resource.kind).to_string()));
            let Some(keys) = of_kind.filter(|_| resource.allows("list")) else {
                continue;
            };
            let objects = list_selected(&*cluster.api, &resource.resource, "", &selector).await;
            let objects = objects.with_context(cannot_read)?.into_iter();
            let objects = objects.filter(|object| keys.contains(&object.meta().key()));
            copies.extend(objects.map(|object| MemberCopy {
                cluster: index,
                resource: resource.clone(),
                object,
                is_adopted: false,
            }));
        }
    }
    Ok(copies)
}

/// Waits until the Works have adopted the copies. Fails if a copy was created anew.
pub(super) async fn wait_until_adopted(
    clusters: &[KubefedCluster],
    copies: &mut [MemberCopy],
    timeout: Duration,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        let mut pending = 0;
        let mut first_pending = String::new();
        for copy in copies.iter_mut().filter(|copy| !copy.is_adopted) {
            let cluster = &clusters[copy.cluster];
            let at = ResourcePath::of_object(&copy.resource.resource, &copy.object);
            let current = ignore_not_found(cluster.api.get(at).await)?;
            let text = copy.text(&cluster.name);
            let Some(current) = current else {
                bail!("{text} was deleted during the takeover");
            };
            if current.uid() != copy.object.uid() {
                bail!("{text} was created anew during the takeover");
            }
            copy.is_adopted = current.meta().label(MANAGED) == Some(MANAGED_VALUE);
            if !copy.is_adopted {
                pending += 1;
                first_pending = text;
            }
        }
        if pending == 0 {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!(
                "{pending} copies are not adopted, such as {first_pending}; `flotilla why` explains its template. Run the command again afterwards; a copy without the label {KUBEFED_MANAGED} is left alone"
            );
        }
        output::print_progress(format!("waiting until {pending} copies are adopted"));
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Takes KubeFed's label off the copies that Works have adopted.
pub(super) async fn remove_labels(
    clusters: &[KubefedCluster],
    copies: &[MemberCopy],
) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"labels": {KUBEFED_MANAGED: null}}});
    let options = WriteOptions::default();
    for copy in copies.iter().filter(|copy| copy.is_adopted) {
        let cluster = &clusters[copy.cluster];
        let at = ResourcePath::of_object(&copy.resource.resource, &copy.object);
        let patch = Patch::Merge(patch.clone());
        let written = ignore_not_found(cluster.api.patch(at, patch, &options).await);
        written.with_context(|| copy.text(&cluster.name))?;
    }
    Ok(())
}

impl MemberCopy {
    fn text(&self, cluster: &str) -> String {
        let (kind, key) = (&self.resource.kind, self.object.meta().key());
        format!("{kind} {key} in cluster {cluster}")
    }
}
