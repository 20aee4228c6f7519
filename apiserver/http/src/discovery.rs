//! Builds and serves the discovery documents of `/api`, `/apis` and below, in the
//! aggregated and the legacy form.

use std::sync::{Arc, OnceLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Response};
use machinery::Gvk;
use registry::{ApiGroupInfo, GroupVersionInfo, ResourceInfo, ResourceTable, SubresourceInfo};
use serde_json::{Value, json};
use sha2::{Digest, Sha256, Sha512};

use crate::negotiation::{self, ResponseFormat, ResponseOffer};
use crate::requestinfo::QueryParams;
use crate::response_body::ServerResponseBody;
use crate::response_writers;
use crate::subresources::SubresourceConnectors;

pub(crate) const AGGREGATED_DISCOVERY_TYPE: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

struct DocumentWithEtag {
    bytes: Bytes,
    etag: String,
}

/// The discovery documents of one resource table, built when they are requested.
pub(crate) struct DiscoveryDocuments {
    table: Arc<ResourceTable>,
    connectors: Arc<SubresourceConnectors>,
    /// Host and port of this server.
    server_address: String,
    /// `/api` and `/apis` in the aggregated form.
    aggregated_core: OnceLock<DocumentWithEtag>,
    aggregated_groups: OnceLock<DocumentWithEtag>,
}

impl DiscoveryDocuments {
    /// `server_address` is the host and port of this server.
    pub(crate) fn new(
        table: Arc<ResourceTable>,
        connectors: Arc<SubresourceConnectors>,
        server_address: String,
    ) -> Self {
        Self {
            table,
            connectors,
            server_address,
            aggregated_core: OnceLock::new(),
            aggregated_groups: OnceLock::new(),
        }
    }

    /// Serves a discovery path; `None` when the path is no discovery path.
    pub(crate) fn serve(
        &self,
        headers: &HeaderMap,
        query: &QueryParams,
        path: &str,
    ) -> Option<Response<ServerResponseBody>> {
        let is_root = matches!(path, "/api" | "/apis");
        if is_root && wants_aggregated(headers) {
            let tagged = self.aggregated(path);
            return Some(response_writers::write_document(
                headers,
                AGGREGATED_DISCOVERY_TYPE,
                &tagged.etag,
                &tagged.bytes,
            ));
        }
        let legacy = self.legacy(path)?;
        Some(
            match negotiation::negotiate(headers, query, ResponseOffer::default()) {
                Ok(form) => {
                    let mut response = response_writers::write_value(200, &legacy, form);
                    if is_root {
                        let vary = http::HeaderValue::from_static("Accept");
                        response.headers_mut().insert(http::header::VARY, vary);
                    }
                    response
                }
                Err(status) => response_writers::write_status(&status, ResponseFormat::PLAIN_JSON),
            },
        )
    }

    fn named_groups(&self) -> impl Iterator<Item = &ApiGroupInfo> {
        self.table.groups().iter().filter(|g| !g.name.is_empty())
    }

    fn core_groups(&self) -> impl Iterator<Item = &ApiGroupInfo> {
        self.table.groups().iter().filter(|g| g.name.is_empty())
    }

    fn aggregated(&self, path: &str) -> &DocumentWithEtag {
        match path {
            "/api" => self
                .aggregated_core
                .get_or_init(|| aggregated_document(self.core_groups(), &self.connectors)),
            _ => self
                .aggregated_groups
                .get_or_init(|| aggregated_document(self.named_groups(), &self.connectors)),
        }
    }

