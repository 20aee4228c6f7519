//! The command `flotilla member`, which runs a simulated member cluster.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use flotilla_cli::output;
use flotilla_runtime::ControllerContext;
use hollow::HollowCluster;
use machinery::time::{Clock, SystemClock};
use simulated_member::hollow_metrics_providers;

use crate::controller_manager::{self, LeaderContext};
use crate::logs;
use crate::signals::TerminationSignals;
use crate::standalone::{StandaloneServer, StandaloneServerOptions};
use crate::startup::StartupLogFields;
use crate::storage_engine::StorageBackendConfig;

/// The store of a simulated member, whose writes do not wait for fsync.
const STORE: StorageBackendConfig = StorageBackendConfig::Embedded { sync: false };

/// Run a simulated member cluster: an API server with hollow nodes, whose pods
/// become Ready without containers.
#[derive(Args)]
#[command(
    after_help = "Example:\n  flotilla member --dir /tmp/m1 --listen 127.0.0.1:0 --nodes 3\n  flotilla join m1 --cluster-kubeconfig /tmp/m1/kubeconfig --kubeconfig CONTROL_PLANE"
)]
pub(crate) struct MemberArgs {
    /// The data directory; it also stores the port.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The address to serve on; port 0 selects a free port, and the same one at the next
    /// start.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    #[command(flatten)]
    size: HollowClusterArgs,
    #[command(flatten)]
    pub(crate) logs: logs::LoggingArgs,
}

/// The size and speed of a hollow cluster.
#[derive(Args, Clone)]
pub(crate) struct HollowClusterArgs {
    /// The number of nodes.
    #[arg(long, default_value_t = 10)]
    nodes: usize,
    /// CPU of a node, as a quantity.
    #[arg(long, default_value = "64")]
    node_cpu: String,
    /// Memory of a node, as a quantity.
    #[arg(long, default_value = "256Gi")]
    node_memory: String,
    /// Maximum number of pods of a node.
    #[arg(long, default_value_t = 500)]
    node_pods: u32,
    /// Milliseconds until a scheduled pod is Ready.
    #[arg(long, default_value_t = 100, value_name = "MILLISECONDS")]
    ready_after: u64,
    /// Run nodes, a hollow kubelet and workload controllers; without them objects are only
    /// stored.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    workloads: bool,
    /// Serve the usage of nodes and pods as metrics.k8s.io, as a cluster with metrics-server
    /// does: each container uses half of what it requests.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    resource_metrics: bool,
    /// Serve custom.metrics.k8s.io and external.metrics.k8s.io, as a cluster with a metrics adapter
    /// does. The values are annotations: custom-metric.flotilla.io/NAME of an object and
    /// external-metric.flotilla.io/NAME of a ConfigMap.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    custom_metrics: bool,
}

impl Default for HollowClusterArgs {
    fn default() -> Self {
        let options = hollow::HollowClusterOptions::default();
        Self {
            nodes: options.nodes,
            node_cpu: options.node_cpu,
            node_memory: options.node_memory,
            node_pods: options.pods_per_node,
            ready_after: 100,
            workloads: true,
            resource_metrics: true,
            custom_metrics: true,
        }
    }
}

/// Starts a simulated member in a directory.
pub(crate) async fn start(
    dir: &Path,
    listen: SocketAddr,
    size: &HollowClusterArgs,
) -> anyhow::Result<StandaloneServer> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let computed_resources = match size.resource_metrics {
        true => hollow_metrics_providers(&clock),
        false => Default::default(),
    };
    let setup = StandaloneServerOptions {
        reuse_port: true,
        federation: false,
        computed_resources,
        annotated_metrics: size.custom_metrics,
        ..StandaloneServerOptions::new(dir, listen, STORE)
    };
    let server = Box::pin(StandaloneServer::start_with_clock(setup, clock))
        .await
        .with_context(|| format!("member in {}", dir.display()))?;
    let context = LeaderContext::without_election(&server).controllers;
    controller_manager::start_kube_controllers(&context, &server.service_account_options()).await?;
    if size.workloads {
        let options = hollow::HollowClusterOptions {
            nodes: size.nodes,
            node_cpu: size.node_cpu.clone(),
            node_memory: size.node_memory.clone(),
            pods_per_node: size.node_pods,
            ready_after: Duration::from_millis(size.ready_after),
            ..hollow::HollowClusterOptions::default()
        };
        let context = ControllerContext {
            control_plane: Arc::clone(&server.api),
            ..context
        };
        HollowCluster::start(&context, options).await?;
    }
    Ok(server)
}

pub(crate) async fn run(arguments: MemberArgs) -> anyhow::Result<()> {
    let mut signals = TerminationSignals::listen()?;
    let starting = start(&arguments.dir, arguments.listen, &arguments.size);
    let Some(server) = signals.run_unless_signaled(starting).await? else {
        return Ok(());
    };
    StartupLogFields {
        mode: "member",
        store: &STORE,
        address: server.address,
        data: &arguments.dir,
        host: None,
        members: 0,
    }
    .log();
    output::print_line(ready_line(&server));
    let ended = tokio::select! {
        () = signals.wait() => Ok(()),
        error = server.wait_for_failure() => Err(error),
    };
    server.stop().await;
    ended
}

/// The line that tells scripts that a server is ready.
pub(crate) fn ready_line(server: &StandaloneServer) -> String {
    format!(
        "ready {} kubeconfig={}",
        server.url,
        server.kubeconfig.display()
    )
}
