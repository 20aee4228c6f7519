//! The standalone server, which authenticates and authorizes requests itself and stores
//! its keys in its directory. It is the default control plane, and also a simulated
//! member.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use admission::Chain;
use anyhow::Context;
use auth::rbac::Authorizer;
use auth::tls::Certificate;
use auth::token::Signer;
use auth::{Authenticator, authenticate};
use client::Api;
use flotilla_http::Server;
use interpreter::Limits;
use machinery::UserInfo;
use machinery::time::{Clock, SystemClock};
use openapi::karmada::FeatureGates;
use registry::{Loopback, Registry};
use flotilla_runtime::{Informers, Shutdown, Tasks};
use scheduler::Decisions;
use scheduler::core::Rules;
use storage::encryption::Encryption;
use tokio::sync::watch;
use watchcache::Hub;

use crate::control::Identity;
use crate::engine::{Choice, Engine};
use crate::keys::Keys;
use crate::plane::{self, Plane};
use crate::renewal::{CHECK_PERIOD, CertificateRenewal, Credentials};
use crate::{decision, links, listen, scripts, secret_access};

const STORE: &str = "store";
const KEYS: &str = "pki";
const KUBECONFIG: &str = "kubeconfig";

/// The options of a standalone server.
pub(crate) struct Setup<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) listen: SocketAddr,
    pub(crate) engine: Choice,
    /// The encryption of stored values.
    pub(crate) encryption: Option<Encryption>,
    /// Whether a port selected for port 0 is used again at the next start.
    pub(crate) keep_port: bool,
    /// Whether Karmada's groups are served in addition to the built-in kinds.
    pub(crate) federation: bool,
    /// The scheduler's settings.
    pub(crate) rules: Rules,
    /// Additional names in the serving certificate.
    pub(crate) names: &'a [String],
    /// Anonymous requests and the audiences of tokens.
    pub(crate) authentication: authenticate::Options,
    /// How long requests are still accepted after the signal to stop.
    pub(crate) shutdown_delay: Duration,
    /// Whether ClusterTaintPolicies may use the effect NoExecute.
    pub(crate) allow_no_execute: bool,
    pub(crate) scripts: Limits,
    /// The feature gates.
    pub(crate) gates: FeatureGates,
}

/// A running standalone server.
pub(crate) struct Standalone {
    plane: Plane,
    pub(crate) kubeconfig: PathBuf,
    signer: Arc<Signer>,
    serves: fn(&str) -> bool,
    pub(crate) renewal: Arc<CertificateRenewal>,
}

impl Deref for Standalone {
    type Target = Plane;

    fn deref(&self) -> &Plane {
        &self.plane
    }
}

impl Standalone {
    /// Opens the directory and serves.
    pub(crate) async fn start(setup: Setup<'_>) -> anyhow::Result<Self> {
        Box::pin(Self::start_at(setup, Arc::new(SystemClock))).await
    }

