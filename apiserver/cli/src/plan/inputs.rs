//! Collects the inputs of a plan through the API, with the user's own rights. Policies are
//! sent as a server-side dry run only, and so are templates.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use client::{Api, ApiResource, ResourcePath, WriteOptions, ignore_not_found};
use interpreter::{LuaLimits, ResourceInterpreter};
use karmada_api::policy::ResourceSelector;
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS, CLUSTERS, CUSTOMIZATIONS};
use karmada_api::{FeatureGates, PropagationPolicy, names};
use machinery::{Gvr, Object};
use serde_json::Value;

use super::policies;
use crate::conflicts::retry_on_conflict;
use crate::namespace_gate::read_gate;
use crate::object_lists::{
    ListedPolicyNamespaces, list_all, list_overrides, list_policies, policy_resource,
};
use crate::rollout::ListedRollouts;
use crate::type_configs::find_disabling_configs;

/// An object before the change, if it exists, and after it.
pub(crate) struct ChangedObject {
    pub(crate) before: Option<Object>,
    pub(crate) after: Object,
}

/// The fate of labels and annotations that a policy has and its changed document lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AbsentMetadata {
    /// They stay, as with an apply of a file.
    Stays,
    /// They are removed, but for those of the server: the document is the whole policy.
    IsRemoved,
}

/// A template that a changed policy may affect.
pub(crate) struct AffectedTemplate {
    pub(crate) api_resource: ApiResource,
    pub(crate) template: Object,
    /// Its replicas and requirements, or why the interpreter failed.
    pub(crate) interpreted_replicas: Result<detector::InterpretedReplicas, String>,
    pub(crate) binding: Option<Object>,
    /// The clusters to which the namespace restricts the template, if it does.
    pub(crate) namespace_gate: Option<Vec<String>>,
    /// The FederatedTypeConfig that switches the propagation of the kind off.
    pub(crate) disabled_by: Option<String>,
}

pub(crate) struct PlanInputs {
    pub(crate) changes: Vec<ChangedObject>,
    /// All policies, including the changed ones.
    pub(crate) policies: Vec<Object>,
    pub(crate) overrides: Vec<Object>,
    pub(crate) bindings: Vec<Object>,
    pub(crate) clusters: Vec<Object>,
    pub(crate) templates: Vec<AffectedTemplate>,
    pub(crate) rollouts: ListedRollouts,
    /// Selected kinds that the server does not serve.
    pub(crate) unserved_kinds: BTreeSet<String>,
    /// Whether the controllers start anew; see [`simulation::SimulationInput`].
    pub(crate) starts_anew: bool,
}

pub(crate) async fn collect_inputs(
    api: &dyn Api,
    documents: Vec<Value>,
    absent_metadata: AbsentMetadata,
    gates: FeatureGates,
) -> anyhow::Result<PlanInputs> {
    let mut changes = Vec::new();
    for document in documents {
        changes.push(preview_policy(api, document, absent_metadata).await?);
    }
    let namespaces: BTreeSet<&str> = changes.iter().map(|c| c.after.namespace()).collect();
    let common_namespace = match namespaces.iter().next() {
        Some(one) if namespaces.len() == 1 && !one.is_empty() => Some((*one).to_owned()),
        _ => None,
    };
    let scope = scope_of(common_namespace.as_deref());
    let policies = replace_changed(list_policies(api, scope).await?, changes.iter());
    inputs_of(api, changes, policies, common_namespace.as_deref(), gates).await
}

fn scope_of(namespace: Option<&str>) -> ListedPolicyNamespaces<'_> {
    match namespace {
        Some(namespace) => ListedPolicyNamespaces::Namespace(namespace),
        None => ListedPolicyNamespaces::AllNamespaces,
    }
}

