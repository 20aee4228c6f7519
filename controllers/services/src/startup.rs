//! Starts the enabled controllers.

use flotilla_runtime::TaskGroup;

use crate::ServicesContext;
use crate::endpoint_slice::EndpointSliceController;
use crate::service_export::ServiceExportController;
use crate::service_import::ServiceImportController;

/// Starts the enabled controllers; they stop with `tasks`.
pub async fn start(deps: &ServicesContext, tasks: &TaskGroup) {
    if deps.enabled.service_export {
        ServiceExportController::start(deps, tasks).await;
    }
    if deps.enabled.endpoint_slice {
        EndpointSliceController::start(deps, tasks).await;
    }
    if deps.enabled.service_import {
        ServiceImportController::start(deps, tasks).await;
    }
}
