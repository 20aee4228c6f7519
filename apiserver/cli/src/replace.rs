//! The command `flotilla replace`, which points the name of a cluster at another cluster.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use client::remote::RemoteApi;
use client::{Api, ResourcePath, ShutdownToken, TaskGroup};
use clusters::{JoinSpec, ReplaceSpec, replace_cluster};
use karmada_api::Cluster;
use karmada_api::resources::CLUSTERS;
use machinery::duration;
use tokio::time::Instant;

use crate::kubeconfig_flags::load_named_cluster_config;
use crate::kubectl::ControlPlaneArgs;
use crate::output;

const READY_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Point the name of a cluster at another cluster.
#[derive(Args)]
#[command(
    after_help = "Example:\n  flotilla replace cluster lost --cluster-kubeconfig replacement.kubeconfig --force --dry-run"
)]
pub struct ReplaceArgs {
    #[command(subcommand)]
    object: ReplacedObject,
}

#[derive(Subcommand)]
enum ReplacedObject {
    Cluster(Box<ReplaceClusterArgs>),
}

/// Point the name of a cluster in push mode at the cluster that replaces it.
///
/// The Cluster gets the endpoint and new credentials of the replacement, and its Works are applied
/// there. Bindings, policies and Works stay as they are. If the command is interrupted, run it
/// again.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla replace cluster lost --cluster-kubeconfig replacement.kubeconfig --force --dry-run\n  flotilla replace cluster lost --cluster-kubeconfig replacement.kubeconfig --force"
)]
struct ReplaceClusterArgs {
    /// The name of the cluster.
    #[arg(value_name = "CLUSTER")]
    name: String,
    /// Path of the replacement's kubeconfig.
    #[arg(long, value_name = "FILE")]
    cluster_kubeconfig: PathBuf,
    /// Context name of that kubeconfig; by default the one with the name of the cluster, or
    /// the current context.
    #[arg(long, value_name = "CONTEXT")]
    cluster_context: Option<String>,
    /// Namespace in the control plane and in the cluster where secrets are stored.
    #[arg(long, default_value = "karmada-cluster")]
    cluster_namespace: String,
    /// Replace a cluster that is Ready. What runs there is left alone.
    #[arg(long)]
    force: bool,
    /// How long to wait until the cluster is Ready.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    timeout: Duration,
    /// Run the command in dry-run mode, without making any server requests that write.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    control: ControlPlaneArgs,
}

pub async fn run(arguments: ReplaceArgs) -> anyhow::Result<()> {
    let ReplacedObject::Cluster(arguments) = arguments.object;
    let tasks = TaskGroup::new(ShutdownToken::new());
    let replaced = Box::pin(replace(&arguments, &tasks)).await;
    tasks.stop().await;
    let id = replaced?;
    let dry_run = if arguments.dry_run { " (dry run)" } else { "" };
    output::print_line(format!(
        "cluster({}) is the cluster with ID {id} now{dry_run}",
        arguments.name
    ));
    Ok(())
}

async fn replace(arguments: &ReplaceClusterArgs, tasks: &TaskGroup) -> anyhow::Result<String> {
    let control = arguments.control.connect(tasks)?;
    let context = arguments.cluster_context.clone();
    let file = &arguments.cluster_kubeconfig;
    let config = load_named_cluster_config(file, context, &arguments.name)?;
    let join = JoinSpec::for_member(&arguments.name, &config).map_err(anyhow::Error::msg)?;
    let spec = ReplaceSpec {
        join: JoinSpec {
            namespace: arguments.cluster_namespace.clone(),
            dry_run: arguments.dry_run,
            ..join
        },
        force: arguments.force,
    };
    let member = RemoteApi::new(config, tasks)?;
    let progress = |text: &str| output::print_progress(text);
    let id = Box::pin(replace_cluster(&*control, &member, &spec, &progress)).await?;
    if !arguments.dry_run {
        wait_until_ready(&*control, &arguments.name, arguments.timeout).await?;
    }
    Ok(id)
}

async fn wait_until_ready(control: &dyn Api, name: &str, timeout: Duration) -> anyhow::Result<()> {
    output::print_progress(format!("waiting until cluster({name}) is Ready"));
    let deadline = Instant::now() + timeout;
    let at = ResourcePath::object(&CLUSTERS, "", name);
    loop {
        let cluster = control.get(at).await.context("the cluster")?;
        if cluster.decode::<Cluster>()?.is_ready() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!(
                "cluster({name}) is not Ready within {} s; `flotilla doctor` says why",
                timeout.as_secs()
            );
        }
        tokio::time::sleep(READY_POLL_INTERVAL).await;
    }
}
