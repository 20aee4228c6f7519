//! Moves bindings from the old name of a cluster to the new one. While they move, the scheduler
//! leaves them alone: a decision between two writes could place replicas elsewhere.

use client::{Api, ListOptions, Patch, ResourcePath, WriteOptions, ignore_not_found};
use karmada_api::ResourceBinding;
use karmada_api::replica_preference::RecordedReplicaPreference;
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS};
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use super::named_clusters::rename_in;
use super::rename_error::{RenameError, host_error};
use crate::bindings::scheduled_clusters;

/// The annotation of a binding whose scheduling is suspended for a rename: the old name.
const RENAMED_CLUSTER: &str = "flotilla.io/renamed-cluster";
/// How often a write is computed again because a controller has changed the binding meanwhile.
const MAX_ATTEMPTS: usize = 10;

/// The resources of bindings. The gate of a Namespace places what lies in it where its own binding
/// is, so that this one moves first.
pub(super) static RESOURCES: [&Gvr; 2] = [&CLUSTER_BINDINGS, &BINDINGS];

/// A binding and its resource.
type ListedBinding = (&'static Gvr, Object);

async fn list(
    control: &dyn Api,
    resources: &[&'static Gvr],
) -> Result<Vec<ListedBinding>, RenameError> {
    let mut bindings = Vec::new();
    for resource in resources.iter().copied() {
        let all = ResourcePath::collection(resource, "");
        let listed = control.list(all, &ListOptions::default()).await;
        let listed = listed.map_err(host_error("list the bindings"))?;
        bindings.extend(listed.items.into_iter().map(|object| (resource, object)));
    }
    Ok(bindings)
}

/// How many bindings are scheduled to a cluster.
pub(super) async fn count_scheduled(control: &dyn Api, old: &str) -> Result<usize, RenameError> {
    let bindings = list(control, &RESOURCES).await?;
    let scheduled = bindings.iter().filter(|(_, b)| is_scheduled_to(b, old));
    Ok(scheduled.count())
}

fn is_scheduled_to(binding: &Object, cluster: &str) -> bool {
    scheduled_clusters(binding)
        .iter()
        .any(|name| name == cluster)
}

/// Suspends the scheduling of the bindings that are scheduled to the cluster, and marks those that
/// were not suspended before.
pub(super) async fn suspend_scheduling(control: &dyn Api, old: &str) -> Result<(), RenameError> {
    for (resource, binding) in list(control, &RESOURCES).await? {
        if is_scheduled_to(&binding, old) {
            let patch = |binding: &Value| suspension_patch(binding, old);
            change(control, resource, &binding, patch).await?;
        }
    }
    Ok(())
}

fn suspension_patch(binding: &Value, old: &str) -> Option<Value> {
    let is_suspended = binding["spec"]["suspension"]["scheduling"] == true;
    (!is_suspended).then(|| {
        json!({
            "metadata": {"annotations": {RENAMED_CLUSTER: old}},
            "spec": {"suspension": {"scheduling": true}},
        })
    })
}

/// The bindings on the cluster whose placement, or recorded preference, still names it.
pub(super) async fn count_placed(
    control: &dyn Api,
    resource: &'static Gvr,
    old: &str,
    new: &str,
) -> Result<usize, RenameError> {
    let mut placed = 0;
    for (_, binding) in list(control, &[resource]).await? {
        let is_placed = is_scheduled_to(&binding, old)
            && (rename_in(&mut binding.value()?["spec"]["placement"], old, new)
                || is_preferred(&*binding.decode::<ResourceBinding>()?, old));
        placed += usize::from(is_placed);
    }
    Ok(placed)
}

/// Whether the ReplicaSchedulingPreference that a binding records names a cluster.
fn is_preferred(binding: &ResourceBinding, cluster: &str) -> bool {
    let preference = RecordedReplicaPreference::from_binding(binding);
    preference.is_some_and(|preference| preference.spec.clusters.contains_key(cluster))
}

/// Replaces the old name by the new one in the clusters of the bindings.
pub(super) async fn move_bindings(
    control: &dyn Api,
    resource: &'static Gvr,
    old: &str,
    new: &str,
) -> Result<usize, RenameError> {
    let mut moved = 0;
    for (resource, binding) in list(control, &[resource]).await? {
        if is_scheduled_to(&binding, old) {
            let patch = |binding: &Value| clusters_patch(binding, old, new);
            change(control, resource, &binding, patch).await?;
            moved += 1;
        }
    }
    Ok(moved)
}

/// The clusters with the new name. Replicas of an entry that has it already are replaced: they were
/// assigned to the same cluster.
fn clusters_patch(binding: &Value, old: &str, new: &str) -> Option<Value> {
    let clusters = binding["spec"]["clusters"].as_array()?;
    if !clusters.iter().any(|cluster| cluster["name"] == old) {
        return None;
    }
    let others = clusters.iter().filter(|cluster| cluster["name"] != new);
    let renamed = others.cloned().map(|mut cluster| {
        if cluster["name"] == old {
            cluster["name"] = new.into();
        }
        cluster
    });
    let renamed: Vec<Value> = renamed.collect();
    Some(json!({"spec": {"clusters": renamed}}))
}

/// Lets the scheduler act on the bindings again that were suspended for the rename.
pub(super) async fn resume_scheduling(control: &dyn Api, old: &str) -> Result<(), RenameError> {
    for (resource, binding) in list(control, &RESOURCES).await? {
        let patch = |binding: &Value| {
            let is_marked = binding["metadata"]["annotations"][RENAMED_CLUSTER] == old;
            is_marked.then(|| {
                json!({
                    "metadata": {"annotations": {RENAMED_CLUSTER: null}},
                    "spec": {"suspension": {"scheduling": null}},
                })
            })
        };
        change(control, resource, &binding, patch).await?;
    }
    Ok(())
}

/// Patches a binding, computed again from its newest version if it has changed meanwhile.
async fn change(
    control: &dyn Api,
    resource: &Gvr,
    binding: &Object,
    patch: impl Fn(&Value) -> Option<Value>,
) -> Result<(), RenameError> {
    let what = format!("change the binding {}", binding.meta().key());
    let at = ResourcePath::of_object(resource, binding);
    let mut current = Some(binding.clone());
    for attempt in 1.. {
        let Some(binding) = current else {
            return Ok(());
        };
        let Some(mut patch) = patch(&binding.value()?) else {
            return Ok(());
        };
        patch["metadata"]["resourceVersion"] = binding.revision().to_string().into();
        let options = WriteOptions::default();
        match control.patch(at, Patch::Merge(patch), &options).await {
            Err(error) if error.is_conflict() && attempt < MAX_ATTEMPTS => {}
            written => {
                let written = ignore_not_found(written);
                return written.map(drop).map_err(host_error(what));
            }
        }
        let read = ignore_not_found(control.get(at).await);
        current = read.map_err(host_error(what.clone()))?;
    }
    Ok(())
}
