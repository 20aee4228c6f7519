//! Applies override policies to the manifest of one cluster, and records what was applied. Source:
//! Karmada's `pkg/util/overridemanager`.

mod granted_rights;
mod image_reference;
mod json_document;
mod json_patch;
mod overriders;
mod pod_spec;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use client::{Informer, InformerEvent, InvolvedObject};
use flotilla_runtime::EventRecorder;
use granted_rights::GrantedRights;
use karmada_api::kind_in_namespace::KindInNamespace;
use karmada_api::policy::{ImplicitPriority, OverrideSpec, Overriders, highest_implicit_priority};
use karmada_api::well_known_keys::OVERRIDE_RETAINED;
use karmada_api::{ClusterAffinity, ClusterAttributes, OverridePolicy, ResourceSelector};
use machinery::object::Label;
use machinery::{Gvk, Object, ObjectMeta};
use overriders::apply_overriders;
use serde_json::{Value, json};

/// The bytes that the records of applied policies may take of the 256 KiB of all annotations of a Work.
const MAX_RECORD_BYTES: usize = 240 << 10;

/// The override policies by namespace and by what their selectors name: among thousands of policies,
/// a template decodes only those that may select it. Labels are no part of the keys: the interpreter
/// may change them before policies are applied.
const SELECTED_INDEX: &str = "selected-resources";

/// Finds the override policies that may apply to a manifest.
#[derive(Clone)]
pub struct OverrideManager {
    policies: Informer,
    cluster_policies: Informer,
}

/// The override policies that may apply to objects of one namespace.
pub struct CandidateOverridePolicies {
    cluster_policies: Vec<Object>,
    policies: Vec<Object>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OverridePolicyScope {
    Cluster,
    Namespaced,
}

impl fmt::Display for OverridePolicyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cluster => "cluster override policy",
            Self::Namespaced => "override policy",
        })
    }
}

/// An override rule that was applied.
#[derive(Debug, PartialEq)]
struct OverridePolicyShadow {
    scope: OverridePolicyScope,
    /// `namespace/name`, or the name of a cluster override policy.
    policy: String,
    /// As JSON, with the fields in Go's order.
    overriders: String,
    /// The fields that are not to be retained, as JSON pointers.
    retained_fields: Vec<String>,
}

/// The rules that were applied to the manifest of one cluster, in order.
#[derive(Debug, Default, PartialEq)]
pub struct AppliedOverrides(Vec<OverridePolicyShadow>);

/// An override rule that cannot be applied.
#[derive(Debug, PartialEq)]
pub struct OverrideFailure {
    scope: OverridePolicyScope,
    policy: String,
    cluster: String,
    /// The field of the policy, the path in the manifest, and the reason.
    detail: String,
}

impl fmt::Display for OverrideFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scope: sort,
            policy,
            cluster,
            detail: what,
        } = self;
        write!(
            f,
            "{sort}({policy}) cannot be applied for cluster({cluster}): {what}"
        )
    }
}

impl OverrideFailure {
    pub fn record_event(&self, recorder: &EventRecorder, about: &InvolvedObject) {
        let Self {
            scope: sort,
            policy,
            cluster,
            detail: what,
        } = self;
        let text = format!("Apply {sort}({policy}) for cluster({cluster}) failed. {what}");
        recorder.warning(about, "ApplyOverridePolicyFailed", text);
    }
}

impl AppliedOverrides {
    pub fn record_events(&self, recorder: &EventRecorder, about: &InvolvedObject, cluster: &str) {
        for OverridePolicyShadow {
            scope: sort,
            policy,
            ..
        } in &self.0
        {
            let text = format!("Apply {sort}({policy}) for cluster({cluster}) succeed.");
            recorder.normal(about, "ApplyOverridePolicySucceed", text);
        }
    }

    /// Fails if the records of the policies do not fit into the annotations of a Work beside its
    /// others. The policy with the longest record is named.
    fn check_size(&self, cluster: &str) -> Result<(), OverrideFailure> {
        let size = |record: Option<String>| record.map_or(0, |text| text.len());
        let total = size(self.cluster_policies_annotation())
            + size(self.policies_annotation())
            + size(self.retained_fields_annotation());
        let Some(longest) = self.0.iter().max_by_key(|shadow| shadow.overriders.len()) else {
            return Ok(());
        };
        if total <= MAX_RECORD_BYTES {
            return Ok(());
        }
        Err(OverrideFailure {
            scope: longest.scope,
            policy: longest.policy.clone(),
            cluster: cluster.to_owned(),
            detail: format!(
                "the applied overriders take {total} bytes of annotations, limit is {MAX_RECORD_BYTES}"
            ),
        })
    }

