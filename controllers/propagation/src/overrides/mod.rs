//! Applies override policies to the manifest of one cluster, and records what was applied. Source:
//! Karmada's `pkg/util/overridemanager`.

mod image;
mod json_text;
#[cfg(test)]
mod overrider_tests;
mod patch;
#[cfg(test)]
mod property_tests;
mod rules;
#[cfg(test)]
mod tests;
mod yaml_plain;
mod yaml_text;

use std::fmt;
use std::sync::Arc;

use machinery::object::Label;
use machinery::{Gvk, Head, Object};
use openapi::karmada::policy::{Closeness, OverrideSpec, Overriders, closest};
use openapi::karmada::resource_group::ResourceGroup;
use openapi::karmada::{ClusterAffinity, ClusterFacts, OverridePolicy, ResourceSelector};
use flotilla_runtime::{Change, Informer, ObjectRef, Recorder};
use serde_json::Value;

use rules::override_all;

/// Finds the override policies that may apply to a manifest.
#[derive(Clone)]
pub(crate) struct Overrides {
    local: Informer,
    of_cluster: Informer,
}

/// The override policies that may apply to objects of one namespace.
pub(crate) struct Candidates {
    of_cluster: Vec<Object>,
    local: Vec<Object>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    OfCluster,
    Local,
}

impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OfCluster => "cluster override policy",
            Self::Local => "override policy",
        })
    }
}

/// An override rule that was applied.
#[derive(Debug, PartialEq)]
pub(crate) struct Applied {
    sort: Sort,
    /// `namespace/name`, or the name of a cluster override policy.
    policy: String,
    /// As JSON, with the fields in Go's order.
    overriders: String,
}

/// The rules that were applied to the manifest of one cluster, in order.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Record(Vec<Applied>);

/// An override rule that cannot be applied.
#[derive(Debug, PartialEq)]
pub(crate) struct Failed {
    sort: Sort,
    policy: String,
    cluster: String,
    /// The field of the policy, the path in the manifest, and the reason.
    what: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sort,
            policy,
            cluster,
            what,
        } = self;
        write!(
            f,
            "{sort}({policy}) cannot be applied for cluster({cluster}): {what}"
        )
    }
}

impl Failed {
    pub(crate) fn tell(&self, recorder: &Recorder, about: &ObjectRef) {
        let Self {
            sort,
            policy,
            cluster,
            what,
        } = self;
        let text = format!("Apply {sort}({policy}) for cluster({cluster}) failed. {what}");
        recorder.warning(about, "ApplyOverridePolicyFailed", text);
    }
}

impl Record {
    pub(crate) fn tell(&self, recorder: &Recorder, about: &ObjectRef, cluster: &str) {
        for Applied { sort, policy, .. } in &self.0 {
            let text = format!("Apply {sort}({policy}) for cluster({cluster}) succeed.");
            recorder.normal(about, "ApplyOverridePolicySucceed", text);
        }
    }

    /// The value of the annotation for cluster override policies; `None` if none was applied.
    pub(crate) fn of_cluster(&self) -> Option<String> {
        self.told(Sort::OfCluster)
    }

    /// The value of the annotation for override policies of the namespace.
    pub(crate) fn local(&self) -> Option<String> {
        self.told(Sort::Local)
    }

    fn told(&self, sort: Sort) -> Option<String> {
        let of_sort = self.0.iter().filter(|a| a.sort == sort);
        let name = |a: &Applied| a.policy.rsplit('/').next().unwrap_or_default().to_owned();
        let mut rules: Vec<_> = of_sort.map(|a| (name(a), &a.overriders)).collect();
        if rules.is_empty() {
            return None;
        }
        rules.sort_by(|a, b| a.0.cmp(&b.0));
        let item = |(name, overriders): &(String, &String)| {
            let name = Value::from(name.as_str());
            // Go's encoder writes the fields in this order.
            format!("{{\"policyName\":{name},\"overriders\":{overriders}}}")
        };
        let items: Vec<String> = rules.iter().map(item).collect();
        // Go's encoder escapes HTML characters.
        let text = format!("[{}]", items.join(","));
        let text = text.replace('&', "\\u0026").replace('<', "\\u003c");
        Some(text.replace('>', "\\u003e"))
    }
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

    /// Whether cluster override policies exist, which may change labels that other policies select
    /// by.
    pub(crate) fn has_cluster_policies(&self) -> bool {
        !self.of_cluster.is_empty()
    }

    /// Lists the policies once for all clusters of a template.
    pub(crate) fn candidates(&self, namespace: &str) -> Candidates {
        let local = if namespace.is_empty() {
            Vec::new()
        } else {
            self.local.list_namespace(namespace)
        };
        Candidates {
            of_cluster: self.of_cluster.list(),
            local,
        }
    }
}