/// The inputs for all policies as they are, when the controllers start anew.
pub(crate) async fn collect_present_inputs(
    api: &dyn Api,
    gates: FeatureGates,
) -> anyhow::Result<PlanInputs> {
    let policies = list_policies(api, ListedPolicyNamespaces::AllNamespaces).await?;
    let changes = policies.iter().map(|policy| ChangedObject {
        before: Some(policy.clone()),
        after: policy.clone(),
    });
    let inputs = inputs_of(api, changes.collect(), policies, None, gates).await?;
    Ok(PlanInputs {
        starts_anew: true,
        ..inputs
    })
}

/// The inputs for changed policies of one namespace, or of any.
async fn inputs_of(
    api: &dyn Api,
    changes: Vec<ChangedObject>,
    policies: Vec<Object>,
    namespace: Option<&str>,
    gates: FeatureGates,
) -> anyhow::Result<PlanInputs> {
    let (cases, unknown) = affected_templates(api, &changes).await?;
    let inputs = inputs_of_templates(api, cases, policies, namespace, gates).await?;
    Ok(PlanInputs {
        changes,
        unserved_kinds: unknown,
        ..inputs
    })
}

/// The inputs for one changed template, whose policies stay as they are.
pub(crate) async fn collect_template_inputs(
    api: &dyn Api,
    kind: &ApiResource,
    template: Object,
    gates: FeatureGates,
) -> anyhow::Result<PlanInputs> {
    let namespace = template.namespace().to_owned();
    let policies = list_policies(api, ListedPolicyNamespaces::for_namespace(&namespace)).await?;
    let common_namespace = Some(&*namespace).filter(|namespace| !namespace.is_empty());
    let cases = vec![(kind.clone(), template)];
    let inputs = inputs_of_templates(api, cases, policies, common_namespace, gates).await?;
    Ok(PlanInputs {
        // The change of the template is the one for which a lazy policy waits.
        starts_anew: true,
        ..inputs
    })
}

/// The inputs for templates under policies that do not change.
async fn inputs_of_templates(
    api: &dyn Api,
    cases: Vec<(ApiResource, Object)>,
    policies: Vec<Object>,
    namespace: Option<&str>,
    gates: FeatureGates,
) -> anyhow::Result<PlanInputs> {
    let scope = scope_of(namespace);
    let bindings = list_bindings(api, scope, &cases).await?;
    let by_key: BTreeMap<String, &Object> = bindings.iter().map(|b| (b.meta().key(), b)).collect();
    let customizations = list_all(api, &CUSTOMIZATIONS, "").await?;
    let interpreter =
        ResourceInterpreter::from_customizations(&customizations, LuaLimits::default());
    let mut namespace_gates: BTreeMap<String, Option<Vec<String>>> = BTreeMap::new();
    for (_, template) in &cases {
        let namespace = template.namespace();
        if let Entry::Vacant(vacant) = namespace_gates.entry(namespace.to_owned()) {
            vacant.insert(read_gate(api, namespace).await?);
        }
    }
    let mut switches: BTreeMap<String, Option<String>> = BTreeMap::new();
    for (kind, _) in &cases {
        if let Entry::Vacant(vacant) = switches.entry(kind.resource.to_string()) {
            vacant.insert(find_disabling_configs(api, kind).await.propagation);
        }
    }
    let mut affected = Vec::with_capacity(cases.len());
    for (kind, template) in cases {
        let wants = simulation::interpret_replicas(&interpreter, gates, &kind, &template).await;
        let name = names::binding_name(&kind.kind, template.name());
        let key = match template.namespace() {
            "" => name,
            namespace => format!("{namespace}/{name}"),
        };
        affected.push(AffectedTemplate {
            binding: by_key.get(&key).map(|b| Object::clone(b)),
            disabled_by: switches.get(&kind.resource.to_string()).cloned().flatten(),
            namespace_gate: namespace_gates.get(template.namespace()).cloned().flatten(),
            api_resource: kind,
            template,
            interpreted_replicas: wants,
        });
    }
    Ok(PlanInputs {
        policies,
        overrides: list_overrides(api, scope).await?,
        clusters: list_all(api, &CLUSTERS, "").await?,
        bindings,
        changes: Vec::new(),
        templates: affected,
        rollouts: ListedRollouts::list(api, namespace.unwrap_or_default()).await?,
        unserved_kinds: BTreeSet::new(),
        starts_anew: false,
    })
}

