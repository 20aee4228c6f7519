//! Starts the propagation controllers.

use std::sync::Arc;
use std::time::Duration;

use client::Api;
use interpreter::Interpreter;
use machinery::Gvr;
use machinery::time::Clock;
use openapi::karmada::resources::{CLUSTER_OVERRIDES, OVERRIDES, WORKS};
use openapi::karmada::{FeatureGates, Gate};
use flotilla_runtime::{Action, HostWorkloads, Informers, Queue, Recorder, Select, Tasks, run_workers};

use crate::access::MemberAccess;
use crate::binding::BindingController;
use crate::dependencies::Dependencies;
use crate::detector::Detector;
use crate::execution::Execution;
use crate::impersonation::Impersonation;
use crate::kinds::{Kinds, Scope, Skips};
use crate::manifest_memory::ManifestMemory;
use crate::namespaces::Namespaces;
use crate::overrides::Overrides;
use crate::quota;
use crate::rebalancer::Rebalancers;
use crate::templates::Templates;
use crate::works::Works;

/// Everything that the propagation controllers depend on.
pub struct Deps {
    /// The API that serves templates, policies, bindings and Works.
    pub control: Arc<dyn Api>,
    pub members: Arc<dyn MemberAccess>,
    pub clusters: scheduler::Clusters,
    pub recorder: Recorder,
    pub interpreter: Interpreter,
    pub clock: Arc<dyn Clock>,
    /// The informers on `control`.
    pub informers: Informers,
    /// Whether the API server of the templates runs workloads itself.
    pub host: HostWorkloads,
    pub options: Options,
}

/// The clusters whose Works this process executes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Every cluster that is not in pull mode.
    #[default]
    Push,
    /// One cluster, as in a pull-mode agent. No other controller runs.
    Only(String),
}

impl Reach {
    pub(crate) fn covers(&self, cluster: &str, clusters: &scheduler::Clusters) -> bool {
        match self {
            Self::Only(name) => name == cluster,
            Self::Push => clusters
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
    pub reach: Reach,
    /// The optional features that are on.
    pub gates: FeatureGates,
    /// Keeps the scheduling decisions that the detector makes at once.
    pub decisions: scheduler::Decisions,
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
            reach: Reach::default(),
            gates: FeatureGates::default(),
            decisions: scheduler::Decisions::default(),
            call_timeout: Duration::from_secs(30),
            quota_resync: Duration::from_secs(300),
        }
    }
}

/// Starts the controllers and returns when their informers have synced. The controllers run until
/// `tasks` stops. An invalid option is returned as an error.
pub async fn start(deps: Deps, tasks: &Tasks) -> Result<(), String> {
    deps.interpreter.wait_synced().await;
    let scope = Scope::new(&deps.options.skipped_namespaces)?;
    let kinds = Arc::new(Kinds::new(Skips::new(&deps.options.skipped_apis)?));
    let informer = |resource: &Gvr| deps.informers.get(&deps.control, &Select::all(resource));
    let works = match &deps.options.reach {
        Reach::Push => Select::all(&WORKS),
        Reach::Only(cluster) => {
            Select::all(&WORKS).namespace(openapi::karmada::names::execution_space(cluster))
        }
    };
    let works = deps.informers.get(&deps.control, &works);
    let works = Works::new(Arc::clone(&deps.control), works);
    let memory = Arc::new(ManifestMemory::default());
    if deps.options.reach != Reach::Push {
        if let Err(error) = kinds.refresh(&*deps.control).await {
            return Err(format!(
                "API discovery of the control plane failed: {error}"
            ));
        }
        refresh_kinds(&kinds, &deps.control, tasks);
        works.informer.wait_synced().await;
        Execution::start(&deps, &kinds, &works, &memory, tasks).await;
        return Ok(());
    }
    let templates = Templates::new(
        Arc::clone(&deps.control),
        deps.informers.clone(),
        Arc::clone(&kinds),
        scope.clone(),
    );
    let overrides = Overrides::new(informer(&OVERRIDES), informer(&CLUSTER_OVERRIDES));
    Detector::start(&deps, &templates, tasks).await;
    if deps.options.gates.is_on(Gate::PropagateDeps) {
        Dependencies::start(&deps, &templates, tasks).await;
    }
    BindingController::start(&deps, &templates, &works, &overrides, &memory, tasks).await;
    Execution::start(&deps, &kinds, &works, &memory, tasks).await;
    Namespaces::start(&deps, &works, &overrides, &scope, tasks).await;
    Impersonation::start(&deps, &works, tasks).await;
    quota::start(&deps, &works, tasks).await;
    Rebalancers::start(&deps, tasks).await;
    Ok(())
}

/// Discovery interval where no informer reports new kinds.
const REFRESH: Duration = Duration::from_secs(30);

/// An agent of a single cluster has no template informers that would report new kinds, so it
/// repeats discovery.
fn refresh_kinds(kinds: &Arc<Kinds>, control: &Arc<dyn Api>, tasks: &Tasks) {
    let queue: Queue<()> = Queue::new();
    queue.add_after((), REFRESH);
    let (kinds, control) = (Arc::clone(kinds), Arc::clone(control));
    run_workers(tasks, "kinds", &queue, 1, move |()| {
        let (kinds, control) = (Arc::clone(&kinds), Arc::clone(&control));
        async move {
            kinds
                .refresh(&*control)
                .await
                .map(|_| Action::After(REFRESH))
        }
    });
}
