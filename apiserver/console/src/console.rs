//! The state that all pages share: the user's client, and the inventory that it keeps.

use std::sync::Arc;

use async_trait::async_trait;
use client::{Api, TaskGroup};
use flotilla_cli::doctor::report::DoctorReport;

use crate::discovery_cache::DiscoveryCache;
use crate::inventory::Inventory;
use crate::metrics_history::MetricsHistory;

/// Checks the control plane and its members, as `flotilla doctor`.
#[async_trait]
pub(crate) trait ControlPlaneExaminer: Send + Sync {
    async fn examine(&self) -> DoctorReport;
}

pub(crate) struct Console {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) examiner: Arc<dyn ControlPlaneExaminer>,
    pub(crate) inventory: Inventory,
    pub(crate) metrics: Arc<MetricsHistory>,
    /// The address of the control plane, as it is shown.
    pub(crate) control_plane: String,
}

impl Console {
    /// Starts the reflectors, which run until the tasks are stopped.
    pub(crate) fn start(
        api: Arc<dyn Api>,
        examiner: Arc<dyn ControlPlaneExaminer>,
        control_plane: String,
        tasks: &TaskGroup,
    ) -> Arc<Self> {
        let inventory = Inventory::start(&api, tasks);
        let metrics = MetricsHistory::start(&api, tasks, inventory.change_counter());
        Arc::new(Self {
            api: Arc::new(DiscoveryCache::new(api)),
            examiner,
            inventory,
            metrics,
            control_plane,
        })
    }
}
