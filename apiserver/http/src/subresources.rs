//! Traits for subresources that the registry does not store: `clusters/proxy`,
//! `pods/log` and `pods/exec` connect elsewhere, others compute a value on read.
//!
//! The binary registers the implementations, so that this crate knows no kind by name.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use client::ShutdownToken;
use http::{Request, Response};
use hyper::body::Incoming;
use machinery::{Status, UserInfo};
use registry::SubresourceInfo;
use serde_json::Value;
use tokio::time::Instant;

use crate::requestinfo::{QueryParams, RequestedResource};
use crate::response_body::ServerResponseBody;

/// An authorized request to a connecting subresource (kube-apiserver's
/// `rest.Connecter`).
pub struct SubresourceConnectRequest {
    pub user: Arc<UserInfo>,
    /// Empty for cluster-scoped resources.
    pub namespace: String,
    pub name: String,
    /// The path after the subresource, undecoded, with its leading slash and without
    /// the query.
    pub subpath: String,
    /// Deadline of the response; `None` for long-running requests.
    pub deadline: Option<Instant>,
    /// Triggered when the server stops and long-running requests must end.
    pub shutdown: ShutdownToken,
    /// The request itself; the implementation may upgrade it.
    pub request: Request<Incoming>,
}

impl SubresourceConnectRequest {
    /// The first value of a query parameter.
    pub fn param(&self, name: &str) -> Option<String> {
        self.query().get(name).map(str::to_owned)
    }

    /// All values of a query parameter.
    pub fn params(&self, name: &str) -> Vec<String> {
        self.query().all(name).map(str::to_owned).collect()
    }

    /// A boolean query parameter: present, and neither `0` nor `false`.
    pub fn flag(&self, name: &str) -> bool {
        self.query().flag(name)
    }

    fn query(&self) -> QueryParams {
        QueryParams::parse(self.request.uri().query())
    }
}

/// Serves the requests of one connecting subresource.
#[async_trait]
pub trait SubresourceConnector: Send + Sync {
    /// The object that admission webhooks get for a connection, such as PodExecOptions.
    /// `None` if the request reads and is no connection.
    fn connect_options(&self, connection: &SubresourceConnectRequest) -> Option<Value>;

    /// Whether its requests are long-running. Those of `log` and `proxy` depend on the query
    /// and the path.
    fn is_long_running(&self) -> bool {
        true
    }

    /// The entry in the discovery documents. `None` if the resource table has it, or if no client
    /// looks for it there.
    fn discovered(&self) -> Option<SubresourceInfo> {
        None
    }

    async fn connect(
        &self,
        connection: SubresourceConnectRequest,
    ) -> Result<Response<ServerResponseBody>, Status>;
}

/// By group, resource and subresource.
pub type SubresourceConnectors = HashMap<(String, String, String), Arc<dyn SubresourceConnector>>;

/// Computes the value of a read-only subresource that is in the resource table but not
/// in the store.
#[async_trait]
pub trait SubresourceGetter: Send + Sync {
    /// `namespace` is empty for cluster-scoped resources.
    async fn get_subresource(&self, namespace: &str, name: &str) -> Result<Value, Status>;
}

/// By group, resource and subresource.
pub type SubresourceGetters = HashMap<(String, String, String), Arc<dyn SubresourceGetter>>;

/// The connector of the named object's subresource.
pub(crate) fn find_connector<'a>(
    connectors: &'a SubresourceConnectors,
    resource: &RequestedResource,
) -> Option<&'a Arc<dyn SubresourceConnector>> {
    match resource.has_name {
        true => find_subresource(connectors, resource),
        false => None,
    }
}

/// The entry of the requested subresource.
pub(crate) fn find_subresource<'a, T>(
    all: &'a HashMap<(String, String, String), T>,
    r: &RequestedResource,
) -> Option<&'a T> {
    if r.subresource.is_empty() {
        return None;
    }
    all.get(&(r.group.clone(), r.resource.clone(), r.subresource.clone()))
}
