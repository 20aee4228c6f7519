//! The command line of the binary; each command has a module of its own.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use flotilla_cli::{
    addons, adopt, apply, completion, convert, cordon, doctor, drain, get, history, install,
    interpret, join, kubectl_commands, man, mcp, orphan, plan, promote, rebalance, register,
    rename, replace, rollout, taint, takeover, token, top, unjoin, unregister, why,
};
use flotilla_console::command;
use machinery::json::THREAD_STACK_BYTES;
use tokio::runtime::{Builder, Runtime};

use crate::logs::LogFormat;
use crate::signals::TerminationSignals;
use crate::{
    agent, backup, demo, estimator_server, member, name_resolution_detector, restore, serve, up,
    version,
};

/// A multi-cluster Kubernetes control plane in one process.
#[derive(Parser)]
#[command(name = "flotilla", version = version::text(), about, max_term_width = 100)]
pub(crate) struct Cli {
    /// Number for the log level verbosity: 0 logs warnings, 1 information, 2 to 4 details.
    #[arg(
        short = 'v',
        long = "v",
        global = true,
        default_value_t = 0,
        value_name = "LEVEL"
    )]
    pub(crate) verbosity: u8,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

// The flags of a command are defined only if it runs or prints help, so that a start touches little
// of the code and texts of the other commands.
#[derive(Subcommand)]
#[command(defer = true)]
pub(crate) enum CliCommand {
    /// Start a control plane, with simulated members if asked, in the foreground.
    Up(Box<up::UpArgs>),
    /// Run a demonstration: a Deployment in three simulated clusters.
    Demo(demo::DemoArgs),
    /// Run the API server and its controllers with production flags.
    Serve(Box<serve::ServeArgs>),
    /// Run a simulated member cluster: an API server with hollow nodes.
    Member(member::MemberArgs),
    /// Install Flotilla into a cluster, or print the manifests.
    Install(install::InstallArgs),
    /// Uninstall Flotilla from a cluster.
    Uninstall(install::UninstallArgs),
    /// Register a cluster with the control plane.
    Join(join::JoinArgs),
    /// Remove a cluster from the control plane.
    Unjoin(unjoin::UnjoinArgs),
    /// Give a cluster another name.
    Rename(Box<rename::RenameArgs>),
    /// Point the name of a cluster at another cluster.
    Replace(Box<replace::ReplaceArgs>),
    /// Mark a cluster as unschedulable.
    Cordon(cordon::CordonArgs),
    /// Mark a cluster as schedulable.
    Uncordon(cordon::UncordonArgs),
    /// Move what runs in a cluster to other clusters.
    Drain(Box<drain::DrainArgs>),
    /// Update the taints on one or more clusters.
    Taint(taint::TaintArgs),
    /// Display one or many resources in the control plane and in member clusters.
    Get(Box<get::GetArgs>),
    /// Apply a configuration to the control plane and propagate it to members.
    Apply(apply::ApplyArgs),
    /// Promote a resource of a member to the control plane.
    Promote(Box<promote::PromoteArgs>),
    /// Take what already runs in a member under policies.
    Adopt(Box<adopt::AdoptArgs>),
    /// Schedule templates anew, without regard to where they are now.
    Rebalance(rebalance::RebalanceArgs),
    /// Have the deletion of a template leave its objects in members.
    Orphan(orphan::OrphanArgs),
    /// Follow and steer how a change of a template goes through its clusters.
    Rollout(rollout::RolloutArgs),
    /// Show who moved a template, and what was repaired in its clusters.
    History(history::HistoryArgs),
    /// Move a template back to where it was before its last move.
    Undo(history::UndoArgs),
    /// Display the usage of CPU and memory in member clusters.
    Top(top::TopArgs),
    #[command(flatten)]
    Kubectl(kubectl_commands::KubectlCommand),
    /// Register a cluster in pull mode, with an agent beside it.
    Register(Box<register::RegisterArgs>),
    /// Remove a cluster in pull mode and its agent.
    Unregister(unregister::UnregisterArgs),
    /// Run the agent of a cluster in pull mode.
    Agent(Box<agent::AgentArgs>),
    /// Run the scheduler estimator of a member cluster.
    Estimator(Box<estimator_server::EstimatorServerArgs>),
    /// Run the service name resolution detector on a node of a member cluster.
    ServiceNameResolutionDetector(Box<name_resolution_detector::NameResolutionDetectorArgs>),
    /// Enable or disable an addon of a running control plane.
    Addons(addons::AddonsArgs),
    /// Manage bootstrap tokens, with which clusters register.
    Token(token::TokenArgs),
    /// Check a control plane and its members, and say what is wrong and what to do.
    Doctor(doctor::DoctorArgs),
    /// Show the fleet in a browser: clusters, workloads, rollouts, and what is wrong.
    Console(command::ConsoleArgs),
    /// Explain why a resource is propagated to its clusters, or to none.
    Why(why::WhyArgs),
    /// Show which templates would move if policies were applied.
    Plan(Box<plan::PlanArgs>),
    /// Serve tools for an assistant by the Model Context Protocol.
    Mcp(Box<mcp::McpArgs>),
    /// Validate and test interpreter customizations.
    Interpret(interpret::InterpretArgs),
    /// Convert manifests of another multi-cluster control plane.
    Convert(convert::ConvertArgs),
    /// Take over a running Karmada, in place or to a standalone Flotilla, or take over from KubeFed.
    Takeover(Box<takeover::TakeoverArgs>),
    /// Back up everything that a control plane stores, while it serves.
    Backup(backup::BackupArgs),
    /// Restore a backup into a data directory, while no server uses it.
    Restore(restore::RestoreArgs),
    /// Print the version.
    Version(version::VersionArgs),
    /// Print a completion script for a shell.
    Completion(completion::CompletionArgs),
    /// Print manual pages.
    Man(man::ManArgs),
}

