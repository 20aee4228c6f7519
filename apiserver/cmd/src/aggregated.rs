//! Starts and stops an aggregated server: Flotilla behind another API server, its host.
//!
//! Until the server has read everything that it needs, and whenever the store cannot be
//! reached, it answers 503 instead of 404, so that the host's garbage collector deletes
//! nothing by mistake.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use addons::AddonSwitches;
use admission::{AdmissionChain, DynamicAdmission};
use aggregation::{
    ApiServiceController, ApiServiceTarget, EtcdCertificateSecretManager, HostDelegation,
    MetricsApiServicePolicy, ServingCertificateSecretManager, TakeoverFollower, TakeoverImporter,
    agent_restriction, deletion_protection,
};
use anyhow::Context;
use auth::delegated;
use client::remote::{RequestForwarder, RestConfig};
use client::{Api, GroupSplitApi, InformerFactory, RemoteApi, ShutdownToken, TaskGroup};
use flotilla_http::{AdmissionReviewHandlers, ApiServerOptions, HealthProbe, HostControlPlane};
use flotilla_metrics::MetricsRegistry;
use interpreter::LuaLimits;
use karmada_api::{FeatureGates, is_karmada_group};
use machinery::UserInfo;
use machinery::time::{Clock, SystemClock};
use members::ClusterProxyBackends;
use metrics_adapter::MetricsAdapter;
use metrics_adapter::metrics_api::{METRICS_GROUPS, is_metrics_group};
use registry::{LoopbackApi, Registry};
use scheduler::DecisionExplanationCache;
use scheduler::core::SchedulingSettings;
use search::MemberCaches;
use storage::encryption::ResourceTransformers;
use subresources::{ClusterConnectorContext, cluster_connectors};
use watchcache::WatchCaches;

use crate::audit_flags::AuditConfig;
use crate::request_limit_flags::RequestLimitArgs;
use crate::running_server::{self, RunningServer};
use crate::storage_engine::{OpenedStorageEngine, StorageBackendConfig};
use crate::watch_cache_config::watch_cache_config;
use crate::{listener, script_flags};

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
    pub(crate) metrics_api_services: MetricsApiServicePolicy,
    /// Whether nothing is registered and no controller runs until a takeover says so.
    pub(crate) await_takeover: bool,
    /// The Secret in which certificates for etcd are created and renewed.
    pub(crate) etcd_secret: Option<String>,
    pub(crate) delegated: delegated::DelegatedAuthOptions,
    /// The scheduler's settings.
    pub(crate) scheduling_settings: SchedulingSettings,
    /// How long requests are still accepted after the signal to stop.
    pub(crate) shutdown_delay: Duration,
    pub(crate) request_limits: RequestLimitArgs,
    /// Whether profiles of the process are served.
    pub(crate) profiling: bool,
    pub(crate) audit: Option<AuditConfig>,
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
    /// Of a takeover of what the host serves.
    pub(crate) takeover: Option<TakeoverImporter>,
    /// Connections to the host; stopped last.
    host_connection_tasks: TaskGroup,
}

