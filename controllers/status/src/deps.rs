//! Starts the status controllers with everything they need.

use std::sync::Arc;

use client::Api;
use interpreter::Interpreter;
use machinery::time::Clock;
use flotilla_runtime::{HostWorkloads, Informers, Recorder, Tasks};
use scheduler::Clusters;

use crate::access::MemberStatus;
use crate::mapper::Mapper;

/// The dependencies of the status controllers.
#[derive(Clone)]
pub struct Deps {
    pub control: Arc<dyn Api>,
    pub members: Arc<dyn MemberStatus>,
    pub clusters: Clusters,
    pub recorder: Recorder,
    pub interpreter: Interpreter,
    pub clock: Arc<dyn Clock>,
    /// Informers of the control plane.
    pub informers: Informers,
    /// Whether the host writes the status of templates itself.
    pub host: HostWorkloads,
    pub tasks: Tasks,
}

/// Starts both controllers; they end with `deps.tasks`.
pub fn start(deps: Deps) {
    let mapper = Arc::new(Mapper::new(Arc::clone(&deps.control)));
    crate::work::shell::start(&deps, &mapper);
    crate::binding::shell::start(&deps, &mapper);
}
