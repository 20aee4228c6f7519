//! Starts the propagation controllers.

use std::sync::Arc;
use std::time::Duration;

use binding::BindingController;
use client::{ListWatchSelector, TaskGroup};
use controller_context::{
    ExecutionScope, ManifestMemoryBudget, NamespaceFilter, PropagationContext,
    SkippedResourceConfig, TemplateInformers, WorkClient,
};
use dependencies::DependenciesDistributor;
use detector::ResourceDetector;
use execution::ExecutionController;
use flotilla_runtime::{ReconcileAction, RestMapper, Workqueue, run_workers};
use machinery::Gvr;
use openapi::karmada::KarmadaFeature;
use openapi::karmada::resources::{CLUSTER_OVERRIDES, OVERRIDES, WORKS};
use overrides::OverrideManager;
use policies::{NamespaceSyncController, RebalancerController, UnifiedAuthController, quotas};

/// Starts the controllers and returns when their informers have synced. The controllers run until
/// `tasks` stops. An invalid option is returned as an error.
pub async fn start(deps: PropagationContext, tasks: &TaskGroup) -> Result<(), String> {
    deps.interpreter.wait_for_cache_sync().await;
    let rest_mapper = Arc::new(RestMapper::new(Arc::clone(&deps.control_plane)));
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
        if let Err(error) = rest_mapper.refresh().await {
            return Err(format!(
                "API discovery of the control plane failed: {error}"
            ));
        }
        start_periodic_discovery(&rest_mapper, tasks);
        works.informer.wait_for_cache_sync().await;
        ExecutionController::start(&deps, &rest_mapper, &works, &memory, tasks).await;
        return Ok(());
    }
    // An agent does without them, and without the regular expressions' engine in its memory.
    let scope = NamespaceFilter::new(&deps.options.skipped_namespaces)?;
    let skipped_resources = SkippedResourceConfig::new(&deps.options.skipped_apis)?;
    let templates = TemplateInformers::new(
        Arc::clone(&deps.control_plane),
        deps.informers.clone(),
        Arc::clone(&rest_mapper),
        skipped_resources,
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
    ExecutionController::start(&deps, &rest_mapper, &works, &memory, tasks).await;
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
fn start_periodic_discovery(rest_mapper: &Arc<RestMapper>, tasks: &TaskGroup) {
    let queue: Workqueue<()> = Workqueue::new();
    queue.add_after((), DISCOVERY_INTERVAL);
    let rest_mapper = Arc::clone(rest_mapper);
    run_workers(tasks, "kinds", &queue, 1, move |()| {
        let rest_mapper = Arc::clone(&rest_mapper);
        async move {
            rest_mapper
                .refresh()
                .await
                .map(|_| ReconcileAction::RequeueAfter(DISCOVERY_INTERVAL))
        }
    });
}