    /// A discovery document in the legacy form.
    fn legacy(&self, path: &str) -> Option<Value> {
        match path {
            "/api" => return Some(self.core_versions()),
            "/apis" => {
                let groups: Vec<Value> = self.named_groups().map(api_group).collect();
                return Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}));
            }
            _ => {}
        }
        let (group, version) = match path.strip_prefix("/apis/") {
            Some(below) => match below.split_once('/') {
                Some((group, version)) => (group, Some(version)),
                None => (below, None),
            },
            None => ("", Some(path.strip_prefix("/api/")?)),
        };
        let is_named = path.starts_with("/apis/");
        let mut groups = self.table.groups().iter();
        let group = groups.find(|g| g.name == group && g.name.is_empty() != is_named)?;
        let Some(version) = version else {
            let mut document = api_group(group);
            document["kind"] = "APIGroup".into();
            document["apiVersion"] = "v1".into();
            return Some(document);
        };
        let version = group.versions.iter().find(|v| v.version == version)?;
        Some(resource_list(group, version, &self.connectors))
    }

    fn core_versions(&self) -> Value {
        let versions: Vec<&str> = self
            .core_groups()
            .flat_map(|g| &g.versions)
            .map(|v| v.version.as_str())
            .collect();
        // kube-apiserver's answers of `/apis` and below have no addresses: its aggregator
        // writes them.
        let address = json!({"clientCIDR": "0.0.0.0/0", "serverAddress": self.server_address});
        json!({"kind": "APIVersions", "versions": versions,
               "serverAddressByClientCIDRs": [address]})
    }

    /// The discovery paths, for the document of `/`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = vec!["/api".to_owned(), "/apis".to_owned()];
        for group in self.table.groups() {
            let base = match &*group.name {
                "" => "/api".to_owned(),
                name => {
                    let base = format!("/apis/{name}");
                    paths.push(base.clone());
                    base
                }
            };
            let versions = group.versions.iter();
            paths.extend(versions.map(|v| format!("{base}/{}", v.version)));
        }
        paths
    }
}

/// Whether the best Accept clause that can be served asks for aggregated discovery.
pub(crate) fn wants_aggregated(headers: &HeaderMap) -> bool {
    for clause in negotiation::accept_clauses(headers) {
        let json = matches!(
            &*clause.media_type,
            "application/json" | "*/*" | "application/*"
        );
        match (clause.param("as"), clause.param("g"), clause.param("v")) {
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") if json => return true,
            ("", _, _) if json => return false,
            _ => {}
        }
    }
    false
}

fn api_group(group: &ApiGroupInfo) -> Value {
    let version_entry = |version: &GroupVersionInfo| {
        json!({"groupVersion": format!("{}/{}", group.name, version.version),
               "version": version.version})
    };
    let versions: Vec<Value> = group.versions.iter().map(version_entry).collect();
    json!({
        "name": group.name,
        "preferredVersion": versions.first(),
        "versions": versions,
    })
}

fn resource_list(
    group: &ApiGroupInfo,
    version: &GroupVersionInfo,
    connectors: &SubresourceConnectors,
) -> Value {
    let mut resources = Vec::new();
    for resource_info in &version.resources {
        resources.push(api_resource(resource_info));
        for sub in ordered_subresources(resource_info, connectors) {
            resources.push(api_subresource(group, version, resource_info, &sub));
        }
    }
    let group_version = machinery::names::join_api_version(&group.name, &version.version);
    json!({"kind": "APIResourceList", "apiVersion": "v1",
           "groupVersion": group_version, "resources": resources})
}

fn sorted_verbs(verbs: &[impl AsRef<str>]) -> Vec<&str> {
    let mut all: Vec<&str> = verbs.iter().map(AsRef::as_ref).collect();
    all.sort_unstable();
    all
}