/// Creates or replaces a policy as a server-side dry run.
async fn preview_policy(
    api: &dyn Api,
    mut policy: Value,
    absent_metadata: AbsentMetadata,
) -> anyhow::Result<ChangedObject> {
    let resource = resource_of_policy(&mut policy);
    preview_object(api, resource, policy, absent_metadata, "policy").await
}

/// Creates a policy, or replaces the one that was read before. It is a conflict if that has changed since.
pub(super) async fn write_policy(
    api: &dyn Api,
    mut policy: Value,
    before: Option<&Object>,
    absent_metadata: AbsentMetadata,
) -> anyhow::Result<Object> {
    let resource = resource_of_policy(&mut policy);

    let options = WriteOptions {
        strict: true,
        ..WriteOptions::default()
    };
    write_over(api, resource, &policy, (before, absent_metadata), &options)
        .await
        .with_context(|| format!("the policy {} was refused", policy["metadata"]["name"]))
}

/// The resource of a policy, which loses its namespace if it is cluster-scoped.
fn resource_of_policy(policy: &mut Value) -> &'static Gvr {
    if policies::is_cluster_scoped(policy)
        && let Some(metadata) = policy["metadata"].as_object_mut()
    {
        metadata.remove("namespace");
    }
    let namespace = policy["metadata"]["namespace"].as_str().unwrap_or_default();
    policy_resource(namespace)
}

/// Creates or replaces an object as a server-side dry run. `noun`: what errors call it.
pub(super) async fn preview_object(
    api: &dyn Api,
    resource: &Gvr,
    object: Value,
    absent_metadata: AbsentMetadata,
    noun: &str,
) -> anyhow::Result<ChangedObject> {
    let (namespace, name) = key_of(&object);
    let at = ResourcePath::object(resource, &namespace, &name);
    let options = WriteOptions {
        dry_run: true,
        strict: true,
        ..WriteOptions::default()
    };
    retry_on_conflict(|| async {
        let before = ignore_not_found(api.get(at).await);
        let before = before.with_context(|| format!("the {noun} {name:?} cannot be read"))?;
        let replaced = (before.as_ref(), absent_metadata);
        let after = write_over(api, resource, &object, replaced, &options).await;
        let after = after.with_context(|| format!("the {noun} {name:?} would be refused"))?;
        Ok(ChangedObject { before, after })
    })
    .await
}

fn key_of(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or("").to_owned();
    (text("namespace"), text("name"))
}

/// Creates an object, or replaces the one that was read before.
async fn write_over(
    api: &dyn Api,
    resource: &Gvr,
    object: &Value,
    (before, absent_metadata): (Option<&Object>, AbsentMetadata),
    options: &WriteOptions,
) -> anyhow::Result<Object> {
    let (namespace, name) = key_of(object);
    let mut body = object.clone();
    let written = match before {
        None => {
            let at = ResourcePath::collection(resource, &namespace);
            api.create(at, body.into(), options).await
        }
        Some(before) => {
            retain_metadata(&mut body, &before.value()?, absent_metadata);
            let at = ResourcePath::object(resource, &namespace, &name);
            api.update(at, body.into(), options).await
        }
    };
    Ok(written?)
}

/// Retains the metadata that an apply does not change: resourceVersion, finalizers, and of the labels
/// and annotations that the document does not set those that stay.
fn retain_metadata(policy: &mut Value, before: &Value, absent_metadata: AbsentMetadata) {
    let (new, old) = (&mut policy["metadata"], &before["metadata"]);
    new["resourceVersion"] = old["resourceVersion"].clone();
    new["finalizers"] = old["finalizers"].clone();
    for marks in ["labels", "annotations"] {
        let mut merged = old[marks].as_object().cloned().unwrap_or_default();
        if absent_metadata == AbsentMetadata::IsRemoved {
            merged.retain(|key, _| policies::is_server_metadata(marks, key));
        }
        merged.extend(new[marks].as_object().cloned().unwrap_or_default());
        new[marks] = Value::Object(merged);
    }
}

