//! Arithmetic of resource amounts: what pods request, what objects use of a ResourceQuota, and
//! what bindings use of a FederatedResourceQuota.
//!
//! Admission charges usage, and controllers recalculate it, by the same functions. No I/O, no
//! clock.

pub mod federated_resource_quota;
mod pod_requests;
pub mod resource_quota;

pub use pod_requests::{
    RequestingContainer, ResourceList, ResourceRequirements, pod_limits, pod_requests,
};
