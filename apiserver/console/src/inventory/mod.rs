//! The clusters, bindings and rollouts that the user may list, as small rows that reflectors keep up
//! to date. Other resources are followed once somebody looks at them.
//!
//! server ──list, watch──► [`projection::Projection`] of Clusters, bindings, Rollouts, … ──► [`Inventory`] ──► pages

mod autoscaler_rows;
mod cluster_row;
mod list_scope;
mod policy_rows;
mod projection;
mod quota_rows;
mod resource_row;
mod service_rows;
mod workload_row;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use client::{Api, ListWatchSelector, TaskGroup, run_reflector};
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS, CLUSTERS};
use karmada_api::rollout::ROLLOUTS;
use machinery::Gvr;
use parking_lot::Mutex;
use tokio::sync::watch;

pub(crate) use autoscaler_rows::AUTOSCALERS;
pub(crate) use cluster_row::{ClusterRow, ReportedState, ResourceShare};
use list_scope::{ListScope, ScopedApi};
pub(crate) use policy_rows::{
    OVERRIDE_KINDS, OVERRIDE_PAGES, POLICY_KINDS, POLICY_PAGES, ROLLOUT_POLICY_KINDS,
    ROLLOUT_POLICY_PAGES, describe_affinity, describe_placement, describe_selector,
    rollout_policy_text,
};
pub(crate) use projection::ObjectKey;
use projection::{Projection, ProjectionSink};
pub(crate) use quota_rows::QUOTA_LIST;
pub(crate) use resource_row::{ListedResource, ResourceRow, RowCell};
pub(crate) use service_rows::SHARED_SERVICES;
pub(crate) use workload_row::{RolloutRow, WorkloadHealth, WorkloadRow, policy_text};

/// How long a page waits for the first list of a resource.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct Inventory {
    clusters: Arc<Projection<ClusterRow>>,
    bindings: Arc<Projection<WorkloadRow>>,
    cluster_bindings: Arc<Projection<WorkloadRow>>,
    rollouts: Arc<Projection<RolloutRow>>,
    /// The resources that somebody has looked at.
    resources: Mutex<HashMap<&'static Gvr, Arc<Projection<ResourceRow>>>>,
    source: ReflectorSource,
}

/// The templates of a cluster and their replicas there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterLoad {
    pub(crate) workloads: usize,
    pub(crate) replicas: i64,
    /// Templates that are evicted from it.
    pub(crate) evictions: usize,
}

/// How many rollouts of a policy are in each state, by the namespace and the text of the policy.
pub(crate) type RolloutStates = HashMap<(String, Box<str>), BTreeMap<String, usize>>;

/// The templates that a policy has claimed, and how many of them each cluster has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicyClaims {
    pub(crate) templates: usize,
    pub(crate) clusters: BTreeMap<Arc<str>, i64>,
}

impl Inventory {
    /// Follows what the user may list, in the namespace what it may not list in all.
    pub(crate) fn start(api: &Arc<dyn Api>, namespace: &str, tasks: &TaskGroup) -> Self {
        let source = ReflectorSource {
            api: Arc::clone(api),
            namespace: namespace.into(),
            changes: watch::Sender::new(0),
            tasks: tasks.child(),
        };
        Self {
            clusters: source.reflect(&CLUSTERS, |object, _| ClusterRow::new(object)),
            bindings: source.reflect(&BINDINGS, WorkloadRow::new),
            cluster_bindings: source.reflect(&CLUSTER_BINDINGS, WorkloadRow::new),
            rollouts: source.reflect(&ROLLOUTS, |object, _| RolloutRow::new(object)),
            resources: Mutex::default(),
            source,
        }
    }

    /// The rows of a resource, which is followed from now on.
    fn rows_of(&self, listed: &'static ListedResource) -> Arc<Projection<ResourceRow>> {
        let mut resources = self.resources.lock();
        let rows = resources
            .entry(listed.resource)
            .or_insert_with(|| self.source.reflect(listed.resource, listed.project));
        Arc::clone(rows)
    }

    /// Waits a little for the first list of a resource.
    pub(crate) async fn wait_until_listed(&self, listed: &'static ListedResource) {
        let rows = self.rows_of(listed);
        self.wait_until(|| rows.is_answered()).await;
    }

    /// Waits a little for the first lists of all that is followed from the beginning.
    pub(crate) async fn wait_for_first_lists(&self) {
        let bindings = [&self.bindings, &self.cluster_bindings];
        self.wait_until(|| {
            self.clusters.is_answered()
                && self.rollouts.is_answered()
                && bindings.iter().all(|rows| rows.is_answered())
        })
        .await;
    }

    async fn wait_until(&self, is_answered: impl Fn() -> bool) {
        let mut changes = self.changes();
        let wait = async { while !is_answered() && changes.changed().await.is_ok() {} };
        // The page says what is still being read.
        let _ = tokio::time::timeout(FIRST_LIST_TIMEOUT, wait).await;
    }

    /// Calls `visit` with each object of a resource, by namespace and name.
    pub(crate) fn visit_resource(
        &self,
        listed: &'static ListedResource,
        mut visit: impl FnMut(&ObjectKey, &Arc<ResourceRow>),
    ) {
        let rows = self.rows_of(listed);
        rows.read(|rows| rows.iter().for_each(|(key, row)| visit(key, row)));
    }

