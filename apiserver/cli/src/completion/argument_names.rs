//! Which arguments of the command line are completed with which names.

use clap::Arg;

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
    Addons,
}

/// By the flag, or for positional arguments by the name of the value in the help.
pub(super) fn names_of(arg: &Arg) -> Option<ArgumentNames> {
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
        (None, "ADDON") => ArgumentNames::Addons,
        _ => return None,
    })
}
