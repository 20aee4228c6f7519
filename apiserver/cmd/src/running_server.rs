//! The parts that the standalone and the aggregated server share: store, watch caches,
//! registry and HTTPS listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use addons::AddonSwitches;
use auth::tls::ReplaceableServingCertificate;
use client::{Api, InformerFactory, TaskGroup};
use flotilla_http::{ApiServer, HealthCheck};
use machinery::time::Clock;
use members::ClusterProxyBackends;
use scheduler::DecisionExplanationCache;
use search::MemberCaches;
use tokio::net::TcpListener;
use watchcache::WatchCaches;

use crate::storage_engine::OpenedStorageEngine;
use crate::{listener, version};

/// A running API server.
pub(crate) struct RunningServer {
    /// The API for controllers, with the rights of the internal superuser.
    pub(crate) api: Arc<dyn Api>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) informers: InformerFactory,
    /// The last decisions of this process's scheduler.
    pub(crate) decisions: DecisionExplanationCache,
    /// The addons as they are configured.
    pub(crate) addons: AddonSwitches,
    /// Tasks of controllers; stopped before the server.
    pub(crate) controller_tasks: TaskGroup,
    pub(crate) url: String,
    /// The address of the listener.
    pub(crate) address: SocketAddr,
    /// The tasks of the listener and its requests; stopped before `server`.
    pub(crate) listener_tasks: TaskGroup,
    pub(crate) server_tasks: TaskGroup,
    pub(crate) engine: OpenedStorageEngine,
    /// The cached objects of members.
    pub(crate) member_caches: MemberCaches,
    pub(crate) watch_caches: Arc<WatchCaches>,
    /// The connections of the cluster proxy; `None` in a simulated member.
    pub(crate) proxy_backends: Option<ClusterProxyBackends>,
}

impl RunningServer {
    /// Resolves with the error when the store has failed permanently.
    pub(crate) async fn wait_for_failure(&self) -> anyhow::Error {
        self.engine.wait_for_failure().await
    }

    /// Stops the controllers, so that another process can take over, and the requests; then
    /// the tasks that they need, and the store.
    pub(crate) async fn stop(&self) {
        tokio::join!(self.controller_tasks.stop(), self.listener_tasks.stop());
        self.server_tasks.stop().await;
        self.watch_caches.shutdown().await;
        self.engine.close().await;
    }
}

/// Answers the non-resource paths that clients in this process read.
pub(crate) fn non_resource_path(path: &str) -> Option<bytes::Bytes> {
    match path {
        "/version" => Some(version::current().to_json().to_string().into()),
        "/readyz" | "/livez" | "/healthz" => Some("ok".into()),
        _ => None,
    }
}

/// The options of the HTTP server that standalone and aggregated servers share. It listens at
/// `address`; `delay` is how long requests are still accepted after the signal to stop.
pub(crate) fn http_options(
    address: SocketAddr,
    engine: &OpenedStorageEngine,
    informers: &InformerFactory,
    clock: &Arc<dyn Clock>,
    delay: Duration,
) -> flotilla_http::ApiServerOptions {
    let informers = informers.clone();
    let mut checks = engine.checks();
    checks.push(HealthCheck::readiness("informer-sync", move || {
        informers.check_synced()
    }));
    flotilla_http::ApiServerOptions {
        version: version::current(),
        external_address: listener::external_address(address),
        checks,
        backup: Some(engine.backup_opener(clock)),
        shutdown_delay: delay,
        ..flotilla_http::ApiServerOptions::default()
    }
}

/// Serves until `listening` is stopped.
pub(crate) fn serve_on(
    http: ApiServer,
    listener: TcpListener,
    certificate: &Arc<ReplaceableServingCertificate>,
    listening: &TaskGroup,
) -> anyhow::Result<()> {
    let tls = auth::tls::server_config(Arc::clone(certificate))?;
    let stop = listening.shutdown().clone();
    listening.spawn(async move {
        if let Err(e) = http
            .serve(listener, tls, async move { stop.wait().await })
            .await
        {
            tracing::error!(error = %e, "the listener failed");
        }
    });
    Ok(())
}
