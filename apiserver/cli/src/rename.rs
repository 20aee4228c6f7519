//! The command `flotilla rename`, which gives a cluster another name.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use client::remote::RemoteApi;
use client::{Api, ShutdownToken, TaskGroup};
use clusters::{RenameReport, RenameSpec, rename_cluster};
use machinery::duration;

use crate::kubeconfig_flags::load_named_cluster_config;
use crate::kubectl::ControlPlaneArgs;
use crate::member_clusters::member_config;
use crate::output;

/// Give a cluster another name, without a change of what runs there.
#[derive(Args)]
#[command(
    after_help = "Example:\n  flotilla rename cluster edge edge-eu --rewrite-policies --dry-run"
)]
pub struct RenameArgs {
    #[command(subcommand)]
    object: RenamedObject,
}

#[derive(Subcommand)]
enum RenamedObject {
    Cluster(Box<RenameClusterArgs>),
}

/// Give a cluster in push mode another name.
///
/// A Cluster of the new name is created with credentials of its own, the bindings of the old name
/// move to it, its Works adopt what the old ones carried, and the old Cluster is deleted. Nothing is
/// deleted or created anew in the member. Policies and other objects that name the cluster are
/// listed and refused, unless --rewrite-policies changes them. If the command is interrupted, run it
/// again.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla rename cluster edge edge-eu --dry-run --rewrite-policies\n  flotilla rename cluster edge edge-eu --rewrite-policies"
)]
struct RenameClusterArgs {
    /// The name of the cluster.
    #[arg(value_name = "OLD")]
    old: String,
    /// Its new name.
    #[arg(value_name = "NEW")]
    new: String,
    /// Change policies that name the cluster.
    #[arg(long)]
    rewrite_policies: bool,
    /// Path of the cluster's kubeconfig; by default the cluster is reached through the
    /// cluster proxy.
    #[arg(long, value_name = "FILE")]
    cluster_kubeconfig: Option<PathBuf>,
    /// Context name of the cluster's kubeconfig; by default the one with the old name of the
    /// cluster, or the current context.
    #[arg(long, value_name = "CONTEXT")]
    cluster_context: Option<String>,
    /// Namespace in the control plane and in the cluster where secrets are stored.
    #[arg(long, default_value = "karmada-cluster")]
    cluster_namespace: String,
    /// How long to wait for each step of the control plane.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    timeout: Duration,
    /// Run the command in dry-run mode, without making any server requests that write.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    control: ControlPlaneArgs,
}

pub async fn run(arguments: RenameArgs) -> anyhow::Result<()> {
    let RenamedObject::Cluster(arguments) = arguments.object;
    let tasks = TaskGroup::new(ShutdownToken::new());
    let renamed = Box::pin(rename(&arguments, &tasks)).await;
    tasks.stop().await;
    let report = renamed?;
    let RenameClusterArgs { old, new, .. } = &*arguments;
    for object in &report.rewritten {
        output::print_line(match arguments.dry_run {
            true => format!("{object} would name {new}"),
            false => format!("{object} names {new}"),
        });
    }
    output::print_line(match arguments.dry_run {
        true => format!(
            "cluster({old}) can be renamed to {new}; {} bindings would move (dry run)",
            report.bindings
        ),
        false => format!(
            "cluster({old}) is renamed to {new}; {} bindings have moved",
            report.bindings
        ),
    });
    Ok(())
}

async fn rename(arguments: &RenameClusterArgs, tasks: &TaskGroup) -> anyhow::Result<RenameReport> {
    let config = arguments.control.load_config()?;
    let control = RemoteApi::new(config.clone(), tasks)?;
    let member = |name: &str| -> anyhow::Result<RemoteApi> {
        let config = match &arguments.cluster_kubeconfig {
            None => member_config(&config, name)?,
            Some(file) => {
                let context = arguments.cluster_context.clone();
                load_named_cluster_config(file, context, &arguments.old)?
            }
        };
        Ok(RemoteApi::new(config, tasks)?)
    };
    let (old_member, new_member) = (member(&arguments.old)?, member(&arguments.new)?);
    let members: [&dyn Api; 2] = [&old_member, &new_member];
    let spec = RenameSpec {
        old: arguments.old.clone(),
        new: arguments.new.clone(),
        namespace: arguments.cluster_namespace.clone(),
        rewrite_policies: arguments.rewrite_policies,
        timeout: arguments.timeout,
        dry_run: arguments.dry_run,
    };
    let progress = |text: &str| output::print_progress(text);
    Ok(Box::pin(rename_cluster(&control, members, &spec, &progress)).await?)
}
