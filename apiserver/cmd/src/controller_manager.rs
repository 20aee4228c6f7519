//! Starts the controllers of a server, as Karmada's controller manager and scheduler do.
//!
//! They are started again in each term of leadership, so nothing here outlives the tasks
//! of its [`ControllerContext`].

use std::sync::Arc;

use admission::policies::{KindSchemas, type_check};
use auth::certificate_signing::ClusterSigner;
use auth::token::ServiceAccountTokens;
use client::remote::{NetworkSendFence, RemoteApi, RestConfig};
use client::{Api, InformerFactory, ListWatchSelector, TaskGroup, controller_client};
use clusters::{ClusterApiContext, ClusterControllersOptions as ClusterOptions};
use flotilla_cli::scheduler_flags::SchedulerFlagValues;
use flotilla_runtime::EventRecorder;
use interpreter::{LuaLimits, ResourceInterpreter, WebhookInterpreterOptions};
use machinery::UserInfo;
use machinery::time::Clock;
use members::{MemberClusterManager, MemberConnector, RemoteMemberConnector};
use openapi::karmada::FeatureGates;
use openapi::karmada::addons::Addon;
use openapi::karmada::agents::RBAC_GENERATOR;
use openapi::karmada::resources::CLUSTERS;
use scheduler::{DecisionExplanationCache, Scheduler, SchedulerClusterCache};
use search::{BackendStoreContext, MemberCaches};
use tokio::sync::watch;

use crate::addons::{
    AddonController, AddonControllerContext, AddonDefaults, AddonSwitches, EstimatorAddons,
    EstimatorAddonsContext, LeaderAddons, member_tracking,
};
use crate::controller_flags::ControllerOptions;
use crate::running_server::RunningServer;
use crate::template_flags::TemplatePropagationOptions;
use crate::webhook_client::{ServiceRouting, WebhookClientManager};

const CONTROLLER_MANAGER: &str = "karmada-controller-manager";
const DESCHEDULER: &str = "karmada-descheduler";
/// How long the user may create the roles of agents who has a bootstrap token, per certificate.
const GENERATOR_LIFETIME_SECONDS: i64 = 600;

/// The clients and tasks of the controllers.
pub(crate) struct ControllerContext {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) informers: InformerFactory,
    pub(crate) tasks: TaskGroup,
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
}

