//! The resources that a proxied request holds until it ends.

use members::ClusterProxyPermit;

use super::proxy_metrics::ProxiedRequestMetricsGuard;

/// A proxied request: its backend permit, and its metrics until it ends.
pub(super) struct ProxyRequestGuard {
    pub(super) permit: ClusterProxyPermit,
    pub(super) metrics: ProxiedRequestMetricsGuard,
}
