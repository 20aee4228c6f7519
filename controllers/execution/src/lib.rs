//! Applies Works to member clusters, and keeps the objects there as the Works require.
//!
//! The controller watches Works, clusters and managed objects in members. It creates, updates and
//! deletes objects in members, sets the Dispatching and Applied conditions of Works, and removes
//! their finalizers. Each cluster has its own queue and workers.

mod apply_manifest;
mod apply_work;
mod cluster_executor;
mod compare;
mod conditions;
mod containment;
mod controller;
mod custom_schemas;
mod delete_work;
mod drift_repair;
mod field_managers;
mod idle_informers;
mod initial_list;
mod list_keys;
mod manifest;
mod member_merge;
mod member_update;
mod metrics;
mod options;
mod propagation;
mod protected_object;
mod repair_backoff;
mod stop_idle_informers;
#[cfg(test)]
mod tests;

pub use controller::ExecutionController;
pub use metrics::member_writes;
pub use options::{ExecutionControllerOptions, ExecutionScope, MEMBER_CALL_TIMEOUT};
