//! Joining clusters to the control plane, and unjoining them.
//!
//! Karmada: `pkg/karmadactl/{join,unjoin}`, `pkg/util/credential.go`. Progress is
//! reported in short sentences without credentials.

mod join_cluster;
mod join_spec;
pub(crate) mod objects;
mod unjoin_cluster;
pub(crate) mod wait;

pub use join_cluster::{JoinError, JoinedCluster, check_cluster_name, join};
pub(crate) use join_cluster::{cluster_id, create_if_absent};
pub use join_spec::JoinSpec;
pub(crate) use unjoin_cluster::remove_blocking_finalizers;
pub use unjoin_cluster::{UnjoinError, UnjoinSpec, unjoin};

/// Called with a description of each step.
pub type ProgressCallback<'a> = &'a (dyn Fn(&str) + Sync);

#[cfg(test)]
mod tests;
