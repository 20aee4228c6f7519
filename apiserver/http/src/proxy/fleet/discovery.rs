//! The discovery documents of the fleet view: what the Ready members serve through whose proxy the
//! user may read. A group version is described by one member of each set of them that serves the same
//! resources. What a member says of a kind that this server knows is not believed: it would change what
//! kubectl means by a name in every other member.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use http::StatusCode;
use machinery::names::{join_api_version, split_api_version};
use machinery::{Gvk, Gvr, Status, UserInfo};
use members::ServedResources;
use openapi::KindInfo;
use serde::Deserialize;
use serde_json::{Value, json};

use super::member_call::MemberCall;
use super::{AGGREGATION_GROUP, FleetView, METRICS_GROUP};
use crate::discovery::wants_aggregated;
use crate::negotiation::{self, ProtobufOffer, ResponseFormat, ResponseOffer};
use crate::proxy::path;
use crate::requestinfo::QueryParams;
use crate::subresources::SubresourceConnectRequest;

/// The most members that describe one group version.
const MAX_DESCRIPTIONS: usize = 8;
/// The members of one set that are asked in turn.
const MAX_ATTEMPTS: usize = 2;
/// The most resources of a group version.
const MAX_RESOURCES: usize = 2000;

#[derive(Deserialize)]
struct ResourceList {
    resources: Vec<Value>,
}

/// A request for a discovery document.
pub(super) struct DiscoveryRequest<'a> {
    pub(super) path: &'a str,
    pub(super) segments: Vec<&'a str>,
    pub(super) is_aggregated: bool,
    /// Of a document that is not aggregated.
    pub(super) format: ResponseFormat,
}

impl<'a> DiscoveryRequest<'a> {
    pub(super) fn parse(
        connection: &SubresourceConnectRequest,
        path: &'a str,
    ) -> Result<Self, Status> {
        let headers = connection.request.headers();
        let query = QueryParams::parse(connection.request.uri().query());
        let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
        let is_aggregated = matches!(segments[..], ["api" | "apis"]) && wants_aggregated(headers);
        let offer = ResponseOffer {
            protobuf: ProtobufOffer::Nothing,
            ..ResponseOffer::default()
        };
        let format = match is_aggregated {
            true => ResponseFormat::PLAIN_JSON,
            false => negotiation::negotiate(headers, &query, offer)?,
        };
        Ok(Self {
            path,
            segments,
            is_aggregated,
            format,
        })
    }

    pub(super) fn is_core(&self) -> bool {
        self.segments.first() == Some(&"api")
    }
}

impl FleetView {
    /// The resources that the Ready members serve through whose proxy a user may read.
    pub(super) async fn visible_resources(
        &self,
        user: &UserInfo,
    ) -> BTreeMap<String, ServedResources> {
        let mut served = self.cache.served_resources().await;
        let names: Vec<String> = served.keys().cloned().collect();
        let visible = self.access.visible(user, names).await;
        served.retain(|cluster, _| visible.contains(cluster));
        served
    }

    /// The document of what members serve that is not aggregated.
    pub(super) async fn document(
        &self,
        user: &UserInfo,
        served: &BTreeMap<String, ServedResources>,
        request: &DiscoveryRequest<'_>,
    ) -> Result<Value, Status> {
        Ok(match request.segments[..] {
            [] => json!({"paths": ["/api", "/apis", "/openapi/v2", "/openapi/v3", "/version"]}),
            ["api"] => json!({"kind": "APIVersions", "versions": versions(served, ""),
                "serverAddressByClientCIDRs": []}),
            ["apis"] => {
                let groups = groups(served).into_iter();
                let groups: Vec<Value> = groups.map(|name| api_group(served, &name)).collect();
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
            }
            ["apis", group] if !versions(served, group).is_empty() => {
                let mut document = api_group(served, group);
                document["kind"] = "APIGroup".into();
                document["apiVersion"] = "v1".into();
                document
            }
            ["api", version] => {
                let described = self.describe(user, served, ("", version), request.path);
                described.await?
            }
            ["apis", group, version] => {
                let described = self.describe(user, served, (group, version), request.path);
                described.await?
            }
            _ => return Err(Status::path_not_found()),
        })
    }