    /// The policies with an applied rule, as their kind and key, in the order of their application.
    pub fn policies(&self) -> Vec<String> {
        let mut policies: Vec<String> = Vec::new();
        for OverridePolicyShadow { scope, policy, .. } in &self.0 {
            let kind = match scope {
                OverridePolicyScope::Cluster => "ClusterOverridePolicy",
                OverridePolicyScope::Namespaced => "OverridePolicy",
            };
            let policy = format!("{kind} {policy}");
            if !policies.contains(&policy) {
                policies.push(policy);
            }
        }
        policies
    }

    /// The value of the annotation for cluster override policies; `None` if none was applied.
    pub fn cluster_policies_annotation(&self) -> Option<String> {
        self.annotation(OverridePolicyScope::Cluster)
    }

    /// The value of the annotation for override policies of the namespace.
    pub fn policies_annotation(&self) -> Option<String> {
        self.annotation(OverridePolicyScope::Namespaced)
    }

    /// The value of the annotation with the fields in which the overrides win over what a member
    /// retains; `None` if there are none.
    pub fn retained_fields_annotation(&self) -> Option<String> {
        let fields = self.0.iter().flat_map(|shadow| &shadow.retained_fields);
        let fields: BTreeSet<&String> = fields.collect();
        let text = || serde_json::to_string(&fields).ok();
        if fields.is_empty() { None } else { text() }
    }

