//! `flotilla unjoin`

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use client::Api;
use client::remote::Remote;
use clusters::UnjoinSpec;
use flotilla_runtime::{Shutdown, Tasks};

use crate::join::{Control, cluster_config};
use crate::output;

/// Remove a cluster from the control plane, and what was propagated to it.
#[derive(Args)]
#[command(after_help = "Example:\n  flotilla unjoin m1 --cluster-kubeconfig m1.kubeconfig")]
pub(crate) struct Arguments {
    name: String,
    /// Kubeconfig of the cluster: with it the accounts made there are removed too.
    #[arg(long, value_name = "FILE")]
    cluster_kubeconfig: Option<PathBuf>,
    /// Context in that kubeconfig; the current one by default.
    #[arg(long, value_name = "CONTEXT")]
    cluster_context: Option<String>,
    #[command(flatten)]
    control: Control,
    /// Namespace of accounts and secrets.
    #[arg(long, default_value = "karmada-cluster")]
    cluster_namespace: String,
    /// Strip finalizers when the time is over.
    #[arg(long)]
    force: bool,
    /// Seconds to wait until the cluster is gone.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    wait: u64,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let tasks = Tasks::new(Shutdown::new());
    let control = arguments.control.connect(&tasks)?;
    let cluster = match &arguments.cluster_kubeconfig {
        Some(file) => Some(Remote::new(
            cluster_config(file, arguments.cluster_context)?,
            &tasks,
        )?),
        None => None,
    };
    let spec = UnjoinSpec {
        name: arguments.name,
        namespace: arguments.cluster_namespace,
        force: arguments.force,
        wait: Duration::from_secs(arguments.wait),
    };
    let cluster = cluster.as_ref().map(|c| c as &dyn Api);
    let gone = Box::pin(clusters::unjoin(&*control, cluster, &spec, &|text| {
        output::progress(text)
    }))
    .await;
    tasks.stop().await;
    gone?;
    output::line(format!("cluster({}) is unjoined successfully", spec.name));
    Ok(())
}
