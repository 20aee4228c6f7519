//! What the controllers of this crate work with beside their context.

use std::sync::Arc;
use std::time::Duration;

use controller_context::{NamespaceFilter, TypeConfigs, WorkClient};
use flotilla_runtime::RestMapper;
use overrides::OverrideManager;

/// The parts that the controllers need.
pub struct PolicyControllersOptions {
    pub rest_mapper: Arc<RestMapper>,
    pub works: WorkClient,
    pub overrides: OverrideManager,
    /// The namespaces that are created in every cluster.
    pub namespace_filter: NamespaceFilter,
    pub type_configs: TypeConfigs,
    /// Interval of the full recount of quota usage where quotas are enforced; zero: recount only on
    /// events.
    pub quota_resync: Duration,
}
