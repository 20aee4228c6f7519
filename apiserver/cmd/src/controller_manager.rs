//! Starts the controllers of a server, as Karmada's controller manager and scheduler do.
//!
//! They are started again in each term of leadership, so nothing here outlives the tasks
//! of its [`LeaderContext`].

use std::sync::Arc;

use addons::{
    AddonController, AddonControllerOptions, AddonDefaults, AddonSwitches, EstimatorAddons,
    EstimatorAddonsOptions, LeaderAddons, member_tracking,
};
use admission::policies::{KindSchemas, type_check};
use auth::certificate_signing::ClusterSigner;
use auth::token::ServiceAccountTokens;
use autoscale::AutoscalerOptions;
use client::remote::{NetworkSendFence, RemoteApi, RestConfig};
use client::{Api, InformerFactory, TaskGroup, controller_client};
use clusters::{ClusterApiOptions, ClusterControllersSettings as ClusterOptions};
use controller_context::PropagationContext;
use detector::InlineSchedulingOptions;
use flotilla_cli::scheduler_flags::SchedulerFlagValues;
use flotilla_runtime::{ClusterLister, ControllerContext, EventRecorder};
use interpreter::{LuaLimits, ResourceInterpreter, WebhookInterpreterOptions};
use karmada_api::FeatureGates;
use karmada_api::addons::Addon;
use machinery::UserInfo;
use machinery::agent_user::RBAC_GENERATOR;
use machinery::time::Clock;
use members::{
    ClusterProxyBackends, MemberAccess, MemberClusterManager, MemberConnector,
    MemberTrackingOptions, RemoteMemberConnector,
};
use propagation::PropagationOptions;
use rollout::QueryServers;
use scheduler::{DecisionExplanationCache, Scheduler, SchedulerClusterCache, SchedulerOptions};
use search::{BackendStoreOptions, MemberCaches};
use services::ServiceControllersOptions;
use tokio::sync::watch;
use webhook_client::{ServiceRouting, WebhookClientManager};

use crate::controller_flags::ControllerOptions;
use crate::running_server::RunningServer;
use crate::template_flags::TemplatePropagationOptions;

const CONTROLLER_MANAGER: &str = "karmada-controller-manager";
/// How long the user may create the roles of agents who has a bootstrap token, per certificate.
const GENERATOR_LIFETIME_SECONDS: i64 = 600;

/// The context in which the controllers of a server start, in each term of leadership.
pub(crate) struct LeaderContext {
    pub(crate) controllers: ControllerContext,
    /// The scheduler's last decisions, for the subresource `decision`.
    pub(crate) decisions: DecisionExplanationCache,
    /// Connects to members.
    pub(crate) connector: Arc<dyn MemberConnector>,
    /// The cached objects of members, for backend stores.
    pub(crate) member_caches: MemberCaches,
    /// Closed at the end of a term of leadership: nothing is sent to backend stores then.
    pub(crate) send_fence: Option<NetworkSendFence>,
    /// The addons as they are configured.
    pub(crate) addons: AddonSwitches,
    /// The connections of the cluster proxy, with the tunnels of agents.
    pub(crate) proxy_backends: Option<ClusterProxyBackends>,
}

impl LeaderContext {
    /// The context of a process without leader election, whose controllers run as long as
    /// the process.
    pub(crate) fn without_election(server: &RunningServer) -> Self {
        let api = controller_client(&server.api, &UserInfo::karmada_controllers());
        let (clock, tasks) = (Arc::clone(&server.clock), server.controller_tasks.clone());
        Self {
            controllers: controller_manager_context(api, clock, server.informers.clone(), tasks),
            decisions: server.decisions.clone(),
            connector: Arc::new(RemoteMemberConnector::default()),
            member_caches: server.member_caches.clone(),
            send_fence: None,
            addons: server.addons.clone(),
            proxy_backends: server.proxy_backends.clone(),
        }
    }

