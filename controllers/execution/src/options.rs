//! What the execution controller works with beside its context.

use std::sync::Arc;
use std::time::Duration;

use controller_context::{ManifestMemoryBudget, WorkClient};
use flotilla_runtime::{ClusterLister, RestMapper};

/// Timeout of one call to a member.
pub const MEMBER_CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The parts that the controller needs.
pub struct ExecutionControllerOptions {
    pub rest_mapper: Arc<RestMapper>,
    pub works: WorkClient,
    pub memory: Arc<ManifestMemoryBudget>,
    pub scope: ExecutionScope,
    /// Timeout of one call to a member.
    pub call_timeout: Duration,
}

/// The clusters whose Works this process executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecutionScope {
    /// Every cluster that is not in pull mode.
    PushClusters,
    /// One cluster, as in a pull-mode agent.
    SingleCluster(String),
}

impl ExecutionScope {
    pub(crate) fn includes(&self, cluster: &str, clusters: &ClusterLister) -> bool {
        match self {
            Self::SingleCluster(name) => name == cluster,
            Self::PushClusters => clusters
                .get(cluster)
                .is_none_or(|listed| listed.cluster.spec.sync_mode != "Pull"),
        }
    }
}
