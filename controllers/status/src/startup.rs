//! Starts the status controllers.

use std::sync::Arc;

use flotilla_runtime::RestMapper;

use crate::context::StatusContext;

/// Starts both controllers; they end with `deps.tasks`.
pub fn start(deps: StatusContext) {
    let mapper = Arc::new(RestMapper::new(Arc::clone(&deps.control)));
    crate::work::controller::start(&deps, &mapper);
    crate::binding::controller::start(&deps, &mapper);
}
