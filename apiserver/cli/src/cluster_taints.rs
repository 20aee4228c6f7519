//! Reads and writes the taints of clusters, for the commands that change them.

use client::{Api, Patch, ResourcePath, WriteOptions};
use karmada_api::cluster::{Cluster, Taint};
use karmada_api::resources::CLUSTERS;
use serde_json::{Value, json};

use crate::conflicts::retry_on_conflict;

/// The result of a change: what to report, and the taints to write unless they are as
/// they were.
pub(crate) struct TaintChange<T> {
    pub(crate) taints: Option<Vec<Taint>>,
    pub(crate) outcome: T,
}

/// Reads the taints of a cluster, changes them and writes them back. The write fails if
/// the cluster has changed in between, and is then repeated on the new taints.
pub(crate) async fn change_taints<T>(
    api: &dyn Api,
    cluster: &str,
    dry_run: bool,
    change: impl Fn(Vec<Taint>) -> anyhow::Result<TaintChange<T>>,
) -> anyhow::Result<T> {
    let at = ResourcePath::object(&CLUSTERS, "", cluster);
    retry_on_conflict(|| async {
        let object = api.get(at).await?;
        let taints = object.decode::<Cluster>()?.spec.taints.clone();
        let change = change(taints)?;
        let Some(taints) = change.taints.filter(|_| !dry_run) else {
            return Ok(change.outcome);
        };
        let taints = if taints.is_empty() {
            Value::Null
        } else {
            json!(taints)
        };
        let patch = json!({"metadata": {"resourceVersion": object.revision().to_string()}, "spec": {"taints": taints}});
        let options = WriteOptions::default();
        api.patch(at, Patch::Merge(patch), &options).await?;
        Ok(change.outcome)
    })
    .await
}
