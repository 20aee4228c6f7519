//! What the propagation controllers work with beside their context.

use std::time::Duration;

use controller_context::TemplateFilterOptions;
use detector::InlineSchedulingOptions;
use execution::MEMBER_CALL_TIMEOUT;
use rollout::QueryServers;

/// Interval of the full recount of quota usage where quotas are enforced.
pub const QUOTA_RESYNC_PERIOD: Duration = Duration::from_secs(300);

/// The parts and settings that the controllers need.
pub struct PropagationOptions {
    pub templates: TemplateFilterOptions,
    pub scheduling: InlineSchedulingOptions,
    /// Timeout of one call to a member.
    pub call_timeout: Duration,
    /// Interval of the full recount of quota usage where quotas are enforced; zero: recount only on
    /// events.
    pub quota_resync: Duration,
    /// The servers that answer the queries of staged rollouts, beside the members in push mode.
    pub queries: QueryServers,
}

impl PropagationOptions {
    /// The default settings.
    pub fn new(scheduling: InlineSchedulingOptions) -> Self {
        Self {
            templates: TemplateFilterOptions::default(),
            scheduling,
            call_timeout: MEMBER_CALL_TIMEOUT,
            quota_resync: QUOTA_RESYNC_PERIOD,
            queries: QueryServers::default(),
        }
    }
}