    /// The resources of a group version in any member. 404 if no member serves it.
    pub(super) async fn describe(
        &self,
        user: &UserInfo,
        served: &BTreeMap<String, ServedResources>,
        (group, version): (&str, &str),
        path: &str,
    ) -> Result<Value, Status> {
        let group_version = join_api_version(group, version);
        let mut sets: BTreeMap<&BTreeSet<String>, Vec<String>> = BTreeMap::new();
        for (cluster, served) in served {
            if let Some(names) = served.get(&group_version) {
                sets.entry(names).or_default().push(cluster.clone());
            }
        }
        if sets.is_empty() {
            return Err(Status::path_not_found());
        }
        let mut sets: Vec<Vec<String>> = sets.into_values().collect();
        sets.sort_by_key(|clusters| std::cmp::Reverse(clusters.len()));
        let path = &path::member_path(path, None)?;
        let descriptions = sets
            .into_iter()
            .take(MAX_DESCRIPTIONS)
            .map(|clusters| async move {
                for cluster in clusters.into_iter().take(MAX_ATTEMPTS) {
                    let call = MemberCall::get(path.clone());
                    let answer = self.clusters.call_member(&cluster, user, call).await;
                    let Ok((StatusCode::OK, body)) = answer else {
                        continue;
                    };
                    if let Ok(list) = machinery::json::from_slice::<ResourceList>(&body) {
                        return list.resources;
                    }
                }
                Vec::new()
            });
        let kind_of = |name: &str| self.reader.known_kind(&Gvr::new(group, version, name));
        let descriptions = join_all(descriptions).await.into_iter().flatten();
        let resources = merge((group, version), descriptions, kind_of);
        Ok(json!({"kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": group_version, "resources": resources}))
    }
}

/// The resources of a group version: the first description of each.
fn merge(
    (group, version): (&str, &str),
    descriptions: impl Iterator<Item = Value>,
    kind_of: impl Fn(&str) -> Option<Arc<KindInfo>>,
) -> Vec<Value> {
    let is_of_kubernetes = is_group_of_kubernetes(group);
    let mut resources: BTreeMap<String, Value> = BTreeMap::new();
    for mut resource in descriptions {
        let Some(name) = resource["name"].as_str().map(str::to_owned) else {
            continue;
        };
        if resources.len() >= MAX_RESOURCES || resources.contains_key(&name) {
            continue;
        }
        if let Some(kind) = kind_of(&name) {
            restore_description(&mut resource, &kind);
        } else if is_of_kubernetes && !name.contains('/') {
            let kind = resource["kind"].as_str().unwrap_or_default();
            let catalog = openapi::catalog();
            if catalog.kind(&Gvk::new(group, version, kind)).is_some() {
                continue;
            }
            resource["singularName"] = "".into();
            resource["shortNames"] = json!([]);
            resource["categories"] = json!([]);
        }
        if group != METRICS_GROUP {
            remove_unserved_verbs(&mut resource);
        }
        resources.insert(name, resource);
    }
    resources.into_values().collect()
}

/// Describes a resource as this server does.
fn restore_description(resource: &mut Value, kind: &KindInfo) {
    resource["kind"] = (&*kind.gvk.kind).into();
    resource["namespaced"] = kind.namespaced.into();
    resource["singularName"] = (&*kind.singular).into();
    resource["shortNames"] = json!(kind.short_names);
    resource["categories"] = json!(kind.categories);
    if *kind.gvr.group != *AGGREGATION_GROUP {
        resource["verbs"] = json!(kind.verbs);
    }
}

/// The fleet view does not list what cannot be watched.
fn remove_unserved_verbs(resource: &mut Value) {
    let Some(verbs) = resource["verbs"].as_array_mut() else {
        return;
    };
    if !verbs.iter().any(|verb| verb == "watch") {
        verbs.retain(|verb| verb != "list");
    }
}

fn is_group_of_kubernetes(group: &str) -> bool {
    !openapi::catalog().names_in_group(group).is_empty()
}

/// The named groups that members serve. Kubernetes' groups are first, so that kubectl does not take
/// their short names for those of another group.
pub(super) fn groups(served: &BTreeMap<String, ServedResources>) -> Vec<String> {
    let versions = served.values().flat_map(BTreeMap::keys);
    let groups = versions.map(|version| split_api_version(version).0);
    let groups: BTreeSet<&str> = groups.filter(|group| !group.is_empty()).collect();
    let mut groups: Vec<String> = groups.into_iter().map(str::to_owned).collect();
    groups.sort_by_cached_key(|group| !is_group_of_kubernetes(group));
    groups
}

/// The versions of a group that members serve, the preferred one first.
pub(super) fn versions(served: &BTreeMap<String, ServedResources>, group: &str) -> Vec<String> {
    let all = served.values().flat_map(BTreeMap::keys);
    let versions: BTreeSet<&str> = all
        .map(|version| split_api_version(version))
        .filter(|(of, _)| *of == group)
        .map(|(_, version)| version)
        .collect();
    let mut versions: Vec<String> = versions.into_iter().map(str::to_owned).collect();
    versions.sort_by_key(|version| std::cmp::Reverse(registry::version_priority(version)));
    versions
}

