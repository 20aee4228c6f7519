//! Gives a cluster in push mode another name, and points the name of a cluster at another one,
//! without a change of what runs in the members.
//!
//! Cluster, member ──► [`rename_cluster`] ──► Cluster of the new name; bindings and policies name it
//! new member ──► [`replace_cluster`] ──► the same Cluster with another endpoint and credentials
//!
//! Every step tolerates that its work is already done: an interrupted command is repeated.

mod moved_bindings;
mod named_clusters;
mod rename_cluster;
mod rename_error;
mod replace_cluster;
#[cfg(test)]
mod tests;

pub use rename_cluster::{RenameReport, RenameSpec, rename_cluster};
pub use rename_error::RenameError;
pub use replace_cluster::{ReplaceSpec, replace_cluster};
