//! Collects the inputs of a report through the API, with the user's own rights.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use client::{Api, ApiResource, At, ListOptions};
use machinery::{Gvr, Object};
use openapi::karmada::labels::{BINDING_ID, CLUSTER_BINDING_ID};
use openapi::karmada::resources::{
    BINDINGS, CLUSTER_BINDINGS, CLUSTER_OVERRIDES, CLUSTER_POLICIES, CLUSTERS, OVERRIDES, POLICIES,
    WORKS,
};
use openapi::karmada::{Binding, Cluster, Work, names};
use serde_json::Value;

use crate::decision::DECISION;
use crate::named;

/// A template with its policies, binding, decision and Works.
pub(crate) struct Facts {
    pub(crate) kind: ApiResource,
    pub(crate) template: Object,
    pub(crate) policies: Vec<Object>,
    pub(crate) overrides: Vec<Object>,
    pub(crate) binding: Option<(Object, Arc<Binding>)>,
    /// The document of the binding's subresource `decision`, or why it cannot be read.
    pub(crate) decision: Option<Result<Value, String>>,
    pub(crate) clusters: BTreeMap<String, Arc<Cluster>>,
    /// The Works of the binding, by cluster.
    pub(crate) works: BTreeMap<String, (Object, Arc<Work>)>,
}

pub(crate) async fn facts(
    api: &dyn Api,
    typed: &str,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Facts> {
    let discovered = api.resources().await?.resources;
    let found = named::find(&discovered, typed)?;
    let (kind, template) = template(api, &discovered, found, namespace, name).await?;
    let namespace = template.namespace();
    let (resource, id) = match namespace {
        "" => (&CLUSTER_BINDINGS, CLUSTER_BINDING_ID),
        _ => (&BINDINGS, BINDING_ID),
    };
    let at = At::one(resource, namespace, "");
    let bound = names::binding(&kind.kind, template.name());
    let at = At { name: &bound, ..at };
    let binding = match api.get(at).await {
        Ok(object) => {
            let view = object.view::<Binding>()?;
            Some((object, view))
        }
        Err(e) if e.is_not_found() => None,
        Err(e) => return Err(e).context("the binding cannot be read"),
    };
    let decision = match &binding {
        Some(_) => Some(match api.get(at.sub(DECISION)).await {
            Ok(document) => Ok(document.value()?),
            Err(e) => Err(e.to_string()),
        }),
        None => None,
    };
    let works = match &binding {
        Some((object, _)) => works(api, id, object.head().label(id)).await?,
        None => BTreeMap::new(),
    };
    Ok(Facts {
        policies: policies(api, Near::to(namespace)).await?,
        overrides: overrides(api, Near::to(namespace)).await?,
        clusters: clusters(api).await?,
        kind,
        template,
        binding,
        decision,
        works,
    })
}

/// The template of the argument, which is the template itself or its binding.
async fn template(
    api: &dyn Api,
    discovered: &[ApiResource],
    found: &ApiResource,
    namespace: &str,
    name: &str,
) -> anyhow::Result<(ApiResource, Object)> {
    let read = async |kind: &ApiResource, namespace: &str, name: &str| {
        let namespace = if kind.namespaced { namespace } else { "" };
        api.get(At::one(&kind.resource, namespace, name)).await
    };
    let object = read(found, namespace, name).await?;
    if ![&BINDINGS, &CLUSTER_BINDINGS].contains(&&found.resource) {
        return Ok((found.clone(), object));
    }
    let of = &object.view::<Binding>()?.spec.resource;
    let is_it = |r: &&ApiResource| r.kind == of.kind && r.resource.api_version() == of.api_version;
    let kind = discovered.iter().find(is_it).with_context(|| {
        format!(
            "the server does not serve {} of {}",
            of.kind, of.api_version
        )
    })?;
    let template = read(kind, &of.namespace, &of.name).await;
    let template = template.context("the template of the binding cannot be read")?;
    Ok((kind.clone(), template))
}

pub(crate) async fn all(
    api: &dyn Api,
    resource: &Gvr,
    namespace: &str,
) -> anyhow::Result<Vec<Object>> {
    let at = At::all(resource, namespace);
    let list = api.list(at, &ListOptions::default()).await;
    Ok(list
        .with_context(|| format!("{} cannot be listed", resource.resource))?
        .items)
}

/// The namespaces whose policies are listed, in addition to cluster-scoped policies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Near<'a> {
    Nowhere,
    Namespace(&'a str),
    Everywhere,
}

impl<'a> Near<'a> {
    /// The scope of the policies that can select an object of this namespace; of none for
    /// an empty one.
    pub(crate) fn to(namespace: &'a str) -> Self {
        match namespace {
            "" => Self::Nowhere,
            namespace => Self::Namespace(namespace),
        }
    }
}

async fn both(
    api: &dyn Api,
    [local, of_cluster]: [&Gvr; 2],
    scope: Near<'_>,
) -> anyhow::Result<Vec<Object>> {
    let mut found = all(api, of_cluster, "").await?;
    found.extend(match scope {
        Near::Nowhere => Vec::new(),
        Near::Namespace(namespace) => all(api, local, namespace).await?,
        Near::Everywhere => all(api, local, "").await?,
    });
    Ok(found)
}

pub(crate) async fn policies(api: &dyn Api, scope: Near<'_>) -> anyhow::Result<Vec<Object>> {
    both(api, [&POLICIES, &CLUSTER_POLICIES], scope).await
}

/// The override policies, which a policy may depend on.
pub(crate) async fn overrides(api: &dyn Api, scope: Near<'_>) -> anyhow::Result<Vec<Object>> {
    both(api, [&OVERRIDES, &CLUSTER_OVERRIDES], scope).await
}

/// All clusters, by name; one that cannot be parsed is left out, as in the scheduler.
async fn clusters(api: &dyn Api) -> anyhow::Result<BTreeMap<String, Arc<Cluster>>> {
    let all = all(api, &CLUSTERS, "").await?.into_iter();
    let view = |o: Object| Some((o.name().to_owned(), o.view::<Cluster>().ok()?));
    Ok(all.filter_map(view).collect())
}

async fn works(
    api: &dyn Api,
    label: &str,
    id: Option<&str>,
) -> anyhow::Result<BTreeMap<String, (Object, Arc<Work>)>> {
    let Some(id) = id else {
        return Ok(BTreeMap::new());
    };
    let options = ListOptions {
        label_selector: format!("{label}={id}"),
        ..ListOptions::default()
    };
    let list = api.list(At::all(&WORKS, ""), &options).await;
    let list = list.context("works cannot be listed")?;
    let works = list.items.into_iter().filter_map(|object| {
        let cluster = names::cluster_of_space(object.namespace())?.to_owned();
        let view = object.view::<Work>().ok()?;
        Some((cluster, (object, view)))
    });
    Ok(works.collect())
}
