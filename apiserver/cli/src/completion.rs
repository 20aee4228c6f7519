//! The command `flotilla completion`, which prints a completion script.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::output;

/// Print a completion script for a shell.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla completion zsh\n  source <(flotilla completion bash)"
)]
pub struct CompletionArgs {
    shell: Shell,
}

/// Prints the script for the whole command line.
pub fn run(arguments: &CompletionArgs, command_line: &mut Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, command_line, "flotilla", &mut script);
    output::print_line(String::from_utf8(script)?.trim_end());
    Ok(())
}
