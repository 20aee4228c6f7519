//! The API server and its options.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use auth::{Authentication, Authorization};
use machinery::time::{Clock, SystemClock};
use registry::Registry;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::connect::{Connectors, Tellers};
use crate::health::{Check, Probe};
use crate::metrics::Metrics;
use crate::review::Webhooks;
use crate::server;
use crate::version::Version;

/// Options of an [`ApiServer`].
pub struct Options {
    pub version: Version,
    /// Checks of `/livez` and `/readyz`, in order. `ping` and `shutdown` are added.
    pub checks: Vec<Check>,
    pub connectors: Connectors,
    pub tellers: Tellers,
    /// Admission webhooks that other API servers call, by path; callers are not
    /// authenticated.
    pub webhooks: Webhooks,
    /// Fails while the server does not know every resource yet; until it succeeds, 404
    /// becomes 503. `None` means it always knows.
    pub whole: Option<Probe>,
    pub clock: Arc<dyn Clock>,
    /// The registry behind `/metrics`; other parts of this server register theirs here.
    pub metrics: flotilla_metrics::Registry,
    /// Whether `/metrics` includes the metrics of the whole process.
    pub process_metrics: bool,
    /// Bounds on requests in flight; long-running requests and `system:masters` are
    /// exempt.
    pub max_readonly: usize,
    pub max_mutating: usize,
    pub request_timeout: Duration,
    /// How long a stopping server still accepts requests, so that load balancers see
    /// `/readyz` fail first (kube-apiserver's `--shutdown-delay-duration`).
    pub delay: Duration,
    /// How long a stopping server waits for streams; watches end within half of it.
    /// Short requests are bounded by `request_timeout`.
    pub grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            version: Version::new("1", "36", env!("CARGO_PKG_VERSION")),
            checks: Vec::new(),
            connectors: Connectors::new(),
            tellers: Tellers::new(),
            webhooks: Webhooks::new(),
            whole: None,
            clock: Arc::new(SystemClock),
            metrics: flotilla_metrics::Registry::new(),
            process_metrics: true,
            max_readonly: 400,
            max_mutating: 200,
            request_timeout: Duration::from_secs(60),
            delay: Duration::ZERO,
            grace: Duration::from_secs(10),
        }
    }
}

/// The HTTPS server.
pub struct Server {
    app: Arc<App>,
    stopping: CancellationToken,
    delay: Duration,
    grace: Duration,
}

impl Server {
    /// Registers the server's metrics with `options.metrics`, which no other server may
    /// share.
    pub fn new(
        registry: Arc<Registry>,
        authentication: impl Into<Authentication>,
        authorization: impl Into<Authorization>,
        mut options: Options,
    ) -> Self {
        let metrics = Arc::new(Metrics::new(
            options.metrics.clone(),
            options.process_metrics,
            &options.version,
        ));
        options.checks.insert(0, Check::live("ping", || Ok(())));
        let stopping = CancellationToken::new();
        let shutting_down = stopping.clone();
        options.checks.push(Check::ready("shutdown", move || {
            if shutting_down.is_cancelled() {
                Err("the server is shutting down".into())
            } else {
                Ok(())
            }
        }));
        let (delay, grace) = (options.delay, options.grace);
        let app = App::new(
            registry,
            authentication.into(),
            authorization.into(),
            options,
            metrics,
        );
        Self {
            app,
            stopping,
            delay,
            grace,
        }
    }

    /// Serves until `shutdown` resolves and every open connection has ended.
    pub async fn serve(
        &self,
        listener: TcpListener,
        tls: Arc<ServerConfig>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        let app = Arc::clone(&self.app);
        let shutdown = async {
            shutdown.await;
            self.stopping.cancel();
            tokio::time::sleep(self.delay).await;
        };
        server::serve(app, listener, tls, self.grace, shutdown).await
    }
}
