//! Translates requests over all members into those to the watch cache of one, and its errors back.

use machinery::Status;
use members::MemberObjectSelection;
use watchcache::{Error, ReadFreshness, SelectionPredicate};

use crate::resource_version::MultiClusterResourceVersion;

/// The selection in the terms of a watch cache.
pub(crate) fn selection_predicate(selection: &MemberObjectSelection) -> SelectionPredicate {
    SelectionPredicate {
        namespace: selection.namespace.clone(),
        name: selection.name.clone(),
        matches: selection.matches.clone(),
    }
}

/// The status of a failure in one member, which it names.
pub(crate) fn member_status(cluster: &str, error: &Error) -> Status {
    let mut status = error.status();
    status.message = format!("cluster {cluster:?}: {}", status.message);
    status
}

/// A resourceVersion as the rules of one server know it, to check what goes together.
pub(crate) fn rule_version(text: &str) -> &str {
    match text {
        "" | "0" => text,
        _ => "1",
    }
}

/// The state of a member that is at least as new as a resourceVersion.
pub(crate) fn freshness(version: &MultiClusterResourceVersion, cluster: &str) -> ReadFreshness {
    match version.revision(cluster) {
        None | Some(0) => ReadFreshness::Any,
        Some(revision) => ReadFreshness::AtLeast(revision),
    }
}
