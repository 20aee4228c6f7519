//! The aggregated server: Flotilla behind another API server, the *host*. The host
//! authenticates and authorizes, stores namespaces, secrets and events, and proxies
//! requests for Flotilla's groups to this process, which registers APIServices there.
//!
//! host ──► certificate, trust, namespaces ──► listener ──► ready ──► [`api_services`]
//!
//! Until the server has read everything that it needs, and whenever the store cannot be
//! reached, it answers 503 instead of 404, so that the host's garbage collector deletes
//! nothing by mistake.

mod certificate;
mod etcd;
mod host_definitions;
mod namespaces;
mod protection;
mod registration;
mod webhooks;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use admission::Chain;
use anyhow::Context;
use auth::delegated;
use client::remote::Config;
use client::{Api, Remote, Split};
use flotilla_http::{Check, Probe, Server, Webhooks};
use interpreter::Limits;
use machinery::time::{Clock, SystemClock};
use machinery::{FailureLog, UserInfo};
use openapi::karmada::{FeatureGates, is_own_group};
use registry::{Loopback, Registry};
use flotilla_runtime::{Informers, Shutdown, Tasks};
use scheduler::Decisions;
use scheduler::core::Rules;
use storage::encryption::Encryption;
use watchcache::Hub;

use crate::engine::{Choice, Engine};
use crate::plane::{self, Plane};
use crate::{decision, links, listen, scripts, secret_access};
use certificate::Serving;
use etcd::EtcdSecret;
use namespaces::HostNamespaces;
use registration::Registration;

const STORE: &str = "store";
/// The interval at which readiness is polled at the start, and the backoff of requests to
/// a host that does not answer.
const LOOK: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_secs(1);

/// The Service by which the host reaches this server.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) port: u16,
}

/// The options of an aggregated server.
pub(crate) struct Setup<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) listen: SocketAddr,
    pub(crate) engine: Choice,
    /// The encryption of stored values.
    pub(crate) encryption: Option<Encryption>,
    pub(crate) host: Config,
    pub(crate) service: Service,
    /// The Secret in which certificates for etcd are created and renewed.
    pub(crate) etcd_secret: Option<String>,
    pub(crate) delegated: delegated::Options,
    /// The scheduler's settings.
    pub(crate) rules: Rules,
    /// How long requests are still accepted after the signal to stop.
    pub(crate) shutdown_delay: Duration,
    /// Whether ClusterTaintPolicies may use the effect NoExecute.
    pub(crate) allow_no_execute: bool,
    pub(crate) scripts: Limits,
    /// The feature gates.
    pub(crate) gates: FeatureGates,
}

/// A running server behind a host.
pub(crate) struct Aggregated {
    pub(crate) plane: Plane,
    /// The address of the host, for messages.
    pub(crate) host: String,
    registration: Registration,
    /// Connections to the host; stopped last.
    connections: Tasks,
}

