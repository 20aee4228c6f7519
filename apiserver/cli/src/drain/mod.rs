//! The command `flotilla drain`, which moves the templates of a cluster to others: what has no
//! other place stays, and is named with the reason.
//!
//! bindings of the cluster ──[`placements`]──► [`placements::DrainReport`] ──[`evictions`]──► eviction tasks ──► the cluster is left

mod evictions;
mod placements;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use client::{Api, ResourcePath, ShutdownToken, TaskGroup};
use evictions::EvictedBinding;
use karmada_api::resources::CLUSTERS;
use machinery::duration;
pub use placements::{DrainReport, DrainedTemplate};

use crate::cordon::set_unschedulable;
use crate::kubeconfig_flags::{ControlPlaneFlags, KubeconfigArgs};
use crate::printers::{self, OutputFormat};
use crate::scheduler_flags::SchedulerFlagValues;
use crate::{feature_gate_flags, output, scheduler_flags};

/// Move what runs in a cluster to other clusters.
///
/// The cluster is cordoned, so that nothing new is placed on it. Each template that the
/// scheduler can place without it is evicted gracefully: it stays until its replacement is
/// healthy. Templates without another place stay and are listed with the reason. So do
/// namespaces, since their removal would delete everything that the cluster has in them; they
/// do not count as templates that stay. The placements are computed by this command with the functions of the scheduler; the flags for
/// scheduling and feature gates must be those of the server.
#[derive(Args)]
#[command(
    after_help = "Exit codes:\n  0  everything can leave the cluster, or has left it\n  1  the command failed, or templates stay\n\nExamples:\n  flotilla drain member2 --dry-run\n  flotilla drain member2 --timeout 5m"
)]
pub struct DrainArgs {
    /// The name of the cluster.
    #[arg(value_name = "CLUSTER")]
    cluster: String,
    /// Show what would move and what would stay, without writing anything.
    #[arg(long)]
    dry_run: bool,
    /// How long to wait until the templates have left the cluster.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    timeout: Duration,
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlags>,
    /// Output format of the placements; text by default.
    #[arg(short, long, value_enum)]
    output: Option<OutputFormat>,
    #[command(flatten)]
    scheduling: scheduler_flags::SchedulerArgs,
    #[command(flatten)]
    gates: feature_gate_flags::FeatureGateArgs,
}

pub async fn run(arguments: DrainArgs) -> anyhow::Result<ExitCode> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let drained = Box::pin(drain(&arguments, &tasks)).await;
    tasks.stop().await;
    Ok(match drained?.staying() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

async fn drain(arguments: &DrainArgs, tasks: &TaskGroup) -> anyhow::Result<DrainReport> {
    let scheduling = arguments
        .scheduling
        .options(arguments.gates.feature_gates)?;
    let api = arguments.control.connect(tasks)?;
    let cluster = arguments.cluster.as_str();
    api.get(ResourcePath::object(&CLUSTERS, "", cluster))
        .await?;
    if !arguments.dry_run {
        output::print_progress(set_unschedulable(&*api, cluster, true, false).await?);
    }
    let report = placements::simulate_without(&*api, cluster, &scheduling).await?;
    let wide = arguments.output == Some(OutputFormat::Wide);
    let structured = printers::encode_output(arguments.output, &report)?;
    output::print_line(structured.unwrap_or_else(|| report.lines(wide)));
    if !arguments.dry_run {
        evict(&*api, &report, arguments).await?;
    }
    Ok(report)
}

/// Evicts what can move.
async fn evict_leaving(api: &dyn Api, report: &DrainReport) -> anyhow::Result<Vec<EvictedBinding>> {
    let mut evicted = Vec::new();
    for template in report.leaving() {
        evicted.push(evictions::evict(api, &report.cluster, template).await?);
    }
    Ok(evicted)
}

/// Where the templates of a cluster would go without it, with Karmada's defaults of the flags for
/// scheduling.
pub async fn plan_drain(api: &dyn Api, cluster: &str) -> anyhow::Result<DrainReport> {
    placements::simulate_without(api, cluster, &SchedulerFlagValues::default()).await
}

/// Cordons a cluster and evicts what can move, which then leaves it by itself.
pub async fn begin_drain(api: &dyn Api, report: &DrainReport) -> anyhow::Result<()> {
    set_unschedulable(api, &report.cluster, true, false).await?;
    evict_leaving(api, report).await?;
    Ok(())
}

/// Evicts what can move, and waits until it has left, with what was leaving before.
async fn evict(api: &dyn Api, report: &DrainReport, arguments: &DrainArgs) -> anyhow::Result<()> {
    let cluster = arguments.cluster.as_str();
    let mut evicted = evictions::list_leaving(api, cluster).await?;
    evicted.extend(evict_leaving(api, report).await?);
    evictions::wait_until_left(api, cluster, evicted, arguments.timeout).await?;
    output::print_progress(match report.staying() {
        0 => format!("{cluster} cluster drained"),
        staying => format!("{cluster} cluster drained; templates that stay: {staying}"),
    });
    Ok(())
}
