//! Serves `clusters/{name}/attach`: an agent opens the tunnel through which the cluster proxy
//! reaches its member.
//!
//! The agent is known by its user, which is that of its certificate: no other user, however
//! privileged, may stand in for a member. While a tunnel is open, another certificate of that user
//! opens none.

use std::sync::Arc;

use async_trait::async_trait;
use client::TaskGroup;
use client::remote::{
    TUNNEL_PROTOCOL, TUNNEL_REPLICA_HEADER, TUNNEL_WEBSOCKET_SUBPROTOCOL, TunnelClient,
    WebSocketRole, websocket_byte_stream,
};
use http::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use karmada_api::resources::CLUSTERS;
use machinery::agent_user::agent_user;
use machinery::{Object, Status, UserInfo};
use members::{ClusterProxyBackends, TUNNEL_SUBRESOURCE};
use serde_json::Value;

use super::{backend_error_status, headers};
use crate::response_body::ServerResponseBody;
use crate::subresources::{SubresourceConnectRequest, SubresourceConnector};
use crate::websocket_handshake::{accept_websocket_of_one_protocol, is_websocket_request};

/// Group, resource and subresource under which [`AgentTunnelEndpoint`] is registered.
pub const AGENT_TUNNEL: (&str, &str, &str) = ("cluster.karmada.io", "clusters", TUNNEL_SUBRESOURCE);

/// How the bytes of a tunnel are carried after the upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TunnelFraming {
    Plain,
    WebSocket,
}

impl TunnelFraming {
    /// The tunnel that a request asks for; `None` if it is not for a tunnel.
    fn requested<B>(request: &Request<B>) -> Option<Self> {
        let protocol = headers::requested_upgrade(request)?;
        if protocol == TUNNEL_PROTOCOL {
            return Some(Self::Plain);
        }
        let subprotocol = request.headers().get(SEC_WEBSOCKET_PROTOCOL)?;
        let is_tunnel = subprotocol == TUNNEL_WEBSOCKET_SUBPROTOCOL;
        (is_websocket_request(request.headers()) && is_tunnel).then_some(Self::WebSocket)
    }

    /// The response that accepts a request with these headers.
    fn accept(self, requested: &HeaderMap) -> Result<Response<ServerResponseBody>, Status> {
        if self == Self::WebSocket {
            return accept_websocket_of_one_protocol(requested);
        }
        let mut response = Response::new(ServerResponseBody::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(TUNNEL_PROTOCOL));
        Ok(response)
    }
}

/// The extra of a user that has the id of the credential; Kubernetes 1.32 sets it to the id of the
/// client certificate.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The agent that opens a tunnel.
struct TunnelAgentIdentity {
    cluster: String,
    credential: Option<String>,
}

/// Called with the Cluster whose tunnel somebody with another certificate wanted to replace.
pub type TunnelRefusalCallback = Arc<dyn Fn(&Object) + Send + Sync>;

/// Accepts the tunnels of agents.
pub struct AgentTunnelEndpoint {
    backends: ClusterProxyBackends,
    on_refusal: TunnelRefusalCallback,
    tasks: TaskGroup,
}

/// The id of the credential of a user, if it is known.
fn credential_id(user: &UserInfo) -> Option<&str> {
    let ids = user.extra.get(CREDENTIAL_ID)?;
    ids.first().map(String::as_str)
}

impl AgentTunnelEndpoint {
    /// `tasks` owns the tunnels.
    pub fn new(
        backends: ClusterProxyBackends,
        on_refusal: TunnelRefusalCallback,
        tasks: &TaskGroup,
    ) -> Arc<Self> {
        Arc::new(Self {
            backends,
            on_refusal,
            tasks: tasks.child(),
        })
    }

    /// Whether the agent has a tunnel to this replica, and knows it.
    fn is_attached(&self, cluster: &str, headers: &HeaderMap) -> bool {
        let tunnels = self.backends.tunnels();
        let attached = headers.get_all(TUNNEL_REPLICA_HEADER);
        tunnels.has_tunnel(cluster) && attached.iter().any(|replica| replica == tunnels.replica())
    }

    /// Serves the tunnel after the upgrade. It ends after the requests that use it, with the
    /// tasks of the server.
    fn serve(
        &self,
        agent: TunnelAgentIdentity,
        upgrade: OnUpgrade,
        framing: TunnelFraming,
        tasks: TaskGroup,
    ) {
        let TunnelAgentIdentity {
            cluster,
            credential,
        } = agent;
        let backends = self.backends.clone();
        self.tasks.spawn(async move {
            let handshake = async {
                let upgraded = upgrade.await.map_err(|e| e.to_string())?;
                let stream = TokioIo::new(upgraded);
                match framing {
                    TunnelFraming::Plain => TunnelClient::handshake(stream, &tasks).await,
                    TunnelFraming::WebSocket => {
                        let stream = websocket_byte_stream(stream, WebSocketRole::Server).await;
                        TunnelClient::handshake(stream, &tasks).await
                    }
                }
            };
            match handshake.await {
                Ok(tunnel) => {
                    let tunnels = backends.tunnels();
                    tunnels.serve(&cluster, credential, tunnel, tasks).await;
                }
                Err(error) => {
                    tracing::info!(cluster, %error, "an agent's tunnel was not established");
                    tasks.stop().await;
                }
            }
        });
    }
}

#[async_trait]
impl SubresourceConnector for AgentTunnelEndpoint {
    fn connect_options(&self, _connection: &SubresourceConnectRequest) -> Option<Value> {
        None
    }

    async fn connect(
        &self,
        connection: SubresourceConnectRequest,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let cluster = connection.name;
        if connection.user.name != agent_user(&cluster) {
            let message = format!("only the agent of cluster {cluster:?} may open its tunnel");
            return Err(Status::forbidden(&CLUSTERS, &cluster, message));
        }
        let credential = credential_id(&connection.user).map(str::to_owned);
        if !self
            .backends
            .tunnels()
            .admits(&cluster, credential.as_deref())
        {
            if let Some(cluster) = self.backends.find_cluster(&cluster) {
                (self.on_refusal)(&cluster);
            }
            let message = "the cluster has a tunnel that was opened with another certificate";
            return Err(Status::forbidden(&CLUSTERS, &cluster, message.to_owned()));
        }
        let mut request = connection.request;
        let Some(framing) = TunnelFraming::requested(&request) else {
            return Err(Status::bad_request(format!(
                "a tunnel is an HTTP/1.1 request that upgrades to {TUNNEL_PROTOCOL:?}, or to a \
                 WebSocket with the subprotocol {TUNNEL_WEBSOCKET_SUBPROTOCOL:?}"
            )));
        };
        let tasks = self.backends.tunnel_tasks(&cluster).await;
        let tasks = tasks.map_err(backend_error_status)?;
        if self.is_attached(&cluster, request.headers()) {
            let message = "the agent has a tunnel to this replica";
            return Err(Status::conflict(&CLUSTERS, &cluster, message));
        }
        let replica = HeaderValue::from_str(self.backends.tunnels().replica());
        let replica = replica.map_err(Status::internal)?;
        let mut response = framing.accept(request.headers())?;
        response
            .headers_mut()
            .insert(TUNNEL_REPLICA_HEADER, replica);
        let upgrade = hyper::upgrade::on(&mut request);
        let agent = TunnelAgentIdentity {
            cluster,
            credential,
        };
        self.serve(agent, upgrade, framing, tasks);
        Ok(response)
    }
}
