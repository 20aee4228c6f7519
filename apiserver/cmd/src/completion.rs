//! The command `flotilla completion`, which prints a completion script.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print a completion script for a shell.
#[derive(Args)]
#[command(after_help = "Example:\n  source <(flotilla completion bash)")]
pub(crate) struct CompletionArgs {
    shell: Shell,
}

pub(crate) fn run(arguments: &CompletionArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut crate::cli::Cli::command(),
        "flotilla",
        &mut script,
    );
    crate::output::print_line(String::from_utf8(script)?.trim_end());
    Ok(())
}
