//! Overrides: what is different in one cluster's copy.
//!
//! Enters: a manifest, the cluster it is for, override policies. Leaves: the changed
//! manifest and what was applied. Source: Karmada's `pkg/util/overridemanager`.

mod image;
mod rules;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use machinery::{Gvk, Head, Object};
use openapi::karmada::policy::{Closeness, closest};
use openapi::karmada::{ClusterFacts, OverridePolicy};
use runtime::{Change, Informer, ObjectRef, Recorder};
use serde_json::Value;

use rules::override_all;

/// The override policies of the control plane.
#[derive(Clone)]
pub(crate) struct Overrides {
    local: Informer,
    of_cluster: Informer,
}

/// Policies and overriders (JSON, fields in Go's order) that were applied, in order.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Applied {
    pub(crate) of_cluster: Vec<(String, String)>,
    pub(crate) local: Vec<(String, String)>,
}

impl Overrides {
    pub(crate) fn new(local: Informer, of_cluster: Informer) -> Self {
        Self { local, of_cluster }
    }

    pub(crate) async fn wait_synced(&self) {
        self.local.wait_synced().await;
        self.of_cluster.wait_synced().await;
    }

    pub(crate) fn on_change(&self, handler: impl Fn(&Change<'_>) + Send + Sync + 'static) {
        let handler = Arc::new(handler);
        for informer in [&self.local, &self.of_cluster] {
            let handler = Arc::clone(&handler);
            informer.on_change(move |change| handler(change));
        }
    }

    pub(crate) fn on_cluster_change(&self, handler: impl Fn(&Change<'_>) + Send + Sync + 'static) {
        self.of_cluster.on_change(handler);
    }

    /// Applies what concerns a cluster's copy, cluster policies first. The error names
    /// the policy and the rule.
    pub(crate) fn apply(
        &self,
        manifest: &mut Value,
        kind: &Gvk,
        cluster: &str,
        clusters: &scheduler::Clusters,
        about: &ObjectRef,
        recorder: &Recorder,
    ) -> Result<Applied, String> {
        let mut applied = Applied::default();
        let namespace = about.namespace.as_str();
        let local = if namespace.is_empty() {
            Vec::new()
        } else {
            self.local.list_namespace(namespace)
        };
        let of_cluster = self.of_cluster.list();
        if local.is_empty() && of_cluster.is_empty() {
            return Ok(applied);
        }
        let Some(member) = clusters.get(cluster) else {
            return Err(format!("cluster {cluster} not found"));
        };
        let facts = member.facts();
        for (policies, into, what) in [
            (
                of_cluster,
                &mut applied.of_cluster,
                "cluster override policy",
            ),
            (local, &mut applied.local, "override policy"),
        ] {
            let outcome = apply_one_sort(manifest, kind, &facts, &policies);
            match outcome {
                Ok(list) => {
                    for (policy, overriders) in list {
                        let text =
                            format!("Apply {what}({policy}) for cluster({cluster}) succeed.");
                        recorder.normal(about, "ApplyOverridePolicySucceed", text);
                        let name = policy.rsplit('/').next().unwrap_or_default();
                        into.push((name.to_owned(), overriders));
                    }
                }
                Err((policy, why)) => {
                    let text = format!("Apply {what}({policy}) for cluster({cluster}) failed.");
                    recorder.warning(about, "ApplyOverridePolicyFailed", text);
                    return Err(format!(
                        "{what}({policy}) cannot be applied for cluster({cluster}): {why}"
                    ));
                }
            }
        }
        Ok(applied)
    }
}

/// Whether a policy says anything about an object.
pub(crate) fn selects(policy: &Object, kind: &Gvk, head: &Head) -> bool {
    let Ok(view) = policy.view::<OverridePolicy>() else {
        return false;
    };
    let selectors = &view.spec.resource_selectors;
    selectors.is_empty()
        || closest(selectors, &kind.api_version(), &kind.kind, head) > Closeness::Mismatch
}

/// Applies policies of one sort: the less close ones first, then by name, so that the
/// closest has the last word. The answer names policies by `namespace/name`.
pub(crate) fn apply_one_sort(
    manifest: &mut Value,
    kind: &Gvk,
    cluster: &ClusterFacts<'_>,
    policies: &[Object],
) -> Result<Vec<(String, String)>, (String, String)> {
    if policies.is_empty() {
        return Ok(Vec::new());
    }
    let head = head_of(manifest);
    let mut found: Vec<(Closeness, &Object, Arc<OverridePolicy>)> = policies
        .iter()
        .filter(|p| !p.head().deleting)
        .filter_map(|policy| {
            let view = policy.view::<OverridePolicy>().ok()?;
            let selectors = &view.spec.resource_selectors;
            let closeness = if selectors.is_empty() {
                Closeness::All
            } else {
                closest(selectors, &kind.api_version(), &kind.kind, &head)
            };
            (closeness > Closeness::Mismatch).then_some((closeness, policy, view))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.name().cmp(b.1.name())));
    let mut applied = Vec::new();
    for (_, policy, view) in found {
        let name = policy.head().key();
        let spec = &view.spec;
        let legacy = spec.override_rules.is_empty();
        let rules: Vec<_> = if legacy {
            vec![(spec.target_cluster.as_ref(), &spec.overriders)]
        } else {
            let rules = spec.override_rules.iter();
            rules
                .map(|r| (r.target_cluster.as_ref(), &r.overriders))
                .collect()
        };
        for (at, (target, overriders)) in rules.into_iter().enumerate() {
            if !target.is_none_or(|t| t.matcher().matches(cluster)) {
                continue;
            }
            let failed = |why: String| (name.clone(), format!("rule {at}: {why}"));
            override_all(manifest, overriders).map_err(failed)?;
            let told = serde_json::to_string(overriders).map_err(|e| failed(e.to_string()))?;
            applied.push((name.clone(), told));
        }
    }
    Ok(applied)
}

/// The head that selectors look at.
fn head_of(manifest: &Value) -> Head {
    let metadata = &manifest["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default().into();
    let labels = metadata["labels"].as_object();
    let mut labels: Vec<(Box<str>, Box<str>)> = labels
        .into_iter()
        .flatten()
        .map(|(k, v)| (k.as_str().into(), v.as_str().unwrap_or_default().into()))
        .collect();
    labels.sort_unstable();
    Head {
        namespace: text("namespace"),
        name: text("name"),
        labels: labels.into(),
        ..Head::default()
    }
}