    /// Why rows of a resource are missing or may be old.
    pub(crate) fn resource_remark(&self, listed: &'static ListedResource) -> Option<String> {
        self.rows_of(listed).remark(&listed.resource.resource)
    }

    /// Counts the changes of all rows.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.source.changes.subscribe()
    }

    /// Counts changes of what pages show beside the rows.
    pub(crate) fn change_counter(&self) -> watch::Sender<u64> {
        self.source.changes.clone()
    }

    pub(crate) fn version(&self) -> u64 {
        *self.source.changes.borrow()
    }

    /// All clusters by name.
    pub(crate) fn clusters(&self) -> Vec<Arc<ClusterRow>> {
        self.clusters.read(|rows| rows.values().cloned().collect())
    }

    pub(crate) fn cluster(&self, name: &str) -> Option<Arc<ClusterRow>> {
        let key = (String::new(), name.to_owned());
        self.clusters.read(|rows| rows.get(&key).cloned())
    }

    /// Calls `visit` with each workload, by namespace and name of its binding; those without a namespace
    /// come first.
    pub(crate) fn visit_workloads(&self, mut visit: impl FnMut(&ObjectKey, &Arc<WorkloadRow>)) {
        for projection in [&self.cluster_bindings, &self.bindings] {
            projection.read(|rows| rows.iter().for_each(|(key, row)| visit(key, row)));
        }
    }

    pub(crate) fn workload(&self, key: &ObjectKey) -> Option<Arc<WorkloadRow>> {
        let projection = match key.0.is_empty() {
            true => &self.cluster_bindings,
            false => &self.bindings,
        };
        projection.read(|rows| rows.get(key).cloned())
    }

    /// The name of the template of a binding; that of the binding until it is listed.
    pub(crate) fn template_name(&self, key: &ObjectKey) -> String {
        let row = self.workload(key);
        row.map_or_else(|| key.1.clone(), |row| row.name.to_string())
    }

    /// The rollout of the template of a binding.
    pub(crate) fn rollout(&self, key: &ObjectKey) -> Option<Arc<RolloutRow>> {
        self.rollouts.read(|rows| rows.get(key).cloned())
    }

    /// Calls `visit` with each rollout, by namespace and name of its binding.
    pub(crate) fn visit_rollouts(&self, mut visit: impl FnMut(&ObjectKey, &Arc<RolloutRow>)) {
        self.rollouts
            .read(|rows| rows.iter().for_each(|(key, row)| visit(key, row)));
    }

    /// The claims of each policy, by [`policy_text`].
    pub(crate) fn claims(&self) -> HashMap<Arc<str>, PolicyClaims> {
        let mut claims: HashMap<Arc<str>, PolicyClaims> = HashMap::new();
        self.visit_workloads(|_, row| {
            let Some(policy) = &row.policy else { return };
            let claimed = claims.entry(Arc::clone(policy)).or_default();
            claimed.templates += 1;
            for (cluster, _) in &row.targets {
                *claimed.clusters.entry(Arc::clone(cluster)).or_default() += 1;
            }
        });
        claims
    }

    /// The rollouts of each rollout policy, which [`rollout_policy_text`] names.
    pub(crate) fn staged(&self) -> RolloutStates {
        let mut staged = RolloutStates::new();
        self.visit_rollouts(|key, row| {
            let states = staged.entry((row.policy_namespace(key).to_owned(), row.policy.clone()));
            *states.or_default().entry(row.state.clone()).or_default() += 1;
        });
        staged
    }

    pub(crate) fn loads(&self) -> HashMap<Arc<str>, ClusterLoad> {
        let mut loads: HashMap<Arc<str>, ClusterLoad> = HashMap::new();
        self.visit_workloads(|_, row| {
            for (cluster, replicas) in &row.targets {
                let load = loads.entry(Arc::clone(cluster)).or_default();
                load.workloads += 1;
                load.replicas = load.replicas.saturating_add(*replicas);
            }
            for eviction in &row.evictions {
                loads
                    .entry(Arc::clone(&eviction.cluster))
                    .or_default()
                    .evictions += 1;
            }
        });
        loads
    }

    /// Why parts of the inventory are missing, or that they are still being read.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let remarks = [
            self.clusters.remark("clusters"),
            self.bindings.remark("resourcebindings"),
            self.cluster_bindings.remark("clusterresourcebindings"),
            self.rollouts.remark("rollouts"),
        ];
        remarks.into_iter().flatten().collect()
    }
}

/// Starts reflectors.
struct ReflectorSource {
    api: Arc<dyn Api>,
    namespace: Arc<str>,
    changes: watch::Sender<u64>,
    tasks: TaskGroup,
}

impl ReflectorSource {
    /// Starts a reflector of a resource.
    fn reflect<T: Send + Sync + 'static>(
        &self,
        resource: &Gvr,
        project: projection::ProjectFunc<T>,
    ) -> Arc<Projection<T>> {
        let scope = ListScope::new(&self.namespace);
        let projection = Arc::new(Projection::new(Arc::clone(&scope)));
        let changes = self.changes.clone();
        let mut sink = ProjectionSink::new(Arc::clone(&projection), changes, project);
        let api = ScopedApi {
            api: Arc::clone(&self.api),
            scope,
        };
        let shutdown = self.tasks.shutdown().clone();
        let selector = ListWatchSelector::all(resource);
        self.tasks.spawn(async move {
            run_reflector(&api, &selector, &mut sink, &shutdown).await;
        });
        projection
    }
}
