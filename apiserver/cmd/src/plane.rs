//! The parts that the standalone and the aggregated server share: store, watch caches,
//! registry and HTTPS listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use auth::tls::Certificate;
use client::Api;
use flotilla_http::{Check, Server};
use machinery::time::Clock;
use flotilla_runtime::{Informers, Tasks};
use scheduler::Decisions;
use tokio::net::TcpListener;
use watchcache::Hub;

use crate::engine::Engine;
use crate::version;

/// A running API server.
pub(crate) struct Plane {
    /// The API for controllers, with the rights of the internal superuser.
    pub(crate) api: Arc<dyn Api>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) informers: Informers,
    /// The last decisions of this process's scheduler.
    pub(crate) decisions: Decisions,
    /// Tasks of controllers; stopped before the server.
    pub(crate) controllers: Tasks,
    pub(crate) url: String,
    /// The address of the listener.
    pub(crate) address: SocketAddr,
    /// The tasks of the listener and its requests; stopped before `server`.
    pub(crate) listening: Tasks,
    pub(crate) server: Tasks,
    pub(crate) engine: Engine,
    pub(crate) hub: Arc<Hub>,
}

impl Plane {
    /// Resolves with the error when the store has failed permanently.
    pub(crate) async fn failed(&self) -> anyhow::Error {
        self.engine.failed().await
    }

    /// Stops the controllers, so that another process can take over, and the requests; then
    /// the tasks that they need, and the store.
    pub(crate) async fn stop(&self) {
        tokio::join!(self.controllers.stop(), self.listening.stop());
        self.server.stop().await;
        self.hub.shutdown().await;
        self.engine.close().await;
    }
}

/// Answers the non-resource paths that clients in this process read.
pub(crate) fn raw(path: &str) -> Option<bytes::Bytes> {
    match path {
        "/version" => Some(version::current().document().to_string().into()),
        "/readyz" | "/livez" | "/healthz" => Some("ok".into()),
        _ => None,
    }
}

/// The options of the HTTP server that standalone and aggregated servers share. `delay` is
/// how long requests are still accepted after the signal to stop.
pub(crate) fn options(
    engine: &Engine,
    informers: &Informers,
    delay: Duration,
) -> flotilla_http::Options {
    let informers = informers.clone();
    let mut checks = engine.checks();
    checks.push(Check::ready("informer-sync", move || synced(&informers)));
    flotilla_http::Options {
        version: version::current(),
        checks,
        delay,
        ..flotilla_http::Options::default()
    }
}

/// Fails with the informers that have not synced yet.
pub(crate) fn synced(informers: &Informers) -> Result<(), String> {
    match informers.unsynced().as_slice() {
        [] => Ok(()),
        missing => Err(missing.join("; ")),
    }
}

/// Serves until `listening` is stopped.
pub(crate) fn listen_on(
    http: Server,
    listener: TcpListener,
    certificate: &Arc<Certificate>,
    listening: &Tasks,
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