impl Candidates {
    /// Applies the policies that select the manifest: cluster override policies first, then those
    /// of the namespace, which are selected by the result.
    pub(crate) fn apply(
        &self,
        manifest: &mut Value,
        kind: &Gvk,
        cluster: &ClusterFacts<'_>,
    ) -> Result<Record, Failed> {
        let mut record = Record::default();
        for (sort, policies) in [
            (Sort::OfCluster, &self.of_cluster),
            (Sort::Local, &self.local),
        ] {
            for (policy, view) in in_order(manifest, kind, policies) {
                apply_one(manifest, sort, &policy, &view.spec, cluster, &mut record)?;
            }
        }
        Ok(record)
    }
}

/// Whether a policy selects an object.
pub(crate) fn selects(policy: &Object, kind: &Gvk, head: &Head) -> bool {
    let view = policy.view::<OverridePolicy>();
    view.is_ok_and(|view| closeness(&view.spec, kind, head) > Closeness::Mismatch)
}

/// Whether a policy may select an object whose labels other policies may change.
pub(crate) fn may_select(policy: &Object, kind: &Gvk, head: &Head) -> bool {
    let Ok(view) = policy.view::<OverridePolicy>() else {
        return false;
    };
    let mut spec = view.spec.clone();
    for selector in &mut spec.resource_selectors {
        selector.label_selector = None;
    }
    closeness(&spec, kind, head) > Closeness::Mismatch
}

/// Whether a policy may select an object of a kind in a namespace.
pub(crate) fn may_select_in(policy: &Object, group: &ResourceGroup<'_>) -> bool {
    let Ok(view) = policy.view::<OverridePolicy>() else {
        return false;
    };
    let of = policy.namespace();
    if !of.is_empty() && of != group.namespace {
        return false;
    }
    let selectors = &view.spec.resource_selectors;
    let names = |selector: &ResourceSelector| {
        (&*selector.api_version, &*selector.kind) == (group.api_version, group.kind)
    };
    selectors.is_empty() || selectors.iter().any(names)
}

/// A policy without selectors selects every object.
fn closeness(spec: &OverrideSpec, kind: &Gvk, head: &Head) -> Closeness {
    if spec.resource_selectors.is_empty() {
        return Closeness::All;
    }
    closest(
        &spec.resource_selectors,
        &kind.api_version(),
        &kind.kind,
        head,
    )
}

/// The policies that select an object, by ascending implicit priority, then by name, so that the
/// policy that selects most specifically is applied last. Keyed by `namespace/name`.
fn in_order(
    manifest: &Value,
    kind: &Gvk,
    policies: &[Object],
) -> Vec<(String, Arc<OverridePolicy>)> {
    if policies.is_empty() {
        return Vec::new();
    }
    let head = head_of(manifest);
    let about = |policy: &Object| {
        let view = policy.view::<OverridePolicy>().ok()?;
        let closeness = closeness(&view.spec, kind, &head);
        let found = (closeness, policy.head().key(), view);
        (closeness > Closeness::Mismatch).then_some(found)
    };
    let mut found: Vec<_> = policies.iter().filter_map(about).collect();
    // All policies are of one namespace, or all are cluster-scoped.
    found.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    found
        .into_iter()
        .map(|(_, key, view)| (key, view))
        .collect()
}

fn apply_one(
    manifest: &mut Value,
    sort: Sort,
    policy: &str,
    spec: &OverrideSpec,
    cluster: &ClusterFacts<'_>,
    record: &mut Record,
) -> Result<(), Failed> {
    for (field, target, overriders) in rules_of(spec) {
        if !target.is_none_or(|t| t.matcher().matches(cluster)) {
            continue;
        }
        override_all(manifest, overriders).map_err(|refusal| Failed {
            sort,
            policy: policy.to_owned(),
            cluster: cluster.name.to_owned(),
            what: format!("{field}.{refusal}"),
        })?;
        record.0.push(Applied {
            sort,
            policy: policy.to_owned(),
            overriders: serde_json::to_string(overriders).unwrap_or_default(),
        });
    }
    Ok(())
}

/// The rules of a policy with their field paths; the deprecated form is one rule.
fn rules_of(spec: &OverrideSpec) -> Vec<(String, Option<&ClusterAffinity>, &Overriders)> {
    if spec.override_rules.is_empty() {
        let target = spec.target_cluster.as_ref();
        return vec![("spec.overriders".into(), target, &spec.overriders)];
    }
    let rules = spec.override_rules.iter().enumerate();
    rules
        .map(|(at, rule)| {
            let field = format!("spec.overrideRules[{at}].overriders");
            (field, rule.target_cluster.as_ref(), &rule.overriders)
        })
        .collect()
}

/// The metadata that selectors evaluate.
fn head_of(manifest: &Value) -> Head {
    let metadata = &manifest["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default().into();
    let labels = metadata["labels"].as_object();
    let mut labels: Vec<Label> = labels
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
