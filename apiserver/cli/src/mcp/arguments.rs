//! The flags of `flotilla mcp`, and the arguments of the commands that its tools stand for.

use std::ffi::OsString;

use clap::{Args, Command};

use crate::kubeconfig_flags::{ControlPlaneFlags, KubeconfigArgs};
use crate::{feature_gate_flags, scheduler_flags};

/// Serve tools for an assistant by the Model Context Protocol, over standard input and output.
///
/// An assistant starts this command and asks it what the commands why, plan, get, history, doctor and
/// rollout status answer, with the rights of the user of the kubeconfig. The content of Secrets is
/// never shown. With --allow-writes it may also apply policies, pause, resume and approve rollouts and
/// cordon clusters, each after it was shown what that does. The command ends when standard input
/// ends. The flags for scheduling and feature gates must be those of the server.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla mcp\n  flotilla mcp --allow-writes --karmada-context fleet\n\nThe configuration of an assistant:\n  {\"mcpServers\": {\"flotilla\": {\"command\": \"flotilla\", \"args\": [\"mcp\"]}}}"
)]
pub struct McpArgs {
    /// Offer tools that change objects.
    #[arg(long)]
    pub(super) allow_writes: bool,
    #[command(flatten)]
    pub(super) control: KubeconfigArgs<ControlPlaneFlags>,
    #[command(flatten)]
    pub(super) scheduling: scheduler_flags::SchedulerArgs,
    #[command(flatten)]
    pub(super) gates: feature_gate_flags::FeatureGateArgs,
}

impl McpArgs {
    /// The arguments of a command as it would get them with these flags, on the server of this one.
    /// Positional arguments cannot be taken for flags.
    pub(super) fn command_arguments<A: Args>(
        &self,
        flags: Vec<String>,
        positional: &[String],
    ) -> anyhow::Result<A> {
        let mut words: Vec<OsString> = flags.into_iter().map(OsString::from).collect();
        let server_flags = [
            self.control
                .kubeconfig()
                .map(|file| ("--kubeconfig=", file.as_os_str().to_owned())),
            self.control
                .context()
                .map(|context| ("--karmada-context=", context.into())),
        ];
        for (flag, value) in server_flags.into_iter().flatten() {
            let mut word = OsString::from(flag);
            word.push(value);
            words.push(word);
        }
        words.push("--".into());
        words.extend(positional.iter().map(OsString::from));
        let command = A::augment_args(Command::new("flotilla").no_binary_name(true));
        let matches = command.try_get_matches_from(words)?;
        Ok(A::from_arg_matches(&matches)?)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct TestCli {
        #[command(flatten)]
        arguments: McpArgs,
    }

    #[derive(Args)]
    struct TestCommandArgs {
        words: Vec<String>,
        #[arg(long)]
        namespace: Option<String>,
        #[arg(short, long)]
        watch: bool,
        #[command(flatten)]
        control: KubeconfigArgs<ControlPlaneFlags>,
    }

    #[test]
    fn positional_arguments_are_no_flags() {
        let cli = TestCli::try_parse_from(["x", "--kubeconfig", "file"]).unwrap();
        let parse = |flag: &str, words: &[String]| {
            let flags = vec![flag.to_owned()];
            cli.arguments
                .command_arguments::<TestCommandArgs>(flags, words)
        };
        let words = ["--kubeconfig=other".to_owned(), "-w".to_owned()];
        let arguments = parse("--namespace=--watch", &words).unwrap();
        assert_eq!(arguments.words, words);
        assert_eq!(arguments.namespace.as_deref(), Some("--watch"));
        assert!(!arguments.watch);
        assert_eq!(
            arguments.control.kubeconfig(),
            cli.arguments.control.kubeconfig()
        );
        assert!(parse("--no-such-flag", &[]).is_err());
    }
}
