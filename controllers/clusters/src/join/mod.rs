//! Joining clusters to the control plane, and unjoining them.
//!
//! Karmada: `pkg/karmadactl/{join,unjoin}`, `pkg/util/credential.go`. Progress is
//! reported in short sentences without credentials.

mod join_cluster;
mod join_spec;
mod objects;
mod unjoin_cluster;
mod wait;

pub use join_cluster::{JoinError, JoinedCluster, join};
pub use join_spec::JoinSpec;
pub use unjoin_cluster::{UnjoinError, UnjoinSpec, unjoin};

/// Called with a description of each step.
pub type ProgressCallback<'a> = &'a (dyn Fn(&str) + Sync);

#[cfg(test)]
mod tests;
