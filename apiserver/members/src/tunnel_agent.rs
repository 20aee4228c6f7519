//! The agent's side of tunnels: keeps one open to every replica of the control plane.
//!
//! The agent knows one address, behind which a load balancer may distribute connections. It
//! names the replicas to which it has tunnels in each request for another, and a replica among
//! them refuses. While all replicas that it meets refuse, it asks less and less often; a lost
//! tunnel is replaced at once, and a replica that asks for one ([`TunnelAgentHandle::follow_requests`]) is
//! looked for at once.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use client::remote::{RestConfig, TunnelDialError, TunnelDialer, TunnelServer, TunnelStream};
use client::{Informer, TaskGroup};
use flotilla_metrics::{Counter, Gauge, MetricVec};
use karmada_api::Cluster;
use karmada_api::resources::CLUSTERS;
use karmada_api::well_known_keys::TUNNEL_REQUESTED_BY;
use machinery::ExponentialBackoff;
use rand::Rng;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// The subresource of a Cluster that accepts tunnels. Its name is one that kube-apiserver takes
/// for long-running, so that a host in front neither counts nor ends tunnels.
pub const TUNNEL_SUBRESOURCE: &str = "attach";

/// The delay before the search for another replica.
const SEARCH_BACKOFF: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// The delay before the next attempt after a failure.
const RECONNECT_BACKOFF: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(200), Duration::from_secs(10));
/// A tunnel that lasts so long was no failure.
const STABLE_AFTER: Duration = Duration::from_secs(5);
/// The most replicas to which an agent has tunnels.
const MAX_REPLICAS: usize = 16;

struct TunnelAgentMetrics {
    open: Gauge,
    dials: MetricVec<Counter, 1>,
    streams: Gauge,
}

static METRICS: LazyLock<TunnelAgentMetrics> = LazyLock::new(|| {
    let of = flotilla_metrics::process_registry();
    TunnelAgentMetrics {
        open: of.gauge(
            "flotilla_agent_open_tunnels",
            "Tunnels that the agent has to replicas of the control plane.",
        ),
        dials: of.counters(
            "flotilla_agent_tunnel_dials_total",
            "Attempts of the agent to open a tunnel: opened, attached (the replica has one already) or failed.",
            ["result"],
        ),
        streams: of.gauge(
            "flotilla_agent_tunnel_streams",
            "Requests, watches and upgraded connections in the agent's tunnels.",
        ),
    }
});

struct EndedTunnel {
    replica: String,
    lasted: Duration,
}

/// The tunnels of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentTunnelState {
    /// The number of replicas to which tunnels are open.
    pub replicas: usize,
    /// Why the last attempt failed, if there is no tunnel.
    pub error: String,
}

/// Reports on the tunnels of a running agent, and directs them.
pub struct TunnelAgentHandle {
    pub state: watch::Receiver<AgentTunnelState>,
    requested: watch::Sender<String>,
}

impl TunnelAgentHandle {
    /// Looks for the replicas that ask for a tunnel in the agent's Cluster.
    pub fn follow_requests(self, clusters: &Informer) {
        clusters.add_event_handler(move |change| {
            let cluster = change.new.and_then(|new| new.decode::<Cluster>().ok());
            let annotations = cluster.as_ref().map(|c| &c.metadata.annotations);
            if let Some(replica) = annotations.and_then(|all| all.get(TUNNEL_REQUESTED_BY)) {
                self.request(replica);
            }
        });
    }

    /// Looks for this replica of the control plane, unless it was requested just before.
    fn request(&self, replica: &str) {
        self.requested.send_if_modified(|last| {
            let other = last != replica;
            if other {
                replica.clone_into(last);
            }
            other
        });
    }
}

/// Keeps tunnels open for an agent.
struct TunnelAgent {
    dialer: TunnelDialer,
    server: Arc<TunnelServer>,
    /// The number of tunnels by replica: more than one while a lost one has not ended yet.
    attached: BTreeMap<String, usize>,
    ended_sender: mpsc::UnboundedSender<EndedTunnel>,
    ended: mpsc::UnboundedReceiver<EndedTunnel>,
    search: ExponentialBackoff,
    reconnect: ExponentialBackoff,
    state: watch::Sender<AgentTunnelState>,
    requested: watch::Receiver<String>,
    tasks: TaskGroup,
}

