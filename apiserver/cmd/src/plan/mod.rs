//! `flotilla plan`
//!
//! files ──[`documents`]──► policies ──[`gather`]──► [`gather::Facts`] ──[`moves`]──► [`moves::Plan`] ──► lines

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

/// Something would move.
const MOVES: u8 = 1;
/// What would move cannot be told; usage errors end with it too.
const FAILED: u8 = 2;

/// Tell what would move if policies were applied; nothing is written.
///
/// Policies are sent to the server as a dry run, so that they are checked and
/// completed as they would be: the right to create and update them is needed. Where
/// templates would go is decided here, by the functions of the controllers; the flags
/// about scheduling and gates must be those that the server was started with. Two
/// templates of one plan do not take the same room.
#[derive(Args)]
#[command(
    after_help = "Exit codes, as of kubectl diff:\n  0   nothing would move\n  1   something would move\n  >1  what would move cannot be told\n\nExamples:\n  flotilla plan -f policy.yaml\n  flotilla plan -f policies.yaml -n shop -o json"
)]
pub(crate) struct Arguments {
    /// Policies in YAML or JSON; - is standard input; may be repeated.
    #[arg(short, long, required = true, value_name = "FILE")]
    filename: Vec<PathBuf>,
    /// The namespace of policies that name none; by default that of the kubeconfig's
    /// context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    control: Control,
    /// How to print; text when absent.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
    #[command(flatten)]
    scheduling: scheduling::Flags,
    #[command(flatten)]
    gates: gates::Flags,
}

/// Never fails: a failure has an exit code of its own.
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

/// How many templates would move.
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
    let facts = gather::facts(&*api, documents, namespace, gates);
    let facts = Box::pin(facts).await;
    tasks.stop().await;
    let plan = moves::plan(&facts?, &scheduling, gates);
    let wide = arguments.output == Some(Output::Wide);
    let structured = columns::structured(arguments.output, &plan)?;
    output::line(structured.unwrap_or_else(|| plan.lines(wide)));
    Ok(plan.moving)
}
