//! The standalone server, which authenticates and authorizes requests itself and stores
//! its keys in its directory. It is the default control plane, and also a simulated
//! member.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use addons::AddonSwitches;
use admission::{AdmissionChain, DynamicAdmission};
use admission_configuration::{ConfigurationSource, watch_policies, watch_webhook_configurations};
use anyhow::Context;
use auth::certificate_signing::ClusterSigner;
use auth::oidc::OidcAuthenticator;
use auth::rbac::RbacAuthorizer;
use auth::tls::{ReplaceableServingCertificate, ServingCertificates};
use auth::token::ServiceAccountTokens;
use auth::{LocalAuthenticator, RoleEscalationCheck, authenticator};
use client::{Api, InformerFactory, ShutdownToken, TaskGroup};
use flotilla_http::{ApiServer, OwnControlPlane};
use flotilla_kube::kubernetes_service::{self, KubernetesServiceOptions};
use interpreter::LuaLimits;
use karmada_api::FeatureGates;
use karmada_api::addons::ADDONS_NAMESPACE;
use machinery::UserInfo;
use machinery::time::{Clock, SystemClock};
use members::ClusterProxyBackends;
use metrics_adapter::MetricsAdapter;
use metrics_adapter::metrics_api::METRICS_GROUPS;
use registry::{ComputedResourceProviders, LoopbackApi, Registry};
use scheduler::DecisionExplanationCache;
use scheduler::core::SchedulingSettings;
use search::MemberCaches;
use server_certificates::{CHECK_PERIOD, ClientAuthorities, ServerKeysLocation};
use simulated_member::hollow_custom_metrics_providers;
use storage::encryption::ResourceTransformers;
use subresources::{ClusterConnectorContext, cluster_connectors};
use tokio::sync::watch;
use watchcache::WatchCaches;
use webhook_client::{ServiceRouting, WebhookClientManager};

use crate::audit_flags::AuditConfig;
use crate::authentication_flags::{AuthenticationConfigurationFile, TokenWebhookOptions};
use crate::authorization_flags::{AuthorizationOptions, run_reload_loop};
use crate::certificate_files::CertificateFiles;
use crate::controller_manager::ServerIdentity;
use crate::data_dir_metrics;
use crate::file_changes::{FileWatch, watch_files};
use crate::renewal::{CertificateRenewal, RenewedCertificateTargets};
use crate::request_limit_flags::RequestLimitArgs;
use crate::running_server::{self, RunningServer};
use crate::service_account_keys::ServiceAccountKeyArgs;
use crate::storage_engine::{OpenedStorageEngine, StorageBackendConfig};
use crate::{listener, script_flags};

pub(crate) const STORE_DIR: &str = "store";
const KEYS_DIR: &str = "pki";
const KUBECONFIG_FILE: &str = "kubeconfig";

