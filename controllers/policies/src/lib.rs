//! The controllers beside the pipeline from templates to members: namespaces and impersonation
//! rights in every cluster, the shares and usage of FederatedResourceQuotas, WorkloadRebalancers,
//! and the capacities that ReplicaSchedulingPreferences count with.
//!
//! namespaces ──[`namespaces`]──► Works
//! RBAC rules for the cluster proxy ──[`unified_auth`]──► Works
//! FederatedResourceQuotas ──[`quotas`]──► Works, and the status of the quotas
//! pods that clusters cannot place ──[`observed_capacity`]──► an annotation of bindings
//! WorkloadRebalancers ──[`rebalancer`]──► `rescheduleTriggeredAt` of bindings
//!
//! They write only through the control plane's API, and create Works without a binding.
//!
//! Entry point: [`start`].

mod namespaces;
mod observed_capacity;
mod options;
mod quotas;
mod rebalancer;
mod start;
mod unified_auth;

pub use options::PolicyControllersOptions;
pub use start::start;