    /// The same context for controllers that run in `tasks`, and whose informers do.
    pub(crate) fn in_tasks(&self, tasks: TaskGroup) -> Self {
        let outer = &self.controllers;
        let (api, clock) = (Arc::clone(&outer.control_plane), Arc::clone(&outer.clock));
        let informers = InformerFactory::new(&tasks);
        Self {
            controllers: controller_manager_context(api, clock, informers, tasks),
            decisions: self.decisions.clone(),
            connector: Arc::clone(&self.connector),
            member_caches: self.member_caches.clone(),
            send_fence: self.send_fence.clone(),
            addons: self.addons.clone(),
            proxy_backends: self.proxy_backends.clone(),
        }
    }
}

/// A context whose events are those of the controller manager.
pub(crate) fn controller_manager_context(
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    informers: InformerFactory,
    tasks: TaskGroup,
) -> ControllerContext {
    let (server, time) = (Arc::clone(&api), Arc::clone(&clock));
    ControllerContext {
        recorder: EventRecorder::new(server, CONTROLLER_MANAGER, time, &tasks),
        control_plane: api,
        informers,
        clock,
        tasks,
    }
}

/// The token signer and root CA of service accounts, the authorities of client certificates,
/// and which groups are served.
#[derive(Clone)]
pub(crate) struct ServerIdentity {
    pub(crate) signer: Arc<ServiceAccountTokens>,
    pub(crate) serves_group: fn(&str) -> bool,
    /// Whether the certificates of the user who creates the roles of agents last as long as requested.
    pub(crate) insecure_agent_registration: bool,
    pub(crate) root_ca: watch::Receiver<String>,
    pub(crate) client_ca: watch::Receiver<String>,
    pub(crate) certificate_signer: Arc<ClusterSigner>,
    /// The kinds against which policies are checked.
    pub(crate) schemas: Arc<dyn KindSchemas>,
    /// The URL in `kube-public/cluster-info`, if bootstrap tokens authenticate.
    pub(crate) cluster_info_url: Option<String>,
}

/// Starts the controllers of kube-controller-manager that every server needs: garbage
/// collection, namespaces, service accounts and tokens.
pub(crate) async fn start_kube_controllers(
    context: &ControllerContext,
    identity: &ServerIdentity,
) -> anyhow::Result<()> {
    let signer = Arc::clone(&identity.signer);
    let certificate_signer = Arc::clone(&identity.certificate_signer);
    let schemas = Arc::clone(&identity.schemas);
    let clock = Arc::clone(&context.clock);
    let limits_generator = !identity.insecure_agent_registration;
    let options = flotilla_kube::KubeControllersOptions {
        serves_group: identity.serves_group,
        root_ca: identity.root_ca.clone(),
        client_ca: identity.client_ca.clone(),
        issue_token: Arc::new(move |namespace, account, uid, secret| {
            signer
                .issue_for_secret(namespace, account, uid, secret)
                .map_err(|e| e.to_string())
        }),
        sign_certificate: Arc::new(move |to_sign| {
            let usages = to_sign.usages;
            let seconds = match limits_generator && to_sign.request.common_name == RBAC_GENERATOR {
                true => Some(GENERATOR_LIFETIME_SECONDS),
                false => to_sign.expiration_seconds,
            };
            certificate_signer.sign(to_sign.request, usages, seconds, clock.now())
        }),
        type_check: Arc::new(move |policy| type_check(policy, &*schemas)),
        cluster_info_url: identity.cluster_info_url.clone(),
    };
    flotilla_kube::start(context, options).await?;
    Ok(())
}

/// The options of the multi-cluster controllers. The default is for a standalone server.
#[derive(Clone, Debug, Default)]
pub(crate) struct MultiClusterControllerOptions {
    pub(crate) clusters: ClusterOptions,
    pub(crate) templates: TemplatePropagationOptions,
    pub(crate) scheduling: SchedulerFlagValues,
    /// The options of accurate scheduler estimators.
    pub(crate) estimators: estimator::EstimatorOptions,
    /// Whether the scheduler calls them, if the addon is not configured.
    pub(crate) accurate_estimates: bool,
    pub(crate) controllers: ControllerOptions,
    pub(crate) scripts: LuaLimits,
    /// The feature gates.
    pub(crate) gates: FeatureGates,
    /// Whether ClusterTaintPolicies may use the effect NoExecute.
    pub(crate) allow_no_execute: bool,
    /// Whether the flags register no APIServices of metrics at the host.
    pub(crate) unregistered_metrics: bool,
}

