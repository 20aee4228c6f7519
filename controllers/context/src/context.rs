//! What the controllers between templates and members are started with.

use std::sync::Arc;

use flotilla_runtime::{ClusterLister, ControllerContext, HostWorkloadFilter};
use interpreter::ResourceInterpreter;
use karmada_api::FeatureGates;
use members::MemberAccess;

/// The [`ControllerContext`] of the control plane, and what else the controllers of its members
/// share. Karmada's is `pkg/controllers/context`.
#[derive(Clone)]
pub struct PropagationContext {
    pub controller: ControllerContext,
    pub members: Arc<dyn MemberAccess>,
    pub clusters: ClusterLister,
    pub interpreter: ResourceInterpreter,
    /// Whether the API server of the templates runs workloads itself.
    pub host: HostWorkloadFilter,
    pub feature_gates: FeatureGates,
}
