//! Controllers that make Services of one cluster available in others.
//!
//! ServiceExport + EndpointSlices in a member ──[`slice_collection`]──► Works in its execution namespace
//! those Works ──[`endpoint_slice`]──► EndpointSlices `imported-<cluster>-<slice>` in the control plane
//! ServiceImport ──[`service_import`]──► Service `derived-<name>` in the control plane
//!
//! The dependencies of the ServiceImport, which are that Service and its EndpointSlices, follow it to
//! the importing clusters.
//!
//! MultiClusterService ──[`multi_cluster_service`]──► Works with it for its providers, binding of its Service
//! those Works + EndpointSlices in a provider ──[`slice_collection`]──► Works in its execution namespace
//! those Works ──[`multi_cluster_service`]──► Works with their slices for the consumers
//!
//! A controller writes only differences. Endpoints of a cluster that is not Ready are withdrawn. What
//! members report is rebuilt field by field ([`slice_content`]), and counts only for Services that the
//! control plane has exported from them.
//!
//! Entry points: [`start`], [`ServiceControllersOptions`], [`EnabledServiceControllers`].

mod endpoint_slice;
mod exported_services;
#[cfg(test)]
mod fixture;
mod multi_cluster_service;
mod service_import;
mod slice_collection;
mod slice_content;
mod slice_fields;
mod start;
#[cfg(test)]
mod tests;
mod work_fields;

use std::sync::Arc;

use karmada_api::{FeatureGates, KarmadaFeature};
use machinery::Gvr;
use members::MemberAccess;

pub use start::start;

static SERVICE_EXPORTS: Gvr =
    Gvr::from_static("multicluster.x-k8s.io", "v1alpha1", "serviceexports");
static SERVICE_IMPORTS: Gvr =
    Gvr::from_static("multicluster.x-k8s.io", "v1alpha1", "serviceimports");
static ENDPOINT_SLICES: Gvr = Gvr::from_static("discovery.k8s.io", "v1", "endpointslices");
static SERVICES: Gvr = Gvr::from_static("", "v1", "services");

/// What the controllers work with beside their context.
#[derive(Clone)]
pub struct ServiceControllersOptions {
    pub members: Arc<dyn MemberAccess>,
    pub enabled: EnabledServiceControllers,
}

/// Which controllers run. The default is Karmada's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnabledServiceControllers {
    /// Enables `serviceExport`.
    pub service_export: bool,
    /// Enables `endpointSlice`.
    pub endpoint_slice: bool,
    /// Enables `serviceImport`.
    pub service_import: bool,
    /// Enables `multiclusterservice`.
    pub multi_cluster_service: bool,
    /// Enables `endpointsliceCollect`.
    pub endpoint_slice_collect: bool,
    /// Enables `endpointsliceDispatch`.
    pub endpoint_slice_dispatch: bool,
}

impl EnabledServiceControllers {
    /// The part that runs in an agent: it reports the slices of its own member.
    pub fn of_agent() -> Self {
        Self {
            service_export: true,
            endpoint_slice: false,
            service_import: false,
            multi_cluster_service: false,
            endpoint_slice_collect: true,
            endpoint_slice_dispatch: false,
        }
    }

    /// Without those whose feature gate is off.
    pub fn gated(self, gates: FeatureGates) -> Self {
        let on = gates.enabled(KarmadaFeature::MultiClusterService);
        Self {
            multi_cluster_service: on && self.multi_cluster_service,
            endpoint_slice_collect: on && self.endpoint_slice_collect,
            endpoint_slice_dispatch: on && self.endpoint_slice_dispatch,
            ..self
        }
    }
}

impl Default for EnabledServiceControllers {
    fn default() -> Self {
        Self {
            service_export: true,
            endpoint_slice: true,
            service_import: true,
            multi_cluster_service: true,
            endpoint_slice_collect: true,
            endpoint_slice_dispatch: true,
        }
    }
}
