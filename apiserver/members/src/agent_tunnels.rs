//! Holds the tunnels of agents that end in this replica of the control plane.
//!
//! An agent keeps a tunnel to every replica, so a replica forwards requests over its own
//! tunnels only, and no replica has to authenticate another. A cluster has one tunnel; a newer
//! one replaces it, because the agent that opened it knows best that the former is gone. The newer
//! one must have the certificate of the former: another certificate of the same agent may be that of
//! somebody else, who would take over the cluster.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ahash::AHashMap;
use client::TaskGroup;
use client::remote::{
    ImpersonationConfig, MAX_TUNNEL_STREAMS, RemoteApi, RequestForwarder, RestConfigError,
    TunnelClient,
};
use flotilla_metrics::{Counter, Gauge, MetricVec};
use machinery::UserInfo;
use parking_lot::Mutex;
use rand::distr::{Alphanumeric, SampleString};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cluster_proxy_backend::ClusterProxyBackend;
use crate::endpoint::MemberEndpoint;

const REPLICA_ID_LENGTH: usize = 16;
/// How long an agent may take to come back before its cluster counts as one without a tunnel: as long as
/// before the agent reports that in its condition.
pub(crate) const TUNNEL_RETURN_TIME: Duration = Duration::from_secs(10);

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
    api: Arc<RemoteApi>,
    credential: Option<String>,
}

/// The newest tunnel of a cluster.
enum NewestTunnel {
    Open(OpenTunnel),
    EndedAt(Instant),
}

impl NewestTunnel {
    fn open(&self) -> Option<&OpenTunnel> {
        match self {
            Self::Open(open) => Some(open),
            Self::EndedAt(_) => None,
        }
    }
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
    newest: Mutex<AHashMap<String, NewestTunnel>>,
    /// Marked as changed when a tunnel was opened or has ended.
    changed: watch::Sender<()>,
}

impl Default for AgentTunnels {
    fn default() -> Self {
        Self {
            replica: Alphanumeric.sample_string(&mut rand::rng(), REPLICA_ID_LENGTH),
            newest: Mutex::default(),
            changed: watch::Sender::default(),
        }
    }
}

impl AgentTunnels {
    /// A name of this replica, by which agents know where they have tunnels.
    pub fn replica(&self) -> &str {
        &self.replica
    }

    pub fn has_tunnel(&self, cluster: &str) -> bool {
        let newest = self.newest.lock();
        newest.get(cluster).and_then(NewestTunnel::open).is_some()
    }

    pub(crate) fn get(&self, cluster: &str) -> Option<Arc<ClusterProxyBackend>> {
        let newest = self.newest.lock();
        let open = newest.get(cluster).and_then(NewestTunnel::open);
        open.map(|open| Arc::clone(&open.backend))
    }

    /// Notices when a tunnel is opened, and when one ends.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Whether a cluster has a tunnel, or has lost it so lately that the agent may come back.
    pub fn is_reachable(&self, cluster: &str) -> bool {
        match self.newest.lock().get(cluster) {
            Some(NewestTunnel::Open(_)) => true,
            Some(NewestTunnel::EndedAt(end)) => end.elapsed() < TUNNEL_RETURN_TIME,
            None => false,
        }
    }

    /// When the next cluster that has lost its tunnel ceases to be reachable.
    pub fn next_unreachable_at(&self) -> Option<Instant> {
        let newest = self.newest.lock();
        let ends = newest.values().filter_map(|tunnel| match tunnel {
            NewestTunnel::EndedAt(end) => Some(*end + TUNNEL_RETURN_TIME),
            NewestTunnel::Open(_) => None,
        });
        let now = Instant::now();
        ends.filter(|at| *at > now).min()
    }

    /// A client of the cluster as the user of the controllers, and the backend with which it shares the
    /// tunnel, once there is one.
    pub(crate) async fn wait_for_api(
        &self,
        cluster: &str,
    ) -> (Arc<ClusterProxyBackend>, Arc<RemoteApi>) {
        let mut changes = self.subscribe();
        loop {
            let open = {
                let newest = self.newest.lock();
                let open = newest.get(cluster).and_then(NewestTunnel::open);
                open.map(|open| (Arc::clone(&open.backend), Arc::clone(&open.api)))
            };
            if let Some(open) = open {
                return open;
            }
            // The sender is ours, and so not gone.
            let _ = changes.changed().await;
        }
    }

