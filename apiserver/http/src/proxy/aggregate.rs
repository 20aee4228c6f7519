//! Serves `clusters/*/proxy/{path}`: one view over all member clusters.
//!
//! A request for one object is looked up in every cluster and forwarded to the one that
//! has it; a list is merged from the lists of all. Clusters that do not respond, or
//! that deny the user access, are left out. Non-resource paths (discovery, versions)
//! are served by the control plane. Karmada:
//! `pkg/registry/cluster/storage/aggregate.go`.

use std::collections::BTreeMap;
use std::error::Error;

use bytes::Bytes;
use client::remote::{RequestBody as ForwardedRequestBody, ResponseBody};
use futures_util::future::join_all;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use machinery::{Status, UserInfo};
use members::ClusterProxyPermit;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{ClusterProxy, backend_error_status, headers, path};
use crate::requestinfo::{self, QueryParams};
use crate::response_body::ServerResponseBody;
use crate::subresources::SubresourceConnectRequest;

/// The cluster name that selects all clusters.
pub(super) const ALL_CLUSTERS: &str = "*";
/// Bound on one cluster's list.
const MAX_CLUSTER_LIST_BYTES: usize = 64 << 20;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The 200 response of one cluster.
struct ClusterResponse {
    cluster: String,
    response: Response<ResponseBody>,
    _permit: ClusterProxyPermit,
}

impl ClusterProxy {
    pub(super) async fn forward_to_all(
        &self,
        mut connection: SubresourceConnectRequest,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let uri = connection.request.uri();
        let path = path::member_path(&connection.subpath, uri.query())?;
        let query = QueryParams::parse(uri.query());
        let method = connection.request.method();
        let info = requestinfo::parse_request(method, path.path(), &query)?;
        let Some(resource) = info.resource else {
            return self.control_plane.serve(connection, path).await;
        };
        if resource.has_name {
            let of_pod = matches!(resource.subresource.as_str(), "log" | "exec");
            let object_path = match path.path().rsplit_once('/') {
                Some((object, _)) if of_pod => object,
                _ => path.path(),
            };
            let object_path = path::member_path(object_path, None)?;
            let responses = self
                .query_all_clusters(&connection.user, &object_path)
                .await?;
            connection.name = single_cluster(responses.iter().map(|h| h.cluster.as_str()))?;
            drop(responses);
            return Box::pin(self.forward(connection)).await;
        }
        if info.verb != "list" {
            let text = format!("Request verb {} is not support", info.verb);
            return Err(Status::failure(405, "MethodNotAllowed", text));
        }
        let mut lists = Vec::new();
        for response in self
            .query_all_clusters(&connection.user, &without_paging(&path)?)
            .await?
        {
            match read_list(response.response).await {
                Ok(list) => lists.push(list),
                Err(error) => {
                    tracing::warn!(cluster = response.cluster, %error, "cannot read the list of a cluster")
                }
            }
        }
        let mut response = Response::new(ServerResponseBody::full(merge_lists(&lists)?));
        response.headers_mut().insert(CONTENT_TYPE, JSON);
        Ok(response)
    }

    /// Sends a GET to every cluster; returns the responses with code 200, ordered by
    /// cluster name.
    async fn query_all_clusters(
        &self,
        user: &UserInfo,
        path: &PathAndQuery,
    ) -> Result<Vec<ClusterResponse>, Status> {
        let mut names = self
            .backends
            .cluster_names()
            .await
            .map_err(backend_error_status)?;
        names.sort_unstable();
        let requests = names
            .into_iter()
            .map(|name| self.query_cluster(name, path, user));
        Ok(join_all(requests).await.into_iter().flatten().collect())
    }

    async fn query_cluster(
        &self,
        cluster: String,
        path: &PathAndQuery,
        user: &UserInfo,
    ) -> Option<ClusterResponse> {
        let permit = match self.backends.acquire(&cluster).await {
            Ok(permit) => permit,
            Err(e) => {
                tracing::debug!(cluster, why = %e, "cluster skipped");
                return None;
            }
        };
        let scope = self.backends.impersonation_scope(&permit).await;
        let accept = HeaderMap::from_iter([(ACCEPT, JSON)]);
        let headers = headers::build_request_headers(&accept, user, &scope, None).ok()?;
        let mut request = Request::new(ForwardedRequestBody::full(Bytes::new()));
        *request.uri_mut() = Uri::from(path.clone());
        *request.headers_mut() = headers;
        match permit.forwarder().send(request).await {
            Ok(response) => (response.status() == StatusCode::OK).then_some(ClusterResponse {
                cluster,
                response,
                _permit: permit,
            }),
            Err(e) => {
                tracing::debug!(cluster, why = %e, "cluster did not respond");
                None
            }
        }
    }
}

