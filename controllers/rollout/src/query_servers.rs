//! The servers that answer queries: members, by their API servers or through the tunnels of their
//! agents, and the Prometheus of the control plane. All are untrusted: an answer is bounded in time and
//! size.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Api;
use members::{ClusterProxyBackends, MemberAccess, TunneledApi};

use crate::decision::NO_PROMETHEUS;
use crate::prometheus::{MAX_ANSWER_BYTES, QueryRequest, QuerySource, failure_text, read_answer};

/// How long a server may take for an answer.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// The servers that answer queries, beside the members in push mode.
#[derive(Clone, Default)]
pub struct QueryServers {
    /// The Prometheus of the control plane.
    pub prometheus: Option<Arc<dyn Api>>,
    /// The way to members in pull mode.
    pub tunnels: Option<ClusterProxyBackends>,
}

/// Asks all servers.
#[derive(Clone)]
pub(crate) struct QueryClient {
    pub(crate) members: Arc<dyn MemberAccess>,
    pub(crate) servers: QueryServers,
}

impl QueryClient {
    /// The number that answers a query about a cluster, or why there is none.
    pub(crate) async fn fetch_value(
        &self,
        cluster: &str,
        request: &QueryRequest,
    ) -> Result<f64, String> {
        match tokio::time::timeout(QUERY_TIMEOUT, self.fetch(cluster, request)).await {
            Ok(answer) => read_answer(&answer?),
            Err(_) => Err(format!("no answer within {} s", QUERY_TIMEOUT.as_secs())),
        }
    }

    async fn fetch(&self, cluster: &str, request: &QueryRequest) -> Result<Bytes, String> {
        let QueryRequest { source, path } = request;
        let api = match (source, &self.servers.prometheus) {
            (QuerySource::Member, _) => self.members.api(cluster).ok(),
            (QuerySource::ControlPlane, Some(prometheus)) => Some(Arc::clone(prometheus)),
            (QuerySource::ControlPlane, None) => return Err(NO_PROMETHEUS.to_owned()),
        };
        let answer = match api {
            Some(api) => api.get_raw_within(path, MAX_ANSWER_BYTES).await,
            None => self.fetch_through_tunnel(cluster, path).await?,
        };
        answer.map_err(|error| failure_text(*source, &error))
    }

    /// Asks a member as the user of the controllers, to whom the member may give the right.
    async fn fetch_through_tunnel(
        &self,
        cluster: &str,
        path: &str,
    ) -> Result<client::Result<Bytes>, String> {
        let has_tunnel = |backends: &&ClusterProxyBackends| backends.tunnels().has_tunnel(cluster);
        let Some(backends) = self.servers.tunnels.as_ref().filter(has_tunnel) else {
            let reason = "the member cannot be reached from the control plane, and has no tunnel";
            return Err(reason.to_owned());
        };
        let api = TunneledApi::new(cluster, backends);
        Ok(api.get_raw_within(path, MAX_ANSWER_BYTES).await)
    }
}