impl MultiClusterControllerOptions {
    /// The default options with other feature gates.
    pub(crate) fn with_gates(gates: FeatureGates) -> Self {
        Self {
            scheduling: SchedulerFlagValues::with_gates(gates),
            gates,
            ..Self::default()
        }
    }

    /// The addons that the flags enable.
    fn addon_defaults(&self) -> AddonDefaults {
        AddonDefaults {
            descheduler: self.controllers.descheduler_enabled,
            scheduler_estimator: self.accurate_estimates,
            metrics_adapter: !self.unregistered_metrics,
        }
    }
}

/// Starts the controller that joins the clusters of Cluster API, if there is a management cluster.
fn start_cluster_api(
    context: &ControllerContext,
    management: Option<&RestConfig>,
) -> anyhow::Result<()> {
    let Some(management) = management else {
        return Ok(());
    };
    let connect = |config: RestConfig, tasks: &TaskGroup| {
        let api = RemoteApi::new(config, tasks);
        let api = api.map_err(|e| client::Error::Protocol(e.to_string()))?;
        Ok(Arc::new(api) as Arc<dyn Api>)
    };
    let options = ClusterApiOptions {
        management: Arc::new(RemoteApi::new(management.clone(), &context.tasks)?),
        connect: Arc::new(connect),
    };
    clusters::start_cluster_api(context, options);
    Ok(())
}

/// The servers that answer the queries of staged rollouts, beside the members in push mode.
fn query_servers(
    leader: &LeaderContext,
    prometheus: Option<&RestConfig>,
) -> anyhow::Result<QueryServers> {
    let tasks = &leader.controllers.tasks;
    let prometheus = prometheus.map(|config| RemoteApi::new(config.clone(), tasks));
    let prometheus = prometheus.transpose()?;
    Ok(QueryServers {
        prometheus: prometheus.map(|api| Arc::new(api) as Arc<dyn Api>),
        tunnels: leader.proxy_backends.clone(),
    })
}

/// Connects the members, and returns when their Secrets are known: otherwise Works would report
/// a member as unreachable whose Secret the informer does not have yet.
async fn start_members(
    leader: &LeaderContext,
    tracking: MemberTrackingOptions,
) -> MemberClusterManager {
    let context = &leader.controllers;
    let members = MemberClusterManager::start_with_tracking(
        tracking,
        Arc::clone(&context.control_plane),
        &context.informers,
        Arc::clone(&leader.connector),
        &context.tasks,
    );
    members.wait_for_cache_sync().await;
    members
}

fn watch_interpreter(context: &ControllerContext, scripts: LuaLimits) -> ResourceInterpreter {
    let api = &context.control_plane;
    let webhooks = WebhookInterpreterOptions {
        caller: WebhookClientManager::new(api, ServiceRouting::ClusterIpOrDns, &context.tasks),
        apply_json_patch: registry::apply_webhook_patch,
    };
    ResourceInterpreter::watch(&context.informers, api, scripts, webhooks)
}

