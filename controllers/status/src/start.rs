//! Starts the status controllers.

use std::sync::Arc;

use controller_context::PropagationContext;
use flotilla_runtime::RestMapper;

use crate::{binding, work};

/// Starts both controllers; they end with the tasks of the context.
pub fn start(context: &PropagationContext) {
    let mapper = Arc::new(RestMapper::new(Arc::clone(
        &context.controller.control_plane,
    )));
    work::controller::start(context, &mapper);
    binding::controller::start(context, &mapper);
}

/// Starts what the agent of a pull-mode cluster runs: the controller of Work status.
pub fn start_agent(context: &PropagationContext) {
    let mapper = Arc::new(RestMapper::new(Arc::clone(
        &context.controller.control_plane,
    )));
    work::controller::start(context, &mapper);
}
