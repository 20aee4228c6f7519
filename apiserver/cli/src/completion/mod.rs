//! The command `flotilla completion`, which prints a completion script, and the answers to
//! that script: commands, flags, and the names that the control plane has.
//!
//! words of the shell ──► [`words`] ──► [`Invocation`] (server, namespace, type) ──► [`live_names`] ──► the shell's format
//!
//! Nothing is written to a server. What fails, or takes longer than a deadline, completes
//! nothing and prints nothing.

mod argument_names;
mod invocation;
mod kubectl_flags;
mod live_names;
mod script_completer;
mod values;
mod words;

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_complete::env::{Bash, CompleteEnv, Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};

use crate::output;
use invocation::Invocation;
use script_completer::ScriptCompleter;
use words::CompletedWords;

/// Names the shell in the environment of a process that is to complete its arguments.
const SHELL_VARIABLE: &str = "FLOTILLA_COMPLETE";
const BINARY: &str = "flotilla";
const ALL_SHELLS: [&dyn EnvCompleter; 5] = [&Bash, &Zsh, &Fish, &Powershell, &Elvish];

/// Print a completion script for a shell.
///
/// The script asks this binary at each completion, so that it completes commands and flags,
/// and from the control plane of the command line the names of clusters, resource types,
/// objects and namespaces. Load it when a shell starts, so that it fits the binary.
#[derive(Args)]
#[command(
    after_help = "Install it:\n  bash        echo 'source <(flotilla completion bash)' >> ~/.bashrc\n  zsh         echo 'source <(flotilla completion zsh)' >> ~/.zshrc, after compinit\n  fish        echo 'flotilla completion fish | source' >> ~/.config/fish/config.fish\n  powershell  echo 'flotilla completion powershell | Out-String | Invoke-Expression' >> $PROFILE\n\nExamples:\n  flotilla completion bash\n  flotilla completion zsh\n  flotilla completion fish\n  flotilla completion powershell"
)]
pub struct CompletionArgs {
    shell: Shell,
}

/// Prints the script.
pub fn run(arguments: &CompletionArgs) -> anyhow::Result<()> {
    let shell = arguments.shell.to_string();
    let mut shells = ALL_SHELLS.into_iter();
    let shell = shells.find(|script| script.is(&shell));
    let shell = shell.context("there is no completion script for this shell")?;
    let mut script = Vec::new();
    shell.write_registration(SHELL_VARIABLE, BINARY, BINARY, BINARY, &mut script)?;
    output::print_line(String::from_utf8(script)?.trim());
    Ok(())
}

/// Answers the completion script; false if no script has started this process.
pub fn answer_shell(command_line: impl FnOnce() -> Command) -> bool {
    let is_asked = |shell: OsString| !shell.is_empty() && shell != "0";
    if !std::env::var_os(SHELL_VARIABLE).is_some_and(is_asked) {
        return false;
    }
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let current_dir = std::env::current_dir().ok();
    // The shell shows what is printed in the line that is edited, so errors are not.
    let _ = write_answer(command_line(), arguments, current_dir.as_deref());
    true
}

fn write_answer(
    command_line: Command,
    arguments: Vec<OsString>,
    current_dir: Option<&Path>,
) -> clap::error::Result<bool> {
    let words = CompletedWords::from_shell(&arguments);
    let command_line = kubectl_flags::replace_kubectl_arguments(command_line);
    if names_unknown_command(&command_line, words.before_cursor()) {
        return Ok(true);
    }
    let invocation = Invocation::parse(&command_line, words.before_cursor());
    let command_line = match invocation {
        Some(invocation) => {
            let mut command_line = command_line;
            // Commands have no arguments before.
            command_line.build();
            values::add_completers(command_line, &Arc::new(invocation))
        }
        None => command_line,
    };
    let words = &words;
    let shells = ALL_SHELLS.map(|script| ScriptCompleter { script, words });
    let shells = shells.each_ref().map(|shell| shell as &dyn EnvCompleter);
    CompleteEnv::with_factory(|| command_line.clone())
        .var(SHELL_VARIABLE)
        .bin(BINARY)
        .completer(BINARY)
        .shells(Shells(&shells))
        .try_complete(arguments, current_dir)
}

fn names_unknown_command(command_line: &Command, words: &[OsString]) -> bool {
    let parsed = command_line.clone().try_get_matches_from(words);
    parsed.is_err_and(|error| error.kind() == ErrorKind::InvalidSubcommand)
}
