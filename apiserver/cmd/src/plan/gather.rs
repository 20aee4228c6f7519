//! Collects the inputs of a plan through the API, with the user's own rights. Policies are
//! sent as a server-side dry run only.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use client::{Api, ApiResource, At, WriteOptions};
use interpreter::{Interpreter, Limits};
use machinery::{Gvr, Object};
use openapi::karmada::policy::ResourceSelector;
use openapi::karmada::resources::{
    BINDINGS, CLUSTER_BINDINGS, CLUSTER_POLICIES, CLUSTERS, CUSTOMIZATIONS, POLICIES,
};
use openapi::karmada::{FeatureGates, PropagationPolicy, names};
use propagation::plan;
use serde_json::Value;

use super::documents::{self, Namespace};
use crate::why::gather::{Near, all, overrides, policies};

/// A policy before the change, if it exists, and after it.
pub(crate) struct Change {
    pub(crate) before: Option<Object>,
    pub(crate) after: Object,
}

/// A template that a changed policy may affect.
pub(crate) struct Case {
    pub(crate) kind: ApiResource,
    pub(crate) template: Object,
    /// Its replicas and requirements, or why the interpreter failed.
    pub(crate) wants: Result<plan::Wants, String>,
    pub(crate) binding: Option<Object>,
}

pub(crate) struct Facts {
    pub(crate) changes: Vec<Change>,
    /// All policies, including the changed ones.
    pub(crate) policies: Vec<Object>,
    pub(crate) overrides: Vec<Object>,
    pub(crate) bindings: Vec<Object>,
    pub(crate) clusters: Vec<Object>,
    pub(crate) cases: Vec<Case>,
    /// Selected kinds that the server does not serve.
    pub(crate) unknown: BTreeSet<String>,
}

pub(crate) async fn facts(
    api: &dyn Api,
    documents: Vec<Value>,
    namespace: Namespace<'_>,
    gates: FeatureGates,
) -> anyhow::Result<Facts> {
    let mut changes = Vec::new();
    for mut document in documents {
        namespace.settle(&mut document)?;
        changes.push(rehearse(api, document).await?);
    }
    let namespaces: BTreeSet<&str> = changes.iter().map(|c| c.after.namespace()).collect();
    let scope = match namespaces.iter().next() {
        Some(one) if namespaces.len() == 1 && !one.is_empty() => Near::Namespace(one),
        _ => Near::Everywhere,
    };
    let (cases, unknown) = cases(api, &changes).await?;
    let bindings = bindings(api, scope, &cases).await?;
    let by_key: BTreeMap<String, &Object> = bindings.iter().map(|b| (b.head().key(), b)).collect();
    let customizations = all(api, &CUSTOMIZATIONS, "").await?;
    let interpreter = Interpreter::under(&customizations, Limits::default());
    let mut affected = Vec::with_capacity(cases.len());
    for (kind, template) in cases {
        let wants = plan::wants(&interpreter, gates, &kind, &template).await;
        let name = names::binding(&kind.kind, template.name());
        let key = match template.namespace() {
            "" => name,
            namespace => format!("{namespace}/{name}"),
        };
        affected.push(Case {
            binding: by_key.get(&key).map(|b| Object::clone(b)),
            kind,
            template,
            wants,
        });
    }
    Ok(Facts {
        policies: with(policies(api, scope).await?, &changes),
        overrides: overrides(api, scope).await?,
        clusters: all(api, &CLUSTERS, "").await?,
        bindings,
        changes,
        cases: affected,
        unknown,
    })
}

fn resource(namespace: &str) -> &'static Gvr {
    if namespace.is_empty() {
        &CLUSTER_POLICIES
    } else {
        &POLICIES
    }
}

