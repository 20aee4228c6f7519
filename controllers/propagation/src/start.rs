//! Starts the propagation controllers.

use std::sync::Arc;
use std::time::Duration;

use binding::{BindingController, BindingControllerOptions};
use client::{ListWatchSelector, TaskGroup};
use controller_context::{
    ManifestMemoryBudget, NamespaceFilter, PropagationContext, SkippedResourceConfig,
    TemplateInformers, TypeConfigs, WorkClient,
};
use dependencies::{DependenciesDistributor, DependenciesDistributorOptions};
use detector::{DetectorOptions, ResourceDetector};
use execution::{
    ExecutionController, ExecutionControllerOptions, ExecutionScope, MEMBER_CALL_TIMEOUT,
};
use flotilla_runtime::{ReconcileAction, RestMapper, Workqueue, run_workers};
use history::HistoryController;
use karmada_api::KarmadaFeature;
use karmada_api::names::execution_space_name;
use karmada_api::resources::{CLUSTER_OVERRIDES, FEDERATED_TYPE_CONFIGS, OVERRIDES, WORKS};
use overrides::OverrideManager;
use policies::PolicyControllersOptions;
use rollout::{RevisionResolver, RolloutController, RolloutControllerOptions};

use crate::options::PropagationOptions;

/// The objects that the controllers of this process have written to members since its start.
pub fn member_writes() -> u64 {
    execution::member_writes()
}

/// Starts the controllers of a control plane and returns when their informers have synced. An
/// invalid option is returned as an error.
pub async fn start(
    context: &PropagationContext,
    options: PropagationOptions,
) -> Result<(), String> {
    context.interpreter.wait_for_cache_sync().await;
    let rest_mapper = Arc::new(RestMapper::new(Arc::clone(
        &context.controller.control_plane,
    )));
    let works = WorkClient::new(
        Arc::clone(&context.controller.control_plane),
        context.controller.informer(&WORKS),
    );
    let memory = Arc::new(ManifestMemoryBudget::default());
    let namespace_filter = NamespaceFilter::new(&options.templates.skipped_namespaces)?;
    let type_configs = TypeConfigs::new(
        context.controller.informer(&FEDERATED_TYPE_CONFIGS),
        SkippedResourceConfig::new(&options.templates.skipped_apis)?,
    );
    let templates = TemplateInformers::new(
        Arc::clone(&context.controller.control_plane),
        context.controller.informers.clone(),
        Arc::clone(&rest_mapper),
        type_configs.clone(),
        namespace_filter.clone(),
    );
    let overrides = OverrideManager::new(
        context.controller.informer(&OVERRIDES),
        context.controller.informer(&CLUSTER_OVERRIDES),
    );
    let detector = DetectorOptions {
        templates: Arc::clone(&templates),
        scheduling: options.scheduling,
    };
    ResourceDetector::start(context, detector).await;
    if context.feature_gates.enabled(KarmadaFeature::PropagateDeps) {
        let distributor = DependenciesDistributorOptions {
            templates: Arc::clone(&templates),
        };
        DependenciesDistributor::start(context, distributor).await;
    }
    let revisions = RevisionResolver::new(context);
    let binding = BindingControllerOptions {
        templates: Arc::clone(&templates),
        works: works.clone(),
        overrides: overrides.clone(),
        memory: Arc::clone(&memory),
        revisions: revisions.clone(),
    };
    BindingController::start(context, binding).await;
    let rollouts = RolloutControllerOptions {
        templates,
        works: works.informer.clone(),
        overrides: overrides.clone(),
        resolver: revisions,
        queries: options.queries,
    };
    RolloutController::start(context, rollouts).await;
    HistoryController::start(context, &works.informer).await;
    let execution = ExecutionControllerOptions {
        rest_mapper: Arc::clone(&rest_mapper),
        works: works.clone(),
        memory,
        scope: ExecutionScope::PushClusters,
        call_timeout: options.call_timeout,
    };
    ExecutionController::start(context, execution).await;
    let policies = PolicyControllersOptions {
        rest_mapper,
        works,
        overrides,
        namespace_filter,
        type_configs,
        quota_resync: options.quota_resync,
    };
    policies::start(context, policies).await;
    Ok(())
}

/// Starts what the agent of a pull-mode cluster runs: the execution of the Works of its cluster. The
/// other controllers, their informers and the engine of regular expressions are not in its memory.
pub async fn start_agent(context: &PropagationContext, cluster: &str) -> Result<(), String> {
    context.interpreter.wait_for_cache_sync().await;
    let rest_mapper = Arc::new(RestMapper::new(Arc::clone(
        &context.controller.control_plane,
    )));
    let works = ListWatchSelector::all(&WORKS).namespace(execution_space_name(cluster));
    let works = WorkClient::new(
        Arc::clone(&context.controller.control_plane),
        context.controller.select(&works),
    );
    if let Err(error) = rest_mapper.refresh().await {
        return Err(format!(
            "API discovery of the control plane failed: {error}"
        ));
    }
    start_periodic_discovery(&rest_mapper, &context.controller.tasks);
    works.informer.wait_for_cache_sync().await;
    let execution = ExecutionControllerOptions {
        rest_mapper,
        works,
        memory: Arc::new(ManifestMemoryBudget::default()),
        scope: ExecutionScope::SingleCluster(cluster.to_owned()),
        call_timeout: MEMBER_CALL_TIMEOUT,
    };
    ExecutionController::start(context, execution).await;
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