impl Aggregated {
    /// Opens the store and serves. Waits until the host answers.
    pub(crate) async fn start(setup: Setup<'_>) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let connections = Tasks::new(Shutdown::new());
        let address = setup.host.server.to_string();
        let host: Arc<dyn Api> = Arc::new(Remote::new(setup.host, &connections)?);
        auth::private_dir(setup.dir)
            .with_context(|| format!("cannot use {}", setup.dir.display()))?;
        let (choice, etcd_secret) = with_certificates(
            setup.engine,
            setup.etcd_secret,
            &host,
            &setup.service,
            &clock,
        )
        .await?;
        let engine = Engine::open(&choice, setup.encryption, &setup.dir.join(STORE)).await?;
        let metrics = flotilla_metrics::Registry::new();
        engine.tell(&metrics);
        let listener = listen::bind(setup.listen).await?;
        let local = listener.local_addr().context("no local address")?;
        let serving = Serving::open(&host, &setup.service, &clock).await?;

        let server = Tasks::new(Shutdown::new());
        let informers = Informers::new(&server);
        let authenticator =
            delegated::Authenticator::new(Arc::clone(&host), Arc::clone(&clock), &setup.delegated);
        let authorizer = delegated::Authorizer::new(Arc::clone(&host), &setup.delegated);
        server.spawn(authenticator.run(Arc::clone(&host), server.shutdown().clone()));
        let namespaces = HostNamespaces::new(&host, &informers);
        let hooks = webhooks::follow(
            &host,
            &informers,
            Arc::clone(&namespaces) as _,
            &connections,
        );

        let chain = Arc::new(Chain::new(admission::Options {
            clock: Arc::clone(&clock),
            allow_no_execute: setup.allow_no_execute,
            compile: Some(scripts::compile(setup.scripts)),
            gates: setup.gates,
            secrets: Some(secret_access::authorizer(Arc::clone(&authorizer))),
            ..admission::Options::default()
        }));
        let hub = Hub::new(engine.store(), watchcache::Config::default());
        let options = registry::Options {
            clock: Arc::clone(&clock),
            raw: Arc::new(plane::raw),
            serves: is_own_group,
            namespaces: Some(namespaces),
            webhooks: Some(hooks),
            metrics: metrics.clone(),
            shared_store: choice.is_shared(),
            ..registry::Options::new(Arc::clone(&chain))
        };
        let registry = Registry::new(engine.store(), Arc::clone(&hub), options);
        let api: Arc<dyn Api> = Loopback::new(Arc::clone(&registry), UserInfo::internal());
        chain.connect(Arc::clone(&api));
        let api: Arc<dyn Api> = Split::new(api, Arc::clone(&host), is_own_group);

        engine.record_faults(&api, &clock, &server);
        let controllers = Tasks::new(Shutdown::new());
        let ready = whole(&engine, &authenticator, &informers);
        let controlled = Informers::new(&controllers);
        let mut options = plane::options(&engine, &controlled, setup.shutdown_delay);
        let trusted = Arc::clone(&authenticator);
        options
            .checks
            .push(Check::ready("host-trust", move || trusted.ready()));
        let followed = informers.clone();
        options
            .checks
            .push(Check::ready("host-sync", move || plane::synced(&followed)));
        options.connectors = links::to_clusters(&api, &server, &metrics);
        let decisions = Decisions::default();
        options.tellers = decision::tellers(&api, &decisions, setup.rules);
        options.metrics = metrics;
        options.webhooks = Webhooks::from([(protection::PATH, protection::REVIEW)]);
        options.whole = Some(Arc::clone(&ready));
        let served = registration::own_versions(&registry.table());
        let http = Server::new(registry, authenticator, authorizer, options);
        let listening = Tasks::new(Shutdown::new());
        plane::listen_on(http, listener, serving.certificate(), &listening)?;
        serving.keep(&informers, &server);
        if let Some(secret) = etcd_secret {
            secret.keep(&server);
        }
        while let Err(why) = ready() {
            tracing::debug!(%why, "waiting");
            tokio::time::sleep(LOOK).await;
        }
        let registration = Registration::new(
            Arc::clone(&host),
            setup.service,
            served,
            serving,
            Arc::clone(&clock),
        );
        let plane = Plane {
            api,
            clock,
            informers: controlled,
            decisions,
            controllers,
            url: listen::url(local),
            address: local,
            listening,
            server,
            engine,
            hub,
        };
        Ok(Self {
            plane,
            host: address,
            registration,
            connections,
        })
    }

    /// Registers the APIServices at the host and keeps them registered. Resolves when all
    /// are registered; fails when another server or a definition with objects serves one
    /// of the groups.
    pub(crate) async fn register(&self) -> anyhow::Result<()> {
        self.registration.once().await?;
        self.registration.keep(&self.plane.server);
        Ok(())
    }

    /// Stops the controllers, the requests, the store and the connections.
    pub(crate) async fn stop(&self) {
        self.plane.stop().await;
        self.connections.stop().await;
    }
}

/// Adds the certificates of the Secret to the options of etcd, if there is a Secret.
async fn with_certificates(
    mut choice: Choice,
    secret: Option<String>,
    host: &Arc<dyn Api>,
    service: &Service,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<(Choice, Option<Arc<EtcdSecret>>)> {
    let (Choice::Etcd(options), Some(name)) = (&mut choice, secret) else {
        return Ok((choice, None));
    };
    let secret = EtcdSecret::open(host, service, &name, &options.servers, clock).await?;
    let (tls, renewed) = secret.client();
    options.tls = Some(tls);
    options.renewed_tls = Some(renewed);
    Ok((choice, Some(secret)))
}

/// A probe that fails until the store, the trust in the host and the informers are ready.
fn whole(
    engine: &Engine,
    authenticator: &Arc<delegated::Authenticator>,
    informers: &Informers,
) -> Probe {
    let store = engine.probe();
    let (trusted, followed) = (Arc::clone(authenticator), informers.clone());
    Arc::new(move || {
        store()?;
        trusted.ready()?;
        plane::synced(&followed)
    })
}

/// Retries a request to the host until it answers. Errors that a retry cannot fix are
/// returned.
async fn patiently<T, F>(what: &str, mut ask: impl FnMut() -> F) -> client::Result<T>
where
    F: Future<Output = client::Result<T>>,
{
    let failures = FailureLog::new();
    loop {
        let error = match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let passing = match &error {
            client::Error::Transport { .. } => true,
            client::Error::Status(status) => status.code == 429 || status.code >= 500,
            client::Error::Protocol(_) => false,
        };
        if !passing {
            return Err(error);
        }
        if failures.record_failure(what, &error.to_string()) {
            tracing::warn!(%error, "{what}: the host does not answer, retrying");
        }
        tokio::time::sleep(PAUSE).await;
    }
}
