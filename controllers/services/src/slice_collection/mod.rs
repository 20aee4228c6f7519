//! The controllers serviceExport and endpointsliceCollect: report the EndpointSlices of members' Services
//! as Works, those of exported Services and those of MultiClusterServices.
//!
//! Source: Karmada's `pkg/controllers/mcs/service_export_controller.go` and
//! `pkg/controllers/multiclusterservice/endpointslice_collect_controller.go`. A slice that is collected
//! for both kinds is one Work, so both are one controller, with one informer. Karmada watches all
//! ServiceExports and EndpointSlices of a member from the first on, for good; here only the namespaces to
//! which an export or a MultiClusterService was propagated are watched, and only as long as they are.

mod collected_work;
mod collection_works;
mod controller;
mod namespace_informers;

pub(crate) use controller::SliceCollectionController;
