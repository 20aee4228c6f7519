//! Completes the values of arguments in all commands of the command line.

use std::ffi::OsStr;
use std::sync::Arc;

use clap::Command;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};

use super::argument_names::names_of;
use super::invocation::Invocation;
use super::live_names;

/// Completes the values of arguments with names, in all commands.
pub(super) fn add_completers(command: Command, invocation: &Arc<Invocation>) -> Command {
    let command = command.mut_args(|arg| {
        let Some(names) = names_of(&arg) else {
            return arg;
        };
        let invocation = Arc::clone(invocation);
        arg.add(ArgValueCompleter::new(move |current: &OsStr| {
            let Some(current) = current.to_str() else {
                return Vec::new();
            };
            let candidates = live_names::complete(names, &invocation, current);
            candidates
                .into_iter()
                .map(CompletionCandidate::new)
                .collect()
        }))
    });
    command.mut_subcommands(|subcommand| add_completers(subcommand, invocation))
}
