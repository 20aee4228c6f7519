//! Joins the clusters that Cluster API provisions, and removes those that it has deleted
//! (Karmada's `pkg/clusterdiscovery/clusterapi`).

mod controller;
mod management_cluster;
#[cfg(test)]
mod tests;

pub use controller::{ClusterApiOptions, MemberClientFactory, start_cluster_api};
