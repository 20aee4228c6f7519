//! Starts the status controllers.

use std::sync::Arc;

use flotilla_runtime::RestMapper;

use crate::context::StatusControllersContext;

/// Starts both controllers; they end with `deps.tasks`.
pub fn start(deps: StatusControllersContext) {
    let mapper = Arc::new(RestMapper::new(Arc::clone(&deps.control_plane)));
    crate::work::controller::start(&deps, &mapper);
    crate::binding::controller::start(&deps, &mapper);
}
