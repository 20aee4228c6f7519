//! The agent's side of tunnels: keeps one open to every replica of the control plane.
//!
//! The agent knows one address, behind which a load balancer may distribute connections. It
//! names the replicas to which it has tunnels in each request for another, and a replica among
//! them refuses. While all replicas that it meets refuse, it asks less and less often; a lost
//! tunnel is replaced at once.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use client::TaskGroup;
use client::remote::{RestConfig, TunnelDialError, TunnelDialer, TunnelServer, TunnelStream};
use flotilla_metrics::{Counter, Gauge, MetricVec};
use machinery::ExponentialBackoff;
use openapi::karmada::resources::CLUSTERS;
use rand::Rng;
use tokio::sync::mpsc;
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
    tasks: TaskGroup,
}

/// Opens the tunnels of the agent of a cluster, and keeps them open until `tasks` are stopped.
/// The error says which of the configurations cannot be used.
pub fn run_agent_tunnels(
    cluster: &str,
    control_plane: RestConfig,
    member: RestConfig,
    tasks: &TaskGroup,
) -> Result<(), String> {
    let (group, version, resource) = (&CLUSTERS.group, &CLUSTERS.version, &CLUSTERS.resource);
    let path = format!("/apis/{group}/{version}/{resource}/{cluster}/{TUNNEL_SUBRESOURCE}");
    let dialer = TunnelDialer::new(control_plane, &path, tasks).map_err(|e| e.to_string())?;
    let streams = METRICS.streams.clone();
    let server = TunnelServer::new(cluster, member, streams, tasks).map_err(|e| e.to_string())?;
    let (ended_sender, ended) = mpsc::unbounded_channel();
    let mut agent = TunnelAgent {
        dialer,
        server,
        attached: BTreeMap::new(),
        ended_sender,
        ended,
        search: SEARCH_BACKOFF,
        reconnect: RECONNECT_BACKOFF,
        tasks: tasks.child(),
    };
    let shutdown = tasks.shutdown().clone();
    tasks.spawn(async move {
        shutdown.run_until_triggered(agent.run()).await;
    });
    Ok(())
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
                self.reconnect.next_delay()
            }
        }
    }

    fn serve(&mut self, tunnel: TunnelStream) {
        let replica = tunnel.replica.clone();
        tracing::info!(replica, "tunnel to the control plane opened");
        *self.attached.entry(replica.clone()).or_default() += 1;
        let (server, tasks) = (Arc::clone(&self.server), self.tasks.child());
        let ended = self.ended_sender.clone();
        let began = Instant::now();
        METRICS.open.inc();
        self.tasks.spawn(async move {
            let served = server.serve(tunnel, &tasks).await;
            METRICS.open.dec();
            if let Err(error) = served {
                tracing::info!(replica, %error, "tunnel to the control plane lost");
            }
            tasks.stop().await;
            let lasted = began.elapsed();
            // Nobody receives it when the agent stops.
            let _ = ended.send(EndedTunnel { replica, lasted });
        });
    }

    async fn wait_after_loss(&mut self, lost: EndedTunnel) {
        if let Some(count) = self.attached.get_mut(&lost.replica) {
            *count -= 1;
            if *count == 0 {
                self.attached.remove(&lost.replica);
            }
        }
        if lost.lasted >= STABLE_AFTER {
            self.reconnect.reset();
        }
        self.search.reset();
        let jitter = rand::rng().random_range(0.5..1.5);
        tokio::time::sleep(self.reconnect.next_delay().mul_f64(jitter)).await;
    }
}
