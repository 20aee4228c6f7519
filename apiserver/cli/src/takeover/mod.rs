//! The command `flotilla takeover`, which moves a running Karmada's control plane to Flotilla in
//! place, and gives it back, or to a standalone Flotilla; with `--from kubefed` it takes over from
//! KubeFed.
//!
//! flags ──► [`session`] ──► [`take_over`]: check, [`backup`], [`freeze`], move, switch, [`prove`] ──► [`summary`]
//!                     ├───► [`give_back`]: freeze, give APIServices back, [`returned_objects`]
//!                     └───► [`standalone`]: check, [`backup`], [`freeze`], write a store
//!
//! The record in the host says how far it is, so that the command continues after its end at any
//! step; the backup has what giving back needs.

mod api_services;
mod backup;
mod changed_works;
mod components;
mod definitions;
mod freeze;
mod give_back;
pub mod karmada_flags;
mod kubefed;
mod owned_secrets;
mod prove;
mod release;
mod returned_objects;
mod rights;
mod session;
mod snapshot;
mod standalone;
mod summary;
mod take_over;
mod webhooks;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use client::{ShutdownToken, TaskGroup};
use components::KarmadaComponents;
use kubefed::{KubefedFlags, KubefedTakeover};
use machinery::duration;
use session::TakeoverSession;
use standalone::StandaloneMove;
use summary::TakeoverSummary;

use crate::kubeconfig_flags::{ControlPlaneFlags, KubeconfigArgs};
use crate::printers::{self, OutputFormat};
use crate::{feature_gate_flags, output, scheduler_flags};

/// Take over a running Karmada, in place or to a standalone Flotilla, or take over from KubeFed.
///
/// Flotilla runs behind the same karmada-apiserver, started with --await-takeover. Once Karmada's
/// controllers have released their leases, its objects are copied with their uids, status and
/// managers, and the APIServices of its groups lead to Flotilla. The flags for scheduling and feature
/// gates must be those of the server: with them no template may move, and no manifest in a Work may
/// change. No member is written. Karmada's definitions keep the objects as they were. The command can
/// be run again after it was interrupted at any step. The backup has all objects, also Secrets that
/// Works carry.
///
/// With --to-standalone, everything that the karmada-apiserver stores moves, templates too, into a
/// file that `flotilla restore` makes the store of a standalone Flotilla of. Left out is what every
/// server makes itself, such as events, leases, tokens of service accounts, and roles that each
/// server has, and Karmada's webhooks and APIServices. What Flotilla does not serve stops the move
/// unless --leave names it, and so does a binding whose template stays behind: the new server would
/// delete its copies in members. Every object keeps its uid and is compared. The move begins anew when the
/// command is run again. Karmada keeps its objects, and refuses writes until --back.
///
/// With --from kubefed, KubeFed's objects are read from its host cluster and converted, as
/// `flotilla convert kubefed` does. What has no equal is listed, and stops the takeover unless
/// --allow-loss is given. When KubeFed's controller manager has stopped (the command waits for that,
/// and stops nothing itself), the clusters are joined with KubeFed's credentials, and policies and
/// templates are created. The copies are adopted: none is created anew. At the end KubeFed's label is
/// taken off the copies, and its finalizers off the federated objects, which can then be deleted. If
/// the command is interrupted, run it again.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla takeover --preflight --kubeconfig karmada.config\n  flotilla takeover --backup karmada-backup.json --kubeconfig karmada.config\n  flotilla takeover --backup karmada-backup.json --kubeconfig karmada.config --karmada-host-kubeconfig host.config \\\n    --scale-down karmada-system/karmada-controller-manager --scale-down karmada-system/karmada-scheduler\n  flotilla takeover --back --backup karmada-backup.json --kubeconfig karmada.config\n  flotilla takeover --to-standalone flotilla.backup --backup karmada-backup.json --kubeconfig karmada.config\n  flotilla takeover --from kubefed --host-kubeconfig kubefed.kubeconfig --dry-run\n  flotilla takeover --from kubefed --host-kubeconfig kubefed.kubeconfig"
)]
pub struct TakeoverArgs {
    /// The control plane that is taken over.
    #[arg(long, value_enum, default_value = "karmada")]
    from: TakeoverSource,
    /// Report what would change and which objects would be refused. Only Flotilla's record of the
    /// takeover is written.
    #[arg(long, conflicts_with_all = ["back", "scale_down"])]
    preflight: bool,
    /// Give everything that changed back to Karmada's definitions, with APIServices and webhooks.
    #[arg(long)]
    back: bool,
    /// The file to write everything to before it changes; --back reads it.
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present_any = ["preflight", "from", "host_kubeconfig"]
    )]
    backup: Option<PathBuf>,
    /// Move to a standalone Flotilla: write the content of its store to this file, for `flotilla
    /// restore`.
    #[arg(long, value_name = "FILE", conflicts_with = "back")]
    to_standalone: Option<PathBuf>,
    /// A resource whose objects stay where they are, as RESOURCE.GROUP, such as
    /// widgets.example.com; may be repeated. What Flotilla has itself moves.
    #[arg(long, value_name = "RESOURCE.GROUP", requires = "to_standalone")]
    leave: Vec<String>,
    /// The namespace of Flotilla in that API server.
    #[arg(
        short,
        long,
        value_name = "NAMESPACE",
        default_value = "flotilla-system"
    )]
    namespace: String,
    /// The namespace of the leases of Karmada's controllers.
    #[arg(long, value_name = "NAMESPACE", default_value = "karmada-system")]
    karmada_namespace: String,
    /// A Deployment of Karmada's controllers to scale to zero, as NAMESPACE/NAME, in the cluster of
    /// --karmada-host-kubeconfig; may be repeated. Without it they are waited for.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        requires = "karmada_host_kubeconfig"
    )]
    scale_down: Vec<String>,
    /// The kubeconfig of the cluster in which Karmada's components run. With it a preflight names
    /// the flags of their Deployments with which Flotilla is to be started.
    #[arg(long, value_name = "FILE")]
    karmada_host_kubeconfig: Option<PathBuf>,
    /// Take over although templates would move or their Works change, and drop fields of objects that Flotilla does not
    /// know instead of refusing them.
    #[arg(long)]
    allow_changes: bool,
    /// How long Works are watched after the switch; none may change.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    watch: Duration,
    /// How long each step may take, such as the wait for the controllers of Karmada or KubeFed.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    timeout: Duration,
    /// Output format; text by default. With --from kubefed, the manifests of a dry run, which are
    /// not printed by default.
    #[arg(short, long, value_enum)]
    output: Option<OutputFormat>,
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlags>,
    #[command(flatten)]
    kubefed: KubefedFlags,
    #[command(flatten)]
    scheduling: scheduler_flags::SchedulerArgs,
    #[command(flatten)]
    gates: feature_gate_flags::FeatureGateArgs,
}

