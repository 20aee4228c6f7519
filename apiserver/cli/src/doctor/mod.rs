//! The command `flotilla doctor`, which asks a control plane how it is, and prints for each
//! check what is wrong and what to do.
//!
//! server, Clusters, metrics ──[`gather`]──► [`observations::ControlPlaneObservations`] ──[`checks`]──► [`report::DoctorReport`] ──► text

mod checks;
mod gather;
mod metric_samples;
mod observations;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use client::remote::RemoteApi;
use client::{ShutdownToken, TaskGroup};
use machinery::duration;

use crate::kubeconfig_flags::{ControlPlaneFlags, KubeconfigArgs};
use crate::output;
use crate::printers::{self, OutputFormat};
use gather::Examination;
use report::DoctorReport;

/// Check a control plane and its members, and say what is wrong and what to do.
///
/// Checked are: the API server, credentials and certificates that expire, members and their
/// agents, Works that are not applied, lags and queues of controllers, watches, webhooks, clocks, disk and versions. Metrics
/// are read from one replica, and need a user who may get /metrics; counts are those since it
/// started. Members are asked through the cluster proxy.
#[derive(Args)]
#[command(
    after_help = "Exit codes:\n  0  nothing is wrong, or there are warnings only\n  1  the command failed, or a check found an error\n\nExamples:\n  flotilla doctor\n  flotilla doctor --timeout 2s -o wide\n  flotilla doctor -o json"
)]
pub struct DoctorArgs {
    /// How long the server and each member may take to answer a question.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    timeout: Duration,
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlags>,
    /// Output format; text by default, of which wide lists all results.
    #[arg(short, long, value_enum)]
    output: Option<OutputFormat>,
}

pub async fn run(arguments: DoctorArgs) -> anyhow::Result<ExitCode> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let report = examine(&arguments, &tasks).await;
    tasks.stop().await;
    let report = report?;
    let wide = arguments.output == Some(OutputFormat::Wide);
    let structured = printers::encode_output(arguments.output, &report)?;
    output::print_line(structured.unwrap_or_else(|| report.lines(wide)));
    Ok(match report.errors {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// The result of all checks.
pub(crate) async fn examine(
    arguments: &DoctorArgs,
    tasks: &TaskGroup,
) -> anyhow::Result<DoctorReport> {
    let api = RemoteApi::new(arguments.control.load_config()?, tasks)?;
    let examination = Examination {
        api: &api,
        timeout: arguments.timeout,
    };
    let observations = Box::pin(examination.gather()).await;
    Ok(DoctorReport::new(
        observations.server.clone(),
        checks::run_checks(&observations),
    ))
}
