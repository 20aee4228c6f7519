//! Applies Works to member clusters, and keeps the objects there as the Works require.
//!
//! The controller watches Works, clusters and managed objects in members. It creates, updates and
//! deletes objects in members, sets the Dispatching and Applied conditions of Works, and removes
//! their finalizers. Each cluster has its own queue and workers.

mod apply;
mod compare;
mod conditions;
mod idle;
#[cfg(test)]
mod lane_tests;
mod lanes;
mod manifest;
mod remove;
mod shell;

pub(crate) use shell::Execution;
