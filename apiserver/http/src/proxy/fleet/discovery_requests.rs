//! Answers requests for discovery documents: of the fleet view what members serve, of the fleet tree what
//! the control plane serves, as it describes that to the user, and what only members serve.

use std::sync::Arc;

use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderValue, IF_NONE_MATCH};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use karmada_api::is_karmada_group;
use machinery::Status;
use machinery::names::split_api_version;
use serde_json::Value;

use super::FleetView;
use super::aggregated_discovery::{AGGREGATED_KIND, MAX_DOCUMENT_BYTES, write_aggregated};
use super::discovery::DiscoveryRequest;
use crate::proxy::path;
use crate::response_body::ServerResponseBody;
use crate::response_writers;
use crate::subresources::SubresourceConnectRequest;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// A control plane without aggregated documents answers with others.
const AGGREGATED: HeaderValue = HeaderValue::from_static(
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
);

impl FleetView {
    pub(super) async fn discover(
        &self,
        connection: &SubresourceConnectRequest,
        path: &str,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let request = DiscoveryRequest::parse(connection, path)?;
        let user = &connection.user;
        let served = self.visible_resources(user).await;
        if request.is_aggregated {
            let document = self.aggregated_document(user, &served, request.is_core());
            return Ok(write_aggregated(&document.await));
        }
        let document = self.document(user, &served, &request).await?;
        Ok(response_writers::write_value(
            200,
            &document,
            request.format,
        ))
    }

    pub(super) async fn discover_tree(
        &self,
        connection: SubresourceConnectRequest,
        path: &str,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let request = DiscoveryRequest::parse(&connection, path)?;
        let user = Arc::clone(&connection.user);
        let mut served = self.visible_resources(&user).await;
        for served in served.values_mut() {
            served.retain(|version, _| !is_karmada_group(split_api_version(version).0));
        }
        let is_of_groups = matches!(request.segments.first(), Some(&("api" | "apis")));
        let own = match is_of_groups {
            true => self.control_plane_document(connection, &request).await?,
            false => None,
        };
        if own
            .as_ref()
            .is_some_and(|own| own["kind"] == AGGREGATED_KIND)
        {
            let members = self.aggregated_document(&user, &served, request.is_core());
            return Ok(write_aggregated(&merge(own, Some(members.await))));
        }
        let members = match self.document(&user, &served, &request).await {
            Err(status) if status.code == 404 && own.is_some() => None,
            members => Some(members?),
        };
        let document = merge(own, members);
        Ok(response_writers::write_value(
            200,
            &document,
            request.format,
        ))
    }

    /// The document of the control plane; `None` if it has none of this path.
    async fn control_plane_document(
        &self,
        mut connection: SubresourceConnectRequest,
        request: &DiscoveryRequest<'_>,
    ) -> Result<Option<Value>, Status> {
        let headers = connection.request.headers_mut();
        headers.insert(
            ACCEPT,
            if request.is_aggregated {
                AGGREGATED
            } else {
                JSON
            },
        );
        for header in [ACCEPT_ENCODING, IF_NONE_MATCH] {
            headers.remove(header);
        }
        let path = path::member_path(request.path, None)?;
        let response = self.clusters.control_plane.serve(connection, path).await?;
        let code = response.status();
        if code == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let body = Limited::new(response.into_body(), MAX_DOCUMENT_BYTES).collect();
        let body = body.await.map(|body| body.to_bytes());
        let document = body.ok().filter(|_| code == StatusCode::OK);
        let document = document.and_then(|body| machinery::json::from_slice(&body).ok());
        let unreadable = || Status::unavailable(format!("the control plane answered with {code}"));
        document.map(Some).ok_or_else(unreadable)
    }
}

/// The lists of documents whose entries may be in several of them, and where the entries have their ids.
const LISTS: [(&str, &str); 6] = [
    ("items", "/metadata/name"),
    ("groups", "/name"),
    ("versions", "/version"),
    ("resources", "/resource"),
    ("resources", "/name"),
    // The versions of the group without a name are texts.
    ("versions", ""),
];

/// The document of the control plane with what only members serve. Of what both describe, the description
/// of the control plane holds.
fn merge(own: Option<Value>, members: Option<Value>) -> Value {
    match (own, members) {
        (Some(mut own), Some(members)) => {
            add_missing(&mut own, members);
            own
        }
        (own, members) => own.or(members).unwrap_or_default(),
    }
}

