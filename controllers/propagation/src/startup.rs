//! Starts the propagation controllers.

use std::sync::Arc;
use std::time::Duration;

use client::Api;
use flotilla_runtime::{
    EventRecorder, HostWorkloads, InformerFactory, ListWatchSelector, ReconcileAction, TaskGroup,
    Workqueue, run_workers,
};
use interpreter::Interpreter;
use machinery::Gvr;
use machinery::time::Clock;
use openapi::karmada::resources::{CLUSTER_OVERRIDES, OVERRIDES, WORKS};
use openapi::karmada::{FeatureGates, KarmadaFeature};

use crate::binding::BindingController;
use crate::dependencies::DependenciesDistributor;
use crate::detector::ResourceDetector;
use crate::execution::ExecutionController;
use crate::manifest_memory::ManifestMemoryBudget;
use crate::member_access::MemberAccess;
use crate::namespaces::NamespaceSyncController;
use crate::overrides::OverrideManager;
use crate::quotas;
use crate::rebalancer::RebalancerController;
use crate::rest_mapper::{DiscoveryRestMapper, NamespaceFilter, SkippedResourceConfig};
use crate::template_informers::TemplateInformers;
use crate::unified_auth::UnifiedAuthController;
use crate::work_client::WorkClient;

/// Everything that the propagation controllers depend on.
pub struct PropagationContext {
    /// The API that serves templates, policies, bindings and Works.
    pub control_plane: Arc<dyn Api>,
    pub members: Arc<dyn MemberAccess>,
    pub clusters: scheduler::SchedulerClusterCache,
    pub recorder: EventRecorder,
    pub interpreter: Interpreter,
    pub clock: Arc<dyn Clock>,
    /// The informers on `control`.
    pub informers: InformerFactory,
    /// Whether the API server of the templates runs workloads itself.
    pub host: HostWorkloads,
    pub options: Options,
}

/// The clusters whose Works this process executes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ExecutionScope {
    /// Every cluster that is not in pull mode.
    #[default]
    PushClusters,
    /// One cluster, as in a pull-mode agent. No other controller runs.
    SingleCluster(String),
}

impl ExecutionScope {
    pub(crate) fn includes(
        &self,
        cluster: &str,
        clusters: &scheduler::SchedulerClusterCache,
    ) -> bool {
        match self {
            Self::SingleCluster(name) => name == cluster,
            Self::PushClusters => clusters
                .get(cluster)
                .is_none_or(|c| c.cluster.spec.sync_mode != "Pull"),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    /// Regular expressions of namespaces that are not propagated; each has to match a whole name.
    pub skipped_namespaces: Vec<String>,
    /// APIs that are never templates, in addition to the built-in list: `group`, `group/version`,
    /// `group/version/Kind,Kind`, `v1/Kind,Kind`.
    pub skipped_apis: Vec<String>,
    /// The detector selects clusters at once only for bindings of this scheduler.
    pub scheduler_name: String,
    pub execution_scope: ExecutionScope,
    /// The optional features that are on.
    pub feature_gates: FeatureGates,
    /// Keeps the scheduling decisions that the detector makes at once.
    pub decisions: scheduler::DecisionCache,
    /// Timeout of one call to a member.
    pub call_timeout: Duration,
    /// Interval of the full recount of quota usage where quotas are enforced; zero: recount only on
    /// events.
    pub quota_resync: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            skipped_namespaces: vec!["kube-.*".into()],
            skipped_apis: Vec::new(),
            scheduler_name: "default-scheduler".into(),
            execution_scope: ExecutionScope::default(),
            feature_gates: FeatureGates::default(),
            decisions: scheduler::DecisionCache::default(),
            call_timeout: Duration::from_secs(30),
            quota_resync: Duration::from_secs(300),
        }
    }
}

/// Starts the controllers and returns when their informers have synced. The controllers run until
/// `tasks` stops. An invalid option is returned as an error.
pub async fn start(deps: PropagationContext, tasks: &TaskGroup) -> Result<(), String> {
    deps.interpreter.wait_for_cache_sync().await;
    let scope = NamespaceFilter::new(&deps.options.skipped_namespaces)?;
    let kinds = Arc::new(DiscoveryRestMapper::new(SkippedResourceConfig::new(
        &deps.options.skipped_apis,
    )?));
    let informer = |resource: &Gvr| {
        deps.informers
            .get(&deps.control_plane, &ListWatchSelector::all(resource))
    };
    let works = match &deps.options.execution_scope {
        ExecutionScope::PushClusters => ListWatchSelector::all(&WORKS),
        ExecutionScope::SingleCluster(cluster) => ListWatchSelector::all(&WORKS)
            .namespace(openapi::karmada::names::execution_space_name(cluster)),
    };
    let works = deps.informers.get(&deps.control_plane, &works);
    let works = WorkClient::new(Arc::clone(&deps.control_plane), works);
    let memory = Arc::new(ManifestMemoryBudget::default());
    if deps.options.execution_scope != ExecutionScope::PushClusters {
        if let Err(error) = kinds.refresh(&*deps.control_plane).await {
            return Err(format!(
                "API discovery of the control plane failed: {error}"
            ));
        }
        start_periodic_discovery(&kinds, &deps.control_plane, tasks);
        works.informer.wait_for_cache_sync().await;
        ExecutionController::start(&deps, &kinds, &works, &memory, tasks).await;
        return Ok(());
    }
    let templates = TemplateInformers::new(
        Arc::clone(&deps.control_plane),
        deps.informers.clone(),
        Arc::clone(&kinds),
        scope.clone(),
    );
    let overrides = OverrideManager::new(informer(&OVERRIDES), informer(&CLUSTER_OVERRIDES));
    ResourceDetector::start(&deps, &templates, tasks).await;
    if deps
        .options
        .feature_gates
        .enabled(KarmadaFeature::PropagateDeps)
    {
        DependenciesDistributor::start(&deps, &templates, tasks).await;
    }
    BindingController::start(&deps, &templates, &works, &overrides, &memory, tasks).await;
    ExecutionController::start(&deps, &kinds, &works, &memory, tasks).await;
    NamespaceSyncController::start(&deps, &works, &overrides, &scope, tasks).await;
    UnifiedAuthController::start(&deps, &works, tasks).await;
    quotas::start(&deps, &works, tasks).await;
    RebalancerController::start(&deps, tasks).await;
    Ok(())
}

/// Discovery interval where no informer reports new kinds.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(30);

/// An agent of a single cluster has no template informers that would report new kinds, so it
/// repeats discovery.
fn start_periodic_discovery(
    kinds: &Arc<DiscoveryRestMapper>,
    control: &Arc<dyn Api>,
    tasks: &TaskGroup,
) {
    let queue: Workqueue<()> = Workqueue::new();
    queue.add_after((), DISCOVERY_INTERVAL);
    let (kinds, control) = (Arc::clone(kinds), Arc::clone(control));
    run_workers(tasks, "kinds", &queue, 1, move |()| {
        let (kinds, control) = (Arc::clone(&kinds), Arc::clone(&control));
        async move {
            kinds
                .refresh(&*control)
                .await
                .map(|_| ReconcileAction::RequeueAfter(DISCOVERY_INTERVAL))
        }
    });
}
