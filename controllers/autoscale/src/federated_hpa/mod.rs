//! The controller of FederatedHPA, which scales a workload by the metrics of its pods in all clusters.
//!
//! Source: Karmada's `pkg/controllers/federatedhpa`. Members are asked directly, in parallel, and
//! with a deadline each; Karmada asks its metrics adapter. Workloads that are watched in the members for
//! their status are not asked for their scale.

mod behavior;
#[cfg(test)]
mod calculator_case_tests;
#[cfg(test)]
mod calculator_tests;
#[cfg(test)]
mod condition_tests;
mod controller;
mod decision;
mod desired_replicas;
#[cfg(test)]
mod limits_tests;
mod member_metrics;
mod pod_groups;
mod replica_calculator;
#[cfg(test)]
mod scaling_case_tests;
mod scaling_history;
mod scaling_limits;
#[cfg(test)]
mod scaling_property_tests;
mod settings;
mod spec;
mod target_scale;
#[cfg(test)]
mod target_scale_tests;
mod target_state;
#[cfg(test)]
mod tests;

pub(crate) use controller::FederatedHpaController;
pub use settings::FederatedHpaSettings;
