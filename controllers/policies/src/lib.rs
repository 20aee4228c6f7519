//! The controllers beside the pipeline from templates to members: namespaces and impersonation
//! rights in every cluster, the shares and usage of FederatedResourceQuotas, and
//! WorkloadRebalancers.
//!
//! namespaces ──[`NamespaceSyncController`]──► Works
//! RBAC rules for the cluster proxy ──[`UnifiedAuthController`]──► Works
//! FederatedResourceQuotas ──[`quotas`]──► Works, and the status of the quotas
//! WorkloadRebalancers ──[`RebalancerController`]──► `rescheduleTriggeredAt` of bindings
//!
//! They write only through the control plane's API, and create Works without a binding.

mod namespaces;
pub mod quotas;
mod rebalancer;
mod unified_auth;

pub use namespaces::NamespaceSyncController;
pub use rebalancer::RebalancerController;
pub use unified_auth::UnifiedAuthController;