/// The list of a cluster. Its items go to the client unread, so that their depth is bounded here.
async fn read_list<B>(response: Response<B>) -> Result<Bytes, Box<dyn Error + Send + Sync>>
where
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let body = Limited::new(response.into_body(), MAX_CLUSTER_LIST_BYTES);
    let list = body.collect().await?.to_bytes();
    machinery::json::check_depth(&list)?;
    Ok(list)
}

/// The path without `limit` and `continue`, which are valid in one cluster only.
fn without_paging(path: &PathAndQuery) -> Result<PathAndQuery, Status> {
    let query = path.query().unwrap_or_default().split('&');
    let parameters: Vec<&str> = query
        .filter(|p| !p.starts_with("limit=") && !p.starts_with("continue="))
        .collect();
    path::member_path(path.path(), Some(&parameters.join("&")))
}

fn single_cluster<'a>(mut having: impl Iterator<Item = &'a str>) -> Result<String, Status> {
    let Some(first) = having.next() else {
        let text = "resource not found or don't have permission to get it";
        return Err(Status::failure(404, "NotFound", text));
    };
    let other_clusters: Vec<&str> = having.collect();
    if other_clusters.is_empty() {
        return Ok(first.to_owned());
    }
    let text = format!(
        "conflict resource, exist in more than one cluster: {first},{}",
        other_clusters.join(",")
    );
    Err(Status::failure(409, "Conflict", text))
}

#[derive(Serialize)]
struct MergedList<'a> {
    #[serde(flatten)]
    fields: BTreeMap<&'a str, &'a RawValue>,
    items: Vec<&'a RawValue>,
}

/// Merges lists into one, with the kind, apiVersion and metadata of the first list.
fn merge_lists(lists: &[Bytes]) -> Result<Vec<u8>, Status> {
    let mut result: Option<MergedList<'_>> = None;
    for list in lists {
        let Ok(mut head) = machinery::json::from_slice::<BTreeMap<&str, &RawValue>>(list) else {
            continue;
        };
        let items = head.remove("items").map_or("[]", RawValue::get);
        let items: Vec<&RawValue> = machinery::json::from_str(items).unwrap_or_default();
        match &mut result {
            None => {
                result = Some(MergedList {
                    fields: head,
                    items,
                })
            }
            Some(result) => result.items.extend(items),
        }
    }
    let Some(result) = result else {
        return Err(Status::failure(404, "NotFound", "not found"));
    };
    serde_json::to_vec(&result).map_err(Status::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paging_parameters_are_removed() {
        let path = PathAndQuery::from_static("/api/v1/pods?limit=5&labelSelector=a&continue=x");
        assert_eq!(
            without_paging(&path).unwrap(),
            "/api/v1/pods?labelSelector=a"
        );
    }

    #[tokio::test]
    async fn a_list_that_is_nested_too_deep_is_left_out() {
        for (depth, is_read) in [(1_000, true), (50_000, false)] {
            let item = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            let list = format!(r#"{{"kind":"PodList","items":[{{"a":{item}}}]}}"#);
            let body = http_body_util::Full::new(Bytes::from(list.clone()));
            let read = read_list(Response::new(body)).await;
            assert_eq!(read.ok(), is_read.then_some(list.into()), "{depth}");
        }
    }

    #[test]
    fn lists_are_merged_and_objects_have_one_cluster() {
        let list = |text: &'static str| Bytes::from_static(text.as_bytes());
        let lists = [
            list(r#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"a":1}]}"#),
            list("nothing of the kind"),
            list(r#"{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":null}"#),
            list(r#"{"kind":"PodList","items":[{"b":2},{"c":3}]}"#),
        ];
        let text = String::from_utf8(merge_lists(&lists).unwrap()).unwrap();
        assert_eq!(
            text,
            r#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b":2},{"c":3}]}"#
        );
        assert_eq!(merge_lists(&[]).unwrap_err().code, 404);
        assert_eq!(single_cluster(["m"].into_iter()).unwrap(), "m");
        assert_eq!(single_cluster([].into_iter()).unwrap_err().code, 404);
        let conflict = single_cluster(["m", "n"].into_iter()).unwrap_err();
        assert!(conflict.code == 409 && conflict.message.ends_with(": m,n"));
    }
}