impl AggregatedServer {
    /// Opens the store and serves. Waits until the host answers.
    pub(crate) async fn start(mut setup: AggregatedServerOptions<'_>) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let connections = TaskGroup::new(ShutdownToken::new());
        let host_address = setup.host.server.to_string();
        let host = RemoteApi::new(setup.host.clone(), &connections)?;
        let host: Arc<dyn Api> = Arc::new(host);
        let (engine, etcd_secret) = open_storage(&mut setup, &host, &clock).await?;
        let metrics = MetricsRegistry::new();
        engine.register_metrics(&metrics);
        let listener = listener::bind(setup.listen).await?;
        let address = listener.local_addr().context("no local address")?;
        let serving = ServingCertificateSecretManager::open(&host, &setup.service, &clock).await?;

        let server_tasks = TaskGroup::new(ShutdownToken::new());
        let delegation =
            HostDelegation::start(&host, &clock, &setup.delegated, &connections, &server_tasks);
        let resources = FlotillaRegistry::new(&setup, &engine, &delegation, &metrics, &clock);
        resources.chain.set_role_api(Arc::clone(&host));
        let api = resources.controller_api(&host);
        let backends = ClusterProxyBackends::start(Arc::clone(&api), &server_tasks);
        let mut running = running_server(&resources, api, &setup, engine, address, server_tasks);
        running.proxy_backends = Some(backends.clone());
        let server_tasks = &running.server_tasks;
        running
            .engine
            .record_faults(&running.api, &clock, server_tasks);
        let ready = delegation.readiness_probe(running.engine.probe());
        let forwarder = RequestForwarder::new(setup.host.clone(), &connections)?;
        let control_plane = HostControlPlane::new(forwarder, &metrics);
        let options = ApiServerOptions {
            resources_installed: Some(Arc::clone(&ready)),
            ..http_options(
                &mut setup,
                &running,
                &resources,
                &delegation,
                control_plane,
                backends,
                metrics,
            )?
        };
        let table = resources.registry.table();
        let served = aggregation::registered_versions(&table, setup.metrics_api_services);
        let (registry, own) = (Arc::clone(&resources.registry), Arc::clone(&resources.api));
        let http = delegation.http_server(resources.registry, options);
        running_server::serve_on(
            http,
            listener,
            serving.certificate(),
            &running.listener_tasks,
        )?;
        serving.run(&delegation.informers, server_tasks);
        if let Some(secret) = etcd_secret {
            secret.run(server_tasks);
        }
        wait_until_ready(&ready).await;
        let addons = running.addons.clone();
        addons.wait_known().await;
        // It may wait, and requests are served meanwhile.
        let namespace = &setup.service.namespace;
        let takeover = TakeoverFollower::open(&host, namespace, setup.await_takeover).await?;
        let importer = takeover
            .clone()
            .map(|follower| TakeoverImporter::new(follower, registry, own));
        Ok(Self {
            running,
            host: host_address,
            registration: ApiServiceController::new(
                host,
                setup.service,
                served,
                serving,
                clock,
                addons,
                takeover,
            ),
            takeover: importer,
            host_connection_tasks: connections,
        })
    }

