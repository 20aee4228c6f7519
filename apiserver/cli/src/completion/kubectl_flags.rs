//! The arguments of the commands that kubectl does, for completion: elsewhere they are passed
//! on to kubectl as they are.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Command, value_parser};

/// The arguments that follow the name of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KubectlArguments {
    /// Names that the control plane does not know, or none.
    None,
    Types,
    Resources,
    PodOrResource,
}

/// The commands, what follows their names, and whether they work on members.
const KUBECTL_COMMANDS: [(&str, KubectlArguments, bool); 15] = [
    ("describe", KubectlArguments::Resources, true),
    ("logs", KubectlArguments::PodOrResource, true),
    ("exec", KubectlArguments::PodOrResource, true),
    ("attach", KubectlArguments::PodOrResource, true),
    ("port-forward", KubectlArguments::PodOrResource, true),
    ("explain", KubectlArguments::Types, true),
    ("api-resources", KubectlArguments::None, true),
    ("api-versions", KubectlArguments::None, true),
    ("apply", KubectlArguments::None, true),
    ("create", KubectlArguments::None, false),
    ("edit", KubectlArguments::Resources, false),
    ("patch", KubectlArguments::Resources, false),
    ("label", KubectlArguments::Resources, false),
    ("annotate", KubectlArguments::Resources, false),
    ("delete", KubectlArguments::Resources, false),
];

/// The flags of kubectl with a value that these commands are used with most.
const VALUE_FLAGS: [(&str, char, &str); 4] = [
    ("output", 'o', "FORMAT"),
    ("selector", 'l', "SELECTOR"),
    ("container", 'c', "CONTAINER"),
    ("patch", 'p', "PATCH"),
];

/// Gives the commands that kubectl does arguments that can be completed.
pub(super) fn replace_kubectl_arguments(command_line: Command) -> Command {
    command_line.mut_subcommands(|command| {
        let mut kubectl_command = KUBECTL_COMMANDS.iter();
        let kubectl_command = kubectl_command.find(|(name, ..)| *name == command.get_name());
        match kubectl_command {
            Some((name, arguments, has_members)) => {
                let about = command.get_about().cloned().unwrap_or_default();
                with_flags(Command::new(*name).about(about), *arguments, *has_members)
            }
            None => command,
        }
    })
}

fn with_flags(command: Command, arguments: KubectlArguments, has_members: bool) -> Command {
    let flag = |name: &'static str, value: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .action(ArgAction::Set)
    };
    let file = || value_parser!(PathBuf);
    let mut command = command
        .arg(flag("kubeconfig", "FILE").value_parser(file()))
        .arg(flag("karmada-context", "CONTEXT"))
        .arg(flag("namespace", "NAMESPACE").short('n'))
        .arg(flag("filename", "FILE").short('f').value_parser(file()));
    for (name, short, value) in VALUE_FLAGS {
        command = command.arg(flag(name, value).short(short));
    }
    if has_members {
        let scopes = ["karmada", "members"];
        command = command.arg(flag("cluster", "CLUSTER").short('C')).arg(
            flag("operation-scope", "SCOPE")
                .short('s')
                .value_parser(scopes),
        );
    }
    let value = match arguments {
        KubectlArguments::None => return command,
        KubectlArguments::Types => "TYPE-OF-FIELDS",
        KubectlArguments::Resources => "RESOURCE",
        KubectlArguments::PodOrResource => "POD or TYPE/NAME",
    };
    let positional = Arg::new("arguments").value_name(value);
    command.arg(positional.action(ArgAction::Append).num_args(0..))
}

#[cfg(test)]
mod tests {
    use clap::{Args, Subcommand};

    use super::*;
    use crate::apply::ApplyArgs;
    use crate::kubectl_commands::KubectlCommand;

    // proves: CLI-completion
    #[test]
    fn every_command_that_kubectl_does_has_arguments_to_complete() {
        let all = KubectlCommand::augment_subcommands(Command::new("flotilla"));
        let all = all.subcommand(ApplyArgs::augment_args(Command::new("apply")));
        let all = replace_kubectl_arguments(all);
        for command in all.get_subcommands() {
            let positionals = command.get_positionals();
            let mut passed_on = positionals.filter(|arg| arg.is_allow_hyphen_values_set());
            assert!(passed_on.next().is_none(), "{}", command.get_name());
        }
        all.debug_assert();
    }
}
