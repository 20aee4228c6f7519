//! The command `flotilla plan`, which shows the templates that policies would move.
//!
//! files ──[`policies`]──► policies ──[`inputs`]──► [`inputs::PlanInputs`] ──[`report`]──► [`report::PlanReport`] ──► lines

mod documents;
mod gather;
mod moves;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use flotilla_runtime::{Shutdown, Tasks};

use crate::columns::{self, Output};
use crate::join::Control;
use crate::logs::Format;
use crate::{gates, output, scheduling};

/// The exit code when a template would move.
const MOVES: u8 = 1;
/// The exit code of failures and usage errors.
const FAILED: u8 = 2;

/// Show which templates would move if policies were applied. Nothing is persisted.
///
/// Policies are sent to the server as a dry run, which validates and defaults them, so
/// the permission to create and update them is needed. The placement of templates is
/// computed by this command with the functions of the controllers; the flags for
/// scheduling and feature gates must be those of the server. Replicas that one template
/// of a plan takes are no longer available for the next.
#[derive(Args)]
#[command(
    after_help = "Exit codes, as of kubectl diff:\n  0   no template would move\n  1   some templates would move\n  >1  the command failed\n\nExamples:\n  flotilla plan -f policy.yaml\n  flotilla plan -f policies.yaml -n shop -o json"
)]
pub(crate) struct Arguments {
    /// Policies in YAML or JSON; - is standard input; may be repeated.
    #[arg(short, long, required = true, value_name = "FILE")]
    filename: Vec<PathBuf>,
    /// The namespace of policies without one; by default that of the kubeconfig's context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    control: Control,
    /// Output format; text by default.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
    #[command(flatten)]
    scheduling: scheduling::Flags,
    #[command(flatten)]
    gates: gates::Flags,
}

/// Runs the command. Failures are printed here and have their own exit code.
pub(crate) async fn run(arguments: Arguments) -> ExitCode {
    match Box::pin(plan(&arguments)).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(MOVES),
        Err(error) => {
            output::failed(&error, Format::Text);
            ExitCode::from(FAILED)
        }
    }
}

/// Prints the plan, and returns the number of templates that would move.
async fn plan(arguments: &Arguments) -> anyhow::Result<usize> {
    let scheduling = arguments.scheduling.under(arguments.gates.feature_gates)?;
    let documents = documents::read(&arguments.filename)?;
    let tasks = Tasks::new(Shutdown::new());
    let (api, namespace) = arguments.control.open(&tasks)?;
    let namespace = documents::Namespace {
        asked: arguments.namespace.as_deref(),
        default: &namespace,
    };
    let gates = arguments.gates.feature_gates;
    let inputs = gather::facts(&*api, documents, namespace, gates);
    let inputs = Box::pin(inputs).await;
    tasks.stop().await;
    let plan = moves::plan(&inputs?, &scheduling, gates);
    let wide = arguments.output == Some(Output::Wide);
    let structured = columns::structured(arguments.output, &plan)?;
    output::line(structured.unwrap_or_else(|| plan.lines(wide)));
    Ok(plan.moving)
}