/// The control plane that is taken over.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TakeoverSource {
    /// A Karmada, in place, or what was taken over from it with --back.
    Karmada,
    /// The clusters and federated objects of a KubeFed.
    Kubefed,
}

/// Runs the command. The exit code is 1 if it fails, or a preflight finds objects that Flotilla
/// would refuse.
pub async fn run(arguments: TakeoverArgs) -> anyhow::Result<ExitCode> {
    match arguments.from {
        TakeoverSource::Kubefed => {
            let takeover = KubefedTakeover {
                flags: &arguments.kubefed,
                timeout: arguments.timeout,
                control: &arguments.control,
                output: arguments.output,
            };
            return Box::pin(kubefed::run(takeover)).await;
        }
        TakeoverSource::Karmada if arguments.kubefed.are_set() => {
            bail!("flags of a takeover from KubeFed are set; add --from kubefed")
        }
        TakeoverSource::Karmada => {}
    }
    let tasks = TaskGroup::new(ShutdownToken::new());
    let summary = Box::pin(run_in(&arguments, &tasks)).await;
    tasks.stop().await;
    let summary = summary?;
    let structured = printers::encode_output(arguments.output, &summary)?;
    output::print_line(structured.unwrap_or_else(|| summary.lines()));
    Ok(match summary.errors.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

async fn run_in(arguments: &TakeoverArgs, tasks: &TaskGroup) -> anyhow::Result<TakeoverSummary> {
    let session = TakeoverSession {
        host: arguments.control.connect(tasks)?,
        namespace: arguments.namespace.clone(),
        timeout: arguments.timeout,
        run: format!("{:016x}", rand::random::<u64>()),
    };
    let gates = arguments.gates.feature_gates;
    let options = take_over::TakeOverOptions {
        allow_changes: arguments.allow_changes,
        watch: arguments.watch,
        scheduling: arguments.scheduling.options(gates)?,
        gates,
    };
    let components = KarmadaComponents::new(
        &session,
        &arguments.karmada_namespace,
        &arguments.scale_down,
        arguments.karmada_host_kubeconfig.as_deref(),
        tasks,
    )?;
    let standalone = StandaloneMove {
        session: &session,
        components: &components,
        options: &options,
        left: &arguments.leave,
    };
    let target = arguments.to_standalone.as_deref();
    if arguments.preflight {
        return match target {
            Some(_) => standalone.preflight().await,
            None => take_over::preflight(&session, &components, &options).await,
        };
    }
    let backup = arguments
        .backup
        .as_deref()
        .context("--backup is required")?;
    match target {
        Some(file) => standalone.run(backup, file).await,
        None if !arguments.back => {
            take_over::take_over(&session, &components, backup, &options).await
        }
        None if standalone::is_backup(backup)? => standalone.back(backup).await,
        None => give_back::give_back(&session, &components, backup).await,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct TestCli {
        #[command(flatten)]
        takeover: TakeoverArgs,
    }

    // proves: TKK-flags
    #[test]
    fn each_source_has_its_own_flags() {
        let parse = |line: &str| {
            let words = ["takeover"].into_iter().chain(line.split_whitespace());
            TestCli::try_parse_from(words).map(|cli| cli.takeover)
        };
        let kubefed = parse("--from kubefed --host-kubeconfig f --dry-run -o yaml").unwrap();
        assert!(kubefed.from == TakeoverSource::Kubefed && kubefed.kubefed.are_set());
        assert!(parse("--backup b").unwrap().from == TakeoverSource::Karmada);
        for (line, expected) in [
            (
                "--from kubefed",
                "provided:\n  --host-kubeconfig <FILE>\n\n",
            ),
            (
                "--from kubefed --host-kubeconfig f --preflight",
                "--preflight",
            ),
            ("--from kubefed --host-kubeconfig f --backup b", "--backup"),
            (
                "--from kubefed --host-kubeconfig f --plugins x",
                "--plugins",
            ),
            ("--from other", "karmada, kubefed"),
            (
                "--from kubefed --host-kubeconfig f --to-standalone b",
                "--to-standalone",
            ),
            ("--backup b --back --to-standalone f", "--back"),
            (
                "--backup b --leave widgets.example.com",
                "--to-standalone <FILE>",
            ),
            ("", "--backup <FILE>"),
        ] {
            let error = parse(line).err().unwrap().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
