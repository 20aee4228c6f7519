//! The command `flotilla doctor`, which asks a control plane how it is, and prints for each
//! check what is wrong and what to do.
//!
//! server, Clusters, metrics ──[`gather`]──► [`observations::ControlPlaneObservations`] ──[`checks`]──► [`report::DoctorReport`] ──► text

mod checks;
mod gather;
pub mod metric_samples;
mod observations;
pub mod report;

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
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) control: KubeconfigArgs<ControlPlaneFlags>,
    /// Output format; text by default, of which wide lists all results.
    #[arg(short, long, value_enum)]
    output: Option<OutputFormat>,
}

/// Asks a control plane and its members, each for at most `timeout`, and checks what they answer.
pub async fn examine(api: &RemoteApi, timeout: Duration) -> DoctorReport {
    let examination = Examination { api, timeout };
    let observations = Box::pin(examination.gather()).await;
    let checks = checks::run_checks(&observations);
    DoctorReport::new(observations.server, checks)
}

pub async fn run(arguments: DoctorArgs) -> anyhow::Result<ExitCode> {
    let config = arguments.control.load_config()?;
    let tasks = TaskGroup::new(ShutdownToken::new());
    let api = RemoteApi::new(config, &tasks)?;
    let report = Box::pin(examine(&api, arguments.timeout)).await;
    tasks.stop().await;
    let wide = arguments.output == Some(OutputFormat::Wide);
    let structured = printers::encode_output(arguments.output, &report)?;
    output::print_line(structured.unwrap_or_else(|| report.lines(wide)));
    Ok(match report.errors {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}
