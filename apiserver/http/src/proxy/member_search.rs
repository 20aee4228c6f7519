//! Serves `search/cache/{path}`: the objects of all members that the cache has, as one list
//! (Karmada: `pkg/registry/search/storage`).
//!
//! The path after the category is that of the resource in a cluster. The user needs the rights to
//! it in the control plane, besides those to the search.

use std::sync::Arc;

use async_trait::async_trait;
use http::{Method, Response};
use machinery::Status;
use serde_json::Value;

use super::native_request::{MemberResourceReader, NativeRequest};
use super::path;
use crate::response_body::ServerResponseBody;
use crate::subresources::{SubresourceConnectRequest, SubresourceConnector};

/// Group, resource and subresources under which [`MemberSearch`] is registered: what follows the
/// category is `api` or `apis`.
pub const SEARCH: [(&str, &str, &str); 2] = [
    ("search.karmada.io", "search", "api"),
    ("search.karmada.io", "search", "apis"),
];

/// Serves the search below one of the prefixes of resources.
pub struct MemberSearch {
    reader: Arc<MemberResourceReader>,
    /// `api` or `apis`.
    prefix: &'static str,
}

impl MemberSearch {
    pub fn new(reader: Arc<MemberResourceReader>, prefix: &'static str) -> Arc<Self> {
        Arc::new(Self { reader, prefix })
    }
}

#[async_trait]
impl SubresourceConnector for MemberSearch {
    fn connect_options(&self, _: &SubresourceConnectRequest) -> Option<Value> {
        None
    }

    fn is_long_running(&self) -> bool {
        false
    }

    async fn connect(
        &self,
        connection: SubresourceConnectRequest,
    ) -> Result<Response<ServerResponseBody>, Status> {
        if connection.request.method() != Method::GET {
            return Err(Status::method_not_allowed());
        }
        let native = format!("/{}{}", self.prefix, connection.subpath);
        let path = path::member_path(&native, connection.request.uri().query())?;
        let request = NativeRequest::parse(connection.request.method(), &path)?;
        let request = request.filter(|request| request.resource.subresource.is_empty());
        let Some(request) = request else {
            let text = format!(
                "k8s native Request URL({}) is not a resource request",
                path.path().trim_start_matches('/')
            );
            return Err(Status::bad_request(text));
        };
        match connection.name.as_str() {
            "cache" => {}
            // Nothing is stored there; Karmada's answer is as empty.
            "opensearch" => return Ok(Response::new(ServerResponseBody::empty())),
            other => {
                let text = format!("connect with unrecognized search category {other}");
                return Err(Status::bad_request(text));
            }
        }
        if request.verb == "watch" {
            return Err(Status::method_not_allowed());
        }
        self.reader.authorize(&connection.user, &request).await?;
        let headers = connection.request.headers();
        match self.reader.cached_kind(&request) {
            Some(kind) => Box::pin(self.reader.search(&request, &kind, headers)).await,
            // Karmada, too, has found nothing where no ResourceRegistry selects the kind.
            None => self.reader.empty_search(&request, headers).await,
        }
    }
}
