//! The standalone server, which authenticates and authorizes requests itself and stores
//! its keys in its directory. It is the default control plane, and also a simulated
//! member.
//!
//! store ──► [`server_pki`] ──► [`request_access`] ──► [`resources`] ──► [`endpoints`] ──► listener ──► renewal of certificates

mod endpoints;
mod options;
mod request_access;
mod resources;
mod server_pki;

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use auth::LocalAuthenticator;
use auth::tls::ReplaceableServingCertificate;
use auth::token::ServiceAccountTokens;
use client::{InformerFactory, ShutdownToken, TaskGroup};
use flotilla_http::{ApiServer, ApiServerOptions};
use flotilla_kube::kubernetes_service::{self, KubernetesServiceOptions};
use flotilla_metrics::MetricsRegistry;
use machinery::time::{Clock, SystemClock};
use registry::LoopbackApi;
use scheduler::DecisionExplanationCache;
use server_certificates::CHECK_PERIOD;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::controller_manager::ServerIdentity;
use crate::data_dir_metrics;
use crate::file_changes::{FileWatch, watch_files};
use crate::listener;
use crate::renewal::{CertificateRenewal, RenewedCertificateTargets};
use crate::running_server::{self, RunningServer};
use crate::storage_engine::OpenedStorageEngine;
use endpoints::Endpoints;
use request_access::RequestAccess;
use resources::StandaloneResources;
use server_pki::ServerPki;

pub(crate) use options::StandaloneServerOptions;

pub(crate) const STORE_DIR: &str = "store";
const KUBECONFIG_FILE: &str = "kubeconfig";

/// A running standalone server.
pub(crate) struct StandaloneServer {
    running: RunningServer,
    pub(crate) kubeconfig: PathBuf,
    signer: Arc<ServiceAccountTokens>,
    loopback: Arc<LoopbackApi>,
    serves_group: fn(&str) -> bool,
    insecure_agent_registration: bool,
    cluster_info_url: Option<String>,
    pub(crate) renewal: Arc<CertificateRenewal>,
    _file_watches: Vec<FileWatch>,
    /// Keeps the admission policies and webhooks up to date until the server is dropped.
    _admission_informers: InformerFactory,
}

impl Deref for StandaloneServer {
    type Target = RunningServer;

    fn deref(&self) -> &RunningServer {
        &self.running
    }
}

impl StandaloneServer {
    /// Opens the directory and serves.
    pub(crate) async fn start(setup: StandaloneServerOptions<'_>) -> anyhow::Result<Self> {
        Box::pin(Self::start_with_clock(setup, Arc::new(SystemClock))).await
    }

    /// Opens the directory and serves, with the given clock.
    pub(crate) async fn start_with_clock(
        mut setup: StandaloneServerOptions<'_>,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let setup = &mut setup;
        let metrics = MetricsRegistry::new();
        let engine = open_engine(setup, &metrics).await?;
        let tasks = TaskGroup::new(ShutdownToken::new());
        let listener = bind(setup).await?;
        let address = listener.local_addr().context("no local address")?;
        let (pki, client_verifier) = ServerPki::open(setup, address, &engine, &*clock).await?;
        let certificate = pki.serving_certificate()?;
        let bootstrap_tokens = setup.authentication.bootstrap_tokens;
        let signer = Arc::clone(&pki.token_signer);
        let mut access =
            RequestAccess::new(setup, client_verifier, &signer, &clock, &metrics, &tasks)?;
        let resources =
            StandaloneResources::open(setup, &engine, &access, &metrics, &clock).await?;
        access.start(setup, &resources.api, &tasks).await?;
        engine.record_faults(&resources.api, &clock, &tasks);
        let admission_informers = resources.start_admission(&access, &tasks).await;
        let endpoints = match setup.federation {
            true => Endpoints::of_control_plane(&resources, &access, &metrics, &clock, &tasks),
            false => Endpoints::of_simulated_member(&resources, &clock, &tasks),
        };
        let running = running_server(engine, &resources, &endpoints, address, clock, tasks);
        let http = ApiServer::new(
            Arc::clone(&resources.registry),
            Arc::clone(&access.authenticator),
            access.authorizer.clone(),
            http_options(setup, &running, endpoints, metrics)?,
        );
        running_server::serve_on(http, listener, &certificate, &running.listener_tasks)?;
        if setup.federation {
            publish_address(setup, &running);
        }
        let mut file_watches = access.reload_configurations(&running.server_tasks);
        let authenticator = access.authenticator;
        let (renewal, watch) = start_renewal(setup, pki, certificate, authenticator, &running)?;
        file_watches.extend(watch);
        Ok(Self {
            running,
            kubeconfig: setup.dir.join(KUBECONFIG_FILE),
            signer,
            loopback: resources.loopback,
            serves_group: resources.serves_group,
            insecure_agent_registration: setup.insecure_agent_registration,
            cluster_info_url: bootstrap_tokens
                .then(|| listener::advertised_url(setup.names, address)),
            renewal,
            _file_watches: file_watches,
            _admission_informers: admission_informers,
        })
    }

    /// The token signer and root CA of this server's service accounts.
    pub(crate) fn service_account_options(&self) -> ServerIdentity {
        ServerIdentity {
            signer: Arc::clone(&self.signer),
            serves_group: self.serves_group,
            insecure_agent_registration: self.insecure_agent_registration,
            root_ca: self.renewal.root_ca(),
            client_ca: self.renewal.client_ca(),
            certificate_signer: self.renewal.certificate_signer(),
            schemas: Arc::clone(&self.loopback) as _,
            cluster_info_url: self.cluster_info_url.clone(),
        }
    }

