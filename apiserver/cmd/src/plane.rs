//! What every form of the server is made of: store, watch caches, registry and the
//! HTTPS listener.

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
    /// What controllers see, as the internal superuser.
    pub(crate) api: Arc<dyn Api>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) informers: Informers,
    /// What the scheduler of this process has decided last.
    pub(crate) decisions: Decisions,
    /// Tasks of controllers; ended before the server.
    pub(crate) controllers: Tasks,
    pub(crate) url: String,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// The listener; what the requests lean on ends after it.
    pub(crate) listening: Tasks,
    pub(crate) server: Tasks,
    pub(crate) engine: Engine,
    pub(crate) hub: Arc<Hub>,
}

impl Plane {
    /// Resolves, with the reason, when the store has failed for good.
    pub(crate) async fn failed(&self) -> anyhow::Error {
        self.engine.failed().await
    }

    /// Ends the controllers, so that another process can take over, and the requests;
    /// then what they lean on, and the store.
    pub(crate) async fn stop(&self) {
        tokio::join!(self.controllers.stop(), self.listening.stop());
        self.server.stop().await;
        self.hub.shutdown().await;
        self.engine.close().await;
    }
}

/// What a client in this process reads outside the resources.
pub(crate) fn raw(path: &str) -> Option<bytes::Bytes> {
    match path {
        "/version" => Some(version::current().document().to_string().into()),
        "/readyz" | "/livez" | "/healthz" => Some("ok".into()),
        _ => None,
    }
}

/// Options of the HTTP server, with the checks that each form has. `delay` is how long
/// requests are still taken when the process has been told to stop.
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

/// What is not listed yet.
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
