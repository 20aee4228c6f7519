//! What the controllers between templates and members are started with.

use std::ops::Deref;
use std::sync::Arc;

use flotilla_runtime::{ClusterLister, ControllerContext, HostWorkloadFilter};
use interpreter::ResourceInterpreter;
use karmada_api::FeatureGates;
use members::MemberAccess;

/// A [`ControllerContext`] on a control plane with members. Karmada's is
/// `pkg/controllers/context`.
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

impl Deref for PropagationContext {
    type Target = ControllerContext;

    fn deref(&self) -> &ControllerContext {
        &self.controller
    }
}

impl PropagationContext {
    /// As [`ControllerContext::child`].
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            controller: self.controller.child(),
            ..self.clone()
        }
    }
}
