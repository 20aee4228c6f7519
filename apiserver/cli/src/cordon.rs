//! The commands `flotilla cordon` and `flotilla uncordon`, which mark a cluster as
//! unschedulable and as schedulable.

use anyhow::bail;
use clap::Args;
use client::{Api, ShutdownToken, TaskGroup};
use karmada_api::cluster::Taint;
use karmada_api::well_known_keys::TAINT_UNSCHEDULABLE;

use crate::cluster_taints::{TaintChange, change_taints};
use crate::kubeconfig_flags::{ControlPlaneFlags, KubeconfigArgs};
use crate::output;

pub(crate) const NO_SCHEDULE: &str = "NoSchedule";

/// Mark a cluster as unschedulable: nothing new is placed on it; what is there stays.
#[derive(Args)]
#[command(after_help = "Example:\n  flotilla cordon member1")]
pub struct CordonArgs {
    #[command(flatten)]
    target: CordonTarget,
}

/// Mark a cluster as schedulable.
#[derive(Args)]
#[command(after_help = "Example:\n  flotilla uncordon member1")]
pub struct UncordonArgs {
    #[command(flatten)]
    target: CordonTarget,
}

#[derive(Args)]
struct CordonTarget {
    /// The name of the cluster.
    #[arg(value_name = "CLUSTER")]
    clusters: Vec<String>,
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlags>,
    /// Run the command in dry-run mode, without making any server requests that write.
    #[arg(long)]
    dry_run: bool,
}

pub async fn cordon(arguments: CordonArgs) -> anyhow::Result<()> {
    let outcome = arguments.target.set_unschedulable(true).await?;
    output::print_line(outcome);
    Ok(())
}

pub async fn uncordon(arguments: UncordonArgs) -> anyhow::Result<()> {
    let outcome = arguments.target.set_unschedulable(false).await?;
    output::print_line(outcome);
    Ok(())
}

impl CordonTarget {
    async fn set_unschedulable(&self, unschedulable: bool) -> anyhow::Result<String> {
        let cluster = match self.clusters.as_slice() {
            [cluster] => cluster,
            [] => bail!("cluster name is required"),
            _ => bail!("more than one cluster name is not supported"),
        };
        let tasks = TaskGroup::new(ShutdownToken::new());
        let api = self.control.connect(&tasks)?;
        let outcome = set_unschedulable(&*api, cluster, unschedulable, self.dry_run).await;
        tasks.stop().await;
        outcome
    }
}

/// Marks a cluster as unschedulable or as schedulable, and returns karmadactl's line about it.
pub async fn set_unschedulable(
    api: &dyn Api,
    cluster: &str,
    unschedulable: bool,
    dry_run: bool,
) -> anyhow::Result<String> {
    let change = |taints: Vec<Taint>| Ok(cordon_change(cluster, taints, unschedulable));
    change_taints(api, cluster, dry_run, change).await
}

/// Whether a cluster with these taints is marked as unschedulable.
pub fn is_cordoned(taints: &[Taint]) -> bool {
    taints.iter().any(is_cordon)
}

fn is_cordon(taint: &Taint) -> bool {
    taint.key == TAINT_UNSCHEDULABLE && taint.effect == NO_SCHEDULE
}

/// The taints of a cordoned or an uncordoned cluster, and karmadactl's line about it.
pub(crate) fn cordon_change(
    cluster: &str,
    mut taints: Vec<Taint>,
    unschedulable: bool,
) -> TaintChange<String> {
    let verb = if unschedulable { "cordon" } else { "uncordon" };
    if is_cordoned(&taints) == unschedulable {
        return TaintChange {
            taints: None,
            outcome: format!("{cluster} cluster already {verb}ed"),
        };
    }
    if unschedulable {
        taints.push(Taint {
            key: TAINT_UNSCHEDULABLE.to_owned(),
            effect: NO_SCHEDULE.to_owned(),
            ..Taint::default()
        });
    } else {
        taints.retain(|taint| !is_cordon(taint));
    }
    TaintChange {
        taints: Some(taints),
        outcome: format!("{cluster} cluster {verb}ed"),
    }
}
