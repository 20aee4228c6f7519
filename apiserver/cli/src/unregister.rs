//! The command `flotilla unregister`, which removes a cluster in pull mode.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use client::remote::RemoteApi;
use client::remote::kubeconfig::KubeconfigLoadingRules;
use client::{ShutdownToken, TaskGroup};
use clusters::register::{
    AGENT_NAME, AGENT_NAMESPACE, UnregisterSpec, agent_kubeconfig, unregister,
};
use machinery::duration;

use crate::kubeconfig_flags::load_cluster_config;
use crate::output;

/// Remove a pull mode cluster from the control plane, and the agent from the cluster.
#[derive(Args)]
#[command(
    after_help = "Example:\n  flotilla unregister m1 --cluster-kubeconfig m1.kubeconfig --karmada-config plane.kubeconfig"
)]
pub struct UnregisterArgs {
    /// The name of the cluster.
    #[arg(value_name = "CLUSTER")]
    name: String,
    /// Path of the cluster's kubeconfig.
    #[arg(long, value_name = "FILE")]
    cluster_kubeconfig: PathBuf,
    /// Context name of the cluster's kubeconfig; the current context by default.
    #[arg(long, value_name = "CONTEXT")]
    cluster_context: Option<String>,
    /// Kubeconfig of the control plane; that of the agent by default, which cannot delete the
    /// agent's roles in the control plane.
    #[arg(long, value_name = "FILE")]
    karmada_config: Option<PathBuf>,
    /// Context of that kubeconfig; the current context by default.
    #[arg(long, value_name = "CONTEXT", requires = "karmada_config")]
    karmada_context: Option<String>,
    /// Namespace the agent is deployed in.
    #[arg(short, long, value_name = "NAMESPACE", default_value = AGENT_NAMESPACE)]
    namespace: String,
    /// Deployment name of the agent, whose kubeconfig is used without --karmada-config.
    #[arg(long, value_name = "NAME", default_value = AGENT_NAME)]
    agent_name: String,
    /// Namespace in the control plane and in the cluster where secrets are stored.
    #[arg(long, value_name = "NAMESPACE", default_value = "karmada-cluster")]
    cluster_namespace: String,
    /// How long to wait until the cluster is removed.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    wait: Duration,
    /// Remove the finalizers of the cluster's objects after the timeout.
    #[arg(long)]
    force: bool,
    /// Run the command in dry-run mode, without making any server requests that write.
    #[arg(long)]
    dry_run: bool,
}

pub async fn run(arguments: UnregisterArgs) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let result = Box::pin(run_in(&arguments, &tasks)).await;
    tasks.stop().await;
    result
}

async fn run_in(arguments: &UnregisterArgs, tasks: &TaskGroup) -> anyhow::Result<()> {
    let context = arguments.cluster_context.clone();
    let member = load_cluster_config(Some(&arguments.cluster_kubeconfig), context)?;
    let member = RemoteApi::new(member, tasks)?;
    let config = match &arguments.karmada_config {
        Some(file) => KubeconfigLoadingRules {
            context: arguments.karmada_context.clone(),
            ..KubeconfigLoadingRules::from_file(file)
        }
        .load()?,
        None => {
            let (namespace, agent) = (&arguments.namespace, &arguments.agent_name);
            let kubeconfig = agent_kubeconfig(&member, namespace, agent).await;
            let kubeconfig =
                kubeconfig.context("failed to get karmada config from karmada-agent deployment")?;
            KubeconfigLoadingRules::parse_context(&kubeconfig.text, kubeconfig.context.as_deref())?
        }
    };
    let control = RemoteApi::new(config, tasks)?;
    let spec = UnregisterSpec {
        name: arguments.name.clone(),
        cluster_namespace: arguments.cluster_namespace.clone(),
        agent_namespace: arguments.namespace.clone(),
        delete_roles: arguments.karmada_config.is_some(),
        force: arguments.force,
        timeout: arguments.wait,
        dry_run: arguments.dry_run,
    };
    let progress = |text: &str| output::print_progress(text);
    let report = unregister(&control, &member, &spec, &progress).await?;
    for line in report.lines() {
        output::print_line(line);
    }
    let dry_run = if spec.dry_run { " (dry run)" } else { "" };
    output::print_line(format!(
        "cluster({}) is unregistered successfully{dry_run}",
        spec.name
    ));
    Ok(())
}
