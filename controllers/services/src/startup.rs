//! Starts the enabled controllers.

use client::TaskGroup;

use crate::ServicesContext;
use crate::definitions;
use crate::endpoint_slice::EndpointSliceController;
use crate::multi_cluster_service::{
    EndpointSliceDispatchController, MultiClusterServiceController,
};
use crate::service_import::ServiceImportController;
use crate::slice_collection::SliceCollectionController;

/// Starts the enabled controllers; they stop with `tasks`.
pub async fn start(deps: &ServicesContext, tasks: &TaskGroup) {
    if deps.enabled.service_export || deps.enabled.endpoint_slice_collect {
        SliceCollectionController::start(deps, tasks).await;
    }
    if deps.enabled.endpoint_slice {
        EndpointSliceController::start(deps, tasks).await;
    }
    if deps.enabled.service_import {
        definitions::start(deps, tasks);
        ServiceImportController::start(deps, tasks).await;
    }
    if deps.enabled.multi_cluster_service {
        MultiClusterServiceController::start(deps, tasks).await;
    }
    if deps.enabled.endpoint_slice_dispatch {
        EndpointSliceDispatchController::start(deps, tasks).await;
    }
}
