//! The command `flotilla serve`, which runs the API server and its controllers, standalone
//! or behind another API server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aggregation::{ApiServiceTarget, MetricsApiServicePolicy};
use auth::authenticator;
use auth::oidc::AnonymousRequests;
use clap::{Args, ValueEnum};
use client::remote::RestConfig;
use client::remote::in_cluster::InClusterEnvironment;
use client::remote::kubeconfig::KubeconfigLoadingRules;
use clusters::AgentRegistrationMode;
use encryption_configuration::EncryptableResources;
use flotilla_cli::{feature_gate_flags, output, scheduler_flags};
use flotilla_runtime::LeaderElector;
use machinery::duration;
use server_certificates::{CertificateUse, report_certificate};

use crate::aggregated::{self, AggregatedServer};
use crate::authentication_flags::{self, TokenWebhookOptions};
use crate::authorization_flags::{
    self, AuthorizationArgs, AuthorizationCacheTtls, AuthorizationOptions,
};
use crate::certificate_files::{self, CertificateFiles};
use crate::controller_flags;
use crate::controller_manager::{self, LeaderContext, MultiClusterControllerOptions};
use crate::flag_modes::{EffectiveMode, ExplicitFlagIds, ServeModeFlags};
use crate::leader_election;
use crate::logs;
use crate::running_server::RunningServer;
use crate::service_account_keys::ServiceAccountKeyArgs;
use crate::signals::TerminationSignals;
use crate::standalone::{StandaloneServer, StandaloneServerOptions};
use crate::startup::StartupLogFields;
use crate::storage_engine;
use crate::template_flags::{self, TemplatePropagationOptions};
use crate::{
    audit_flags, cluster_flags, estimator_flags, member, request_limit_flags, script_flags,
    takeover_phases, takeover_watches, tracing_flags,
};

/// The namespace of the lease of a standalone server.
const LEASE_NAMESPACE: &str = "kube-system";
/// The default namespace of the installation and name of its Service.
const DEFAULT_NAMESPACE: &str = "flotilla-system";
const DEFAULT_SERVICE: &str = "flotilla";
/// How long reviews are cached by default: those of the host as in extension API servers,
/// those of webhooks as in kube-apiserver.
const HOST_REVIEW_CACHE_TTL: Duration = Duration::from_secs(10);
const WEBHOOK_TOKEN_CACHE_TTL: Duration = Duration::from_secs(2 * 60);
const WEBHOOK_AUTHORIZED_CACHE_TTL: Duration = Duration::from_secs(5 * 60);
const WEBHOOK_UNAUTHORIZED_CACHE_TTL: Duration = Duration::from_secs(30);
/// How long the start waits for informers; later /readyz reports those that are missing.
const SYNC_TIMEOUT: Duration = Duration::from_secs(20);

/// Run the API server and its controllers.
///
/// With --kubeconfig or --in-cluster Flotilla serves its own groups behind that API
/// server, which authenticates and authorizes requests, proxies them to Flotilla, and
/// stores the templates. Without these flags, Flotilla serves the whole Kubernetes API
/// itself.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla serve --data-dir /var/lib/flotilla --listen 0.0.0.0:6443\n  flotilla serve --data-dir /var/lib/flotilla --listen 0.0.0.0:6443 --in-cluster\n  flotilla serve --data-dir /var/lib/flotilla --etcd-servers https://10.0.0.1:2379,https://10.0.0.2:2379 \\\n    --etcd-cafile ca.crt --etcd-certfile client.crt --etcd-keyfile client.key"
)]
#[command(next_help_heading = "Generic flags")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    command_line_flags: ExplicitFlagIds,
    /// The directory of the store, keys and certificates; a standalone server also writes
    /// a kubeconfig there.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// The address to serve on.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// An additional DNS name or address for the serving certificate of a standalone
    /// server; may be repeated.
    #[arg(long, help_heading = certificate_files::HELP_HEADING, value_name = "NAME", add = EffectiveMode::Standalone)]
    tls_san: Vec<String>,
    /// Time to delay the termination. During that time the server keeps serving requests
    /// normally, but /readyz fails, so that load balancers stop sending requests.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    shutdown_delay_duration: Duration,
    /// Enables CPU profiles of the process at /debug/pprof/, for those with the right to get
    /// that path.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    profiling: bool,
    #[command(flatten)]
    store: storage_engine::StorageArgs,
    #[command(flatten)]
    request_limits: request_limit_flags::RequestLimitArgs,
    #[command(flatten)]
    audit: audit_flags::AuditArgs,
    #[command(flatten)]
    tracing: tracing_flags::TracingArgs,
    #[command(flatten)]
    host: AggregatedServerArgs,
    #[command(flatten)]
    authentication: authentication_flags::AuthenticationArgs,
    #[command(flatten)]
    authorization: AuthorizationArgs,
    #[command(flatten)]
    certificate_files: CertificateFiles,
    #[command(flatten)]
    service_account_keys: ServiceAccountKeyArgs,
    #[command(flatten)]
    leadership: leader_election::LeaderElectionArgs,
    #[command(flatten)]
    templates: template_flags::TemplatePropagationArgs,
    #[command(flatten)]
    fleet: cluster_flags::ClusterControllersArgs,
    #[command(flatten)]
    scheduling: scheduler_flags::SchedulerArgs,
    #[command(flatten)]
    estimators: estimator_flags::EstimatorArgs,
    #[command(flatten)]
    controllers: controller_flags::ControllerArgs,
    #[command(flatten)]
    scripts: script_flags::ScriptLimitArgs,
    #[command(flatten)]
    gates: feature_gate_flags::FeatureGateArgs,
    #[command(flatten)]
    pub(crate) logs: logs::LoggingArgs,
}

