//! Serves API groups whose resources are not in the resource table, because only their provider
//! knows the names at the time of a request: custom and external metrics. They are read only.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use http::{HeaderMap, Response};
use machinery::{Status, UserInfo};
use registry::Registry;
use serde_json::{Value, json};

use crate::authorized_request::AuthorizedResourceRequest;
use crate::negotiation::{self, ResponseOffer};
use crate::requestinfo::QueryParams;
use crate::response_body::ServerResponseBody;
use crate::response_writers;

/// An authorized GET of a path in a dynamic group, parsed as that of a resource.
pub struct DynamicResourceRequest<'a> {
    pub user: &'a UserInfo,
    pub version: &'a str,
    /// Empty: none.
    pub namespace: &'a str,
    pub resource: &'a str,
    /// `None`: the path ends with the resource.
    pub name: Option<&'a str>,
    /// Empty: none.
    pub subresource: &'a str,
    query: &'a QueryParams,
}

impl<'a> DynamicResourceRequest<'a> {
    /// The first value of a query parameter, empty when absent.
    pub fn param(&self, name: &str) -> &'a str {
        self.query.get(name).unwrap_or_default()
    }
}

/// The answer of a provider.
pub struct DynamicResponse {
    pub value: Value,
    /// The missing parts.
    pub warnings: Vec<String>,
}

/// Serves the resources of one group.
#[async_trait]
pub trait DynamicGroupProvider: Send + Sync {
    /// The array of the `APIResource`s of a version, for discovery.
    async fn api_resources(
        &self,
        user: &UserInfo,
        version: &str,
    ) -> Result<DynamicResponse, Status>;

    /// The response object of a GET.
    async fn get(&self, request: &DynamicResourceRequest<'_>) -> Result<DynamicResponse, Status>;
}

/// The providers by group. The registry has the versions of each.
pub type DynamicGroupProviders = HashMap<&'static str, Arc<dyn DynamicGroupProvider>>;

/// The dynamic groups of a server.
pub(crate) struct DynamicGroups {
    pub(crate) registry: Arc<Registry>,
    pub(crate) providers: DynamicGroupProviders,
}

impl DynamicGroups {
    /// The provider of a served version.
    fn provider(&self, group: &str, version: &str) -> Option<&Arc<dyn DynamicGroupProvider>> {
        let provider = self.providers.get(group)?;
        let table = self.registry.table();
        let info = table.groups().iter().find(|info| info.name == group)?;
        let is_served = info.versions.iter().any(|info| info.version == version);
        is_served.then_some(provider)
    }

    /// Serves a request for a resource; `None` when the group is none of these.
    pub(crate) async fn serve_resource(
        &self,
        call: &AuthorizedResourceRequest,
        headers: &HeaderMap,
    ) -> Option<Result<Response<ServerResponseBody>, Status>> {
        let provider = self.provider(&call.resource.group, &call.resource.version)?;
        Some(serve_get(&**provider, call, headers).await)
    }

    /// Serves the discovery document of a version; `None` when the path is none of these.
    pub(crate) async fn serve_discovery(
        &self,
        path: &str,
        user: &UserInfo,
        query: &QueryParams,
        headers: &HeaderMap,
    ) -> Option<Result<Response<ServerResponseBody>, Status>> {
        let group_version = path.strip_prefix("/apis/")?;
        let (group, version) = group_version.split_once('/')?;
        let provider = self.provider(group, version)?;
        let serve = async {
            let format = negotiation::negotiate(headers, query, ResponseOffer::default())?;
            let DynamicResponse { value, warnings } = provider.api_resources(user, version).await?;
            let document = json!({"kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": group_version, "resources": value});
            let mut response = response_writers::write_value(200, &document, format);
            response_writers::add_warnings(&mut response, &warnings);
            Ok(response)
        };
        Some(serve.await)
    }
}

async fn serve_get(
    provider: &dyn DynamicGroupProvider,
    call: &AuthorizedResourceRequest,
    headers: &HeaderMap,
) -> Result<Response<ServerResponseBody>, Status> {
    call.query.validate()?;
    if !matches!(call.verb, "get" | "list") {
        return Err(Status::method_not_allowed());
    }
    let resource = &call.resource;
    if !resource.subpath.trim_matches('/').is_empty() {
        return Err(Status::path_not_found());
    }
    let format = negotiation::negotiate(headers, &call.query, ResponseOffer::default())?;
    let request = DynamicResourceRequest {
        user: &call.user,
        version: &resource.version,
        namespace: &resource.namespace,
        resource: &resource.resource,
        name: resource.has_name.then_some(&*resource.name),
        subresource: &resource.subresource,
        query: &call.query,
    };
    let DynamicResponse { value, warnings } = provider.get(&request).await?;
    if let Some(audit) = &call.audit {
        audit.log_response_object(value.to_string().as_bytes());
    }
    let mut response = response_writers::write_value(200, &value, format);
    response_writers::add_warnings(&mut response, &warnings);
    Ok(response)
}
