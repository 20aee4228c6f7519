//! Connects to members in pull mode through the tunnels of their agents to this replica, as the user of
//! the controllers, about whose rights the member decides.

use std::sync::Arc;

use async_trait::async_trait;
use client::{Api, ApiCall, ApiReply, Error, Result, TaskGroup};
use futures_util::StreamExt;

use crate::agent_tunnels::TUNNEL_RETURN_TIME;
use crate::cluster_proxy::{ClusterProxyBackends, ClusterProxyError, permit_of};
use crate::endpoint::{MemberConnector, MemberEndpoint, RemoteMemberConnector};

/// Connects to members in push mode with HTTPS, and to those in pull mode through tunnels.
pub struct TunnelingMemberConnector {
    pub remote: RemoteMemberConnector,
    pub backends: ClusterProxyBackends,
}

impl MemberConnector for TunnelingMemberConnector {
    fn connect(
        &self,
        endpoint: &MemberEndpoint,
        tasks: &TaskGroup,
    ) -> std::result::Result<Arc<dyn Api>, String> {
        if !endpoint.is_beside_agent() {
            return self.remote.connect(endpoint, tasks);
        }
        Ok(Arc::new(TunneledApi::new(
            &endpoint.cluster,
            &self.backends,
        )))
    }

    fn reaches_pull_members(&self) -> bool {
        true
    }
}

/// The API of a member, through the tunnel that its agent has when a call is made. A watch ends with
/// its tunnel.
pub struct TunneledApi {
    cluster: String,
    backends: ClusterProxyBackends,
}

impl TunneledApi {
    pub fn new(cluster: &str, backends: &ClusterProxyBackends) -> Self {
        Self {
            cluster: cluster.to_owned(),
            backends: backends.clone(),
        }
    }

    fn error(&self, error: &ClusterProxyError) -> Error {
        Error::Transport {
            host: self.cluster.clone(),
            message: error.to_string(),
        }
    }
}

#[async_trait]
impl Api for TunneledApi {
    /// Waits for an agent that has just lost its tunnel. Each call, and the watch that it opens, counts
    /// as one of the requests that the tunnel takes at once.
    async fn call(&self, call: ApiCall<'_>) -> Result<ApiReply> {
        let open = self.backends.tunnels().wait_for_api(&self.cluster);
        let open = tokio::time::timeout(TUNNEL_RETURN_TIME, open).await;
        let (backend, api) =
            open.map_err(|_| self.error(&ClusterProxyError::NoTunnel(self.cluster.clone())))?;
        let permit = permit_of(&self.cluster, &backend).map_err(|error| self.error(&error))?;
        let reply = api.call(call).await?;
        Ok(match reply {
            ApiReply::Watch(events) => ApiReply::Watch(Box::pin(events.map(move |event| {
                let _held = &permit;
                event
            }))),
            reply => reply,
        })
    }
}
