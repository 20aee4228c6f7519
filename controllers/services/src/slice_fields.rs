//! Labels and fields of EndpointSlices that several controllers read.

use machinery::Object;

/// The label with the name of the Service.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label with the controller that manages the slice.
pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Its value on slices that come from another cluster.
pub(crate) const IMPORTED_VALUE: &str = "endpointslice-controller.karmada.io";
/// Its value on slices that Karmada has dispatched for a MultiClusterService.
pub(crate) const DISPATCHED_VALUE: &str = "endpointslice-dispatch-controller.karmada.io";

/// How many slices of a Service one cluster contributes, the first by name: 10,000 endpoints in slices
/// as Kubernetes makes them. What a member reports beyond is left out, with an event.
pub(crate) const MAX_SLICES: usize = 100;

/// Whether the slice came to its cluster from another one (Karmada's
/// `IsEndpointSliceManagedByKarmada`).
pub(crate) fn comes_from_other_cluster(slice: &Object) -> bool {
    let managed_by = slice.meta().label(MANAGED_BY);
    matches!(managed_by, Some(IMPORTED_VALUE | DISPATCHED_VALUE))
}

/// The name of the Service of a slice.
pub(crate) fn service_name(slice: &Object) -> Option<&str> {
    let name = slice.meta().label(SERVICE_NAME);
    name.filter(|name| !name.is_empty())
}

/// The kinds for which slices are collected, in the label `endpointslice.karmada.io/managed-by`.
pub(crate) const EXPORT_KIND: &str = "ServiceExport";
pub(crate) const MULTI_CLUSTER_SERVICE_KIND: &str = "MultiClusterService";
