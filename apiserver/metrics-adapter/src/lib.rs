//! Serves the metrics of all member clusters in a control plane, as Karmada's metrics adapter does
//! (`pkg/metricsadapter`): `metrics.k8s.io`, `custom.metrics.k8s.io` and `external.metrics.k8s.io`.
//!
//! Members are asked when a request comes. A member that does not answer, or has no metrics, is
//! missing in the answer, and a warning of the response says so.

mod custom_metrics;
mod discovery;
mod external_metrics;
mod member_metrics;
pub mod metrics_api;
mod resource_metrics;

use std::collections::HashMap;
use std::sync::Arc;

use addons::AddonSwitches;
use flotilla_http::DynamicGroupProviders;
use members::ClusterProxyBackends;
use registry::ComputedResourceProviders;

use crate::metrics_api::{CUSTOM_METRICS, EXTERNAL_METRICS};
use custom_metrics::MemberCustomMetrics;
use external_metrics::MemberExternalMetrics;
use member_metrics::MemberMetricsReader;
use resource_metrics::MemberResourceMetrics;

/// The providers of a control plane, which answer once they have backends.
#[derive(Default)]
pub struct MetricsAdapter {
    reader: MemberMetricsReader,
}

impl MetricsAdapter {
    /// The providers of PodMetrics and NodeMetrics.
    pub fn computed_resources(&self) -> ComputedResourceProviders {
        MemberResourceMetrics::providers(&self.reader)
    }

    /// The providers of custom and external metrics.
    pub fn dynamic_groups(&self) -> DynamicGroupProviders {
        let custom = MemberCustomMetrics::new(&self.reader);
        let external = MemberExternalMetrics::new(&self.reader);
        HashMap::from([
            (CUSTOM_METRICS, Arc::new(custom) as _),
            (EXTERNAL_METRICS, Arc::new(external) as _),
        ])
    }

    /// Sets how members are reached, and whether the addon is enabled. Later calls have no effect.
    pub fn set_backends(&self, backends: ClusterProxyBackends, addons: &AddonSwitches) {
        self.reader.set_backends(backends, addons);
    }
}
