//! The controller of FederatedHPA, which scales a workload by the metrics of its pods in all clusters.
//!
//! Source: Karmada's `pkg/controllers/federatedhpa`. Members are asked directly, in parallel, and
//! with a deadline each; Karmada asks its metrics adapter. Workloads that are watched in the members for
//! their status are not asked for their scale.

mod behavior;
mod controller;
mod decision;
mod desired_replicas;
mod member_metrics;
mod pod_groups;
mod replica_calculator;
mod scaling_history;
mod scaling_limits;
mod settings;
mod spec;
mod target_scale;
mod target_state;
#[cfg(test)]
mod tests;

pub(crate) use controller::FederatedHpaController;
pub use settings::FederatedHpaSettings;
