//! Discovery on a remote server: the aggregated documents if the server has them, else
//! one document per group and version.
//!
//! The result is a [`ServerResources`]. A group that cannot be read is reported beside
//! the others; a group that is not found is not served.

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};
use http::Method;
use machinery::Gvr;
use machinery::names::split_api_version;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::RemoteApi;
use super::request::ApiRequest;
use crate::api::{Api, ApiResource, Error, GroupFilter, Result, ServerResources};

const ACCEPT_AGGREGATED_DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
/// Concurrent requests for unaggregated documents.
const MAX_CONCURRENT_REQUESTS: usize = 8;
/// A server has no more group versions, of which each is a request in the older form.
const MAX_GROUP_VERSIONS: usize = 1_000;
/// A server has no more resources in all its group versions.
const MAX_RESOURCES: usize = 20_000;
const TOO_MANY_RESOURCES: &str = "the server has too many resources";

#[derive(Deserialize)]
struct DiscoveryResponseKindField {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct ApiGroupDiscoveryList {
    #[serde(default)]
    items: Vec<ApiGroupDiscovery>,
}

#[derive(Deserialize)]
struct ApiGroupDiscovery {
    #[serde(default)]
    metadata: ApiGroupDiscoveryMeta,
    #[serde(default)]
    versions: Vec<ApiVersionDiscovery>,
}

#[derive(Default, Deserialize)]
struct ApiGroupDiscoveryMeta {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct ApiVersionDiscovery {
    version: String,
    #[serde(default)]
    freshness: String,
    #[serde(default)]
    resources: Vec<ApiResourceDiscovery>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiResourceDiscovery {
    resource: String,
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    subresources: Vec<ApiSubresourceDiscovery>,
}

#[derive(Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct ApiSubresourceDiscovery {
    subresource: String,
}

#[derive(Deserialize)]
struct LegacyApiVersions {
    #[serde(default)]
    versions: Vec<String>,
}

#[derive(Deserialize)]
struct LegacyApiGroupList {
    #[serde(default)]
    groups: Vec<LegacyApiGroup>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyApiGroup {
    #[serde(default)]
    versions: Vec<LegacyGroupVersion>,
    preferred_version: Option<LegacyGroupVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyGroupVersion {
    group_version: String,
}

#[derive(Deserialize)]
struct LegacyApiResourceList {
    #[serde(default)]
    resources: Option<Vec<LegacyApiResource>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyApiResource {
    name: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Option<Vec<String>>,
    #[serde(default)]
    categories: Option<Vec<String>>,
}

impl RemoteApi {
    pub(super) async fn discover_resources(
        &self,
        filter: GroupFilter<'_>,
    ) -> Result<ServerResources> {
        let core = fetch_document(self, "/api").await;
        let groups = fetch_document(self, "/apis").await?;
        let mut discovered = ServerResources::default();
        // An aggregated API server may serve no core group.
        let core = match core {
            Err(error) if error.is_not_found() => None,
            core => Some(core?),
        };
        let aggregated = |body: &[u8]| {
            decode::<DiscoveryResponseKindField>(body)
                .is_ok_and(|k| k.kind == "APIGroupDiscoveryList")
        };
        if aggregated(&groups) && core.as_deref().is_none_or(aggregated) {
            for body in core.iter().chain([&groups]) {
                add_aggregated_groups(decode(body)?, &mut discovered);
            }
            return Ok(discovered.retain_groups(filter));
        }
        let mut versions: Vec<String> = Vec::new();
        if let Some(core) = &core {
            versions.extend(decode::<LegacyApiVersions>(core)?.versions);
        }
        let plain = match aggregated(&groups) {
            true => self.get_raw("/apis").await?,
            false => groups,
        };
        for mut group in decode::<LegacyApiGroupList>(&plain)?.groups {
            if let Some(preferred) = group.preferred_version {
                let preferred = preferred.group_version;
                group.versions.retain(|v| v.group_version != preferred);
                versions.push(preferred);
            }
            versions.extend(group.versions.into_iter().map(|v| v.group_version));
        }
        versions.retain(|version| filter(split_api_version(version).0));
        for version in versions.split_off(versions.len().min(MAX_GROUP_VERSIONS)) {
            discovered.fail(version, "the server has too many group versions");
        }
        let documents = stream::iter(versions).map(|version| async move {
            let body = self.get_raw(&group_version_path(&version)).await;
            let parsed = body.and_then(|b| decode::<LegacyApiResourceList>(&b));
            (version, parsed)
        });
        let mut documents = documents.buffered(MAX_CONCURRENT_REQUESTS);
        while let Some((version, document)) = documents.next().await {
            match document {
                Ok(_) if discovered.resources.len() >= MAX_RESOURCES => {
                    discovered.fail(version, TOO_MANY_RESOURCES);
                }
                Ok(document) => add_legacy_resources(&version, document, &mut discovered),
                // Removed between the two requests, or not served yet.
                Err(error) if error.is_not_found() => {}
                Err(error) => discovered.fail(version, error.to_string()),
            }
        }
        Ok(discovered)
    }
}

async fn fetch_document(remote: &RemoteApi, path: &str) -> Result<bytes::Bytes> {
    let mut ask = ApiRequest::new(Method::GET, path.to_owned());
    ask.accept = ACCEPT_AGGREGATED_DISCOVERY;
    remote.fetch_body(&ask).await
}

fn group_version_path(version: &str) -> String {
    match version.contains('/') {
        true => format!("/apis/{version}"),
        false => format!("/api/{version}"),
    }
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    machinery::json::from_slice(body).map_err(|e| Error::Protocol(format!("discovery: {e}")))
}

fn add_aggregated_groups(list: ApiGroupDiscoveryList, discovered: &mut ServerResources) {
    for group in list.items {
        let name = group.metadata.name;
        for version in group.versions {
            let gv = Gvr::new(name.as_str(), version.version.as_str(), "").api_version();
            if version.freshness == "Stale" {
                discovered.fail(gv, "stale GroupVersion discovery");
                continue;
            }
            if discovered.resources.len() >= MAX_RESOURCES {
                discovered.fail(gv, TOO_MANY_RESOURCES);
                continue;
            }
            for own in version.resources {
                discovered.resources.push(ApiResource {
                    resource: Gvr::new(name.as_str(), version.version.as_str(), own.resource),
                    kind: own.response_kind.map(|k| k.kind).unwrap_or_default(),
                    namespaced: own.scope == "Namespaced",
                    verbs: own.verbs,
                    subresources: own
                        .subresources
                        .into_iter()
                        .map(|s| s.subresource)
                        .collect(),
                    categories: own.categories,
                    short_names: own.short_names,
                });
            }
        }
    }
}

fn add_legacy_resources(
    version: &str,
    document: LegacyApiResourceList,
    discovered: &mut ServerResources,
) {
    let (group, version) = split_api_version(version);
    let mut below: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut own = Vec::new();
    for resource in document.resources.unwrap_or_default() {
        match resource.name.split_once('/') {
            Some((parent, name)) => below
                .entry(parent.to_owned())
                .or_default()
                .push(name.to_owned()),
            None => own.push(resource),
        }
    }
    for resource in own {
        discovered.resources.push(ApiResource {
            subresources: below.remove(&resource.name).unwrap_or_default(),
            resource: Gvr::new(group, version, resource.name),
            kind: resource.kind,
            namespaced: resource.namespaced,
            verbs: resource.verbs,
            categories: resource.categories.unwrap_or_default(),
            short_names: resource.short_names.unwrap_or_default(),
        });
    }
}
