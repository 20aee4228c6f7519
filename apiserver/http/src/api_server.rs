//! The API server: puts filters and handlers together and serves them.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use auth::{RequestAuthenticator, RequestAuthorizer};
use registry::Registry;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::documents::CurrentApiDocuments;
use crate::dynamic_groups::DynamicGroups;
use crate::filters::{HandlerChainConfig, InFlightLimits, build_handler_chain};
use crate::handler::ApiServerHandler;
use crate::health::HealthCheck;
use crate::metrics::ApiServerMetrics;
use crate::non_resource_paths::NonResourcePathHandler;
use crate::options::ApiServerOptions;
use crate::own_requests::RequestHandling;
use crate::resource_handlers::ResourceRequestDispatcher;
use crate::secure_serving::SecureServing;

/// The HTTPS server.
pub struct ApiServer {
    requests: Arc<RequestHandling>,
    serving: SecureServing,
    stopping: CancellationToken,
    shutdown_delay: Duration,
}

impl ApiServer {
    /// Registers the server's metrics with `options.metrics`, which no other server may
    /// share.
    pub fn new(
        registry: Arc<Registry>,
        authentication: impl Into<RequestAuthenticator>,
        authorization: impl Into<RequestAuthorizer>,
        mut options: ApiServerOptions,
    ) -> Self {
        let metrics = Arc::new(ApiServerMetrics::new(
            options.metrics.clone(),
            options.process_metrics,
            &options.version,
        ));
        let stopping = CancellationToken::new();
        add_own_checks(&mut options.checks, &stopping);
        let filters = HandlerChainConfig {
            registry,
            connectors: Arc::new(std::mem::take(&mut options.connectors)),
            authenticator: Arc::new(authentication.into()),
            authorizer: Arc::new(authorization.into()),
            drain: Arc::default(),
            limits: Arc::new(InFlightLimits::new(
                options.max_requests_inflight,
                options.max_mutating_requests_inflight,
                Arc::clone(&metrics),
            )),
            metrics,
            webhooks: std::mem::take(&mut options.webhook_handlers),
            resources_installed: options.resources_installed.take(),
            request_timeout: options.request_timeout,
            auditor: options.auditor.take(),
            flow_control: options.flow_control.take(),
        };
        let serving = SecureServing {
            drain: Arc::clone(&filters.drain),
            metrics: Arc::clone(&filters.metrics),
            clock: Arc::clone(&options.clock),
            grace_period: options.shutdown_grace_period,
            request_timeout: options.request_timeout,
        };
        let shutdown_delay = options.shutdown_delay;
        let own_control_plane = options.own_control_plane.take();
        let handler = build_handler(&filters, options);
        let requests = Arc::new(RequestHandling { filters, handler });
        if let Some(own_control_plane) = own_control_plane {
            own_control_plane.set(&requests);
        }
        Self {
            requests,
            serving,
            stopping,
            shutdown_delay,
        }
    }

    /// Serves until `shutdown` resolves and every open connection has ended.
    pub async fn serve(
        &self,
        listener: TcpListener,
        tls: Arc<ServerConfig>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        let RequestHandling { filters, handler } = &*self.requests;
        let chain = Arc::new(build_handler_chain(filters, handler.clone()));
        let shutdown = async {
            shutdown.await;
            self.stopping.cancel();
            tokio::time::sleep(self.shutdown_delay).await;
        };
        self.serving
            .serve_connections(chain, listener, tls, shutdown)
            .await
    }
}

/// Adds `ping` as the first check and `shutdown` as the last.
fn add_own_checks(checks: &mut Vec<HealthCheck>, stopping: &CancellationToken) {
    checks.insert(0, HealthCheck::liveness("ping", || Ok(())));
    let stopping = stopping.clone();
    checks.push(HealthCheck::readiness("shutdown", move || {
        match stopping.is_cancelled() {
            true => Err("the server is shutting down".into()),
            false => Ok(()),
        }
    }));
}

fn build_handler(filters: &HandlerChainConfig, options: ApiServerOptions) -> ApiServerHandler {
    let dynamic_groups = Arc::new(DynamicGroups {
        registry: Arc::clone(&filters.registry),
        providers: options.dynamic_groups,
    });
    ApiServerHandler {
        non_resource_paths: Arc::new(NonResourcePathHandler {
            checks: options.checks,
            documents: CurrentApiDocuments::new(
                Arc::clone(&filters.registry),
                Arc::clone(&filters.connectors),
                options.external_address,
                options.clock.now(),
            ),
            metrics: Arc::clone(&filters.metrics),
            version: options.version,
            authenticator: Arc::clone(&filters.authenticator),
            profiling: options.profiling,
            backup: options.backup,
            dynamic_groups: Arc::clone(&dynamic_groups),
        }),
        resources: Arc::new(ResourceRequestDispatcher {
            registry: Arc::clone(&filters.registry),
            authorizer: Arc::clone(&filters.authorizer),
            connectors: Arc::clone(&filters.connectors),
            getters: options.subresource_getters,
            dynamic_groups,
            clock: options.clock,
            metrics: Arc::clone(&filters.metrics),
            watch_drain: filters.drain.watches.clone(),
        }),
    }
}
