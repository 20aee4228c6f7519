//! Lists objects, and the policies that can select the objects of a namespace.

use anyhow::Context;
use client::{Api, ListOptions, ResourcePath};
use karmada_api::resources::{CLUSTER_OVERRIDES, CLUSTER_POLICIES, OVERRIDES, POLICIES};
use machinery::{Gvr, Object};

pub(crate) async fn list_all(
    api: &dyn Api,
    resource: &Gvr,
    namespace: &str,
) -> anyhow::Result<Vec<Object>> {
    let at = ResourcePath::collection(resource, namespace);
    let list = api.list(at, &ListOptions::default()).await;
    Ok(list
        .with_context(|| format!("{} cannot be listed", resource.resource))?
        .items)
}

/// The objects of a page of a list.
const OBJECTS_PER_PAGE: u64 = 500;

/// Lists the objects with labels page by page.
pub(crate) async fn list_selected(
    api: &dyn Api,
    resource: &Gvr,
    namespace: &str,
    label_selector: &str,
) -> client::Result<Vec<Object>> {
    let at = ResourcePath::collection(resource, namespace);
    let mut options = ListOptions {
        label_selector: label_selector.to_owned(),
        limit: OBJECTS_PER_PAGE,
        ..ListOptions::default()
    };
    let mut objects = Vec::new();
    loop {
        let page = api.list(at, &options).await?;
        objects.extend(page.items);
        if page.continue_token.is_empty() {
            return Ok(objects);
        }
        options.continue_token = page.continue_token;
    }
}

/// The resource of the policies of a namespace; of cluster policies for an empty one.
pub(crate) fn policy_resource(namespace: &str) -> &'static Gvr {
    match namespace {
        "" => &CLUSTER_POLICIES,
        _ => &POLICIES,
    }
}

/// The namespaces whose policies are listed, in addition to cluster-scoped policies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListedPolicyNamespaces<'a> {
    ClusterScoped,
    Namespace(&'a str),
    AllNamespaces,
}

impl<'a> ListedPolicyNamespaces<'a> {
    /// The scope of the policies that can select an object of this namespace; of none for
    /// an empty one.
    pub(crate) fn for_namespace(namespace: &'a str) -> Self {
        match namespace {
            "" => Self::ClusterScoped,
            namespace => Self::Namespace(namespace),
        }
    }
}

async fn list_both(
    api: &dyn Api,
    [local, of_cluster]: [&Gvr; 2],
    scope: ListedPolicyNamespaces<'_>,
) -> anyhow::Result<Vec<Object>> {
    let mut objects = list_all(api, of_cluster, "").await?;
    objects.extend(match scope {
        ListedPolicyNamespaces::ClusterScoped => Vec::new(),
        ListedPolicyNamespaces::Namespace(namespace) => list_all(api, local, namespace).await?,
        ListedPolicyNamespaces::AllNamespaces => list_all(api, local, "").await?,
    });
    Ok(objects)
}

pub(crate) async fn list_policies(
    api: &dyn Api,
    scope: ListedPolicyNamespaces<'_>,
) -> anyhow::Result<Vec<Object>> {
    list_both(api, [&POLICIES, &CLUSTER_POLICIES], scope).await
}

/// The override policies, which a policy may depend on.
pub(crate) async fn list_overrides(
    api: &dyn Api,
    scope: ListedPolicyNamespaces<'_>,
) -> anyhow::Result<Vec<Object>> {
    list_both(api, [&OVERRIDES, &CLUSTER_OVERRIDES], scope).await
}
