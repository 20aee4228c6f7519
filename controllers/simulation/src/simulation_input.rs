//! The inputs of the simulation of policies.

use client::ApiResource;
use detector::InterpretedReplicas;
use karmada_api::FeatureGates;
use machinery::Object;
use scheduler::core::ClusterSnapshot;

/// The inputs of the simulation.
#[derive(Clone, Copy, Debug)]
pub struct SimulationInput<'a> {
    /// Policies of all namespaces, and cluster policies.
    pub policies: &'a [Object],
    /// OverridePolicies and ClusterOverridePolicies, on which policies may depend.
    pub overrides: &'a [Object],
    /// Bindings that may share an affinity group with the simulated one.
    pub bindings: &'a [Object],
    pub snapshot: &'a ClusterSnapshot,
    pub scheduler: &'a str,
    pub gates: FeatureGates,
    /// Whether the controllers start anew, by which pending changes of lazy policies take effect.
    pub starts_anew: bool,
}

/// A created or changed policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyChange<'a> {
    /// `None`: the policy is new.
    pub before: Option<&'a Object>,
    pub after: &'a Object,
}

/// A template, and its binding if there is one.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedTemplate<'a> {
    pub api_resource: &'a ApiResource,
    pub template: &'a Object,
    /// See [`crate::interpret_replicas`].
    pub replicas: &'a Result<InterpretedReplicas, String>,
    pub binding: Option<&'a Object>,
    /// The clusters to which the namespace restricts the template; see
    /// [`controller_context::gated_clusters`].
    pub namespace_gate: Option<&'a [String]>,
    /// The FederatedTypeConfig that switches the propagation of the kind off.
    pub disabled_by: Option<&'a str>,
}