/// The exit code of a command line that cannot be parsed, as of kubectl.
const USAGE_ERROR: u8 = 1;
/// The same for `plan`, whose code 1 says that templates would move (as of `kubectl diff`).
const PLAN_USAGE_ERROR: u8 = 2;

/// Answers the completion script of a shell; false if this process is to run a command.
pub(crate) fn answer_shell() -> bool {
    completion::answer_shell(Cli::command)
}

/// Parses the command line. What is to be printed instead of a command, such as help or an
/// error, is printed, and its exit code returned.
pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Cli, ExitCode> {
    let words: Vec<OsString> = arguments.collect();
    Cli::try_parse_from(&words).map_err(|error| {
        // A closed pipe is ignored.
        let _ = error.print();
        match error.use_stderr() {
            false => ExitCode::SUCCESS,
            true => ExitCode::from(usage_error_code(&words)),
        }
    })
}

/// The exit code of a command line that cannot be parsed, by its first word that is a command.
fn usage_error_code(words: &[OsString]) -> u8 {
    let cli = Cli::command();
    let mut commands = words.iter().skip(1);
    let command = commands.find_map(|word| cli.find_subcommand(word));
    match command.map(clap::Command::get_name) {
        Some("plan") => PLAN_USAGE_ERROR,
        _ => USAGE_ERROR,
    }
}

impl CliCommand {
    /// The log format; commands that serve have a flag for it.
    pub(crate) fn logging_format(&self) -> LogFormat {
        match self {
            Self::Up(arguments) => arguments.logs.logging_format,
            Self::Serve(arguments) => arguments.logs.logging_format,
            Self::Member(arguments) => arguments.logs.logging_format,
            Self::Agent(arguments) => arguments.logs.logging_format,
            Self::Estimator(arguments) => arguments.logs.logging_format,
            Self::ServiceNameResolutionDetector(arguments) => arguments.logs.logging_format,
            _ => LogFormat::default(),
        }
    }

    /// The runtime of the command: a thread for each CPU, but one thread for an agent. An agent waits
    /// for two servers most of the time, and each further thread would keep a stack and freed
    /// memory, a megabyte and a half. Scripts run in threads of their own.
    pub(crate) fn runtime(&self) -> std::io::Result<Runtime> {
        let mut builder = match self {
            Self::Agent(_) => Builder::new_current_thread(),
            _ => Builder::new_multi_thread(),
        };
        builder
            .thread_stack_size(THREAD_STACK_BYTES)
            .enable_all()
            .build()
    }

