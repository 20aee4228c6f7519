//! The cluster inventory of SIG Multicluster: a ClusterProfile for each Cluster, by which programs
//! of others find the members.
//!
//! Cluster + address of the control plane ──[`profile`] (pure)──► ClusterProfile and its status ──[`controller`]──► differences
//!
//! Invariants: no credential is in a profile; a profile of another cluster manager is never written;
//! what an agent or a member reports is bounded, and cannot make a status invalid.
//!
//! Entry point: [`start`].

mod address;
mod controller;
mod profile;
#[cfg(test)]
mod tests;

pub use controller::start;

use machinery::Gvr;

static CLUSTER_PROFILES: Gvr =
    Gvr::from_static("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles");
