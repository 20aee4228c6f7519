//! Works become objects in member clusters, and stay so.
//!
//! Enters: works, clusters, what members tell of managed objects. Leaves: objects
//! made, changed and deleted in members; the conditions Dispatching and Applied of
//! works; their finalizers removed. A cluster has its own queue and workers.

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