    /// Runs the command. Commands with exit codes of their own return them; for an error
    /// the caller chooses the exit code.
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Interpret(arguments) => return interpret::run(arguments).await,
            Self::Convert(arguments) => return convert::run(&arguments),
            Self::Takeover(arguments) => return Box::pin(takeover::run(*arguments)).await,
            Self::Adopt(arguments) => return Box::pin(adopt::run(*arguments)).await,
            Self::Drain(arguments) => return Box::pin(drain::run(*arguments)).await,
            Self::Doctor(arguments) => return Box::pin(doctor::run(arguments)).await,
            Self::Plan(arguments) => return Ok(Box::pin(plan::run(*arguments)).await),
            Self::Top(arguments) => return Box::pin(top::run(arguments)).await,
            Self::Console(arguments) => {
                let mut signals = TerminationSignals::listen()?;
                Box::pin(command::run(arguments, signals.wait())).await
            }
            Self::Why(arguments) => Box::pin(why::run(arguments)).await,
            Self::Mcp(arguments) => Box::pin(mcp::run(*arguments)).await,
            Self::Up(arguments) => Box::pin(up::run(*arguments)).await,
            Self::Demo(arguments) => Box::pin(demo::run(arguments)).await,
            Self::Serve(arguments) => Box::pin(serve::run(*arguments)).await,
            Self::Member(arguments) => Box::pin(member::run(arguments)).await,
            Self::Install(arguments) => Box::pin(install::install(arguments)).await,
            Self::Uninstall(arguments) => Box::pin(install::uninstall(arguments)).await,
            Self::Join(arguments) => Box::pin(join::run(arguments)).await,
            Self::Unjoin(arguments) => Box::pin(unjoin::run(arguments)).await,
            Self::Rename(arguments) => Box::pin(rename::run(*arguments)).await,
            Self::Replace(arguments) => Box::pin(replace::run(*arguments)).await,
            Self::Cordon(arguments) => Box::pin(cordon::cordon(arguments)).await,
            Self::Uncordon(arguments) => Box::pin(cordon::uncordon(arguments)).await,
            Self::Taint(arguments) => Box::pin(taint::run(arguments)).await,
            Self::Get(arguments) => Box::pin(get::run(*arguments)).await,
            Self::Apply(arguments) => Box::pin(apply::run(arguments)).await,
            Self::Promote(arguments) => Box::pin(promote::run(*arguments)).await,
            Self::Rebalance(arguments) => Box::pin(rebalance::run(arguments)).await,
            Self::Orphan(arguments) => Box::pin(orphan::run(arguments)).await,
            Self::Rollout(arguments) => Box::pin(rollout::run(arguments)).await,
            Self::History(arguments) => Box::pin(history::run(arguments)).await,
            Self::Undo(arguments) => Box::pin(history::undo(arguments)).await,
            Self::Kubectl(command) => Box::pin(kubectl_commands::run(command)).await,
            Self::Register(arguments) => Box::pin(register::run(*arguments)).await,
            Self::Unregister(arguments) => Box::pin(unregister::run(arguments)).await,
            Self::Agent(arguments) => Box::pin(agent::run(*arguments)).await,
            Self::Estimator(arguments) => Box::pin(estimator_server::run(*arguments)).await,
            Self::Addons(arguments) => Box::pin(addons::run(arguments)).await,
            Self::ServiceNameResolutionDetector(arguments) => {
                Box::pin(name_resolution_detector::run(*arguments)).await
            }
            Self::Token(arguments) => Box::pin(token::run(arguments)).await,
            Self::Backup(arguments) => Box::pin(backup::run(arguments)).await,
            Self::Restore(arguments) => Box::pin(restore::run(arguments)).await,
            Self::Version(arguments) => version::run(&arguments),
            Self::Completion(arguments) => completion::run(&arguments),
            Self::Man(arguments) => man::run(&arguments, Cli::command()),
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_command_line_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn only_the_command_plan_has_an_exit_code_of_its_own() {
        for (line, expected) in [
            ("plan --fly", PLAN_USAGE_ERROR),
            ("-v 3 plan --fly", PLAN_USAGE_ERROR),
            ("get plan --fly", USAGE_ERROR),
            ("--fly", USAGE_ERROR),
        ] {
            let words = std::iter::once("flotilla").chain(line.split(' '));
            let words: Vec<OsString> = words.map(OsString::from).collect();
            assert_eq!(usage_error_code(&words), expected, "{line}");
        }
    }

    #[test]
    fn every_command_is_in_the_manual() {
        let manual = include_str!("../../cli/README.md");
        let command = Cli::command();
        let names = command.get_subcommands().map(clap::Command::get_name);
        let missing: Vec<&str> = names
            .filter(|name| !manual.contains(&format!("`{name}`")))
            .collect();
        // The page shows `completion` with its shells.
        assert_eq!(missing, ["completion"]);
    }

    #[test]
    fn serve_accepts_the_arguments_of_the_deployment() {
        let all = [
            "--etcd-servers=https://a:2379",
            "--etcd-prefix=/fleet",
            "--etcd-secret=etcd-client",
            "--host-workloads=refuse",
        ];
        for options in [&[][..], &all] {
            let line = [&["flotilla", "install"], options].concat();
            let CliCommand::Install(arguments) = Cli::try_parse_from(line).unwrap().command else {
                panic!("not the command install");
            };
            let manifests = arguments.manifests().unwrap();
            let mut deployments = manifests.iter().filter(|o| o["kind"] == "Deployment");
            let container =
                &deployments.next().unwrap()["spec"]["template"]["spec"]["containers"][0];
            let arguments = container["args"].as_array().unwrap().iter();
            let line = std::iter::once("flotilla").chain(arguments.filter_map(Value::as_str));
            let line: Vec<&str> = line.collect();
            let parsed = Cli::try_parse_from(&line);
            assert!(parsed.is_ok(), "{line:?}: {}", parsed.err().unwrap());
        }
    }
}