    /// Registers the APIServices at the host and keeps them registered. Resolves when all
    /// are registered; fails when another server or a definition with objects serves one
    /// of the groups. In a takeover, they are registered when its phase says so.
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

/// The parts of the server that controllers use, without the connections of the cluster proxy.
fn running_server(
    resources: &FlotillaRegistry,
    api: Arc<dyn Api>,
    setup: &AggregatedServerOptions<'_>,
    engine: OpenedStorageEngine,
    address: SocketAddr,
    server_tasks: TaskGroup,
) -> RunningServer {
    let controller_tasks = TaskGroup::new(ShutdownToken::new());
    RunningServer {
        addons: AddonSwitches::watch(&api, &setup.service.namespace, &server_tasks),
        api,
        clock: Arc::new(SystemClock),
        informers: InformerFactory::new(&controller_tasks),
        decisions: DecisionExplanationCache::default(),
        controller_tasks,
        url: listener::url(address),
        address,
        listener_tasks: TaskGroup::new(ShutdownToken::new()),
        server_tasks,
        engine,
        member_caches: MemberCaches::new(&resources.watch_caches),
        watch_caches: Arc::clone(&resources.watch_caches),
        proxy_backends: None,
    }
}

/// Opens the store. Its connections to etcd use the certificates of the Secret, if there is one.
async fn open_storage(
    setup: &mut AggregatedServerOptions<'_>,
    host: &Arc<dyn Api>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<(
    OpenedStorageEngine,
    Option<Arc<EtcdCertificateSecretManager>>,
)> {
    auth::create_private_dir(setup.dir)
        .with_context(|| format!("cannot use {}", setup.dir.display()))?;
    let mut secret = None;
    if let (StorageBackendConfig::Etcd(options), Some(name)) =
        (&mut setup.storage_backend, &setup.etcd_secret)
    {
        let servers = &options.servers;
        let opened =
            EtcdCertificateSecretManager::open(host, &setup.service, name, servers, clock).await?;
        let (tls, renewed) = opened.client();
        options.tls = Some(tls);
        options.renewed_tls = Some(renewed);
        secret = Some(opened);
    }
    let directory = setup.dir.join(STORE_DIR);
    let encryption = setup.encryption.take();
    let engine = OpenedStorageEngine::open(&setup.storage_backend, encryption, &directory).await?;
    Ok((engine, secret))
}

/// The registry of Flotilla's groups.
struct FlotillaRegistry {
    watch_caches: Arc<WatchCaches>,
    registry: Arc<Registry>,
    /// The registry's API, with the rights of the internal superuser.
    api: Arc<dyn Api>,
    metrics_adapter: MetricsAdapter,
    chain: Arc<AdmissionChain>,
}

impl FlotillaRegistry {
    fn new(
        setup: &AggregatedServerOptions<'_>,
        engine: &OpenedStorageEngine,
        delegation: &HostDelegation,
        metrics: &MetricsRegistry,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let authorizer = Arc::clone(&delegation.authorizer);
        let chain = Arc::new(AdmissionChain::new(admission::AdmissionChainOptions {
            clock: Arc::clone(clock),
            allow_no_execute_taints: setup.allow_no_execute,
            customization_script_validator: Some(script_flags::script_validator(setup.scripts)),
            feature_gates: setup.gates,
            resource_authorizer: Some(admission_configuration::resource_authorizer(authorizer)),
            ..admission::AdmissionChainOptions::default()
        }));
        let caches = WatchCaches::new(engine.store(), watch_cache_config());
        let metrics_adapter = MetricsAdapter::default();
        let options = registry::RegistryOptions {
            clock: Arc::clone(clock),
            raw_path_handler: Arc::new(running_server::non_resource_path),
            computed_resources: metrics_adapter.computed_resources(),
            dynamic_groups: METRICS_GROUPS,
            serves_group: |group| is_karmada_group(group) || is_metrics_group(group),
            namespace_lookup: Some(Arc::clone(&delegation.namespaces) as _),
            metrics: metrics.clone(),
            shared_store: setup.storage_backend.is_shared(),
            ..registry::RegistryOptions::new(Arc::clone(&chain))
        };
        let registry = Registry::new(engine.store(), Arc::clone(&caches), options);
        registry.set_dynamic_admission(DynamicAdmission::new(
            Arc::clone(&delegation.webhooks),
            Arc::clone(&delegation.policies.dispatcher),
        ));
        let user = UserInfo::karmada_controllers();
        let api: Arc<dyn Api> = LoopbackApi::new(Arc::clone(&registry), user);
        chain.set_api(Arc::clone(&api));
        Self {
            watch_caches: caches,
            registry,
            api,
            metrics_adapter,
            chain,
        }
    }

    /// The API that controllers use: Flotilla's groups, and those of the host.
    fn controller_api(&self, host: &Arc<dyn Api>) -> Arc<dyn Api> {
        let own = Arc::clone(&self.api);
        GroupSplitApi::new(own, Arc::clone(host), is_karmada_group)
    }
}

fn http_options(
    setup: &mut AggregatedServerOptions<'_>,
    running: &RunningServer,
    resources: &FlotillaRegistry,
    delegation: &HostDelegation,
    host: Arc<HostControlPlane>,
    backends: ClusterProxyBackends,
    metrics: MetricsRegistry,
) -> anyhow::Result<ApiServerOptions> {
    let metrics_adapter = &resources.metrics_adapter;
    let audit = setup.audit.take();
    let auditor = audit.map(|audit| audit.start(&metrics, &running.clock, &running.server_tasks));
    let shared = setup.request_limits.apply_to(running_server::http_options(
        running.address,
        &running.engine,
        &running.informers,
        &running.clock,
        setup.shutdown_delay,
    ));
    let mut checks = shared.checks;
    checks.extend(delegation.health_checks());
    let api = &running.api;
    metrics_adapter.set_backends(backends.clone(), &running.addons);
    let connectors = ClusterConnectorContext {
        api,
        registry: &resources.registry,
        authorizer: Arc::clone(&delegation.authorizer).into(),
        control_plane: host,
        member_caches: &running.member_caches,
        clock: &running.clock,
        tasks: &running.server_tasks,
        metrics: &metrics,
        addons: &running.addons,
    };
    Ok(ApiServerOptions {
        auditor: auditor.transpose()?,
        checks,
        dynamic_groups: metrics_adapter.dynamic_groups(),
        connectors: cluster_connectors(backends, connectors),
        subresource_getters: subresources::decision_getters(
            api,
            &running.decisions,
            setup.scheduling_settings,
        ),
        metrics,
        profiling: setup.profiling,
        webhook_handlers: AdmissionReviewHandlers::from([
            deletion_protection::HANDLER,
            agent_restriction::HANDLER,
        ]),
        ..shared
    })
}

async fn wait_until_ready(ready: &HealthProbe) {
    while let Err(reason) = ready() {
        tracing::debug!(%reason, "waiting");
        tokio::time::sleep(READY_POLL_INTERVAL).await;
    }
}