    /// Whether a tunnel with this credential may be opened; counts one that may not.
    pub fn admits(&self, cluster: &str, credential: Option<&str>) -> bool {
        Self::is_admitted(&self.newest.lock(), cluster, credential)
    }

    fn is_admitted(
        newest: &AHashMap<String, NewestTunnel>,
        cluster: &str,
        credential: Option<&str>,
    ) -> bool {
        let admitted = newest
            .get(cluster)
            .and_then(NewestTunnel::open)
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
        let (forwarder, api) = match clients_of(tunnel, cluster) {
            Ok(clients) => clients,
            Err(error) => {
                tracing::warn!(cluster, %error, "the tunnel cannot be used");
                return tasks.stop().await;
            }
        };
        let endpoint = MemberEndpoint::beside_agent(cluster);
        let shutdown = tasks.shutdown().clone();
        let backend = ClusterProxyBackend::new(endpoint, forwarder, MAX_TUNNEL_STREAMS, tasks);
        let backend = Arc::new(backend);
        let open = OpenTunnel {
            backend: Arc::clone(&backend),
            api: Arc::new(api),
            credential,
        };
        if !self.insert(cluster, open) {
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
    fn insert(&self, cluster: &str, tunnel: OpenTunnel) -> bool {
        let mut newest = self.newest.lock();
        if !Self::is_admitted(&newest, cluster, tunnel.credential.as_deref()) {
            return false;
        }
        let former = newest.insert(cluster.to_owned(), NewestTunnel::Open(tunnel));
        if let Some(NewestTunnel::Open(former)) = former {
            former.backend.shutdown().trigger();
        }
        let metrics = &*METRIC_FAMILIES;
        metrics.connected.with_label_values([cluster]).set(1);
        metrics.opened.with_label_values([cluster]).inc();
        // The series exists before the first refusal, so that its increase is seen.
        metrics.refusals.with_label_values([cluster]);
        self.changed.send_replace(());
        true
    }

    /// Removes this tunnel; one that has replaced it stays.
    fn remove(&self, cluster: &str, backend: &Arc<ClusterProxyBackend>) {
        let mut newest = self.newest.lock();
        let open = newest.get(cluster).and_then(NewestTunnel::open);
        if open.is_some_and(|open| Arc::ptr_eq(&open.backend, backend)) {
            newest.insert(cluster.to_owned(), NewestTunnel::EndedAt(Instant::now()));
            let connected = &METRIC_FAMILIES.connected;
            connected.with_label_values([cluster]).set(0);
            self.changed.send_replace(());
        }
    }

    /// Closes the tunnel of a cluster that was deleted, and forgets its metrics.
    pub(crate) fn forget(&self, cluster: &str) {
        let mut newest = self.newest.lock();
        if let Some(NewestTunnel::Open(former)) = newest.remove(cluster) {
            former.backend.shutdown().trigger();
        }
        METRIC_FAMILIES.refusals.remove_label_values([cluster]);
        METRIC_FAMILIES.connected.remove_label_values([cluster]);
        METRIC_FAMILIES.opened.remove_label_values([cluster]);
        self.changed.send_replace(());
    }
}

/// The clients that share a tunnel: for the requests of users, and for those of the control plane.
fn clients_of(
    tunnel: TunnelClient,
    cluster: &str,
) -> Result<(RequestForwarder, RemoteApi), RestConfigError> {
    let controllers = ImpersonationConfig {
        user: UserInfo::karmada_controllers().name,
        ..ImpersonationConfig::default()
    };
    let forwarder = RequestForwarder::through_tunnel(tunnel.clone(), cluster)?;
    let api = RemoteApi::through_tunnel(tunnel, cluster, &controllers)?;
    Ok((forwarder, api))
}