    /// The CA bundle for clients of this server.
    pub(crate) fn root_ca(&self) -> String {
        self.renewal.root_ca().borrow().clone()
    }
}

/// The options of the HTTP server.
fn http_options(
    setup: &mut StandaloneServerOptions<'_>,
    running: &RunningServer,
    endpoints: Endpoints,
    metrics: MetricsRegistry,
) -> anyhow::Result<ApiServerOptions> {
    let (api, tasks) = (&running.api, &running.server_tasks);
    let audit = setup.audit.take();
    let auditor = audit.map(|audit| audit.start(&metrics, &running.clock, tasks));
    let limits = setup.request_limits;
    Ok(ApiServerOptions {
        connectors: endpoints.connectors,
        own_control_plane: Some(endpoints.own_control_plane),
        dynamic_groups: endpoints.dynamic_groups,
        subresource_getters: subresources::decision_getters(
            api,
            &running.decisions,
            setup.scheduling_settings,
        ),
        auditor: auditor.transpose()?,
        flow_control: limits.start_flow_control(api, &metrics, tasks),
        metrics,
        // With simulated members in the same process, only the control plane serves
        // the metrics of the process.
        process_metrics: setup.federation,
        profiling: setup.profiling,
        ..limits.apply_to(running_server::http_options(
            running.address,
            &running.engine,
            &running.informers,
            &running.clock,
            setup.shutdown_delay,
        ))
    })
}

/// Keeps the address of the server in the Service `default/kubernetes`.
fn publish_address(setup: &StandaloneServerOptions<'_>, running: &RunningServer) {
    let options = KubernetesServiceOptions {
        address: listener::endpoint_address(setup.names, running.address),
        shared_store: setup.storage_backend.is_shared(),
        clock: Arc::clone(&running.clock),
    };
    kubernetes_service::start(&running.api, options, &running.server_tasks);
}

async fn open_engine(
    setup: &mut StandaloneServerOptions<'_>,
    metrics: &MetricsRegistry,
) -> anyhow::Result<OpenedStorageEngine> {
    let dir = setup.dir;
    auth::create_private_dir(dir).with_context(|| format!("cannot use {}", dir.display()))?;
    let encryption = setup.encryption.take();
    let store = dir.join(STORE_DIR);
    let engine = OpenedStorageEngine::open(&setup.storage_backend, encryption, &store).await?;
    engine.register_metrics(metrics);
    data_dir_metrics::register(dir, metrics);
    Ok(engine)
}

async fn bind(setup: &StandaloneServerOptions<'_>) -> anyhow::Result<TcpListener> {
    match setup.reuse_port {
        true => listener::bind_same_port(setup.dir, setup.listen).await,
        false => listener::bind(setup.listen).await,
    }
}

/// The parts of the server that controllers use.
fn running_server(
    engine: OpenedStorageEngine,
    resources: &StandaloneResources,
    endpoints: &Endpoints,
    address: SocketAddr,
    clock: Arc<dyn Clock>,
    server_tasks: TaskGroup,
) -> RunningServer {
    let controller_tasks = TaskGroup::new(ShutdownToken::new());
    RunningServer {
        api: Arc::clone(&resources.api),
        clock,
        informers: InformerFactory::new(&controller_tasks),
        decisions: DecisionExplanationCache::default(),
        addons: endpoints.addons.clone(),
        controller_tasks,
        url: listener::url(address),
        address,
        listener_tasks: TaskGroup::new(ShutdownToken::new()),
        server_tasks,
        engine,
        member_caches: endpoints.member_caches.clone(),
        watch_caches: Arc::clone(&resources.watch_caches),
        proxy_backends: endpoints.proxy_backends.clone(),
    }
}

/// Writes the kubeconfig, and renews the certificates periodically and when their files change.
fn start_renewal(
    setup: &mut StandaloneServerOptions<'_>,
    server_pki: ServerPki,
    certificate: Arc<ReplaceableServingCertificate>,
    authenticator: Arc<LocalAuthenticator>,
    running: &RunningServer,
) -> anyhow::Result<(Arc<CertificateRenewal>, Option<FileWatch>)> {
    let ServerPki {
        keys,
        pki,
        certificates,
        ..
    } = server_pki;
    let targets = RenewedCertificateTargets {
        certificate,
        certificate_signer: server_pki.certificate_signer,
        client_authorities: server_pki.client_authorities,
        authenticator,
        root_ca: watch::Sender::new(certificates.root_ca.clone()),
        client_ca: watch::Sender::new(server_pki.client_ca_pem),
        files: std::mem::take(&mut setup.certificate_files),
        kubeconfig: setup.dir.join(KUBECONFIG_FILE),
        url: running.url.clone(),
        has_fleet_view: setup.federation,
    };
    let files_changed = Arc::default();
    let files = targets.watched_files();
    let file_watch = watch_files(files.iter().map(PathBuf::as_path), &files_changed);
    let clock = Arc::clone(&running.clock);
    let renewal = CertificateRenewal::new(keys, clock, targets, &pki, certificates)?;
    renewal.run(CHECK_PERIOD, &files_changed, &running.server_tasks);
    Ok((renewal, file_watch))
}