impl ServeArgs {
    fn mode(&self) -> ServeModeFlags {
        ServeModeFlags {
            behind_host: self.host.kubeconfig.is_some() || self.host.in_cluster,
            leader_elect: self.leadership.is_elected(self.store.is_shared()),
        }
    }

    fn agent_registration(&self) -> AgentRegistrationMode {
        if self.fleet.insecure_agent_registration {
            AgentRegistrationMode::Karmada
        } else if self.mode().behind_host {
            AgentRegistrationMode::BehindHost
        } else {
            AgentRegistrationMode::Standalone
        }
    }

    fn control_plane_options(
        &self,
        templates: TemplatePropagationOptions,
    ) -> anyhow::Result<MultiClusterControllerOptions> {
        let scheduling = self.scheduling.options(self.gates.feature_gates)?;
        let controllers = self.controllers.options()?;
        let estimators = self
            .estimators
            .options(self.gates.feature_gates, controllers.descheduler_enabled)?;
        let accurate_estimates = self.estimators.are_used_by_scheduler();
        Ok(MultiClusterControllerOptions {
            clusters: clusters::ClusterControllersSettings {
                agent_registration: self.agent_registration(),
                ..self.fleet.options()
            },
            templates,
            scheduling,
            estimators,
            accurate_estimates,
            controllers,
            scripts: self.scripts.limits(),
            gates: self.gates.feature_gates,
            allow_no_execute: self.fleet.allow_no_execute_taint_policy,
            unregistered_metrics: self.mode().behind_host
                && self.host.metrics_api_services == MetricsApiServicesMode::Never,
        })
    }
}

/// When the APIServices of metrics are registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
enum MetricsApiServicesMode {
    /// Where no other server, such as metrics-server, is registered.
    IfNotPresent,
    /// Also in place of another server.
    Always,
    /// Not; those that lead to Flotilla are removed. As long as no member has custom metrics,
    /// `kubectl api-resources` fails at their empty groups, so they are not registered unasked.
    #[default]
    Never,
}

impl From<MetricsApiServicesMode> for MetricsApiServicePolicy {
    fn from(mode: MetricsApiServicesMode) -> Self {
        match mode {
            MetricsApiServicesMode::IfNotPresent => Self::IfNotPresent,
            MetricsApiServicesMode::Always => Self::Always,
            MetricsApiServicesMode::Never => Self::Never,
        }
    }
}

