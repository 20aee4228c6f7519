//! The command `flotilla top`, which shows the usage of CPU and memory in member clusters.
//!
//! members ──[`resource_usage`]──► metrics.k8s.io ──► [`pods`], [`nodes`] ──► text
//! Clusters and the usage of their nodes ──► [`fleet`] ──► text

mod fleet;
mod nodes;
mod pods;
mod query_flags;
mod resource_usage;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use client::{ShutdownToken, TaskGroup};

/// Display the usage of CPU and memory in member clusters.
///
/// Members are asked in parallel through the cluster proxy for metrics.k8s.io, which
/// metrics-server serves. A member that does not answer in time or has no metrics is one line
/// of warning, and the exit code is then 1.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla top pods -A\n  flotilla top nodes --sort-by cpu\n  flotilla top fleet"
)]
pub struct TopArgs {
    #[command(subcommand)]
    command: TopCommand,
}

#[derive(Subcommand)]
enum TopCommand {
    /// Display the usage of pods of member clusters.
    #[command(visible_aliases = ["pods", "po"])]
    Pod(pods::TopPodArgs),
    /// Display the usage of nodes of member clusters.
    #[command(visible_aliases = ["nodes", "no"])]
    Node(nodes::TopNodeArgs),
    /// Display the readiness, the capacity and the usage of member clusters.
    Fleet(fleet::TopFleetArgs),
}

/// Runs the command; the exit code is 1 if a member has failed, as karmadactl's is.
pub async fn run(arguments: TopArgs) -> anyhow::Result<ExitCode> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let done = match arguments.command {
        TopCommand::Pod(arguments) => Box::pin(pods::top(&arguments, &tasks)).await,
        TopCommand::Node(arguments) => Box::pin(nodes::top(&arguments, &tasks)).await,
        TopCommand::Fleet(arguments) => Box::pin(fleet::top(&arguments, &tasks)).await,
    };
    tasks.stop().await;
    Ok(match done? {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
