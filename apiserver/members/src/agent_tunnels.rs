//! Holds the tunnels of agents that end in this replica of the control plane.
//!
//! An agent keeps a tunnel to every replica, so a replica forwards requests over its own
//! tunnels only, and no replica has to authenticate another. A cluster has one tunnel; a newer
//! one replaces it, because the agent that opened it knows best that the former is gone. The newer
//! one must have the certificate of the former: another certificate of the same agent may be that of
//! somebody else, who would take over the cluster.

use std::sync::{Arc, LazyLock};

use ahash::AHashMap;
use client::TaskGroup;
use client::remote::{MAX_TUNNEL_STREAMS, RequestForwarder, TunnelClient};
use flotilla_metrics::{Counter, Gauge, MetricVec};
use parking_lot::Mutex;
use rand::distr::{Alphanumeric, SampleString};

use crate::cluster_proxy_backend::ClusterProxyBackend;
use crate::endpoint::MemberEndpoint;

const REPLICA_ID_LENGTH: usize = 16;

struct AgentTunnelMetricFamilies {
    connected: MetricVec<Gauge, 1>,
    opened: MetricVec<Counter, 1>,
    refusals: MetricVec<Counter, 1>,
}

static METRIC_FAMILIES: LazyLock<AgentTunnelMetricFamilies> = LazyLock::new(|| {
    let of = flotilla_metrics::process_registry();
    AgentTunnelMetricFamilies {
        connected: of.gauges(
            "flotilla_agent_tunnels",
            "Tunnels of the agent of a member cluster to this replica: 1, or 0 after it was lost.",
            ["member_cluster"],
        ),
        opened: of.counters(
            "flotilla_agent_tunnels_opened_total",
            "Tunnels that the agent of a member cluster has opened to this replica.",
            ["member_cluster"],
        ),
        refusals: of.counters(
            "flotilla_agent_tunnels_refused_total",
            "Tunnels to this replica that were refused because the member cluster has one of another certificate.",
            ["member_cluster"],
        ),
    }
});

/// An open tunnel, and the id of the credential with which it was opened, if that is known.
struct OpenTunnel {
    backend: Arc<ClusterProxyBackend>,
    credential: Option<String>,
}

impl OpenTunnel {
    /// Whether a tunnel with this credential may replace it. Hosts before 1.32 name no credentials.
    fn yields_to(&self, credential: Option<&str>) -> bool {
        let own_credential = self.credential.as_deref();
        own_credential.is_none() || credential.is_none() || own_credential == credential
    }
}

/// The tunnels to this replica, by cluster.
pub struct AgentTunnels {
    replica: String,
    open: Mutex<AHashMap<String, OpenTunnel>>,
}

impl Default for AgentTunnels {
    fn default() -> Self {
        Self {
            replica: Alphanumeric.sample_string(&mut rand::rng(), REPLICA_ID_LENGTH),
            open: Mutex::default(),
        }
    }
}

impl AgentTunnels {
    /// A name of this replica, by which agents know where they have tunnels.
    pub fn replica(&self) -> &str {
        &self.replica
    }

    pub fn has_tunnel(&self, cluster: &str) -> bool {
        self.open.lock().contains_key(cluster)
    }

    pub(crate) fn get(&self, cluster: &str) -> Option<Arc<ClusterProxyBackend>> {
        let open = self.open.lock();
        open.get(cluster).map(|open| Arc::clone(&open.backend))
    }

    /// Whether a tunnel with this credential may be opened; counts one that may not.
    pub fn admits(&self, cluster: &str, credential: Option<&str>) -> bool {
        Self::is_admitted(&self.open.lock(), cluster, credential)
    }

    fn is_admitted(
        open: &AHashMap<String, OpenTunnel>,
        cluster: &str,
        credential: Option<&str>,
    ) -> bool {
        let admitted = open
            .get(cluster)
            .is_none_or(|open| open.yields_to(credential));
        if !admitted {
            METRIC_FAMILIES.refusals.with_label_values([cluster]).inc();
        }
        admitted
    }

    /// Forwards requests to the cluster through the tunnel until it ends or is replaced.
    /// `tasks` own the tunnel and are stopped then.
    pub async fn serve(
        &self,
        cluster: &str,
        credential: Option<String>,
        tunnel: TunnelClient,
        tasks: TaskGroup,
    ) {
        let closed = tunnel.closed();
        let forwarder = match RequestForwarder::through_tunnel(tunnel, cluster) {
            Ok(forwarder) => forwarder,
            Err(error) => {
                tracing::warn!(cluster, %error, "the tunnel cannot be used");
                return tasks.stop().await;
            }
        };
        let endpoint = MemberEndpoint::beside_agent(cluster);
        let shutdown = tasks.shutdown().clone();
        let backend = ClusterProxyBackend::new(endpoint, forwarder, MAX_TUNNEL_STREAMS, tasks);
        let backend = Arc::new(backend);
        if !self.insert(cluster, credential, &backend) {
            tracing::warn!(cluster, "the cluster has a tunnel of another certificate");
            return backend.stop().await;
        }
        tracing::info!(cluster, "the agent has opened a tunnel");
        shutdown.run_until_triggered(closed).await;
        self.remove(cluster, &backend);
        backend.stop().await;
        tracing::info!(cluster, "a tunnel of the agent has ended");
    }

    /// Returns whether the tunnel is used; one of another certificate may have been opened meanwhile.
    fn insert(
        &self,
        cluster: &str,
        credential: Option<String>,
        backend: &Arc<ClusterProxyBackend>,
    ) -> bool {
        let mut open = self.open.lock();
        if !Self::is_admitted(&open, cluster, credential.as_deref()) {
            return false;
        }
        let tunnel = OpenTunnel {
            backend: Arc::clone(backend),
            credential,
        };
        if let Some(former) = open.insert(cluster.to_owned(), tunnel) {
            former.backend.shutdown().trigger();
        }
        let metrics = &*METRIC_FAMILIES;
        metrics.connected.with_label_values([cluster]).set(1);
        metrics.opened.with_label_values([cluster]).inc();
        // The series exists before the first refusal, so that its increase is seen.
        metrics.refusals.with_label_values([cluster]);
        true
    }

    /// Removes this tunnel; one that has replaced it stays.
    fn remove(&self, cluster: &str, backend: &Arc<ClusterProxyBackend>) {
        let mut open = self.open.lock();
        let is_current = |open: &OpenTunnel| Arc::ptr_eq(&open.backend, backend);
        if open.get(cluster).is_some_and(is_current) {
            open.remove(cluster);
            let connected = &METRIC_FAMILIES.connected;
            connected.with_label_values([cluster]).set(0);
        }
    }

    /// Closes the tunnel of a cluster that was deleted, and forgets its metrics.
    pub(crate) fn forget(&self, cluster: &str) {
        let mut open = self.open.lock();
        if let Some(former) = open.remove(cluster) {
            former.backend.shutdown().trigger();
        }
        METRIC_FAMILIES.refusals.remove_label_values([cluster]);
        METRIC_FAMILIES.connected.remove_label_values([cluster]);
        METRIC_FAMILIES.opened.remove_label_values([cluster]);
    }
}
