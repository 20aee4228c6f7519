//! The command `flotilla unjoin`, which removes a cluster from the control plane.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use client::remote::RemoteApi;
use client::{Api, ShutdownToken, TaskGroup};
use clusters::UnjoinSpec;
use machinery::duration;

use crate::kubeconfig_flags::{ControlPlaneFlags, KubeconfigArgs, load_named_cluster_config};
use crate::output;

/// Remove a cluster from the control plane, and the objects that were propagated to it.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla unjoin m1 --cluster-kubeconfig m1.kubeconfig --dry-run\n  flotilla unjoin m1 --cluster-kubeconfig m1.kubeconfig --wait 2m"
)]
pub struct UnjoinArgs {
    /// The name of the cluster.
    #[arg(value_name = "CLUSTER")]
    name: String,
    /// Path of the cluster's kubeconfig; with it the service accounts created there are
    /// removed too.
    #[arg(long, value_name = "FILE")]
    cluster_kubeconfig: Option<PathBuf>,
    /// Context name of the cluster's kubeconfig; by default the one with the name of the
    /// cluster, or the current context.
    #[arg(long, value_name = "CONTEXT")]
    cluster_context: Option<String>,
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlags>,
    /// Namespace in the control plane and in the cluster where secrets are stored.
    #[arg(long, default_value = "karmada-cluster")]
    cluster_namespace: String,
    /// After the timeout, remove the finalizers of the cluster's objects; what cannot be
    /// deleted in the member is left there.
    #[arg(long)]
    force: bool,
    /// How long to wait until the cluster is removed, as in 60s or 2m.
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = wait_duration)]
    wait: Duration,
    /// Run the command in dry-run mode, without making any server requests that write.
    #[arg(long)]
    dry_run: bool,
}

fn wait_duration(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        Duration::ZERO => Err("must be a positive duration, e.g. 1m0s".to_owned()),
        wait => Ok(wait),
    }
}

pub async fn run(arguments: UnjoinArgs) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let control = arguments.control.connect(&tasks)?;
    let cluster = match &arguments.cluster_kubeconfig {
        Some(file) => {
            let context = arguments.cluster_context.clone();
            let config = load_named_cluster_config(file, context, &arguments.name)?;
            Some(RemoteApi::new(config, &tasks)?)
        }
        None => None,
    };
    let spec = UnjoinSpec {
        name: arguments.name,
        namespace: arguments.cluster_namespace,
        force: arguments.force,
        timeout: arguments.wait,
        dry_run: arguments.dry_run,
    };
    let cluster = cluster.as_ref().map(|c| c as &dyn Api);
    let unjoined = Box::pin(clusters::unjoin(&*control, cluster, &spec, &|text| {
        output::print_progress(text)
    }))
    .await;
    tasks.stop().await;
    for line in unjoined?.lines() {
        output::print_line(line);
    }
    let dry_run = if spec.dry_run { " (dry run)" } else { "" };
    output::print_line(format!(
        "cluster({}) is unjoined successfully{dry_run}",
        spec.name
    ));
    Ok(())
}
