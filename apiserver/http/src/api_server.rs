//! The API server.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use auth::{RequestAuthenticator, RequestAuthorizer};
use registry::Registry;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::handler::ApiServerHandler;
use crate::health::HealthCheck;
use crate::metrics::ApiServerMetrics;
use crate::options::Options;
use crate::secure_serving;

/// The HTTPS server.
pub struct ApiServer {
    app: Arc<ApiServerHandler>,
    stopping: CancellationToken,
    shutdown_delay: Duration,
    shutdown_grace_period: Duration,
}

impl ApiServer {
    /// Registers the server's metrics with `options.metrics`, which no other server may
    /// share.
    pub fn new(
        registry: Arc<Registry>,
        authentication: impl Into<RequestAuthenticator>,
        authorization: impl Into<RequestAuthorizer>,
        mut options: Options,
    ) -> Self {
        let metrics = Arc::new(ApiServerMetrics::new(
            options.metrics.clone(),
            options.process_metrics,
            &options.version,
        ));
        options
            .checks
            .insert(0, HealthCheck::liveness("ping", || Ok(())));
        let stopping = CancellationToken::new();
        let shutting_down = stopping.clone();
        options
            .checks
            .push(HealthCheck::readiness("shutdown", move || {
                if shutting_down.is_cancelled() {
                    Err("the server is shutting down".into())
                } else {
                    Ok(())
                }
            }));
        let (shutdown_delay, shutdown_grace_period) =
            (options.shutdown_delay, options.shutdown_grace_period);
        let app = ApiServerHandler::new(
            registry,
            authentication.into(),
            authorization.into(),
            options,
            metrics,
        );
        Self {
            app,
            stopping,
            shutdown_delay,
            shutdown_grace_period,
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
            tokio::time::sleep(self.shutdown_delay).await;
        };
        secure_serving::serve_connections(app, listener, tls, self.shutdown_grace_period, shutdown)
            .await
    }
}
