//! The command `flotilla join`, which registers a cluster in push mode.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use client::remote::{RemoteApi, RestConfig};
use clusters::JoinSpec;
use flotilla_runtime::{ShutdownToken, TaskGroup};

use crate::kubeconfig_flags::{ControlPlaneFlagNamesAndHelp, KubeconfigArgs, load_cluster_config};
use crate::output;

/// Register a cluster to the control plane with Push mode.
#[derive(Args)]
#[command(
    after_help = "Example:\n  flotilla join m1 --cluster-kubeconfig m1.kubeconfig --cluster-region eu"
)]
pub struct JoinArgs {
    /// The name of the cluster.
    name: String,
    /// Path of the cluster's kubeconfig.
    #[arg(long, value_name = "FILE")]
    cluster_kubeconfig: PathBuf,
    /// Context name of the cluster's kubeconfig; the current context by default.
    #[arg(long, value_name = "CONTEXT")]
    cluster_context: Option<String>,
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlagNamesAndHelp>,
    /// Namespace in the control plane and in the cluster where secrets are stored.
    #[arg(long, default_value = "karmada-cluster")]
    cluster_namespace: String,
    /// Provider of the joining cluster.
    #[arg(long, value_name = "NAME")]
    cluster_provider: Option<String>,
    /// The region of the joining cluster.
    #[arg(long, value_name = "NAME")]
    cluster_region: Option<String>,
    /// The zones of the joining cluster.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    cluster_zones: Vec<String>,
    /// Run the command in dry-run mode, without making any server requests that write.
    #[arg(long)]
    dry_run: bool,
}

pub async fn run(arguments: JoinArgs) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let control = arguments.control.connect(&tasks)?;
    let config = load_cluster_config(&arguments.cluster_kubeconfig, arguments.cluster_context)?;
    let spec = JoinSpec {
        name: arguments.name,
        endpoint: endpoint(&config),
        insecure_skip_tls_verification: config.insecure_skip_tls_verify,
        proxy_url: config
            .proxy
            .as_ref()
            .map(|proxy| proxy.as_text().to_owned()),
        ca_bundle: config
            .ca
            .clone()
            .map(String::from_utf8)
            .transpose()
            .context("the cluster's CA is not PEM")?,
        namespace: arguments.cluster_namespace,
        provider: arguments.cluster_provider,
        region: arguments.cluster_region,
        zones: arguments.cluster_zones,
        dry_run: arguments.dry_run,
    };
    let cluster = RemoteApi::new(config, &tasks)?;
    let joined = Box::pin(clusters::join(&*control, &cluster, &spec, &|text| {
        output::print_progress(text)
    }))
    .await;
    tasks.stop().await;
    joined?;
    output::print_line(format!(
        "cluster({}) is joined successfully{}",
        spec.name,
        if spec.dry_run { " (dry run)" } else { "" }
    ));
    Ok(())
}

fn endpoint(config: &RestConfig) -> String {
    config.server.to_string().trim_end_matches('/').to_owned()
}
