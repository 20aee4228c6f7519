//! Starts and stops an aggregated server.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use admission::AdmissionChain;
use anyhow::Context;
use auth::delegated;
use client::remote::RestConfig;
use client::{Api, GroupSplitApi, RemoteApi};
use flotilla_http::{AdmissionReviewHandlers, ApiServer, HealthCheck, HealthProbe};
use flotilla_runtime::{InformerFactory, ShutdownToken, TaskGroup};
use interpreter::LuaLimits;
use machinery::UserInfo;
use machinery::time::{Clock, SystemClock};
use openapi::karmada::{FeatureGates, is_karmada_group};
use registry::{LoopbackApi, Registry};
use scheduler::DecisionExplanationCache;
use scheduler::core::SchedulingSettings;
use storage::encryption::ResourceTransformers;
use watchcache::WatchCaches;

use super::api_services::{self, ApiServiceController};
use super::etcd_certificates::EtcdCertificateSecret;
use super::host_namespaces::HostNamespaceLookup;
use super::host_objects::ApiServiceTarget;
use super::serving_certificate::ServingCertificateSecret;
use super::{deletion_protection, host_webhooks};
use crate::running_server::{self, RunningServer};
use crate::storage_engine::{StorageBackendConfig, StorageEngine};
use crate::{cluster_proxy, listener, scheduling_decision, script_flags, secret_access};

const STORE_DIR: &str = "store";
/// The interval at which readiness is polled at the start.
const READY_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The options of an aggregated server.
pub(crate) struct AggregatedServerOptions<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) listen: SocketAddr,
    pub(crate) storage_backend: StorageBackendConfig,
    /// The encryption of stored values.
    pub(crate) encryption: Option<ResourceTransformers>,
    pub(crate) host: RestConfig,
    pub(crate) service: ApiServiceTarget,
    /// The Secret in which certificates for etcd are created and renewed.
    pub(crate) etcd_secret: Option<String>,
    pub(crate) delegated: delegated::DelegatedAuthOptions,
    /// The scheduler's settings.
    pub(crate) scheduling_settings: SchedulingSettings,
    /// How long requests are still accepted after the signal to stop.
    pub(crate) shutdown_delay: Duration,
    /// Whether ClusterTaintPolicies may use the effect NoExecute.
    pub(crate) allow_no_execute: bool,
    pub(crate) scripts: LuaLimits,
    /// The feature gates.
    pub(crate) gates: FeatureGates,
}

/// A running server behind a host.
pub(crate) struct AggregatedServer {
    pub(crate) running: RunningServer,
    /// The address of the host, for messages.
    pub(crate) host: String,
    registration: ApiServiceController,
    /// Connections to the host; stopped last.
    host_connection_tasks: TaskGroup,
}

