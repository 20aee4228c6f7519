//! The command `flotilla addons`, which switches families of controllers and endpoints of a running
//! control plane on and off (karmadactl's `addons`).
//!
//! The commands write the ConfigMap of the addons, and wait for the report that the server writes
//! there.

mod config_map;
mod list;
mod names;
mod server_flags;
mod switch;

use clap::{Args, Subcommand};

use list::ListAddonsArgs;
pub(crate) use names::addon_names;
use switch::{DisableAddonsArgs, EnableAddonsArgs};

/// Enable or disable an addon.
///
/// These addons are supported: flotilla-autoscalers, flotilla-cluster-inventory,
/// flotilla-multicluster-services, karmada-descheduler, karmada-metrics-adapter,
/// karmada-scheduler-estimator, karmada-search.
#[derive(Args)]
#[command(after_help = "Example:\n  flotilla addons enable karmada-descheduler")]
pub struct AddonsArgs {
    #[command(subcommand)]
    command: AddonsCommand,
}

#[derive(Subcommand)]
enum AddonsCommand {
    /// List the addons and their states.
    List(ListAddonsArgs),
    /// Enable addons.
    Enable(EnableAddonsArgs),
    /// Disable addons.
    Disable(DisableAddonsArgs),
}

pub async fn run(arguments: AddonsArgs) -> anyhow::Result<()> {
    match arguments.command {
        AddonsCommand::List(arguments) => list::run(arguments).await,
        AddonsCommand::Enable(arguments) => switch::enable(arguments).await,
        AddonsCommand::Disable(arguments) => switch::disable(arguments).await,
    }
}