/// Opens the tunnels of the agent of a cluster, and keeps them open until `tasks` are stopped.
/// The error says which of the configurations cannot be used.
pub fn run_agent_tunnels(
    cluster: &str,
    control_plane: RestConfig,
    member: RestConfig,
    tasks: &TaskGroup,
) -> Result<TunnelAgentHandle, String> {
    let (group, version, resource) = (&CLUSTERS.group, &CLUSTERS.version, &CLUSTERS.resource);
    let path = format!("/apis/{group}/{version}/{resource}/{cluster}/{TUNNEL_SUBRESOURCE}");
    let dialer = TunnelDialer::new(control_plane, &path, tasks).map_err(|e| e.to_string())?;
    let streams = METRICS.streams.clone();
    let server = TunnelServer::new(cluster, member, streams, tasks).map_err(|e| e.to_string())?;
    let (ended_sender, ended) = mpsc::unbounded_channel();
    let (state_sender, state) = watch::channel(AgentTunnelState::default());
    let (requested, requests) = watch::channel(String::new());
    let mut agent = TunnelAgent {
        dialer,
        server,
        attached: BTreeMap::new(),
        ended_sender,
        ended,
        search: SEARCH_BACKOFF,
        reconnect: RECONNECT_BACKOFF,
        state: state_sender,
        requested: requests,
        tasks: tasks.child(),
    };
    let shutdown = tasks.shutdown().clone();
    tasks.spawn(async move {
        shutdown.run_until_triggered(agent.run()).await;
    });
    Ok(TunnelAgentHandle { state, requested })
}

/// Resolves when a replica is requested that has no tunnel.
async fn next_request(requested: &mut watch::Receiver<String>, attached: &BTreeMap<String, usize>) {
    while requested.changed().await.is_ok() {
        if !attached.contains_key(&*requested.borrow_and_update()) {
            return;
        }
    }
    // The handle is gone, and with it all requests.
    std::future::pending().await
}

impl TunnelAgent {
    async fn run(&mut self) {
        loop {
            let delay = self.dial().await;
            let jitter = rand::rng().random_range(1.0..1.5);
            let next = Instant::now() + delay.mul_f64(jitter);
            tokio::select! {
                () = tokio::time::sleep_until(next), if self.attached.len() < MAX_REPLICAS => {}
                Some(lost) = self.ended.recv() => self.wait_after_loss(lost).await,
                () = next_request(&mut self.requested, &self.attached) => self.search.reset(),
            }
        }
    }

    /// Tries to open one tunnel; returns the delay before the next attempt.
    async fn dial(&mut self) -> Duration {
        let attached: Vec<String> = self.attached.keys().cloned().collect();
        let dialed = self.dialer.dial(&attached).await;
        let result = match &dialed {
            Ok(_) => "opened",
            Err(TunnelDialError::AlreadyAttached) => "attached",
            Err(TunnelDialError::Failed(_)) => "failed",
        };
        METRICS.dials.with_label_values([result]).inc();
        match dialed {
            Ok(tunnel) => {
                self.serve(tunnel);
                self.search.reset();
                self.search.next_delay()
            }
            Err(TunnelDialError::AlreadyAttached) => self.search.next_delay(),
            Err(TunnelDialError::Failed(error)) => {
                tracing::warn!(%error, "no tunnel to the control plane");
                self.report(error);
                self.reconnect.next_delay()
            }
        }
    }

    fn serve(&mut self, tunnel: TunnelStream) {
        let replica = tunnel.replica.clone();
        tracing::info!(replica, "tunnel to the control plane opened");
        *self.attached.entry(replica.clone()).or_default() += 1;
        self.report(String::new());
        let (server, tasks) = (Arc::clone(&self.server), self.tasks.child());
        let sender = self.ended_sender.clone();
        let start = Instant::now();
        METRICS.open.inc();
        self.tasks.spawn(async move {
            let served = server.serve(tunnel, &tasks).await;
            METRICS.open.dec();
            if let Err(error) = served {
                tracing::info!(replica, %error, "tunnel to the control plane lost");
            }
            tasks.stop().await;
            let lasted = start.elapsed();
            // Nobody receives it when the agent stops.
            let _ = sender.send(EndedTunnel { replica, lasted });
        });
    }

    /// `error` counts if no tunnel is open.
    fn report(&self, error: String) {
        let replicas = self.attached.len();
        let error = if replicas == 0 { error } else { String::new() };
        let state = AgentTunnelState { replicas, error };
        self.state.send_if_modified(|last| {
            let changed = *last != state;
            *last = state;
            changed
        });
    }

    async fn wait_after_loss(&mut self, ended: EndedTunnel) {
        if let Some(count) = self.attached.get_mut(&ended.replica) {
            *count -= 1;
            if *count == 0 {
                self.attached.remove(&ended.replica);
                self.report("the tunnel was lost".to_owned());
            }
        }
        if ended.lasted >= STABLE_AFTER {
            self.reconnect.reset();
        }
        self.search.reset();
        let jitter = rand::rng().random_range(0.5..1.5);
        tokio::time::sleep(self.reconnect.next_delay().mul_f64(jitter)).await;
    }
}