/// Starts the multi-cluster controllers and the scheduler.
pub(crate) async fn start_karmada_controllers(
    leader: &LeaderContext,
    settings: &MultiClusterControllerOptions,
) -> anyhow::Result<()> {
    let context = &leader.controllers;
    leader.addons.wait_known().await;
    let defaults = settings.addon_defaults();
    let configured = leader.addons.current();
    let is_enabled = |addon| defaults.is_enabled(&configured.configuration, addon);
    let scheduler_estimator = is_enabled(Addon::SchedulerEstimator);
    let tracking = member_tracking(scheduler_estimator, &settings.estimators);
    let members = start_members(leader, tracking).await;
    let interpreter = watch_interpreter(context, settings.scripts);
    let clusters = clusters::ClusterControllersOptions {
        members: members.clone(),
        interpreter: interpreter.clone(),
        settings: ClusterOptions {
            gates: settings.gates,
            ..settings.clusters.clone()
        },
    };
    clusters::start(context, &clusters);
    start_cluster_api(context, settings.controllers.cluster_api.as_ref())?;
    let clusters = ClusterLister::watch(&context.control_plane, &context.informers);
    let scheduled_clusters = SchedulerClusterCache::with_settings(
        clusters.informer().clone(),
        settings.scheduling.scheduling_settings,
    );
    let mut estimators = EstimatorAddons::new(EstimatorAddonsOptions {
        context: context.clone(),
        members: members.clone(),
        clusters: scheduled_clusters.clone(),
        estimators: settings.estimators.clone(),
        descheduler: settings.controllers.descheduler,
    });
    // The scheduler waits for the estimators that it begins with.
    estimators
        .apply(scheduler_estimator, is_enabled(Addon::Descheduler))
        .await;
    let scheduling = InlineSchedulingOptions {
        scheduler_name: settings.scheduling.name.clone(),
        clusters: scheduled_clusters,
        decisions: leader.decisions.clone(),
    };
    start_scheduler(context, &scheduling, settings.gates, &estimators);
    let propagation = PropagationContext {
        controller: context.clone(),
        members: Arc::new(members.clone()),
        clusters,
        interpreter,
        host: settings
            .templates
            .watch_host_workloads(&context.control_plane, &context.informers),
        feature_gates: settings.gates,
    };
    flotilla_status::start(&propagation);
    let options = PropagationOptions {
        templates: settings.templates.filter.clone(),
        quota_resync: settings.controllers.quota_resync,
        queries: query_servers(leader, settings.controllers.rollout_prometheus.as_ref())?,
        ..PropagationOptions::new(scheduling)
    };
    Box::pin(propagation::start(&propagation, options))
        .await
        .map_err(anyhow::Error::msg)?;
    start_addons(leader, settings, members, estimators);
    Ok(())
}

/// Starts the scheduler, whose events have a writer of their own.
fn start_scheduler(
    context: &ControllerContext,
    scheduling: &InlineSchedulingOptions,
    gates: FeatureGates,
    estimators: &EstimatorAddons,
) {
    let name = &scheduling.scheduler_name;
    let recorder = EventRecorder::new(
        Arc::clone(&context.control_plane),
        name,
        Arc::clone(&context.clock),
        &context.tasks,
    );
    let context = ControllerContext {
        recorder,
        ..context.clone()
    };
    let options = SchedulerOptions {
        name: name.clone(),
        gates,
        decisions: scheduling.decisions.clone(),
        estimator: estimators.scheduler_estimator(),
        clusters: scheduling.clusters.clone(),
    };
    Scheduler::start(&context, options);
}

/// Starts the backend stores of the search, and the controllers that addons switch on and off.
fn start_addons(
    leader: &LeaderContext,
    settings: &MultiClusterControllerOptions,
    members: MemberClusterManager,
    estimators: EstimatorAddons,
) {
    let members: Arc<dyn MemberAccess> = Arc::new(members);
    let stores = BackendStoreOptions {
        caches: leader.member_caches.clone(),
        send_fence: leader.send_fence.clone(),
    };
    search::start_backend_stores(&leader.controllers, stores);
    let families = LeaderAddons {
        services: ServiceControllersOptions {
            members: Arc::clone(&members),
            enabled: settings.controllers.services.gated(settings.gates),
        },
        cluster_profile_namespace: settings.controllers.cluster_profile_namespace.clone(),
        autoscalers: AutoscalerOptions {
            members,
            enabled: settings.controllers.autoscale,
            federated_hpa: settings.controllers.federated_hpa,
        },
        estimators,
    };
    let addons = AddonControllerOptions {
        switches: leader.addons.clone(),
        defaults: settings.addon_defaults(),
        families,
    };
    AddonController::start(&leader.controllers, addons);
}
