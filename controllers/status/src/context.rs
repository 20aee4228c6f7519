//! The start parameters of the status controllers.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, InformerFactory, TaskGroup};
use flotilla_runtime::{EventRecorder, HostWorkloadFilter};
use interpreter::ResourceInterpreter;
use machinery::time::Clock;
use members::MemberAccess;
use scheduler::SchedulerClusterCache;

/// Minimum time between two writes of one status; the first is never delayed. Several
/// clusters often report within a few milliseconds.
pub(crate) const MIN_WRITE_INTERVAL: Duration = Duration::from_millis(20);

/// The dependencies of the status controllers.
#[derive(Clone)]
pub struct StatusControllersContext {
    pub control_plane: Arc<dyn Api>,
    pub members: Arc<dyn MemberAccess>,
    pub clusters: SchedulerClusterCache,
    pub recorder: EventRecorder,
    pub interpreter: ResourceInterpreter,
    pub clock: Arc<dyn Clock>,
    /// Informers of the control plane.
    pub informers: InformerFactory,
    /// Whether the host writes the status of templates itself.
    pub host: HostWorkloadFilter,
    pub tasks: TaskGroup,
}