impl ControllerContext {
    /// The context of a process without leader election, whose controllers run as long as
    /// the process.
    pub(crate) fn without_election(server: &RunningServer) -> Self {
        Self {
            api: controller_client(&server.api, &UserInfo::karmada_controllers()),
            clock: Arc::clone(&server.clock),
            informers: server.informers.clone(),
            tasks: server.controller_tasks.clone(),
            decisions: server.decisions.clone(),
            connector: Arc::new(RemoteMemberConnector::default()),
            member_caches: server.member_caches.clone(),
            send_fence: None,
            addons: server.addons.clone(),
        }
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
        clock: Arc::clone(&context.clock),
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
    flotilla_kube::start(
        Arc::clone(&context.api),
        options,
        &context.informers,
        &context.tasks,
    )
    .await?;
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
    let tasks = &context.tasks;
    let connect = |config: RestConfig, tasks: &TaskGroup| {
        let api = RemoteApi::new(config, tasks);
        let api = api.map_err(|e| client::Error::Protocol(e.to_string()))?;
        Ok(Arc::new(api) as Arc<dyn Api>)
    };
    clusters::start_cluster_api(ClusterApiContext {
        control_plane: Arc::clone(&context.api),
        management: Arc::new(RemoteApi::new(management.clone(), tasks)?),
        connect: Arc::new(connect),
        informers: context.informers.clone(),
        tasks: tasks.clone(),
    });
    Ok(())
}

/// Starts the multi-cluster controllers and the scheduler.
pub(crate) async fn start_karmada_controllers(
    context: &ControllerContext,
    settings: &MultiClusterControllerOptions,
) -> anyhow::Result<()> {
    let tasks = &context.tasks;
    let host = settings
        .templates
        .watch_host_workloads(&context.api, &context.informers);
    let recorder = |component| {
        EventRecorder::new(
            Arc::clone(&context.api),
            component,
            Arc::clone(&context.clock),
            tasks,
        )
    };
    let connector = Arc::clone(&context.connector);
    let SchedulerFlagValues {
        name,
        scheduling_settings: rules,
    } = &settings.scheduling;
    context.addons.wait_known().await;
    let defaults = settings.addon_defaults();
    let configured = context.addons.current();
    let is_enabled = |addon| defaults.is_enabled(&configured.configuration, addon);
    let scheduler_estimator = is_enabled(Addon::SchedulerEstimator);
    let detail = member_tracking(scheduler_estimator, &settings.estimators);
    let host_api = Arc::clone(&context.api);
    let members = MemberClusterManager::start_with_tracking(
        detail,
        host_api,
        &context.informers,
        connector,
        tasks,
    );
    // Without this, Works would report a member as unreachable whose Secret the informer
    // does not have yet.
    members.wait_for_cache_sync().await;
    let informer = context
        .informers
        .get(&context.api, &ListWatchSelector::all(&CLUSTERS));
    let all = SchedulerClusterCache::with_settings(informer, *rules);
    let manager = recorder(CONTROLLER_MANAGER);
    let outside = WebhookInterpreterOptions {
        caller: WebhookClientManager::new(&context.api, ServiceRouting::ClusterIpOrDns, tasks),
        apply_json_patch: registry::apply_webhook_patch,
    };
    let interpreter =
        ResourceInterpreter::watch(&context.informers, &context.api, settings.scripts, outside);
    clusters::start(clusters::ClusterControllersContext {
        control_plane: Arc::clone(&context.api),
        members: members.clone(),
        recorder: manager.clone(),
        interpreter: interpreter.clone(),
        clock: Arc::clone(&context.clock),
        informers: context.informers.clone(),
        tasks: tasks.clone(),
        options: ClusterOptions {
            gates: settings.gates,
            ..settings.clusters.clone()
        },
    });
    start_cluster_api(context, settings.controllers.cluster_api.as_ref())?;
    let mut estimators = EstimatorAddons::new(EstimatorAddonsContext {
        api: Arc::clone(&context.api),
        clock: Arc::clone(&context.clock),
        informers: context.informers.clone(),
        members: members.clone(),
        clusters: all.clone(),
        recorder: manager.with_component(DESCHEDULER),
        estimators: settings.estimators.clone(),
        descheduler: settings.controllers.descheduler,
        tasks: tasks.clone(),
    });
    // The scheduler waits for the estimators that it begins with.
    estimators
        .apply(scheduler_estimator, is_enabled(Addon::Descheduler))
        .await;
    Scheduler::start(
        Arc::clone(&context.api),
        Arc::clone(&context.clock),
        recorder(name),
        all.clone(),
        scheduler::SchedulerOptions {
            name: name.clone(),
            gates: settings.gates,
            decisions: context.decisions.clone(),
            estimator: estimators.scheduler_estimator(),
        },
        &context.informers,
        tasks,
    );
    flotilla_status::start(flotilla_status::StatusControllersContext {
        control_plane: Arc::clone(&context.api),
        members: Arc::new(members.clone()),
        clusters: all.clone(),
        recorder: manager.clone(),
        interpreter: interpreter.clone(),
        clock: Arc::clone(&context.clock),
        informers: context.informers.clone(),
        host: host.clone(),
        tasks: tasks.clone(),
    });
    let deps = controller_context::PropagationContext {
        control_plane: Arc::clone(&context.api),
        members: Arc::new(members.clone()),
        clusters: all,
        recorder: manager.clone(),
        interpreter,
        clock: Arc::clone(&context.clock),
        informers: context.informers.clone(),
        host,
        options: controller_context::PropagationOptions {
            scheduler_name: name.clone(),
            feature_gates: settings.gates,
            quota_resync: settings.controllers.quota_resync,
            decisions: context.decisions.clone(),
            ..settings.templates.propagation.clone()
        },
    };
    Box::pin(propagation::start(deps, tasks))
        .await
        .map_err(anyhow::Error::msg)?;
    let services = services::ServicesContext {
        control_plane: Arc::clone(&context.api),
        members: Arc::new(members.clone()),
        clock: Arc::clone(&context.clock),
        recorder: manager.clone(),
        informers: context.informers.clone(),
        enabled: settings.controllers.services.gated(settings.gates),
    };
    let autoscalers = autoscale::AutoscalersContext {
        control_plane: Arc::clone(&context.api),
        clock: Arc::clone(&context.clock),
        recorder: manager,
        informers: context.informers.clone(),
        members: Arc::new(members),
        enabled: settings.controllers.autoscale,
        federated_hpa: settings.controllers.federated_hpa,
    };
    let deps = BackendStoreContext {
        control_plane: Arc::clone(&context.api),
        caches: context.member_caches.clone(),
        clock: Arc::clone(&context.clock),
        informers: context.informers.clone(),
        send_fence: context.send_fence.clone(),
    };
    search::start_backend_stores(deps, tasks);
    let addons = AddonControllerContext {
        api: Arc::clone(&context.api),
        informers: context.informers.clone(),
        tasks: tasks.clone(),
        switches: context.addons.clone(),
        defaults,
    };
    let families = LeaderAddons {
        autoscalers,
        services,
        estimators,
    };
    AddonController::start(addons, families);
    Ok(())
}
