//! Why a cluster was not renamed or replaced.

use std::time::Duration;

use client::Error;
use machinery::object::MalformedObject;

use crate::join::JoinError;

/// Why a cluster was not renamed or replaced.
#[derive(Debug, thiserror::Error)]
pub enum RenameError {
    #[error("no cluster object {0:?} found in the control plane")]
    NotFound(String),
    #[error("cluster {0:?} is a Pull mode member cluster; register it again under the new name")]
    PullMode(String),
    #[error("the cluster name {0:?} has been registered")]
    NameTaken(String),
    #[error("cluster {name:?} is being renamed to {new:?}; finish that first")]
    RenamedElsewhere { name: String, new: String },
    /// Policies name the old cluster, and may not be changed.
    #[error("{} objects name the cluster {name:?}: {}; --rewrite-policies changes them", .objects.len(), .objects.join(", "))]
    NamedByPolicies { name: String, objects: Vec<String> },
    #[error(
        "cluster {0:?} is Ready: what runs there would be left alone and forgotten; --force replaces it anyway"
    )]
    StillReady(String),
    #[error("the Secret {namespace}/{name} has no usable caBundle or token")]
    BrokenSecret { namespace: String, name: String },
    #[error("{what} within {} s; run the command again", .limit.as_secs())]
    Timeout { what: String, limit: Duration },
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error("cannot {what} in the member cluster: {source}")]
    MemberApi { what: String, source: Error },
    #[error("cannot {what} in the control plane: {source}")]
    HostApi { what: String, source: Error },
    #[error("an object of the control plane cannot be read: {0}")]
    Malformed(#[from] MalformedObject),
}

pub(super) fn host_error(what: impl Into<String>) -> impl FnOnce(Error) -> RenameError {
    let what = what.into();
    move |source| RenameError::HostApi { what, source }
}

pub(super) fn member_error(what: impl Into<String>) -> impl FnOnce(Error) -> RenameError {
    let what = what.into();
    move |source| RenameError::MemberApi { what, source }
}
