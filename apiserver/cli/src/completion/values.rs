//! Which arguments of the command line are completed with which names.

use std::ffi::OsStr;
use std::sync::Arc;

use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};

use super::invocation::Invocation;
use super::live_names;

/// The names that an argument can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentNames {
    Clusters,
    /// The word `clusters`, then clusters.
    TaintedClusters,
    Namespaces,
    /// Contexts of the kubeconfig of the control plane.
    Contexts,
    /// Contexts of the kubeconfig of a member.
    ClusterContexts,
    /// `TYPE NAME ...` or `TYPE/NAME ...`.
    Resources,
    /// `TYPE/NAME ...`.
    ResourcePaths,
    /// `TYPE`.
    Types,
    /// `POD` or `TYPE/NAME`.
    PodOrResource,
    /// Pods of the member that the command line names.
    Pods,
    /// Nodes of the member that the command line names.
    Nodes,
}

/// By the flag, or for positional arguments by the name of the value in the help.
fn names_of(arg: &Arg) -> Option<ArgumentNames> {
    let value = arg.get_value_names().and_then(<[_]>::first);
    let value = value.map_or("", |name| name.as_str());
    Some(match (arg.get_long(), value) {
        (Some("cluster" | "clusters"), _) | (None, "CLUSTER") => ArgumentNames::Clusters,
        (Some("cluster-context"), _) => ArgumentNames::ClusterContexts,
        (Some(_), "CONTEXT") => ArgumentNames::Contexts,
        (Some(_), "NAMESPACE") => ArgumentNames::Namespaces,
        (None, "clusters NAME ... TAINT ...") => ArgumentNames::TaintedClusters,
        (None, "TYPE" | "RESOURCE") => ArgumentNames::Resources,
        (None, "TYPE/NAME") => ArgumentNames::ResourcePaths,
        (None, "TYPE-OF-FIELDS") => ArgumentNames::Types,
        (None, "POD or TYPE/NAME") => ArgumentNames::PodOrResource,
        (None, "POD") => ArgumentNames::Pods,
        (None, "NODE") => ArgumentNames::Nodes,
        _ => return None,
    })
}

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
            let found = live_names::complete(names, &invocation, current);
            found.into_iter().map(CompletionCandidate::new).collect()
        }))
    });
    command.mut_subcommands(|subcommand| add_completers(subcommand, invocation))
}