/// The flags of the aggregated mode.
#[derive(Args)]
#[command(next_help_heading = "Host flags")]
struct AggregatedServerArgs {
    /// Serve behind the API server of this kubeconfig, with its current user.
    #[arg(long, value_name = "FILE", conflicts_with = "in_cluster")]
    kubeconfig: Option<PathBuf>,
    /// Serve behind the API server of the cluster that this process runs in.
    #[arg(long)]
    in_cluster: bool,
    /// The Service by which that API server reaches Flotilla.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_SERVICE, add = EffectiveMode::BehindHost)]
    service_name: String,
    /// The namespace of that Service and of Flotilla's own objects; by default the pod's
    /// namespace, else flotilla-system.
    #[arg(long, value_name = "NAMESPACE", add = EffectiveMode::BehindHost)]
    service_namespace: Option<String>,
    /// The port of that Service.
    #[arg(long, value_name = "PORT", default_value_t = 443, add = EffectiveMode::BehindHost)]
    service_port: u16,
    /// When the APIServices of the metrics of members are registered at that API server
    /// (metrics.k8s.io, custom.metrics.k8s.io, external.metrics.k8s.io).
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = MetricsApiServicesMode::default(), add = EffectiveMode::BehindHost)]
    metrics_api_services: MetricsApiServicesMode,
    /// Wait for flotilla takeover, which moves what that API server serves for Karmada to
    /// Flotilla: until then no APIService is registered and no controller runs.
    #[arg(long, add = EffectiveMode::BehindHost)]
    await_takeover: bool,
    /// Enables anonymous requests to the secure port of the API server. Requests that are
    /// not rejected by another authentication method are treated as anonymous requests.
    /// Without it they are rejected, including probes.
    #[arg(long, help_heading = authentication_flags::HELP_HEADING, default_value_t = true, action = clap::ArgAction::Set)]
    anonymous_auth: bool,
    /// Identifiers of the API: tokens must be for at least one of these audiences; by
    /// default those of the API server to serve behind, or the issuer of Flotilla's own
    /// tokens.
    #[arg(long, help_heading = authentication_flags::HELP_HEADING, value_name = "AUDIENCE", value_delimiter = ',')]
    api_audiences: Vec<String>,
    /// The duration to cache responses from TokenReviews: of the host, by default 10s, or of
    /// the webhook token authenticator, by default 2m.
    #[arg(long, help_heading = authentication_flags::HELP_HEADING, value_name = "DURATION", value_parser = duration::parse)]
    authentication_token_webhook_cache_ttl: Option<Duration>,
    /// The duration to cache 'authorized' responses from SubjectAccessReviews: of the host, by
    /// default 10s, or of the webhook authorizer, by default 5m.
    #[arg(long, help_heading = authorization_flags::HELP_HEADING, value_name = "DURATION", value_parser = duration::parse)]
    authorization_webhook_cache_authorized_ttl: Option<Duration>,
    /// The duration to cache 'unauthorized' responses from SubjectAccessReviews: of the host,
    /// by default 10s, or of the webhook authorizer, by default 30s.
    #[arg(long, help_heading = authorization_flags::HELP_HEADING, value_name = "DURATION", value_parser = duration::parse)]
    authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
}

impl AggregatedServerArgs {
    /// The client configuration for the host, and the namespace of this pod; `None` in the
    /// standalone mode.
    fn config(&self) -> anyhow::Result<Option<(RestConfig, Option<String>)>> {
        if let Some(file) = &self.kubeconfig {
            let config = KubeconfigLoadingRules::from_file(file).load()?;
            if let Some(identity) = &config.auth.client_certificate {
                report_certificate(CertificateUse::HostClient, &identity.certificate);
            }
            return Ok(Some((config, None)));
        }
        if !self.in_cluster {
            return Ok(None);
        }
        let pod = InClusterEnvironment::from_environment()?;
        Ok(Some((pod.load()?, pod.namespace())))
    }

    fn delegated(&self) -> auth::delegated::DelegatedAuthOptions {
        auth::delegated::DelegatedAuthOptions {
            anonymous: self.anonymous_auth,
            audiences: self.api_audiences.clone(),
            token_cache_ttl: self
                .authentication_token_webhook_cache_ttl
                .unwrap_or(HOST_REVIEW_CACHE_TTL),
            authorized_cache_ttl: self
                .authorization_webhook_cache_authorized_ttl
                .unwrap_or(HOST_REVIEW_CACHE_TTL),
            unauthorized_cache_ttl: self
                .authorization_webhook_cache_unauthorized_ttl
                .unwrap_or(HOST_REVIEW_CACHE_TTL),
        }
    }

    fn authorization_cache_ttls(&self) -> AuthorizationCacheTtls {
        AuthorizationCacheTtls {
            authorized: self
                .authorization_webhook_cache_authorized_ttl
                .unwrap_or(WEBHOOK_AUTHORIZED_CACHE_TTL),
            unauthorized: self
                .authorization_webhook_cache_unauthorized_ttl
                .unwrap_or(WEBHOOK_UNAUTHORIZED_CACHE_TTL),
        }
    }

