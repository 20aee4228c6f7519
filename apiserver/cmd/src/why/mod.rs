//! The command `flotilla why`, which explains the placement of a template.
//!
//! arguments ──[`inputs`]──► [`inputs::WhyInputs`] ──[`report`]──► [`report::WhyReport`] ──[`text`]──► lines

pub(crate) mod gather;
mod story;
#[cfg(test)]
mod tests;
mod text;

use clap::Args;
use flotilla_runtime::{Shutdown, Tasks};

use crate::columns::{self, Output};
use crate::join::Control;
use crate::{named, output};

/// Explain why a resource is propagated to its clusters, or to none: the policy that has
/// claimed it, the scheduler's result for each cluster, and what is still pending.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla why deploy/web -n shop\n  flotilla why deployments.apps web -o wide\n  flotilla why rb/web-deployment -o json"
)]
pub(crate) struct Arguments {
    /// The template, or its binding: TYPE/NAME or TYPE NAME, as for kubectl get.
    #[arg(required = true, num_args = 1..=2, value_name = "RESOURCE")]
    resource: Vec<String>,
    /// Its namespace; by default that of the kubeconfig's context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    control: Control,
    /// Output format; text by default.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let (kind, name) = named::split(&arguments.resource)?;
    let tasks = Tasks::new(Shutdown::new());
    let (api, namespace) = arguments.control.open(&tasks)?;
    let namespace = arguments.namespace.unwrap_or(namespace);
    let inputs = Box::pin(gather::facts(&*api, kind, &namespace, name)).await;
    tasks.stop().await;
    let report = story::tell(&inputs?);
    let wide = arguments.output == Some(Output::Wide);
    let structured = columns::structured(arguments.output, &report)?;
    output::line(structured.unwrap_or_else(|| text::lines(&report, wide)));
    Ok(())
}
