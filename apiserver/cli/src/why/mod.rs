//! The command `flotilla why`, which explains the placement of a template.
//!
//! arguments ──[`inputs`]──► [`inputs::WhyInputs`] ──[`report`]──► [`report::WhyReport`] ──[`text`]──► lines

pub mod inputs;
mod preference;
pub mod report;
pub mod rollout;
#[cfg(test)]
mod tests;
pub mod text;

use clap::Args;
use client::{ShutdownToken, TaskGroup};

use crate::kubeconfig_flags::{ControlPlaneFlags, KubeconfigArgs};
use crate::printers::{self, OutputFormat};
use crate::{output, resource_args};

/// Explain why a resource is propagated to its clusters, or to none: the policy that has
/// claimed it, the scheduler's result for each cluster, and what is still pending.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla why deploy/web -n shop\n  flotilla why deployments.apps web -o wide\n  flotilla why rb/web-deployment -o json"
)]
pub struct WhyArgs {
    /// The template, or its binding: TYPE/NAME or TYPE NAME, as for kubectl get.
    #[arg(required = true, num_args = 1..=2, value_name = "RESOURCE")]
    resource: Vec<String>,
    /// Its namespace; by default that of the kubeconfig's context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlags>,
    /// Output format; text by default.
    #[arg(short, long, value_enum)]
    output: Option<OutputFormat>,
}

pub async fn run(arguments: WhyArgs) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let explanation = explain(&arguments, &tasks).await;
    tasks.stop().await;
    output::print_line(explanation?);
    Ok(())
}

/// The explanation as the command prints it.
pub(crate) async fn explain(arguments: &WhyArgs, tasks: &TaskGroup) -> anyhow::Result<String> {
    let (kind, name) = resource_args::parse_resource_arg(&arguments.resource)?;
    let (api, namespace) = arguments.control.connect_with_namespace(tasks)?;
    let namespace = arguments.namespace.as_ref().unwrap_or(&namespace);
    let inputs = Box::pin(inputs::collect_inputs(&*api, kind, namespace, name)).await;
    let report = report::build_report(&inputs?);
    let wide = arguments.output == Some(OutputFormat::Wide);
    let structured = printers::encode_output(arguments.output, &report)?;
    Ok(structured.unwrap_or_else(|| text::format_report(&report, wide)))
}