/// Adds the entries of lists that are missing, also in entries that both have.
fn add_missing(own: &mut Value, mut other: Value) {
    for (list, id) in LISTS {
        let has_ids = |entries: &[Value]| {
            entries
                .iter()
                .all(|entry| entry.pointer(id).is_some_and(Value::is_string))
        };
        let entries = other.get_mut(list).map(Value::take).unwrap_or_default();
        let Value::Array(entries) = entries else {
            continue;
        };
        if !has_ids(&entries) {
            other[list] = entries.into();
            continue;
        }
        let Some(own_entries) = own.get_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        for entry in entries {
            let same = own_entries
                .iter_mut()
                .find(|own| own.pointer(id) == entry.pointer(id));
            match same {
                Some(own) => add_missing(own, entry),
                None => own_entries.push(entry),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // proves: FLT-discovery
    #[test]
    fn what_only_members_serve_is_added() {
        let group = |name: &str, versions: &[&str]| {
            let versions = versions.iter();
            let versions: Vec<Value> = versions
                .map(|v| json!({"groupVersion": format!("{name}/{v}"), "version": v}))
                .collect();
            json!({"name": name, "preferredVersion": versions[0], "versions": versions})
        };
        let version = |version: &str, resources: &[(&str, &str)]| {
            let resources = resources.iter();
            let resources: Vec<Value> = resources
                .map(|(name, verb)| json!({"resource": name, "verbs": [verb]}))
                .collect();
            json!({"version": version, "freshness": "Current", "resources": resources})
        };
        let aggregated = |name: &str, versions: &[Value]| json!({"metadata": {"name": name}, "versions": versions});
        let (stale, empty) = (
            json!({"version": "v1", "freshness": "Stale", "resources": []}),
            json!({}),
        );
        for (mut own, members, expected) in [
            (
                json!({"kind": "APIVersions", "versions": ["v1"]}),
                json!({"kind": "APIVersions", "versions": ["v1", "v2"]}),
                json!({"kind": "APIVersions", "versions": ["v1", "v2"]}),
            ),
            (
                json!({"groups": [group("apps", &["v1"]), group("a", &["v1"])]}),
                json!({"groups": [group("b", &["v1"]), group("apps", &["v2", "v1"])]}),
                json!({"groups": [
                    {"name": "apps", "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"},
                        "versions": [{"groupVersion": "apps/v1", "version": "v1"},
                            {"groupVersion": "apps/v2", "version": "v2"}]},
                    group("a", &["v1"]), group("b", &["v1"])]}),
            ),
            (
                json!({"resources": [{"name": "x", "kind": "X"}]}),
                json!({"resources": [{"name": "x", "kind": "Lie"}, {"name": "x/scale", "kind": "S"}]}),
                json!({"resources": [{"name": "x", "kind": "X"}, {"name": "x/scale", "kind": "S"}]}),
            ),
            (
                json!({"items": [aggregated("apps", &[version("v1", &[("x", "list")])])]}),
                json!({"items": [aggregated("apps", &[version("v1", &[("x", "lie"), ("y", "get")])]),
                    aggregated("b", &[version("v1", &[("z", "get")])])]}),
                json!({"items": [aggregated("apps", &[version("v1", &[("x", "list"), ("y", "get")])]),
                    aggregated("b", &[version("v1", &[("z", "get")])])]}),
            ),
            (
                json!({"items": [aggregated("apps", &[version("v1", &[("x", "list")])])]}),
                json!({"items": [aggregated("apps", &[stale])]}),
                json!({"items": [aggregated("apps", &[version("v1", &[("x", "list")])])]}),
            ),
            (
                json!({"resources": [{"name": "x"}]}),
                json!({"resources": [7, {"kind": "Nameless"}]}),
                json!({"resources": [{"name": "x"}]}),
            ),
            (empty, json!({"resources": [{"name": "x"}]}), json!({})),
        ] {
            add_missing(&mut own, members);
            assert_eq!(own, expected);
        }
        assert_eq!(merge(None, Some(json!(1))), json!(1));
        assert_eq!(merge(Some(json!(2)), None), json!(2));
    }
}