    fn token_webhook(&self, kubeconfig: Option<&PathBuf>) -> Option<TokenWebhookOptions> {
        Some(TokenWebhookOptions {
            kubeconfig: kubeconfig?.clone(),
            cache_ttl: self
                .authentication_token_webhook_cache_ttl
                .unwrap_or(WEBHOOK_TOKEN_CACHE_TTL),
        })
    }

    fn authentication(&self) -> authenticator::LocalAuthenticatorOptions {
        authenticator::LocalAuthenticatorOptions {
            anonymous: AnonymousRequests::all(self.anonymous_auth),
            audiences: self.api_audiences.clone(),
            ..authenticator::LocalAuthenticatorOptions::default()
        }
    }

    fn service(&self, pod_namespace: Option<String>) -> ApiServiceTarget {
        let namespace = self.service_namespace.clone().or(pod_namespace);
        ApiServiceTarget {
            namespace: namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.into()),
            name: self.service_name.clone(),
            port: self.service_port,
        }
    }
}

pub(crate) async fn run(arguments: ServeArgs) -> anyhow::Result<()> {
    arguments
        .command_line_flags
        .check::<ServeArgs>(arguments.mode())?;
    let tracer_provider = arguments.tracing.install()?;
    let ended = Box::pin(run_in_mode(&arguments)).await;
    if let Some(provider) = tracer_provider {
        provider.shutdown().await;
    }
    ended
}

async fn run_in_mode(arguments: &ServeArgs) -> anyhow::Result<()> {
    match arguments.host.config()? {
        None => Box::pin(run_standalone(arguments)).await,
        Some((host, pod_namespace)) => {
            let settings =
                arguments.control_plane_options(arguments.templates.aggregated_options())?;
            let setup = aggregated::AggregatedServerOptions {
                dir: &arguments.data_dir,
                listen: arguments.listen,
                storage_backend: arguments.store.backend()?,
                encryption: arguments
                    .store
                    .encryption(EncryptableResources::OwnGroups)?,
                host,
                service: arguments.host.service(pod_namespace),
                metrics_api_services: arguments.host.metrics_api_services.into(),
                await_takeover: arguments.host.await_takeover,
                etcd_secret: arguments.store.certificates_secret().map(str::to_owned),
                delegated: arguments.host.delegated(),
                scheduling_settings: settings.scheduling.scheduling_settings,
                shutdown_delay: arguments.shutdown_delay_duration,
                request_limits: arguments.request_limits,
                profiling: arguments.profiling,
                audit: arguments.audit.config()?,
                allow_no_execute: settings.allow_no_execute,
                scripts: settings.scripts,
                gates: arguments.gates.feature_gates,
            };
            Box::pin(run_aggregated(setup, &arguments.leadership, settings)).await
        }
    }
}

async fn run_standalone(arguments: &ServeArgs) -> anyhow::Result<()> {
    let mut signals = TerminationSignals::listen()?;
    let Some(server) = signals
        .run_unless_signaled(Box::pin(start_standalone(arguments)))
        .await?
    else {
        return Ok(());
    };
    output::print_line(member::ready_line(&server));
    let ended = tokio::select! {
        () = signals.wait() => Ok(()),
        error = server.wait_for_failure() => Err(error),
    };
    server.stop().await;
    ended
}

fn standalone_options<'a>(
    arguments: &'a ServeArgs,
    settings: &MultiClusterControllerOptions,
) -> anyhow::Result<StandaloneServerOptions<'a>> {
    let mut authentication = arguments.host.authentication();
    let configuration = arguments.authentication.complete(&mut authentication)?;
    Ok(StandaloneServerOptions {
        dir: &arguments.data_dir,
        listen: arguments.listen,
        storage_backend: arguments.store.backend()?,
        encryption: arguments.store.encryption(EncryptableResources::All)?,
        reuse_port: false,
        federation: true,
        scheduling_settings: settings.scheduling.scheduling_settings,
        scripts: settings.scripts,
        computed_resources: Default::default(),
        annotated_metrics: false,
        names: &arguments.tls_san,
        authentication,
        authentication_configuration: configuration,
        client_ca_file: arguments.authentication.client_ca_file.clone(),
        certificate_files: arguments.certificate_files.clone(),
        service_account_keys: arguments.service_account_keys.clone(),
        token_webhook: arguments.host.token_webhook(
            arguments
                .authentication
                .authentication_token_webhook_config_file
                .as_ref(),
        ),
        authorization: AuthorizationOptions {
            flags: arguments.authorization.clone(),
            cache_ttls: arguments.host.authorization_cache_ttls(),
        },
        shutdown_delay: arguments.shutdown_delay_duration,
        request_limits: arguments.request_limits,
        profiling: arguments.profiling,
        audit: arguments.audit.config()?,
        allow_no_execute: settings.allow_no_execute,
        insecure_agent_registration: arguments.fleet.insecure_agent_registration,
        gates: arguments.gates.feature_gates,
    })
}

