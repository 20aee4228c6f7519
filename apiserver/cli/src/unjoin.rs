//! The command `flotilla unjoin`, which removes a cluster from the control plane.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use client::Api;
use client::remote::RemoteApi;
use clusters::UnjoinSpec;
use flotilla_runtime::{ShutdownToken, TaskGroup};

use crate::kubeconfig_flags::{ControlPlaneFlagNamesAndHelp, KubeconfigArgs, load_cluster_config};
use crate::output;

/// Remove a cluster from the control plane, and the objects that were propagated to it.
#[derive(Args)]
#[command(after_help = "Example:\n  flotilla unjoin m1 --cluster-kubeconfig m1.kubeconfig")]
pub struct UnjoinArgs {
    /// The name of the cluster.
    name: String,
    /// Path of the cluster's kubeconfig; with it the service accounts created there are
    /// removed too.
    #[arg(long, value_name = "FILE")]
    cluster_kubeconfig: Option<PathBuf>,
    /// Context name of the cluster's kubeconfig; the current context by default.
    #[arg(long, value_name = "CONTEXT")]
    cluster_context: Option<String>,
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlagNamesAndHelp>,
    /// Namespace in the control plane and in the cluster where secrets are stored.
    #[arg(long, default_value = "karmada-cluster")]
    cluster_namespace: String,
    /// Remove the finalizers of the cluster's objects after the timeout.
    #[arg(long)]
    force: bool,
    /// Seconds to wait until the cluster is removed.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    wait: u64,
}

pub async fn run(arguments: UnjoinArgs) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let control = arguments.control.connect(&tasks)?;
    let cluster = match &arguments.cluster_kubeconfig {
        Some(file) => Some(RemoteApi::new(
            load_cluster_config(file, arguments.cluster_context)?,
            &tasks,
        )?),
        None => None,
    };
    let spec = UnjoinSpec {
        name: arguments.name,
        namespace: arguments.cluster_namespace,
        force: arguments.force,
        timeout: Duration::from_secs(arguments.wait),
    };
    let cluster = cluster.as_ref().map(|c| c as &dyn Api);
    let unjoined = Box::pin(clusters::unjoin(&*control, cluster, &spec, &|text| {
        output::print_progress(text)
    }))
    .await;
    tasks.stop().await;
    unjoined?;
    output::print_line(format!("cluster({}) is unjoined successfully", spec.name));
    Ok(())
}
