//! Serves the fleet view, in which the objects of all members are those of one cluster, and the fleet
//! tree, in which those of the control plane are beside them.
//!
//! discovery ──► what the Ready members serve
//! get, list, watch ──► [`access`]: the members in which the user may ──► their caches, merged
//! other requests on an object ──► [`address`]: the member that has it ──► the cluster proxy
//!
//! In the tree a name is of the control plane, and `NAME@CLUSTER` of a member:
//! get, writes of a name ──► [`tree`] ──► the control plane, as the user
//! list, watch ──► the caches of the members and of the control plane, merged ──► [`addressed_names`]
//!
//! Nobody reads more than through the cluster proxy: besides `clusters/proxy` here, the member
//! itself is asked whether the user may, for each request. It is reached below `/fleet` of this
//! server, and as the global proxy with the name `fleet` behind an aggregator; the tree below
//! `/fleet-tree`, and as `fleet-tree`.

mod access;
mod address;
mod addressed_names;
mod aggregated_discovery;
mod decision_cache;
mod discovery;
mod discovery_requests;
mod identity;
mod member_call;
mod reads;
mod tree;
mod writes;

use std::sync::Arc;

use async_trait::async_trait;
use auth::RequestAuthorizer;
use http::{Method, Response};
use machinery::Status;
use members::{FleetCache, FleetSources};
use openapi::KindInfo;
use serde_json::Value;

use super::native_request::{MemberResourceReader, NativeRequest};
use super::{ClusterProxy, path};
use crate::requestinfo::{FLEET_TREE, FLEET_VIEW};
use crate::response_body::ServerResponseBody;
use crate::subresources::{SubresourceConnectRequest, SubresourceConnector};
use access::FleetAccess;
use address::FleetAddress;

const METRICS_GROUP: &str = "metrics.k8s.io";
/// The group of APIServices. This server computes its own for each request; others store and watch them.
const AGGREGATION_GROUP: &str = "apiregistration.k8s.io";

/// The fleet view.
pub struct FleetView {
    cache: Arc<dyn FleetCache>,
    /// Knows the columns of kinds.
    reader: Arc<MemberResourceReader>,
    clusters: Arc<ClusterProxy>,
    access: FleetAccess,
}

impl FleetView {
    pub fn new(
        cache: Arc<dyn FleetCache>,
        reader: Arc<MemberResourceReader>,
        clusters: Arc<ClusterProxy>,
        authorizer: RequestAuthorizer,
    ) -> Arc<Self> {
        Arc::new(Self {
            cache,
            reader,
            access: FleetAccess::new(Arc::clone(&clusters), authorizer),
            clusters,
        })
    }

    /// Serves a request of the fleet view, or of the tree, which has the control plane, too.
    async fn serve(
        &self,
        connection: SubresourceConnectRequest,
        sources: FleetSources,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let query = connection.request.uri().query();
        let path = path::member_path(&connection.subpath, query)?;
        let Some(mut request) = NativeRequest::parse(connection.request.method(), &path)? else {
            return self.serve_document(connection, path, sources).await;
        };
        // Metrics cannot be watched. The control plane asks all members for them.
        if request.resource.group == METRICS_GROUP {
            return self.clusters.control_plane.serve(connection, path).await;
        }
        let address =
            FleetAddress::take_from(&mut request, &connection.user, (&*self.cache, &self.access))
                .await?;
        if sources == FleetSources::MembersAndControlPlane && address.cluster.is_none() {
            return self.serve_unaddressed(connection, path, &request).await;
        }
        match request.verb {
            "get" | "list" | "watch" if request.resource.subresource.is_empty() => {
                self.read(connection, &request, &address, sources).await
            }
            _ => self.forward(connection, &request, &address).await,
        }
    }

    /// Serves a path without a resource: discovery, or a document of the control plane.
    async fn serve_document(
        &self,
        connection: SubresourceConnectRequest,
        path: http::uri::PathAndQuery,
        sources: FleetSources,
    ) -> Result<Response<ServerResponseBody>, Status> {
        if *connection.request.method() != Method::GET {
            return Err(Status::method_not_allowed());
        }
        match path.path().trim_end_matches('/') {
            "/version" | "/openapi/v2" | "/openapi/v3" => {}
            other if other.starts_with("/openapi/v3/") => {}
            _ if sources == FleetSources::Members => {
                return self.discover(&connection, path.path()).await;
            }
            _ => return self.discover_tree(connection, path.path()).await,
        }
        self.clusters.control_plane.serve(connection, path).await
    }
}

/// Whether members watch the objects of a kind that this server knows.
fn is_watched(kind: &KindInfo) -> bool {
    kind.supports_verb("watch") || *kind.gvr.group == *AGGREGATION_GROUP
}

/// Serves `proxying/{name}/proxy`: the fleet view and the fleet tree for their names, the global proxy
/// for others.
pub struct NamedProxies {
    fleet: Arc<FleetView>,
    /// The global proxy.
    others: Arc<dyn SubresourceConnector>,
}

impl NamedProxies {
    pub fn new(fleet: Arc<FleetView>, others: Arc<dyn SubresourceConnector>) -> Arc<Self> {
        Arc::new(Self { fleet, others })
    }
}

#[async_trait]
impl SubresourceConnector for NamedProxies {
    fn connect_options(&self, connection: &SubresourceConnectRequest) -> Option<Value> {
        self.others.connect_options(connection)
    }

    async fn connect(
        &self,
        connection: SubresourceConnectRequest,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let sources = match connection.name.as_str() {
            FLEET_VIEW => FleetSources::Members,
            FLEET_TREE => FleetSources::MembersAndControlPlane,
            _ => return self.others.connect(connection).await,
        };
        Box::pin(self.fleet.serve(connection, sources)).await
    }
}
