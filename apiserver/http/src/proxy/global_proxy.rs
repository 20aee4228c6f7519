//! Serves `proxying/{name}/proxy/{path}`, the global proxy: one view of the resources of all
//! members that ResourceRegistries select (Karmada: `pkg/search/proxy`).
//!
//! get, list, watch of a selected resource ──► cache
//! other requests on its objects ──► the member that has the object
//! everything else ──► the control plane itself
//!
//! The user needs the rights to the request in the control plane, besides those to the proxy. The
//! member checks what it forwards once more, as it does for the cluster proxy.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::Response;
use machinery::Status;
use openapi::KindInfo;
use serde_json::Value;

use super::native_request::{MemberResourceReader, NativeRequest};
use super::update_body::{restore_body, restore_value};
use super::{ClusterProxy, headers, path};
use crate::response_body::ServerResponseBody;
use crate::subresources::{SubresourceConnectRequest, SubresourceConnector};

/// Group, resource and subresource under which [`GlobalProxy`] is registered.
pub const GLOBAL_PROXY: (&str, &str, &str) = ("search.karmada.io", "proxying", "proxy");

/// The global proxy.
pub struct GlobalProxy {
    reader: Arc<MemberResourceReader>,
    /// Forwards requests to the members.
    clusters: Arc<ClusterProxy>,
}

impl GlobalProxy {
    pub fn new(reader: Arc<MemberResourceReader>, clusters: Arc<ClusterProxy>) -> Arc<Self> {
        Arc::new(Self { reader, clusters })
    }

    async fn serve(
        &self,
        connection: SubresourceConnectRequest,
        request: &NativeRequest,
        kind: &Arc<KindInfo>,
    ) -> Result<Response<ServerResponseBody>, Status> {
        self.reader.authorize(&connection.user, request).await?;
        let received = connection.request.headers();
        let reader = &self.reader;
        match request.verb {
            "get" if request.resource.subresource.is_empty() => {
                reader.get(request, kind, received).await
            }
            "list" => reader.list(request, kind, received).await,
            "watch" if request.resource.subresource.is_empty() => {
                let shutdown = connection.shutdown.clone();
                reader.watch(request, kind, received, shutdown).await
            }
            _ => self.forward(connection, request, kind).await,
        }
    }

    /// Forwards to the member that has the object. A collection, to which an object would be
    /// added, or whose objects would be deleted, is in no single member.
    async fn forward(
        &self,
        mut connection: SubresourceConnectRequest,
        request: &NativeRequest,
        kind: &KindInfo,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let gvr = request.gvr();
        if !request.resource.has_name {
            return Err(Status::verb_not_supported(&gvr, request.verb));
        }
        let cache = &self.reader.cache;
        let (namespace, name) = (request.namespace(kind), &request.resource.name);
        let cluster = cache.find_cluster(&gvr, namespace, name).await?;
        connection.name.clone_from(&cluster);
        let writes_object = matches!(request.verb, "update" | "patch" | "delete");
        if !writes_object || headers::requested_upgrade(&connection.request).is_some() {
            return self.clusters.forward(connection).await;
        }
        let restore = |body: Bytes, content_type: &str| {
            let version = |text: &str| cache.member_resource_version(&cluster, text);
            restore_body(body, content_type, |value| restore_value(value, version))
        };
        self.clusters
            .forward_transformed(connection, Some(&restore))
            .await
    }
}

#[async_trait]
impl SubresourceConnector for GlobalProxy {
    fn connect_options(&self, _: &SubresourceConnectRequest) -> Option<Value> {
        None
    }

    async fn connect(
        &self,
        connection: SubresourceConnectRequest,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let query = connection.request.uri().query();
        let path = path::member_path(&connection.subpath, query)?;
        let request = NativeRequest::parse(connection.request.method(), &path)?;
        let Some(request) = request else {
            return self.clusters.control_plane.serve(connection, path).await;
        };
        if let Some(kind) = self.reader.cached_kind(&request) {
            return Box::pin(self.serve(connection, &request, &kind)).await;
        }
        let resource = &request.resource;
        if (&*resource.group, &*resource.resource) == (GLOBAL_PROXY.0, GLOBAL_PROXY.1) {
            let text = "the global proxy passes no requests on to itself";
            return Err(Status::bad_request(text));
        }
        self.clusters.control_plane.serve(connection, path).await
    }
}
