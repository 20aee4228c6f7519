//! What the status controllers are started with.

use std::sync::Arc;

use client::Api;
use flotilla_runtime::{EventRecorder, HostWorkloads, InformerFactory, TaskGroup};
use interpreter::Interpreter;
use machinery::time::Clock;
use scheduler::SchedulerClusterCache;

use crate::member_informers::MemberInformers;

/// The dependencies of the status controllers.
#[derive(Clone)]
pub struct StatusContext {
    pub control: Arc<dyn Api>,
    pub members: Arc<dyn MemberInformers>,
    pub clusters: SchedulerClusterCache,
    pub recorder: EventRecorder,
    pub interpreter: Interpreter,
    pub clock: Arc<dyn Clock>,
    /// Informers of the control plane.
    pub informers: InformerFactory,
    /// Whether the host writes the status of templates itself.
    pub host: HostWorkloads,
    pub tasks: TaskGroup,
}
