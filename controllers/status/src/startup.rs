//! Starts the status controllers.

use std::sync::Arc;

use crate::context::StatusContext;
use crate::rest_mapper::ControlPlaneRestMapper;

/// Starts both controllers; they end with `deps.tasks`.
pub fn start(deps: StatusContext) {
    let mapper = Arc::new(ControlPlaneRestMapper::new(Arc::clone(&deps.control)));
    crate::work::controller::start(&deps, &mapper);
    crate::binding::controller::start(&deps, &mapper);
}
