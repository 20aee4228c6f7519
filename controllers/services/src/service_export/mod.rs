//! The controller serviceExport: reports the EndpointSlices of exported Services of members as Works.
//!
//! Source: Karmada's `pkg/controllers/mcs/service_export_controller.go`. Karmada watches all
//! ServiceExports and EndpointSlices of a member from its first export on, for good; here only the
//! namespaces to which exports were propagated are watched, and only as long as they are.

mod collected_work;
mod controller;
mod export_works;
mod namespace_informers;

pub(crate) use controller::ServiceExportController;
