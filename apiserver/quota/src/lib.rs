//! Arithmetic of limits: what pods request, what objects use of a ResourceQuota, what bindings use
//! of a FederatedResourceQuota, and what evictions use of a PodDisruptionBudget.
//!
//! The API server charges usage, and controllers recalculate it, by the same functions. No I/O, no
//! clock.

pub mod disruption_budget;
pub mod federated_resource_quota;
mod pod_requests;
pub mod resource_quota;

pub use pod_requests::{
    RequestingContainer, ResourceList, ResourceRequirements, pod_limits, pod_requests,
};