/// The policies, with the changed ones replaced.
pub(super) fn replace_changed<'a>(
    mut policies: Vec<Object>,
    changes: impl Iterator<Item = &'a ChangedObject>,
) -> Vec<Object> {
    for change in changes {
        let after = &change.after;
        policies.retain(|p| (p.namespace(), p.name()) != (after.namespace(), after.name()));
        policies.push(after.clone());
    }
    policies
}

/// The templates that the policies select or have claimed, and the selected kinds that are
/// not served.
async fn affected_templates(
    api: &dyn Api,
    changes: &[ChangedObject],
) -> anyhow::Result<(Vec<(ApiResource, Object)>, BTreeSet<String>)> {
    let discovered = api.discover().await?.resources;
    let scope = simulation::SkippedPropagatingFilter::new(
        &controller_context::TemplateFilterOptions::default(),
    )
    .map_err(anyhow::Error::msg)?;
    let mut templates: BTreeMap<(String, String), (ApiResource, Object)> = BTreeMap::new();
    let mut unknown = BTreeSet::new();
    let mut listed = BTreeSet::new();
    for change in changes {
        let local = change.after.namespace();
        for selector in selectors(change)? {
            let is_it = |r: &&ApiResource| {
                r.kind == selector.kind && r.resource.api_version() == selector.api_version
            };
            let Some(kind) = discovered.iter().find(is_it) else {
                unknown.insert(format!("{} of {}", selector.kind, selector.api_version));
                continue;
            };
            let namespace = match (kind.namespaced, local) {
                (false, "") => "",
                (false, _) => continue,
                (true, "") => &selector.namespace,
                (true, local) => local,
            };
            if !scope.allows(kind, "")
                || !listed.insert((kind.resource.clone().to_string(), namespace.to_owned()))
            {
                continue;
            }
            for template in list_all(api, &kind.resource, namespace).await? {
                let affected = is_affected(changes, kind, &template);
                if affected && scope.allows(kind, template.namespace()) {
                    let key = (kind.resource.to_string(), template.meta().key());
                    templates.insert(key, (kind.clone(), template));
                }
            }
        }
    }
    Ok((templates.into_values().collect(), unknown))
}

fn selectors(change: &ChangedObject) -> anyhow::Result<Vec<ResourceSelector>> {
    let mut all = Vec::new();
    for policy in change.before.iter().chain([&change.after]) {
        let view = policy.decode::<PropagationPolicy>()?;
        all.extend(view.spec.resource_selectors.iter().cloned());
    }
    Ok(all)
}

fn is_affected(changes: &[ChangedObject], kind: &ApiResource, template: &Object) -> bool {
    changes.iter().any(|change| {
        let mut versions = change.before.iter().chain([&change.after]);
        versions.any(|policy| {
            simulation::selects(policy, kind, template) || simulation::has_claimed(policy, template)
        })
    })
}

async fn list_bindings(
    api: &dyn Api,
    scope: ListedPolicyNamespaces<'_>,
    cases: &[(ApiResource, Object)],
) -> anyhow::Result<Vec<Object>> {
    let namespace = match scope {
        ListedPolicyNamespaces::Namespace(namespace) => namespace,
        ListedPolicyNamespaces::ClusterScoped | ListedPolicyNamespaces::AllNamespaces => "",
    };
    let mut bindings = list_all(api, &BINDINGS, namespace).await?;
    if cases.iter().any(|(kind, _)| !kind.namespaced) {
        bindings.extend(list_all(api, &CLUSTER_BINDINGS, "").await?);
    }
    Ok(bindings)
}