/// Applies a policy as a server-side dry run.
async fn rehearse(api: &dyn Api, mut policy: Value) -> anyhow::Result<Change> {
    let text = |field: &str| policy["metadata"][field].as_str().unwrap_or("").to_owned();
    let name = text("name");
    let namespace = if documents::is_of_cluster(&policy) {
        String::new()
    } else {
        text("namespace")
    };
    let at = At::one(resource(&namespace), &namespace, &name);
    let options = WriteOptions {
        dry_run: true,
        ..WriteOptions::default()
    };
    let before = match api.get(at).await {
        Ok(before) => Some(before),
        Err(e) if e.is_not_found() => None,
        Err(e) => return Err(e).with_context(|| format!("the policy {name:?} cannot be read")),
    };
    let done = match &before {
        None => api.create(At { name: "", ..at }, policy, &options).await,
        Some(before) => {
            keep(&mut policy, &before.value()?);
            api.update(at, policy, &options).await
        }
    };
    let after = done.with_context(|| format!("the policy {name:?} would be refused"))?;
    Ok(Change { before, after })
}

/// Retains the metadata that an apply does not change: resourceVersion, finalizers, and
/// labels and annotations that the file does not set.
fn keep(policy: &mut Value, before: &Value) {
    let (new, old) = (&mut policy["metadata"], &before["metadata"]);
    new["resourceVersion"] = old["resourceVersion"].clone();
    new["finalizers"] = old["finalizers"].clone();
    for marks in ["labels", "annotations"] {
        let mut kept = old[marks].as_object().cloned().unwrap_or_default();
        kept.extend(new[marks].as_object().cloned().unwrap_or_default());
        new[marks] = Value::Object(kept);
    }
}

/// The policies, with the changed ones replaced.
fn with(mut policies: Vec<Object>, changes: &[Change]) -> Vec<Object> {
    for change in changes {
        let after = &change.after;
        policies.retain(|p| (p.namespace(), p.name()) != (after.namespace(), after.name()));
        policies.push(after.clone());
    }
    policies
}

/// The templates that the policies select or have claimed, and the selected kinds that are
/// not served.
async fn cases(
    api: &dyn Api,
    changes: &[Change],
) -> anyhow::Result<(Vec<(ApiResource, Object)>, BTreeSet<String>)> {
    let discovered = api.resources().await?.resources;
    let scope = plan::Scope::new(&propagation::Options::default()).map_err(anyhow::Error::msg)?;
    let mut found: BTreeMap<(String, String), (ApiResource, Object)> = BTreeMap::new();
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
            if !scope.takes(kind, "")
                || !listed.insert((kind.resource.clone().to_string(), namespace.to_owned()))
            {
                continue;
            }
            for template in all(api, &kind.resource, namespace).await? {
                let affected = concerns(changes, kind, &template);
                if affected && scope.takes(kind, template.namespace()) {
                    let key = (kind.resource.to_string(), template.head().key());
                    found.insert(key, (kind.clone(), template));
                }
            }
        }
    }
    Ok((found.into_values().collect(), unknown))
}

fn selectors(change: &Change) -> anyhow::Result<Vec<ResourceSelector>> {
    let mut all = Vec::new();
    for policy in change.before.iter().chain([&change.after]) {
        let view = policy.view::<PropagationPolicy>()?;
        all.extend(view.spec.resource_selectors.iter().cloned());
    }
    Ok(all)
}

fn concerns(changes: &[Change], kind: &ApiResource, template: &Object) -> bool {
    changes.iter().any(|change| {
        let mut versions = change.before.iter().chain([&change.after]);
        versions
            .any(|policy| plan::selects(policy, kind, template) || plan::claims(policy, template))
    })
}

async fn bindings(
    api: &dyn Api,
    scope: Near<'_>,
    cases: &[(ApiResource, Object)],
) -> anyhow::Result<Vec<Object>> {
    let namespace = match scope {
        Near::Namespace(namespace) => namespace,
        Near::Nowhere | Near::Everywhere => "",
    };
    let mut found = all(api, &BINDINGS, namespace).await?;
    if cases.iter().any(|(kind, _)| !kind.namespaced) {
        found.extend(all(api, &CLUSTER_BINDINGS, "").await?);
    }
    Ok(found)
}
