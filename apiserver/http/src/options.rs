//! The options of an [`ApiServer`](crate::ApiServer).

use std::sync::Arc;
use std::time::Duration;

use machinery::time::{Clock, SystemClock};

use crate::admission_review::AdmissionReviewHandlers;
use crate::audit::Auditor;
use crate::backup::BackupOpener;
use crate::dynamic_groups::DynamicGroupProviders;
use crate::flowcontrol::FlowController;
use crate::health::{HealthCheck, HealthProbe};
use crate::own_requests::OwnControlPlane;
use crate::subresources::{SubresourceConnectors, SubresourceGetters};
use crate::version::VersionInfo;

/// Options of an [`ApiServer`](crate::ApiServer).
pub struct ApiServerOptions {
    pub version: VersionInfo,
    /// Host and port at which clients reach this server, for discovery.
    pub external_address: String,
    /// Checks of `/livez` and `/readyz`, in order. `ping` and `shutdown` are added.
    pub checks: Vec<HealthCheck>,
    pub connectors: SubresourceConnectors,
    /// Serves requests that a proxy of this server passes on to it.
    pub own_control_plane: Option<Arc<OwnControlPlane>>,
    pub subresource_getters: SubresourceGetters,
    /// The providers of the registry's dynamic groups.
    pub dynamic_groups: DynamicGroupProviders,
    /// Admission webhooks that other API servers call, by path; callers are not
    /// authenticated.
    pub webhook_handlers: AdmissionReviewHandlers,
    /// Fails while the server does not know every resource yet; until it succeeds, 404
    /// becomes 503. `None` means it always knows.
    pub resources_installed: Option<HealthProbe>,
    pub clock: Arc<dyn Clock>,
    /// The registry behind `/metrics`; other parts of this server register theirs here.
    pub metrics: flotilla_metrics::MetricsRegistry,
    /// Whether `/metrics` includes the metrics of the whole process.
    pub process_metrics: bool,
    /// Whether `/debug/pprof/` has profiles of the process.
    pub profiling: bool,
    /// Begins the backups of the store; `None`: none are served.
    pub backup: Option<BackupOpener>,
    /// Bounds on requests in flight; long-running requests and `system:masters` are
    /// exempt.
    pub max_requests_inflight: usize,
    pub max_mutating_requests_inflight: usize,
    pub request_timeout: Duration,
    /// `None`: nothing is audited.
    pub auditor: Option<Arc<Auditor>>,
    /// Takes the place of the bounds on requests in flight.
    pub flow_control: Option<Arc<FlowController>>,
    /// How long a stopping server still accepts requests, so that load balancers see
    /// `/readyz` fail first (kube-apiserver's `--shutdown-delay-duration`).
    pub shutdown_delay: Duration,
    /// How long a stopping server waits for streams; watches end within half of it.
    /// Short requests are bounded by `request_timeout`.
    pub shutdown_grace_period: Duration,
}

impl Default for ApiServerOptions {
    fn default() -> Self {
        Self {
            version: VersionInfo::new("1", "36", env!("CARGO_PKG_VERSION")),
            external_address: String::new(),
            checks: Vec::new(),
            connectors: SubresourceConnectors::new(),
            own_control_plane: None,
            subresource_getters: SubresourceGetters::new(),
            dynamic_groups: DynamicGroupProviders::new(),
            webhook_handlers: AdmissionReviewHandlers::new(),
            resources_installed: None,
            clock: Arc::new(SystemClock),
            metrics: flotilla_metrics::MetricsRegistry::new(),
            process_metrics: true,
            profiling: true,
            backup: None,
            max_requests_inflight: 400,
            max_mutating_requests_inflight: 200,
            request_timeout: Duration::from_secs(60),
            auditor: None,
            flow_control: None,
            shutdown_delay: Duration::ZERO,
            shutdown_grace_period: Duration::from_secs(10),
        }
    }
}