    fn annotation(&self, sort: OverridePolicyScope) -> Option<String> {
        let of_sort = self.0.iter().filter(|a| a.scope == sort);
        let name =
            |a: &OverridePolicyShadow| a.policy.rsplit('/').next().unwrap_or_default().to_owned();
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

impl OverrideManager {
    pub fn new(policies: Informer, cluster_policies: Informer) -> Self {
        policies.add_index(SELECTED_INDEX, index_keys);
        Self {
            policies,
            cluster_policies,
        }
    }

    pub async fn wait_synced(&self) {
        self.policies.wait_for_cache_sync().await;
        self.cluster_policies.wait_for_cache_sync().await;
    }

    pub fn add_event_handler(&self, handler: impl Fn(&InformerEvent<'_>) + Send + Sync + 'static) {
        let handler = Arc::new(handler);
        for informer in [&self.policies, &self.cluster_policies] {
            let handler = Arc::clone(&handler);
            informer.add_event_handler(move |change| handler(change));
        }
    }

    pub fn add_cluster_policy_event_handler(
        &self,
        handler: impl Fn(&InformerEvent<'_>) + Send + Sync + 'static,
    ) {
        self.cluster_policies.add_event_handler(handler);
    }

    /// Whether cluster override policies exist, which may change labels that other policies select
    /// by.
    pub fn has_cluster_policies(&self) -> bool {
        !self.cluster_policies.is_empty()
    }

    /// Lists the policies that may select a template, once for all its clusters.
    pub fn candidates(&self, kind: &Gvk, template: &ObjectMeta) -> CandidateOverridePolicies {
        let cluster_policies = self.cluster_policies.list();
        let namespace = &*template.namespace;
        let policies = match namespace {
            "" => Vec::new(),
            // A cluster override policy may change the name by which others select.
            _ if !cluster_policies.is_empty() => self.policies.list_namespace(namespace),
            _ => {
                let keys = lookup_keys(kind, template);
                let listed = keys.map(|key| self.policies.by_index(SELECTED_INDEX, &key));
                let by_name = listed.into_iter().flatten().map(|p| (p.meta().key(), p));
                by_name.collect::<BTreeMap<_, _>>().into_values().collect()
            }
        };
        CandidateOverridePolicies {
            cluster_policies,
            policies,
        }
    }
}

/// The keys of a policy in [`SELECTED_INDEX`].
fn index_keys(policy: &Object) -> Vec<String> {
    let Ok(view) = policy.decode::<OverridePolicy>() else {
        return Vec::new();
    };
    let namespace = policy.namespace();
    let selectors = &view.spec.resource_selectors;
    if selectors.is_empty() {
        return vec![namespace.to_owned()];
    }
    let key = |s: &ResourceSelector| selected_key(namespace, &s.api_version, &s.kind, &s.name);
    selectors.iter().map(key).collect()
}

/// The keys of all policies that may select an object: by its name, by its kind, and everything.
fn lookup_keys(kind: &Gvk, head: &ObjectMeta) -> [String; 3] {
    let key = |name: &str| selected_key(&head.namespace, &kind.api_version(), &kind.kind, name);
    [key(&head.name), key(""), head.namespace.to_string()]
}

fn selected_key(namespace: &str, api_version: &str, kind: &str, name: &str) -> String {
    format!("{namespace}/{api_version}/{kind}/{name}")
}

impl CandidateOverridePolicies {
    /// The candidates among objects that were listed: those of a namespace, and cluster policies.
    pub fn of_objects(policies: &[Object]) -> Self {
        let (cluster_policies, policies) = policies
            .iter()
            .cloned()
            .partition(|policy| policy.namespace().is_empty());
        Self {
            cluster_policies,
            policies,
        }
    }

    /// The policies that may select an object, by namespace and name: what they are called and what
    /// they do, from which [`Self::of_objects`] makes the candidates again.
    pub fn selecting_specs(&self, kind: &Gvk, head: &ObjectMeta) -> Vec<Value> {
        let policies = self.cluster_policies.iter().chain(&self.policies);
        let mut selecting: Vec<&Object> = policies
            .filter(|policy| may_select(policy, kind, head))
            .collect();
        selecting.sort_by_key(|policy| policy.meta().key());
        let spec = |policy: &&Object| {
            let mut value = policy.value().ok()?;
            let mut metadata = json!({"name": policy.name()});
            if !policy.namespace().is_empty() {
                metadata["namespace"] = policy.namespace().into();
            }
            Some(json!({"metadata": metadata, "spec": value["spec"].take()}))
        };
        selecting.iter().filter_map(spec).collect()
    }

    /// Applies the policies that select the manifest: cluster override policies first, then those
    /// of the namespace, which are selected by the result.
    pub fn apply(
        &self,
        manifest: &mut Value,
        kind: &Gvk,
        cluster: &ClusterAttributes<'_>,
    ) -> Result<AppliedOverrides, OverrideFailure> {
        let mut record = AppliedOverrides::default();
        for (sort, policies) in [
            (OverridePolicyScope::Cluster, &self.cluster_policies),
            (OverridePolicyScope::Namespaced, &self.policies),
        ] {
            for selecting in selecting_policies(manifest, kind, policies) {
                let granted = GrantedRights::of(manifest, kind);
                apply_policy(manifest, sort, &selecting, cluster, &mut record)?;
                let policy = selecting.key;
                if sort == OverridePolicyScope::Namespaced
                    && let Some(path) = granted.changed_field(manifest)
                {
                    return Err(OverrideFailure {
                        scope: sort,
                        policy,
                        cluster: cluster.name.to_owned(),
                        detail: format!(
                            "spec.overrideRules: {path:?}: which rights an object grants may only be changed by a ClusterOverridePolicy"
                        ),
                    });
                }
            }
        }
        record.check_size(cluster.name)?;
        Ok(record)
    }
}

/// Whether a policy selects an object.
pub fn selects(policy: &Object, kind: &Gvk, head: &ObjectMeta) -> bool {
    let view = policy.decode::<OverridePolicy>();
    view.is_ok_and(|view| implicit_priority(&view.spec, kind, head) > ImplicitPriority::Mismatch)
}

/// Whether a policy may select an object whose labels other policies may change.
pub fn may_select(policy: &Object, kind: &Gvk, head: &ObjectMeta) -> bool {
    let Ok(view) = policy.decode::<OverridePolicy>() else {
        return false;
    };
    let mut spec = view.spec.clone();
    for selector in &mut spec.resource_selectors {
        selector.label_selector = None;
    }
    implicit_priority(&spec, kind, head) > ImplicitPriority::Mismatch
}

/// The objects of a kind in a namespace that policies may select.
#[derive(Debug, PartialEq, Eq)]
pub enum SelectableObjects {
    /// Only objects with these names.
    Named(BTreeSet<String>),
    All,
}

impl SelectableObjects {
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Named(names) if names.is_empty())
    }
}

/// The objects of a kind in a namespace that any of these policies may select.
pub fn selectable_objects(policies: &[Object], group: &KindInNamespace<'_>) -> SelectableObjects {
    let mut names = BTreeSet::new();
    for policy in policies {
        let namespace = policy.namespace();
        let Ok(view) = policy.decode::<OverridePolicy>() else {
            continue;
        };
        if !namespace.is_empty() && namespace != group.namespace {
            continue;
        }
        let selectors = &view.spec.resource_selectors;
        let is_of_kind = |selector: &&ResourceSelector| {
            (&*selector.api_version, &*selector.kind) == (group.api_version, group.kind)
        };
        let selected = selectors.iter().filter(is_of_kind);
        let selected: BTreeSet<String> = selected.map(|selector| selector.name.clone()).collect();
        // A selector without a name selects by labels, or all.
        if selectors.is_empty() || selected.contains("") {
            return SelectableObjects::All;
        }
        names.extend(selected);
    }
    SelectableObjects::Named(names)
}

/// A policy without selectors selects every object.
fn implicit_priority(spec: &OverrideSpec, kind: &Gvk, head: &ObjectMeta) -> ImplicitPriority {
    if spec.resource_selectors.is_empty() {
        return ImplicitPriority::MatchAll;
    }
    highest_implicit_priority(
        &spec.resource_selectors,
        &kind.api_version(),
        &kind.kind,
        head,
    )
}

/// A policy that selects an object.
struct SelectingPolicy {
    /// `namespace/name`.
    key: String,
    view: Arc<OverridePolicy>,
    /// Whether its overrides win over what members retain.
    wins_over_retained: bool,
}

/// Whether the plaintext overriders of a policy win over the values that members retain.
pub fn overrides_retained_fields(policy: &Object) -> bool {
    let annotations = policy.annotations();
    annotations
        .get(OVERRIDE_RETAINED)
        .is_some_and(|value| value == "true")
}

/// The policies that select an object, by ascending implicit priority, then by name, so that the
/// policy that selects most specifically is applied last.
fn selecting_policies(manifest: &Value, kind: &Gvk, policies: &[Object]) -> Vec<SelectingPolicy> {
    if policies.is_empty() {
        return Vec::new();
    }
    let head = manifest_meta(manifest);
    let about = |policy: &Object| {
        let view = policy.decode::<OverridePolicy>().ok()?;
        let closeness = implicit_priority(&view.spec, kind, &head);
        (closeness > ImplicitPriority::Mismatch).then(|| {
            let selecting = SelectingPolicy {
                key: policy.meta().key(),
                view,
                wins_over_retained: overrides_retained_fields(policy),
            };
            (closeness, selecting)
        })
    };
    let mut selecting: Vec<_> = policies.iter().filter_map(about).collect();
    // All policies are of one namespace, or all are cluster-scoped.
    selecting.sort_by(|a, b| (a.0, &a.1.key).cmp(&(b.0, &b.1.key)));
    selecting.into_iter().map(|(_, policy)| policy).collect()
}

fn apply_policy(
    manifest: &mut Value,
    sort: OverridePolicyScope,
    policy: &SelectingPolicy,
    cluster: &ClusterAttributes<'_>,
    record: &mut AppliedOverrides,
) -> Result<(), OverrideFailure> {
    for (field, target, overriders) in policy_rules(&policy.view.spec) {
        if !target.is_none_or(|t| t.matcher().matches(cluster)) {
            continue;
        }
        apply_overriders(manifest, overriders).map_err(|refusal| OverrideFailure {
            scope: sort,
            policy: policy.key.clone(),
            cluster: cluster.name.to_owned(),
            detail: format!("{field}.{refusal}"),
        })?;
        record.0.push(OverridePolicyShadow {
            scope: sort,
            policy: policy.key.clone(),
            overriders: serde_json::to_string(overriders).unwrap_or_default(),
            retained_fields: match policy.wins_over_retained {
                true => set_fields(overriders),
                false => Vec::new(),
            },
        });
    }
    Ok(())
}

/// The fields that the plaintext overriders set. Those of the metadata are never retained.
fn set_fields(overriders: &Overriders) -> Vec<String> {
    let operations = overriders.plaintext.iter();
    let set = operations.filter(|operation| operation.operator != "remove");
    let paths = set.map(|operation| operation.path.clone());
    paths
        .filter(|path| !path.starts_with("/metadata"))
        .collect()
}

/// The rules of a policy with their field paths; the deprecated form is one rule.
fn policy_rules(spec: &OverrideSpec) -> Vec<(String, Option<&ClusterAffinity>, &Overriders)> {
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
fn manifest_meta(manifest: &Value) -> ObjectMeta {
    let metadata = &manifest["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default().into();
    let labels = metadata["labels"].as_object();
    let mut labels: Vec<Label> = labels
        .into_iter()
        .flatten()
        .map(|(k, v)| (k.as_str().into(), v.as_str().unwrap_or_default().into()))
        .collect();
    labels.sort_unstable();
    ObjectMeta {
        namespace: text("namespace"),
        name: text("name"),
        labels: labels.into(),
        ..ObjectMeta::default()
    }
}
