//! What the detector works with beside its context.

use std::sync::Arc;

use controller_context::TemplateInformers;
use scheduler::{DEFAULT_SCHEDULER, DecisionExplanationCache, SchedulerClusterCache};

/// The parts that the detector needs.
pub struct DetectorOptions {
    pub templates: Arc<TemplateInformers>,
    pub scheduling: InlineSchedulingOptions,
}

/// How the detector selects clusters in the write that creates or changes a binding.
#[derive(Clone)]
pub struct InlineSchedulingOptions {
    /// Clusters are selected at once only for bindings of this scheduler.
    pub scheduler_name: String,
    /// The clusters, and the settings of decisions about them.
    pub clusters: SchedulerClusterCache,
    /// Keeps the decisions for explanations.
    pub decisions: DecisionExplanationCache,
}

impl InlineSchedulingOptions {
    /// For bindings of the default scheduler.
    pub fn new(clusters: SchedulerClusterCache) -> Self {
        Self {
            scheduler_name: DEFAULT_SCHEDULER.into(),
            clusters,
            decisions: DecisionExplanationCache::default(),
        }
    }
}
