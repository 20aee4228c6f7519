//! Starts the enabled controllers.

use flotilla_runtime::{ControllerContext, create_missing_definitions};

use crate::endpoint_slice::EndpointSliceController;
use crate::multi_cluster_service::{
    EndpointSliceDispatchController, MultiClusterServiceController,
};
use crate::service_import::ServiceImportController;
use crate::slice_collection::SliceCollectionController;
use crate::{SERVICE_EXPORTS, SERVICE_IMPORTS, ServiceControllersOptions};

/// Starts the enabled controllers; they stop with the tasks of the context.
pub async fn start(context: &ControllerContext, options: &ServiceControllersOptions) {
    let enabled = options.enabled;
    if enabled.service_export || enabled.endpoint_slice_collect {
        SliceCollectionController::start(context, options).await;
    }
    if enabled.endpoint_slice {
        EndpointSliceController::start(context).await;
    }
    if enabled.service_import {
        create_missing_definitions(context, &[&SERVICE_EXPORTS, &SERVICE_IMPORTS]);
        ServiceImportController::start(context).await;
    }
    if enabled.multi_cluster_service {
        MultiClusterServiceController::start(context).await;
    }
    if enabled.endpoint_slice_dispatch {
        EndpointSliceDispatchController::start(context).await;
    }
}
