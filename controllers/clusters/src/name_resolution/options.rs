//! The times of the detector, and what its parts name alike.

use std::time::Duration;

use machinery::Gvr;

pub(super) static NODES: Gvr = Gvr::from_static("", "v1", "nodes");

/// The reasons of the condition.
pub(super) const READY: &str = "ServiceDomainNameResolutionReady";
pub(super) const FAILED: &str = "ServiceDomainNameResolutionFailed";

/// The times of the detector; the defaults are Karmada's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameResolutionOptions {
    /// The interval between lookups.
    pub period: Duration,
    /// How long lookups must succeed, or fail, before the condition of a node changes.
    pub success_threshold: Duration,
    pub failure_threshold: Duration,
    /// The age at which the condition of a node counts as unknown.
    pub stale_threshold: Duration,
}

impl Default for NameResolutionOptions {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(5),
            success_threshold: Duration::from_secs(30),
            failure_threshold: Duration::from_secs(30),
            stale_threshold: Duration::from_secs(60),
        }
    }
}
