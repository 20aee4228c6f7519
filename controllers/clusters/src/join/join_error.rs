//! Why a cluster was not joined.

use std::time::Duration;

use client::Error;

/// Why a cluster was not joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("the cluster name {0:?} is invalid: {1}")]
    InvalidName(String, String),
    #[error("the cluster name {0:?} has been registered")]
    NameTaken(String),
    #[error("the cluster ID {id} has been registered as {name:?}")]
    ClusterIdTaken { id: String, name: String },
    /// The member's `kube-system` namespace has no UID.
    #[error("the member cluster has no ID")]
    NoClusterId,
    #[error("the member cluster provides no CA bundle to verify its endpoint")]
    NoCaBundle,
    #[error("no token for the service account {account:?} within {} s{}", .limit.as_secs(), error_suffix(.last))]
    TokenTimeout {
        account: String,
        limit: Duration,
        last: Option<Error>,
    },
    #[error("the namespace {name:?} of an earlier join is still terminating in the member cluster after {} s{}", .limit.as_secs(), error_suffix(.last))]
    NamespaceTerminating {
        name: String,
        limit: Duration,
        last: Option<Error>,
    },
    #[error("cannot {what} in the member cluster: {source}")]
    MemberApi { what: String, source: Error },
    #[error("cannot {what} in the control plane: {source}")]
    HostApi { what: String, source: Error },
}

pub(super) fn error_suffix(last: &Option<Error>) -> String {
    last.as_ref().map(|e| format!(": {e}")).unwrap_or_default()
}