/// The options of a standalone server.
pub(crate) struct StandaloneServerOptions<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) listen: SocketAddr,
    pub(crate) storage_backend: StorageBackendConfig,
    /// The encryption of stored values.
    pub(crate) encryption: Option<ResourceTransformers>,
    /// Whether a port selected for port 0 is used again at the next start.
    pub(crate) reuse_port: bool,
    /// Whether Karmada's groups are served in addition to the built-in kinds.
    pub(crate) federation: bool,
    /// The scheduler's settings.
    pub(crate) scheduling_settings: SchedulingSettings,
    /// The providers of computed kinds.
    pub(crate) computed_resources: ComputedResourceProviders,
    /// Whether a simulated cluster serves annotations as custom and external metrics.
    pub(crate) annotated_metrics: bool,
    /// Additional names in the serving certificate.
    pub(crate) names: &'a [String],
    /// Anonymous requests and the audiences of tokens.
    pub(crate) authentication: authenticator::LocalAuthenticatorOptions,
    /// The file of the issuers of tokens, to read again.
    pub(crate) authentication_configuration: Option<AuthenticationConfigurationFile>,
    /// Further authorities of client certificates.
    pub(crate) client_ca_file: Option<PathBuf>,
    /// Serving certificates and the cluster's authority, if files provide them.
    pub(crate) certificate_files: CertificateFiles,
    pub(crate) service_account_keys: ServiceAccountKeyArgs,
    /// The webhook that reviews tokens.
    pub(crate) token_webhook: Option<TokenWebhookOptions>,
    pub(crate) authorization: AuthorizationOptions,
    /// How long requests are still accepted after the signal to stop.
    pub(crate) shutdown_delay: Duration,
    pub(crate) request_limits: RequestLimitArgs,
    /// Whether profiles of the process are served.
    pub(crate) profiling: bool,
    pub(crate) audit: Option<AuditConfig>,
    /// Whether ClusterTaintPolicies may use the effect NoExecute.
    pub(crate) allow_no_execute: bool,
    /// Whether agents are registered as Karmada does.
    pub(crate) insecure_agent_registration: bool,
    pub(crate) scripts: LuaLimits,
    /// The feature gates.
    pub(crate) gates: FeatureGates,
}

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
        setup: StandaloneServerOptions<'_>,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let dir = setup.dir;
        auth::create_private_dir(dir).with_context(|| format!("cannot use {}", dir.display()))?;
        let engine = OpenedStorageEngine::open(
            &setup.storage_backend,
            setup.encryption,
            &dir.join(STORE_DIR),
        )
        .await?;
        let server = TaskGroup::new(ShutdownToken::new());
        let metrics = flotilla_metrics::MetricsRegistry::new();
        engine.register_metrics(&metrics);
        data_dir_metrics::register(dir, &metrics);
        let listener = if setup.reuse_port {
            listener::bind_same_port(dir, setup.listen).await?
        } else {
            listener::bind(setup.listen).await?
        };
        let address = listener.local_addr().context("no local address")?;
        let mut names = setup.names.to_vec();
        names.push(address.ip().to_string());
        let shared = setup.storage_backend.is_shared();
        let keys = ServerKeysLocation {
            dir: dir.join(KEYS_DIR),
            names,
            store: shared.then(|| engine.store()),
        };
        let pki = keys.open(clock.now()).await?;
        let signer = Arc::new(setup.service_account_keys.issuer(&pki)?);
        let certificates = setup.certificate_files.read(&pki).await?;
        let signing = &certificates.signing;
        let certificate_signer = ClusterSigner::new(&signing.certificate_pem, &signing.key_pem);
        let certificate_signer = Arc::new(certificate_signer.map_err(anyhow::Error::msg)?);
        let client_authorities = ClientAuthorities::new(setup.client_ca_file);
        let client_ca = client_authorities.verifier(&pki).await?;
        let jwt_issuers = setup.authentication.jwt_issuers.clone();
        let bootstrap_tokens = setup.authentication.bootstrap_tokens;
        let authenticator = LocalAuthenticator::new(
            Some(client_ca.verifier),
            Arc::clone(&signer),
            Arc::clone(&clock),
            setup.authentication,
        );
        let rbac = RbacAuthorizer::new();
        let authorization = setup.authorization.build(&rbac, &metrics, &server)?;
        let authorizer = authorization.authorizer;
        let chain = Arc::new(AdmissionChain::new(admission::AdmissionChainOptions {
            clock: Arc::clone(&clock),
            allow_no_execute_taints: setup.allow_no_execute,
            customization_script_validator: Some(script_flags::script_validator(setup.scripts)),
            feature_gates: setup.gates,
            deletion_protection: setup.federation,
            secret_authorizer: Some(admission_configuration::secret_authorizer(
                authorizer.clone(),
            )),
            signer_authorizer: Some(admission_configuration::signer_authorizer(
                authorizer.clone(),
            )),
            insecure_agent_registration: setup.insecure_agent_registration,
        }));
        let hub = WatchCaches::new(engine.store(), watchcache::WatchCacheConfig::default());
        let serves: fn(&str) -> bool = match setup.federation {
            true => |_| true,
            false => |group| !group.ends_with(".karmada.io"),
        };
        let metrics_adapter = MetricsAdapter::default();
        let mut computed_resources = setup.computed_resources;
        if setup.federation {
            computed_resources.extend(metrics_adapter.computed_resources());
        }
        let options = registry::RegistryOptions {
            clock: Arc::clone(&clock),
            create_handlers: flotilla_http::creators(&authenticator, &authorizer),
            computed_resources,
            dynamic_groups: match setup.federation || setup.annotated_metrics {
                true => METRICS_GROUPS,
                false => &[],
            },
            raw_path_handler: Arc::new(running_server::non_resource_path),
            serves_group: serves,
            metrics: metrics.clone(),
            shared_store: shared,
            store_health: engine.probe(),
            insecure_agent_registration: setup.insecure_agent_registration,
            role_escalation: Some(RoleEscalationCheck::new(
                Arc::clone(&rbac),
                Arc::new(authorizer.clone()),
            )),
            ..registry::RegistryOptions::new(Arc::clone(&chain))
        };
        let registry = Registry::new(engine.store(), Arc::clone(&hub), options);
        registry
            .bootstrap()
            .await
            .context("cannot write the initial objects")?;
        let loopback = LoopbackApi::new(Arc::clone(&registry), UserInfo::internal());
        let api: Arc<dyn Api> = Arc::clone(&loopback) as _;
        chain.set_api(Arc::clone(&api));
        authenticator.set_api(Arc::clone(&api));

        authenticator.set_oidc(OidcAuthenticator::new(jwt_issuers, &server));
        if let Some(webhook) = setup.token_webhook {
            authenticator.set_webhook(webhook.connect(&server)?);
        }
        engine.record_faults(&api, &clock, &server);
        let webhook_client = WebhookClientManager::new(&api, ServiceRouting::Endpoints, &server);
        registry.set_conversion_webhook_client(Arc::clone(&webhook_client) as _);
        let (crds, stop) = (Arc::clone(&registry), server.shutdown().clone());
        server.spawn(async move { crds.run(async move { stop.wait().await }).await });
        let (rights, stop) = (
            Arc::clone(&rbac).run(Arc::clone(&api)),
            server.shutdown().clone(),
        );
        server.spawn(async move {
            tokio::select! {
                () = rights => {}
                () = stop.wait() => {}
            }
        });
        rbac.wait_synced().await;
        let admission_informers = InformerFactory::new(&server);
        let expression_authorizer =
            admission_configuration::expression_authorizer(authorizer.clone());
        let webhooks = watch_webhook_configurations(
            ConfigurationSource::Own,
            &api,
            &admission_informers,
            Arc::clone(&loopback) as _,
            webhook_client,
            Arc::clone(&expression_authorizer),
        );
        let policies = watch_policies(&loopback, &admission_informers, expression_authorizer);
        registry.set_dynamic_admission(DynamicAdmission::new(webhooks, policies));
        // No request may pass by a policy or webhook that is not known yet.
        admission_informers.wait_for_cache_sync().await;
        let controllers = TaskGroup::new(ShutdownToken::new());
        let informers = InformerFactory::new(&controllers);
        let member_caches = MemberCaches::new(&hub);
        let addons = match setup.federation {
            true => AddonSwitches::watch(&api, ADDONS_NAMESPACE, &server),
            false => AddonSwitches::none(),
        };
        let own_control_plane = Arc::<OwnControlPlane>::default();
        let (connectors, dynamic_groups) = match setup.federation {
            true => {
                let backends = ClusterProxyBackends::start(Arc::clone(&api), &server);
                metrics_adapter.set_backends(backends.clone(), &addons);
                let context = ClusterConnectorContext {
                    api: &api,
                    registry: &registry,
                    authorizer: authorizer.clone(),
                    control_plane: Arc::clone(&own_control_plane) as _,
                    member_caches: &member_caches,
                    clock: &clock,
                    tasks: &server,
                    metrics: &metrics,
                    addons: &addons,
                };
                let connectors = cluster_connectors(backends, context);
                (connectors, metrics_adapter.dynamic_groups())
            }
            false => (
                simulated_member::container_connectors(&api, &clock, &server),
                hollow_custom_metrics_providers(&api, &clock),
            ),
        };
        let decisions = DecisionExplanationCache::default();
        let audit = setup.audit;
        let auditor = audit.map(|audit| audit.start(&metrics, &clock, &server));
        let options = flotilla_http::ApiServerOptions {
            connectors,
            own_control_plane: Some(own_control_plane),
            dynamic_groups,
            subresource_getters: subresources::decision_getters(
                &api,
                &decisions,
                setup.scheduling_settings,
            ),
            auditor: auditor.transpose()?,
            flow_control: setup
                .request_limits
                .start_flow_control(&api, &metrics, &server),
            metrics,
            // With simulated members in the same process, only the control plane serves
            // the metrics of the process.
            process_metrics: setup.federation,
            profiling: setup.profiling,
            ..setup.request_limits.apply_to(running_server::http_options(
                address,
                &engine,
                &informers,
                &clock,
                setup.shutdown_delay,
            ))
        };
        let http = ApiServer::new(registry, Arc::clone(&authenticator), authorizer, options);
        let served = ServingCertificates::new(&certificates.serving, &certificates.by_name);
        let served = served.map_err(anyhow::Error::msg)?;
        let certificate = ReplaceableServingCertificate::with_certificates(served);
        let listening = TaskGroup::new(ShutdownToken::new());
        running_server::serve_on(http, listener, &certificate, &listening)?;
        if setup.federation {
            let options = KubernetesServiceOptions {
                address: listener::endpoint_address(setup.names, address),
                shared_store: shared,
                clock: Arc::clone(&clock),
            };
            kubernetes_service::start(&api, options, &server);
        }

        let url = listener::url(address);
        let cluster_info_url =
            bootstrap_tokens.then(|| listener::advertised_url(setup.names, address));
        let kubeconfig = dir.join(KUBECONFIG_FILE);
        let files_changed = Arc::default();
        let watched = setup.certificate_files.paths();
        let watched = watched.iter().map(PathBuf::as_path);
        let watched = watched.chain(client_authorities.path());
        let mut file_watches = Vec::from_iter(watch_files(watched, &files_changed));
        if let Some(file) = setup.authentication_configuration {
            file_watches.extend(file.run_reload_loop(Arc::clone(&authenticator), &server));
        }
        if let Some(reload) = authorization.reload {
            file_watches.extend(run_reload_loop(reload, &server));
        }
        let renewal = CertificateRenewal::new(
            keys,
            Arc::clone(&clock),
            RenewedCertificateTargets {
                certificate,
                certificate_signer,
                client_authorities,
                authenticator,
                root_ca: watch::Sender::new(certificates.root_ca.clone()),
                client_ca: watch::Sender::new(client_ca.bundle_pem),
                files: setup.certificate_files,
                kubeconfig: kubeconfig.clone(),
                url: url.clone(),
            },
            &pki,
            certificates,
        )?;
        renewal.run(CHECK_PERIOD, &files_changed, &server);
        let plane = RunningServer {
            api,
            clock,
            informers,
            decisions,
            addons,
            controller_tasks: controllers,
            url,
            address,
            listener_tasks: listening,
            server_tasks: server,
            engine,
            member_caches,
            watch_caches: hub,
        };
        Ok(Self {
            running: plane,
            kubeconfig,
            signer,
            loopback,
            serves_group: serves,
            insecure_agent_registration: setup.insecure_agent_registration,
            cluster_info_url,
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