    /// Opens the directory and serves, with the given clock.
    pub(crate) async fn start_at(setup: Setup<'_>, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        let dir = setup.dir;
        auth::private_dir(dir).with_context(|| format!("cannot use {}", dir.display()))?;
        let engine = Engine::open(&setup.engine, setup.encryption, &dir.join(STORE)).await?;
        let metrics = flotilla_metrics::Registry::new();
        engine.tell(&metrics);
        let listener = if setup.keep_port {
            listen::bind_remembered(dir, setup.listen).await?
        } else {
            listen::bind(setup.listen).await?
        };
        let address = listener.local_addr().context("no local address")?;
        let mut names = setup.names.to_vec();
        names.push(address.ip().to_string());
        let shared = setup.engine.is_shared();
        let keys = Keys {
            dir: dir.join(KEYS),
            names,
            store: shared.then(|| engine.store()),
        };
        let pki = keys.open(clock.now()).await?;
        let signer = Arc::new(Signer::new(&pki.token_key_pem)?);
        let authenticator = Authenticator::new(
            Some(pki.verifier()?),
            Arc::clone(&signer),
            Arc::clone(&clock),
            setup.authentication,
        );
        let authorizer = Authorizer::new();
        let chain = Arc::new(Chain::new(admission::Options {
            clock: Arc::clone(&clock),
            allow_no_execute: setup.allow_no_execute,
            compile: Some(scripts::compile(setup.scripts)),
            gates: setup.gates,
            protects: setup.federation,
            secrets: Some(secret_access::authorizer(Arc::clone(&authorizer))),
        }));
        let hub = Hub::new(engine.store(), watchcache::Config::default());
        let serves: fn(&str) -> bool = match setup.federation {
            true => |_| true,
            false => |group| !group.ends_with(".karmada.io"),
        };
        let options = registry::Options {
            clock: Arc::clone(&clock),
            creators: flotilla_http::creators(&authenticator, &authorizer),
            raw: Arc::new(plane::raw),
            serves,
            metrics: metrics.clone(),
            shared_store: shared,
            ..registry::Options::new(Arc::clone(&chain))
        };
        let registry = Registry::new(engine.store(), Arc::clone(&hub), options);
        registry
            .bootstrap()
            .await
            .context("cannot write the initial objects")?;
        let api: Arc<dyn Api> = Loopback::new(Arc::clone(&registry), UserInfo::internal());
        chain.connect(Arc::clone(&api));
        authenticator.attach(Arc::clone(&api));

        let server = Tasks::new(Shutdown::new());
        engine.record_faults(&api, &clock, &server);
        let (crds, stop) = (Arc::clone(&registry), server.shutdown().clone());
        server.spawn(async move { crds.run(async move { stop.wait().await }).await });
        let (rights, stop) = (
            Arc::clone(&authorizer).run(Arc::clone(&api)),
            server.shutdown().clone(),
        );
        server.spawn(async move {
            tokio::select! {
                () = rights => {}
                () = stop.wait() => {}
            }
        });
        authorizer.wait_synced().await;
        let controllers = Tasks::new(Shutdown::new());
        let informers = Informers::new(&controllers);
        let connectors = match setup.federation {
            true => links::to_clusters(&api, &server, &metrics),
            false => links::to_containers(&api, &clock, &server),
        };
        let decisions = Decisions::default();
        let options = flotilla_http::Options {
            connectors,
            tellers: decision::tellers(&api, &decisions, setup.rules),
            metrics,
            // With simulated members in the same process, only the control plane serves
            // the metrics of the process.
            process_metrics: setup.federation,
            ..plane::options(&engine, &informers, setup.shutdown_delay)
        };
        let http = Server::new(registry, Arc::clone(&authenticator), authorizer, options);
        let (chain, key) = pki.serving_der()?;
        let certificate = Certificate::new(chain, key)?;
        let listening = Tasks::new(Shutdown::new());
        plane::listen_on(http, listener, &certificate, &listening)?;

        let url = listen::url(address);
        let kubeconfig = dir.join(KUBECONFIG);
        let renewal = CertificateRenewal::new(
            keys,
            Arc::clone(&clock),
            Credentials {
                certificate,
                authenticator,
                root_ca: watch::Sender::new(pki.ca_pem.clone()),
                kubeconfig: kubeconfig.clone(),
                url: url.clone(),
            },
            &pki,
        )?;
        renewal.keep(CHECK_PERIOD, &server);
        let plane = Plane {
            api,
            clock,
            informers,
            decisions,
            controllers,
            url,
            address,
            listening,
            server,
            engine,
            hub,
        };
        Ok(Self {
            plane,
            kubeconfig,
            signer,
            serves,
            renewal,
        })
    }

    /// The token signer and root CA of this server's service accounts.
    pub(crate) fn identity(&self) -> Identity {
        Identity {
            signer: Arc::clone(&self.signer),
            serves: self.serves,
            root_ca: self.renewal.root_ca(),
        }
    }

    /// The CA bundle for clients of this server.
    pub(crate) fn root_ca(&self) -> String {
        self.renewal.root_ca().borrow().clone()
    }
}
