//! The aggregated form of the fleet view's discovery (`apidiscovery.k8s.io/v2`), with which clients need
//! two requests. It is one document about all group versions: what a member writes wrongly is left out, so
//! that it spoils no other group, and the whole is bounded.

use std::collections::BTreeMap;

use futures_util::stream::{self, StreamExt};
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue, VARY};
use machinery::{Status, UserInfo};
use members::ServedResources;
use serde::Deserialize;
use serde_json::{Value, json};

use super::FleetView;
use super::discovery::{groups, versions};
use crate::discovery::AGGREGATED_DISCOVERY_TYPE;
use crate::negotiation::ResponseFormat;
use crate::response_body::ServerResponseBody;
use crate::response_writers;

/// Group versions whose descriptions are read at once.
const MAX_CONCURRENT_DESCRIPTIONS: usize = 4;
/// The most bytes of the resources in a document; Kubernetes' own have 100 KiB.
pub(super) const MAX_DOCUMENT_BYTES: usize = 16 << 20;
/// The kind of a document.
pub(super) const AGGREGATED_KIND: &str = "APIGroupDiscoveryList";

/// A resource or a subresource in the description of a group version (`metav1.APIResource`).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DescribedResource {
    name: String,
    #[serde(default)]
    singular_name: String,
    namespaced: bool,
    kind: String,
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
}

impl FleetView {
    /// The document of the group without a name, or of all others.
    pub(super) async fn aggregated_document(
        &self,
        user: &UserInfo,
        served: &BTreeMap<String, ServedResources>,
        is_core: bool,
    ) -> Value {
        let groups = match is_core {
            true => vec![String::new()],
            false => groups(served),
        };
        let mut group_versions: Vec<(String, String)> = Vec::new();
        for group in groups {
            let versions = versions(served, &group).into_iter();
            group_versions.extend(versions.map(|version| (group.clone(), version)));
        }
        let described = stream::iter(group_versions).map(|(group, version)| async move {
            let path = match group.as_str() {
                "" => format!("/api/{version}"),
                group => format!("/apis/{group}/{version}"),
            };
            let document = self.describe(user, served, (&group, &version), &path);
            let aggregated = aggregated_version((&group, &version), document.await);
            (group, version, aggregated)
        });
        let mut described = described.buffered(MAX_CONCURRENT_DESCRIPTIONS);
        let mut bytes_left = MAX_DOCUMENT_BYTES;
        let mut items: Vec<Value> = Vec::new();
        while let Some((group, version, mut aggregated)) = described.next().await {
            let bytes = aggregated.to_string().len();
            match bytes_left.checked_sub(bytes) {
                Some(left) => bytes_left = left,
                None => aggregated = stale_version(&version),
            }
            let last = items.last_mut();
            let last = last.filter(|item| item["metadata"]["name"] == group);
            match last.and_then(|item| item["versions"].as_array_mut()) {
                Some(versions) => versions.push(aggregated),
                None => items.push(json!({"metadata": {"name": group}, "versions": [aggregated]})),
            }
        }
        json!({"kind": AGGREGATED_KIND, "metadata": {},
            "apiVersion": "apidiscovery.k8s.io/v2", "items": items})
    }
}

/// The answer depends on the user's rights, so that no proxy may keep it.
pub(super) fn write_aggregated(document: &Value) -> Response<ServerResponseBody> {
    let mut response = response_writers::write_value(200, document, ResponseFormat::PLAIN_JSON);
    let headers = response.headers_mut();
    let content_type = HeaderValue::from_static(AGGREGATED_DISCOVERY_TYPE);
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    response
}

/// A version of which clients must not think that it has no resources.
fn stale_version(version: &str) -> Value {
    json!({"version": version, "freshness": "Stale", "resources": []})
}

/// A group version with the resources of its description, an `APIResourceList`.
fn aggregated_version((group, version): (&str, &str), document: Result<Value, Status>) -> Value {
    let mut document = document.unwrap_or_default();
    let described = document["resources"].take();
    let Value::Array(described) = described else {
        return stale_version(version);
    };
    let mut resources: BTreeMap<String, Value> = BTreeMap::new();
    let mut subresources: Vec<(String, Value)> = Vec::new();
    let well_formed = described
        .into_iter()
        .filter_map(|resource| DescribedResource::deserialize(resource).ok());
    for resource in well_formed {
        let of = |own: &str, default: &str| match own {
            "" => default.to_owned(),
            own => own.to_owned(),
        };
        let kind = json!({"group": of(&resource.group, group),
            "version": of(&resource.version, version), "kind": resource.kind});
        match resource.name.split_once('/') {
            Some((parent, name)) => {
                let subresource = json!({"subresource": name, "responseKind": kind,
                    "verbs": resource.verbs});
                subresources.push((parent.to_owned(), subresource));
            }
            None => {
                let scope = match resource.namespaced {
                    true => "Namespaced",
                    false => "Cluster",
                };
                let aggregated = json!({"resource": resource.name, "responseKind": kind,
                    "scope": scope, "singularResource": resource.singular_name,
                    "verbs": resource.verbs, "shortNames": resource.short_names,
                    "categories": resource.categories, "subresources": []});
                resources.insert(resource.name, aggregated);
            }
        }
    }
    for (parent, subresource) in subresources {
        let parent = resources.get_mut(&parent);
        if let Some(list) = parent.and_then(|parent| parent["subresources"].as_array_mut()) {
            list.push(subresource);
        }
    }
    if resources.is_empty() {
        return stale_version(version);
    }
    let resources: Vec<Value> = resources.into_values().collect();
    json!({"version": version, "freshness": "Current", "resources": resources})
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: FLV-discovery-aggregated
    #[test]
    fn a_version_has_the_well_formed_resources_of_its_description() {
        let described = json!({"resources": [
            {"name": "deployments", "singularName": "deployment", "namespaced": true,
                "kind": "Deployment", "verbs": ["get"], "shortNames": ["deploy"]},
            {"name": "deployments/scale", "namespaced": true, "kind": "Scale", "verbs": ["get"],
                "group": "autoscaling", "version": "v1"},
            {"name": "orphans/status", "namespaced": true, "kind": "Orphan", "verbs": []},
            {"name": "lies", "namespaced": "yes", "kind": "Lie", "verbs": ["get"]},
            {"name": "lies", "namespaced": true, "kind": "Lie", "verbs": [1]},
            7,
        ]});
        let deployments = json!({"resource": "deployments", "scope": "Namespaced",
            "singularResource": "deployment", "verbs": ["get"], "shortNames": ["deploy"],
            "categories": [],
            "responseKind": {"group": "apps", "version": "v1", "kind": "Deployment"},
            "subresources": [{"subresource": "scale", "verbs": ["get"],
                "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}}]});
        assert_eq!(
            aggregated_version(("apps", "v1"), Ok(described)),
            json!({"version": "v1", "freshness": "Current", "resources": [deployments]})
        );
    }

    // proves: FLV-discovery-aggregated
    #[test]
    fn a_version_without_a_description_is_stale() {
        for document in [
            Err(Status::path_not_found()),
            Ok(json!({})),
            Ok(json!({"resources": []})),
            Ok(json!({"resources": [7]})),
        ] {
            let version = aggregated_version(("apps", "v1"), document);
            assert_eq!(version, stale_version("v1"));
        }
    }
}