fn api_resource(resource_info: &ResourceInfo) -> Value {
    let kind = &resource_info.kind;
    let mut resource = json!({
        "name": kind.gvr.resource,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.gvk.kind,
        "verbs": ordered_verbs(resource_info),
    });
    if !kind.short_names.is_empty() {
        resource["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        resource["categories"] = json!(kind.categories);
    }
    if resource_info.supports_verb("get") {
        let stored = resource_info.storage_kind();
        let text = format!("{}/{}/{}", stored.group, stored.version, stored.kind);
        let hash = STANDARD.encode(&Sha256::digest(text)[..8]);
        resource["storageVersionHash"] = hash.into();
    }
    resource
}

fn api_subresource(
    group: &ApiGroupInfo,
    version: &GroupVersionInfo,
    resource_info: &ResourceInfo,
    sub: &SubresourceInfo,
) -> Value {
    let mut resource = json!({
        "name": format!("{}/{}", resource_info.kind.gvr.resource, sub.name),
        "singularName": "",
        "namespaced": resource_info.kind.namespaced,
        "kind": sub.kind.kind,
        "verbs": sorted_verbs(sub.verbs),
    });
    if sub.kind.group != group.name || sub.kind.version != version.version {
        resource["group"] = sub.kind.group.as_ref().into();
        resource["version"] = sub.kind.version.as_ref().into();
    }
    resource
}

/// The order of a custom resource's verbs
/// (`apiextensions-apiserver/pkg/apiserver/customresource_discovery_controller.go`).
const CUSTOM_RESOURCE_VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

fn ordered_verbs(resource_info: &ResourceInfo) -> Vec<&str> {
    if !resource_info.has_go_type() {
        let all = CUSTOM_RESOURCE_VERBS.into_iter();
        return all.filter(|v| resource_info.supports_verb(v)).collect();
    }
    sorted_verbs(&resource_info.verbs)
}

/// The subresources in the order of their names; of custom resources `status` comes first.
fn ordered_subresources(
    resource_info: &ResourceInfo,
    connectors: &SubresourceConnectors,
) -> Vec<SubresourceInfo> {
    let gvr = &resource_info.kind.gvr;
    let connected = connectors
        .iter()
        .filter(|((group, resource, _), _)| *group == *gvr.group && *resource == *gvr.resource)
        .filter_map(|(_, connector)| connector.discovered());
    let mut all: Vec<_> = resource_info.subresources.clone();
    all.extend(connected);
    let typed = resource_info.has_go_type();
    all.sort_by_key(|sub| (typed || sub.name != "status", sub.name));
    all
}

/// The kind of a resource or subresource. For built-in kinds, Kubernetes omits a group and version
/// that are the document's own.
fn response_kind(resource_info: &ResourceInfo, gvk: &Gvk) -> Value {
    let resource_gvr = &resource_info.kind.gvr;
    if resource_info.has_go_type()
        && (&gvk.group, &gvk.version) == (&resource_gvr.group, &resource_gvr.version)
    {
        return json!({"group": "", "version": "", "kind": gvk.kind});
    }
    json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind})
}

fn aggregated_document<'a>(
    groups: impl Iterator<Item = &'a ApiGroupInfo>,
    connectors: &SubresourceConnectors,
) -> DocumentWithEtag {
    let items: Vec<Value> = groups
        .filter(|g| !g.versions.is_empty())
        .map(|g| {
            let versions = g.versions.iter();
            let versions: Vec<Value> = versions
                .map(|version| aggregated_version(version, connectors))
                .collect();
            json!({"metadata": {"name": g.name}, "versions": versions})
        })
        .collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    });
    let bytes = Bytes::from(document.to_string());
    let etag = Sha512::digest(&bytes)
        .iter()
        .map(|b| format!("{b:02X}"))
        .collect();
    DocumentWithEtag { bytes, etag }
}

fn aggregated_version(version: &GroupVersionInfo, connectors: &SubresourceConnectors) -> Value {
    let resources: Vec<Value> = version
        .resources
        .iter()
        .map(|r| aggregated_resource(r, connectors))
        .collect();
    json!({"version": version.version, "freshness": "Current", "resources": resources})
}

fn aggregated_resource(resource_info: &ResourceInfo, connectors: &SubresourceConnectors) -> Value {
    let kind = &resource_info.kind;
    let mut resource = json!({
        "resource": kind.gvr.resource,
        "responseKind": response_kind(resource_info, &kind.gvk),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": ordered_verbs(resource_info),
    });
    if !kind.short_names.is_empty() {
        resource["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        resource["categories"] = json!(kind.categories);
    }
    let subresources = ordered_subresources(resource_info, connectors);
    if !subresources.is_empty() {
        let subs: Vec<Value> = subresources
            .into_iter()
            .map(|s| {
                json!({"subresource": s.name, "responseKind": response_kind(resource_info, &s.kind),
                       "verbs": sorted_verbs(s.verbs)})
            })
            .collect();
        resource["subresources"] = subs.into();
    }
    resource
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregated_discovery_is_chosen_by_accept() {
        let check = |accept: &str, expect: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::ACCEPT, accept.parse().unwrap());
            assert_eq!(wants_aggregated(&headers), expect, "{accept}");
        };
        check(
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
            true,
        );
        check(
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,application/json",
            true,
        );
        check(
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
            false,
        );
        check("application/json", false);
        check("*/*", false);
        check(
            "application/json,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            false,
        );
    }
}
