//! The state that all pages share: the user's client, and the inventory that it keeps.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use client::{Api, TaskGroup};
use flotilla_cli::doctor::report::DoctorReport;
use futures_util::stream::BoxStream;
use tokio::sync::Semaphore;

use crate::discovery_cache::DiscoveryCache;
use crate::inventory::Inventory;
use crate::metrics_history::MetricsHistory;

/// Checks the control plane and its members, as `flotilla doctor`.
#[async_trait]
pub(crate) trait ControlPlaneExaminer: Send + Sync {
    async fn examine(&self) -> DoctorReport;
}

/// A response as it arrives. An empty piece says that it is still open.
pub(crate) type ResponseStream = BoxStream<'static, client::Result<Bytes>>;

/// Opens responses of the server that go on, such as followed logs.
#[async_trait]
pub(crate) trait StreamOpener: Send + Sync {
    async fn open(&self, path: &str) -> client::Result<ResponseStream>;
}

/// The connections of a user to the control plane.
pub(crate) struct UserConnections {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) streams: Arc<dyn StreamOpener>,
    pub(crate) examiner: Arc<dyn ControlPlaneExaminer>,
}

/// The control plane that a console is about, and the user for whom it is.
pub(crate) struct ConsoleSubject {
    /// The address of the control plane, as it is shown.
    pub(crate) control_plane: String,
    /// The name of the user, as it is shown; none if it is the user of the command.
    pub(crate) user_name: Option<String>,
    /// The namespace of the user, whose objects are shown if not those of all may be listed. May be empty.
    pub(crate) namespace: String,
}

/// Pages of a user that are kept up to date at once; each runs until its tab is hidden or closed.
const MAX_LIVE_PAGES: usize = 32;

pub(crate) struct Console {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) streams: Arc<dyn StreamOpener>,
    pub(crate) examiner: Arc<dyn ControlPlaneExaminer>,
    pub(crate) inventory: Inventory,
    pub(crate) metrics: Arc<MetricsHistory>,
    /// The address of the control plane, as it is shown.
    pub(crate) control_plane: String,
    /// The name of the user, as it is shown; none if it is the user of the command.
    pub(crate) user_name: Option<String>,
    pub(crate) live_pages: Arc<Semaphore>,
}

impl Console {
    /// Starts the reflectors, which run until the tasks are stopped.
    pub(crate) fn start(
        connections: UserConnections,
        subject: ConsoleSubject,
        tasks: &TaskGroup,
    ) -> Arc<Self> {
        let UserConnections {
            api,
            streams,
            examiner,
        } = connections;
        let ConsoleSubject {
            control_plane,
            user_name,
            namespace,
        } = subject;
        let inventory = Inventory::start(&api, &namespace, tasks);
        let metrics = MetricsHistory::start(&api, tasks, inventory.change_counter());
        Arc::new(Self {
            api: Arc::new(DiscoveryCache::new(api)),
            streams,
            examiner,
            inventory,
            metrics,
            control_plane,
            user_name,
            live_pages: Arc::new(Semaphore::new(MAX_LIVE_PAGES)),
        })
    }
}
