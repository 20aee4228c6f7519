//! The command `flotilla taint`, which updates the taints of clusters.
//!
//! arguments ──[`arguments`]──► [`arguments::TaintUpdate`] ──[`update`]──► taints ──► one patch per cluster

mod arguments;
mod update;

use anyhow::anyhow;
use clap::Args;
use client::{ShutdownToken, TaskGroup};

use crate::cluster_taints::{TaintChange, change_taints};
use crate::kubeconfig_flags::{ControlPlaneFlags, KubeconfigArgs};
use crate::output;

/// Update the taints on one or more clusters.
///
/// A taint is KEY=VALUE:EFFECT or KEY:EFFECT; KEY:EFFECT- removes one taint and KEY- all
/// with this key. The effect must be NoSchedule, PreferNoSchedule or NoExecute.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla taint clusters member1 dedicated=teams:NoSchedule\n  flotilla taint clusters member1 dedicated=others:NoSchedule --overwrite\n  flotilla taint clusters member1 dedicated:NoSchedule-\n  flotilla taint clusters member1 spare:NoSchedule\n  flotilla taint clusters member1 spare-"
)]
pub struct TaintArgs {
    /// The word `clusters`, names of clusters, then taints.
    #[arg(value_name = "clusters NAME ... TAINT ...")]
    arguments: Vec<String>,
    /// Allow taints to be overwritten; otherwise an update of existing taints is refused.
    #[arg(long)]
    overwrite: bool,
    /// Run the command in dry-run mode, without making any server requests that write.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlags>,
}

/// Changes one cluster after the other. A failure does not keep the others from being
/// changed.
pub async fn run(arguments: TaintArgs) -> anyhow::Result<()> {
    let taint_update = arguments::parse(&arguments.arguments)?;
    let tasks = TaskGroup::new(ShutdownToken::new());
    let api = arguments.control.connect(&tasks)?;
    let mut failures = Vec::new();
    for cluster in &taint_update.clusters {
        let change = |taints| {
            let (taints, operation) =
                update::update_taints(cluster, taints, &taint_update, arguments.overwrite)?;
            Ok(TaintChange {
                taints: Some(taints),
                outcome: operation,
            })
        };
        match change_taints(&*api, cluster, arguments.dry_run, change).await {
            Ok(operation) => output::print_line(format!("cluster/{cluster} {operation}")),
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    tasks.stop().await;
    aggregate_errors(failures)
}

/// One error of several, as Kubernetes' `errors.Aggregate` writes it.
fn aggregate_errors(mut failures: Vec<String>) -> anyhow::Result<()> {
    match failures.len() {
        0 => Ok(()),
        1 => Err(anyhow!(failures.remove(0))),
        _ => Err(anyhow!("[{}]", failures.join(", "))),
    }
}