async fn start_standalone(arguments: &ServeArgs) -> anyhow::Result<StandaloneServer> {
    let settings = arguments.control_plane_options(arguments.templates.standalone_options())?;
    let setup = standalone_options(arguments, &settings)?;
    let store = setup.storage_backend.clone();
    let election = arguments
        .leadership
        .election(store.is_shared(), LEASE_NAMESPACE)?;
    let server = StandaloneServer::start(setup).await?;
    StartupLogFields {
        mode: "standalone",
        store: &store,
        address: server.address,
        data: &arguments.data_dir,
        host: None,
        members: 0,
    }
    .log();
    let identity = server.service_account_options();
    let controllers = move |context: LeaderContext| {
        let (identity, settings) = (identity.clone(), settings.clone());
        async move {
            controller_manager::start_kube_controllers(&context.controllers, &identity).await?;
            Box::pin(controller_manager::start_karmada_controllers(
                &context, &settings,
            ))
            .await
        }
    };
    run_controllers(&server, election, controllers).await?;
    Ok(server)
}

/// Starts the controllers now, or with leader election in each term.
async fn run_controllers<F, Fut>(
    server: &RunningServer,
    election: Option<LeaderElector>,
    controllers: F,
) -> anyhow::Result<()>
where
    F: Fn(LeaderContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = anyhow::Result<()>> + Send,
{
    match election {
        None => {
            controllers(LeaderContext::without_election(server)).await?;
            let synced = server.informers.wait_for_cache_sync();
            if tokio::time::timeout(SYNC_TIMEOUT, synced).await.is_err() {
                // Such as when one stored object cannot be decrypted: the others are served.
                let missing = server.informers.unsynced();
                tracing::warn!(?missing, "serving before every informer has synced");
            }
        }
        Some(election) => leader_election::run_leader_election(election, server, controllers),
    }
    Ok(())
}

async fn run_aggregated(
    setup: aggregated::AggregatedServerOptions<'_>,
    flags: &leader_election::LeaderElectionArgs,
    settings: MultiClusterControllerOptions,
) -> anyhow::Result<()> {
    let election = flags.election(setup.storage_backend.is_shared(), &setup.service.namespace)?;
    let mut signals = TerminationSignals::listen()?;
    let starting = async {
        let (store, data) = (setup.storage_backend.clone(), setup.dir);
        let aggregated = AggregatedServer::start(setup).await?;
        StartupLogFields {
            mode: "aggregated",
            store: &store,
            address: aggregated.running.address,
            data,
            host: Some(&aggregated.host),
            members: 0,
        }
        .log();
        aggregated.register().await?;
        let takeover = aggregated.takeover.clone();
        if let Some(importer) = &takeover {
            let caches = Arc::clone(&aggregated.running.watch_caches);
            let tasks = &aggregated.running.server_tasks;
            takeover_watches::follow(importer.follower().clone(), caches, tasks);
        }
        let controllers = move |context: LeaderContext| {
            let (settings, takeover) = (settings.clone(), takeover.clone());
            async move {
                if let Some(importer) = takeover {
                    takeover_phases::follow(importer, context, settings);
                    return Ok(());
                }
                Box::pin(controller_manager::start_karmada_controllers(
                    &context, &settings,
                ))
                .await
            }
        };
        run_controllers(&aggregated.running, election, controllers).await?;
        Ok(aggregated)
    };
    let Some(aggregated) = signals.run_unless_signaled(Box::pin(starting)).await? else {
        return Ok(());
    };
    let server = &aggregated.running;
    output::print_line(format!("ready {} behind {}", server.url, aggregated.host));
    let ended = tokio::select! {
        () = signals.wait() => Ok(()),
        error = server.wait_for_failure() => Err(error),
    };
    aggregated.stop().await;
    ended
}