fn api_group(served: &BTreeMap<String, ServedResources>, group: &str) -> Value {
    let versions = versions(served, group).into_iter();
    let versions: Vec<Value> = versions
        .map(|version| {
            json!({"groupVersion": join_api_version(group, &version), "version": version})
        })
        .collect();
    json!({"name": group, "preferredVersion": versions.first(), "versions": versions})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(versions: &[&str]) -> ServedResources {
        let names = BTreeSet::from(["x".to_owned()]);
        let versions = versions.iter();
        versions.map(|v| ((*v).to_owned(), names.clone())).collect()
    }

    // proves: FLV-discovery
    #[test]
    fn groups_and_versions_are_those_of_all_members() {
        let all = BTreeMap::from([
            ("m1".to_owned(), served(&["v1", "apps/v1", "a.io/v1beta1"])),
            ("m2".to_owned(), served(&["v1", "a.io/v1", "a.io/v2alpha1"])),
        ]);
        assert_eq!(versions(&all, ""), ["v1"]);
        assert_eq!(versions(&all, "a.io"), ["v1", "v1beta1", "v2alpha1"]);
        assert_eq!(groups(&all), ["apps", "a.io"]);
        let group = api_group(&all, "a.io");
        assert_eq!(group["preferredVersion"]["groupVersion"], "a.io/v1");
    }

    // proves: FLV-known-kinds
    #[test]
    fn a_member_does_not_rename_known_kinds() {
        let kind_of = |name: &str| {
            openapi::catalog()
                .resource(&Gvr::new("", "v1", name))
                .cloned()
        };
        let describe = |name: &str, kind: &str, short_name: &str| {
            json!({"name": name, "kind": kind, "namespaced": false, "singularName": "secret",
                "shortNames": [short_name], "verbs": ["get"]})
        };
        let descriptions = || {
            [
                describe("configmaps", "Secret", "po"),
                describe("secrets", "Secret", "cm"),
                describe("aaa", "Secret", "cm"),
                describe("news", "News", "cm"),
                describe("configmaps", "Other", "x"),
                describe("pods/exec", "PodExecOptions", "x"),
                json!(7),
            ]
            .into_iter()
        };
        let resources = merge(("", "v1"), descriptions(), kind_of);
        let names: Vec<_> = resources
            .iter()
            .map(|r| {
                (
                    r["name"].clone(),
                    r["kind"].clone(),
                    r["shortNames"].clone(),
                )
            })
            .collect();
        assert_eq!(
            json!(names),
            json!([
                ["configmaps", "ConfigMap", ["cm"]],
                ["news", "News", []],
                ["pods/exec", "PodExecOptions", ["x"]],
                ["secrets", "Secret", []]
            ])
        );
        assert_eq!(resources[0]["namespaced"], true);
        assert_eq!(resources[0]["singularName"], "configmap");
        assert_eq!(resources[0]["verbs"], json!(KindInfo::default_verbs()));
        // Of a kind that nobody else knows, the first description holds.
        let foreign = merge(("a.io", "v1"), descriptions(), |_| None);
        assert_eq!(foreign.len(), 5);
        assert_eq!(foreign[1]["kind"], "Secret");
    }

    // proves: FLV-unwatched
    #[test]
    fn what_cannot_be_watched_is_not_listed() {
        let unwatched = ["get", "list"];
        let watched = ["get", "list", "watch"];
        for (group, version, name, verbs, expected) in [
            ("", "v1", "componentstatuses", &watched[..], &["get"][..]),
            (
                "apiregistration.k8s.io",
                "v1",
                "apiservices",
                &watched,
                &watched,
            ),
            (
                "apiregistration.k8s.io",
                "v1",
                "apiservices",
                &unwatched,
                &["get"],
            ),
            ("metrics.k8s.io", "v1beta1", "pods", &unwatched, &unwatched),
            ("a.io", "v1", "things", &watched, &watched),
            ("a.io", "v1", "things", &unwatched, &["get"]),
        ] {
            let kind_of = |name: &str| {
                let gvr = Gvr::new(group, version, name);
                openapi::catalog().resource(&gvr).cloned()
            };
            let description = json!({"name": name, "kind": "Thing", "verbs": verbs});
            let resources = merge((group, version), [description].into_iter(), kind_of);
            assert_eq!(
                resources[0]["verbs"],
                json!(expected),
                "{group}/{name} {verbs:?}"
            );
        }
    }
}
