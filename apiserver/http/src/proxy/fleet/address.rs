//! The cluster that a request names: as `NAME@CLUSTER`, or in the query parameter `cluster`.

use http::uri::PathAndQuery;
use karmada_api::resources::CLUSTERS;
use machinery::{Status, UserInfo};
use members::FleetCache;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::access::FleetAccess;
use crate::proxy::native_request::NativeRequest;
use crate::proxy::path;
use crate::requestinfo::RequestedResource;

/// The query parameter that names a cluster.
const CLUSTER_PARAMETER: &str = "cluster";
/// Every character except the unreserved ones of RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The cluster to which a request is addressed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FleetAddress {
    /// `None`: all clusters, or the one that has the object.
    pub(super) cluster: Option<String>,
}

/// A name with its cluster, if it has one.
fn split_name(name: &str) -> Option<(&str, &str)> {
    let (bare, cluster) = name.rsplit_once('@')?;
    (!bare.is_empty() && !cluster.is_empty()).then_some((bare, cluster))
}

impl FleetAddress {
    /// Removes the address from a request. A name in which no cluster that the user may know follows
    /// the last `@` is only a name. 400 if the name and the parameter differ, 403 if the user may not
    /// know the cluster of the parameter, 404 if there is none.
    pub(super) async fn take_from(
        request: &mut NativeRequest,
        user: &UserInfo,
        (cache, access): (&dyn FleetCache, &FleetAccess),
    ) -> Result<Self, Status> {
        let parameter = request.query.get(CLUSTER_PARAMETER).map(str::to_owned);
        if let Some(name) = &parameter {
            access.authorize_proxy(user, "get", name).await?;
            if !cache.has_cluster(name).await {
                return Err(Status::not_found(&CLUSTERS, name));
            }
        }
        let full_name = request.resource.name.clone();
        let mut in_name = split_name(&full_name);
        if let Some((_, cluster)) = in_name {
            let is_visible = access.authorize_proxy(user, "get", cluster).await.is_ok();
            if !is_visible || !cache.has_cluster(cluster).await {
                in_name = None;
            }
        }
        if let Some((bare, cluster)) = in_name {
            if parameter.as_deref().is_some_and(|name| name != cluster) {
                let text = format!("the name and the parameter {CLUSTER_PARAMETER} differ");
                return Err(Status::bad_request(text));
            }
            rename(request, &full_name, bare);
        }
        Ok(Self {
            cluster: in_name.map(|(_, cluster)| cluster.to_owned()).or(parameter),
        })
    }
}

/// Replaces the name of a request, which is in its path or its field selector.
fn rename(request: &mut NativeRequest, full_name: &str, bare: &str) {
    let resource = &mut request.resource;
    if resource.is_namespace_path {
        bare.clone_into(&mut resource.namespace);
    }
    bare.clone_into(&mut resource.name);
    if !resource.has_name {
        let selector = request.query.get("fieldSelector").unwrap_or_default();
        let selector = selector.replace(full_name, bare);
        request.query.replace("fieldSelector", &selector);
    }
}

/// The path and query of a request in the member to which it is addressed.
pub(super) fn native_path(
    resource: &RequestedResource,
    query: Option<&str>,
) -> Result<PathAndQuery, Status> {
    let mut native = match resource.group.as_str() {
        "" => "/api".to_owned(),
        group => format!("/apis/{}", utf8_percent_encode(group, ESCAPED)),
    };
    let mut push = |segments: &[&str]| {
        for segment in segments {
            native.push('/');
            native.extend(utf8_percent_encode(segment, ESCAPED));
        }
    };
    push(&[&resource.version]);
    if !resource.namespace.is_empty() && !resource.is_namespace_path {
        push(&["namespaces", &resource.namespace]);
    }
    push(&[&resource.resource]);
    if resource.has_name {
        push(&[&resource.name]);
    }
    if !resource.subresource.is_empty() {
        push(&[&resource.subresource]);
    }
    native.push_str(&resource.subpath);
    let is_other = |pair: &&str| pair.split('=').next() != Some(CLUSTER_PARAMETER);
    let query: Vec<&str> = query.unwrap_or("").split('&').filter(is_other).collect();
    let query = query.join("&");
    path::member_path(&native, Some(&*query).filter(|query| !query.is_empty()))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn parsed(url: &str) -> NativeRequest {
        let request = NativeRequest::parse(&Method::GET, &url.parse().unwrap());
        request.unwrap().unwrap()
    }

    // proves: FLV-address
    #[test]
    fn addressed_requests_have_the_path_of_the_member() {
        for (url, bare, expected) in [
            (
                "/api/v1/namespaces/a/pods/p@m1/log?cluster=m1&follow=1",
                "p",
                "/api/v1/namespaces/a/pods/p/log?follow=1",
            ),
            (
                "/apis/apps/v1/namespaces/a/deployments/d%40m1/scale",
                "d",
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
            ),
            ("/api/v1/namespaces/n@m1", "n", "/api/v1/namespaces/n"),
            (
                "/api/v1/namespaces/n@m1/status",
                "n",
                "/api/v1/namespaces/n/status",
            ),
            (
                "/api/v1/nodes/x@m1/proxy/a%2Fb/c?d=e",
                "x",
                "/api/v1/nodes/x/proxy/a%2Fb/c?d=e",
            ),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:x@m1",
                "system:x",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Ax",
            ),
        ] {
            let mut request = parsed(url);
            let full_name = request.resource.name.clone();
            assert_eq!(split_name(&full_name), Some((bare, "m1")), "{url}");
            rename(&mut request, &full_name, bare);
            let query = url.split_once('?').map(|(_, query)| query);
            let path = native_path(&request.resource, query).unwrap();
            assert_eq!(path, expected, "{url}");
        }
        for name in ["p", "p@", "@m1"] {
            assert_eq!(split_name(name), None, "{name}");
        }
    }

    // proves: FLV-address
    #[test]
    fn a_field_selector_may_name_the_cluster() {
        let mut request = parsed("/api/v1/pods?fieldSelector=metadata.name%3Dp%40m1");
        rename(&mut request, "p@m1", "p");
        assert_eq!(request.param("fieldSelector"), "metadata.name=p");
        assert_eq!(request.resource.name, "p");
    }
}
