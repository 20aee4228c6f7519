//! What the controllers of the way back need, and their start.

use std::sync::Arc;

use client::Api;
use interpreter::Interpreter;
use machinery::time::Clock;
use flotilla_runtime::{HostWorkloads, Informers, Recorder, Tasks};
use scheduler::Clusters;

use crate::access::MemberStatus;
use crate::mapper::Mapper;

/// What the controllers stand on.
#[derive(Clone)]
pub struct Deps {
    pub control: Arc<dyn Api>,
    pub members: Arc<dyn MemberStatus>,
    pub clusters: Clusters,
    pub recorder: Recorder,
    pub interpreter: Interpreter,
    pub clock: Arc<dyn Clock>,
    /// Of the control plane.
    pub informers: Informers,
    /// Whether the server of the templates writes their status itself.
    pub host: HostWorkloads,
    pub tasks: Tasks,
}

/// Starts both controllers; they end with the tasks.
pub fn start(deps: Deps) {
    let mapper = Arc::new(Mapper::new(Arc::clone(&deps.control)));
    crate::work::shell::start(&deps, &mapper);
    crate::binding::shell::start(&deps, &mapper);
}