impl AggregatedServer {
    /// Opens the store and serves. Waits until the host answers.
    pub(crate) async fn start(setup: AggregatedServerOptions<'_>) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let connections = TaskGroup::new(ShutdownToken::new());
        let address = setup.host.server.to_string();
        let host: Arc<dyn Api> = Arc::new(RemoteApi::new(setup.host, &connections)?);
        auth::create_private_dir(setup.dir)
            .with_context(|| format!("cannot use {}", setup.dir.display()))?;
        let (choice, etcd_secret) = open_etcd_certificates(
            setup.storage_backend,
            setup.etcd_secret,
            &host,
            &setup.service,
            &clock,
        )
        .await?;
        let engine =
            StorageEngine::open(&choice, setup.encryption, &setup.dir.join(STORE_DIR)).await?;
        let metrics = flotilla_metrics::MetricsRegistry::new();
        engine.register_metrics(&metrics);
        let listener = listener::bind(setup.listen).await?;
        let local = listener.local_addr().context("no local address")?;
        let serving = ServingCertificateSecret::open(&host, &setup.service, &clock).await?;

        let server = TaskGroup::new(ShutdownToken::new());
        let informers = InformerFactory::new(&server);
        let authenticator = delegated::DelegatingAuthenticator::new(
            Arc::clone(&host),
            Arc::clone(&clock),
            &setup.delegated,
        );
        let authorizer = delegated::DelegatingAuthorizer::new(Arc::clone(&host), &setup.delegated);
        server.spawn(authenticator.run(Arc::clone(&host), server.shutdown().clone()));
        let namespaces = HostNamespaceLookup::new(&host, &informers);
        let hooks = host_webhooks::watch_host_webhooks(
            &host,
            &informers,
            Arc::clone(&namespaces) as _,
            &connections,
        );

        let chain = Arc::new(AdmissionChain::new(admission::AdmissionChainOptions {
            clock: Arc::clone(&clock),
            allow_no_execute_taints: setup.allow_no_execute,
            customization_script_validator: Some(script_flags::script_validator(setup.scripts)),
            feature_gates: setup.gates,
            secret_authorizer: Some(secret_access::secret_authorizer(Arc::clone(&authorizer))),
            ..admission::AdmissionChainOptions::default()
        }));
        let hub = WatchCaches::new(engine.store(), watchcache::WatchCacheConfig::default());
        let options = registry::RegistryOptions {
            clock: Arc::clone(&clock),
            raw_path_handler: Arc::new(running_server::non_resource_path),
            serves_group: is_karmada_group,
            namespace_lookup: Some(namespaces),
            webhooks: Some(hooks),
            metrics: metrics.clone(),
            shared_store: choice.is_shared(),
            ..registry::RegistryOptions::new(Arc::clone(&chain))
        };
        let registry = Registry::new(engine.store(), Arc::clone(&hub), options);
        let api: Arc<dyn Api> = LoopbackApi::new(Arc::clone(&registry), UserInfo::internal());
        chain.set_api(Arc::clone(&api));
        let api: Arc<dyn Api> = GroupSplitApi::new(api, Arc::clone(&host), is_karmada_group);

        engine.record_faults(&api, &clock, &server);
        let controllers = TaskGroup::new(ShutdownToken::new());
        let ready = readiness_probe(&engine, &authenticator, &informers);
        let controlled = InformerFactory::new(&controllers);
        let mut options = running_server::http_options(&engine, &controlled, setup.shutdown_delay);
        let trusted = Arc::clone(&authenticator);
        options
            .checks
            .push(HealthCheck::readiness("host-trust", move || {
                trusted.ready()
            }));
        let followed = informers.clone();
        options
            .checks
            .push(HealthCheck::readiness("host-sync", move || {
                running_server::check_synced(&followed)
            }));
        options.connectors = cluster_proxy::cluster_connectors(&api, &server, &metrics);
        let decisions = DecisionExplanationCache::default();
        options.subresource_getters =
            scheduling_decision::decision_getters(&api, &decisions, setup.scheduling_settings);
        options.metrics = metrics;
        options.webhook_handlers = AdmissionReviewHandlers::from([(
            deletion_protection::WEBHOOK_PATH,
            deletion_protection::REVIEW,
        )]);
        options.resources_installed = Some(Arc::clone(&ready));
        let served = api_services::own_versions(&registry.table());
        let http = ApiServer::new(registry, authenticator, authorizer, options);
        let listening = TaskGroup::new(ShutdownToken::new());
        running_server::serve_on(http, listener, serving.certificate(), &listening)?;
        serving.run(&informers, &server);
        if let Some(secret) = etcd_secret {
            secret.run(&server);
        }
        while let Err(why) = ready() {
            tracing::debug!(%why, "waiting");
            tokio::time::sleep(READY_POLL_INTERVAL).await;
        }
        let registration = ApiServiceController::new(
            Arc::clone(&host),
            setup.service,
            served,
            serving,
            Arc::clone(&clock),
        );
        let plane = RunningServer {
            api,
            clock,
            informers: controlled,
            decisions,
            controller_tasks: controllers,
            url: listener::url(local),
            address: local,
            listener_tasks: listening,
            server_tasks: server,
            engine,
            watch_caches: hub,
        };
        Ok(Self {
            running: plane,
            host: address,
            registration,
            host_connection_tasks: connections,
        })
    }

    /// Registers the APIServices at the host and keeps them registered. Resolves when all
    /// are registered; fails when another server or a definition with objects serves one
    /// of the groups.
    pub(crate) async fn register(&self) -> anyhow::Result<()> {
        self.registration.register_all().await?;
        self.registration.run(&self.running.server_tasks);
        Ok(())
    }

    /// Stops the controllers, the requests, the store and the connections.
    pub(crate) async fn stop(&self) {
        self.running.stop().await;
        self.host_connection_tasks.stop().await;
    }
}

/// Adds the certificates of the Secret to the options of etcd, if there is a Secret.
async fn open_etcd_certificates(
    mut choice: StorageBackendConfig,
    secret: Option<String>,
    host: &Arc<dyn Api>,
    service: &ApiServiceTarget,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<(StorageBackendConfig, Option<Arc<EtcdCertificateSecret>>)> {
    let (StorageBackendConfig::Etcd(options), Some(name)) = (&mut choice, secret) else {
        return Ok((choice, None));
    };
    let secret = EtcdCertificateSecret::open(host, service, &name, &options.servers, clock).await?;
    let (tls, renewed) = secret.client();
    options.tls = Some(tls);
    options.renewed_tls = Some(renewed);
    Ok((choice, Some(secret)))
}

/// A probe that fails until the store, the trust in the host and the informers are ready.
fn readiness_probe(
    engine: &StorageEngine,
    authenticator: &Arc<delegated::DelegatingAuthenticator>,
    informers: &InformerFactory,
) -> HealthProbe {
    let store = engine.probe();
    let (trusted, followed) = (Arc::clone(authenticator), informers.clone());
    Arc::new(move || {
        store()?;
        trusted.ready()?;
        running_server::check_synced(&followed)
    })
}
