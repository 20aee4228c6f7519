//! The controllers of the hollow cluster: watches workloads and pods and plans;
//! [`crate::apply_plan`] writes the plans, [`crate::kubelet_controller`] updates pods.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Api, Error, Informer, InformerEvent, InvolvedObject, TaskGroup};
use flotilla_runtime::{ControllerContext, EventRecorder, ReconcileAction, Workqueue, run_workers};
use machinery::time::Clock;
use machinery::{Gvr, Object, Quantity};
use parking_lot::Mutex;
use serde_json::Value;

use crate::capacity::{ComputeResources, HollowClusterAllocations};
use crate::endpoint_slices_controller::HollowEndpointSliceController;
use crate::options::HollowClusterOptions;
use crate::pods::{HollowPodFields, ParentWorkload};
use crate::{daemon_sets, deployments, jobs, nodes, replica_sets, stateful_sets};

pub(crate) static PODS: Gvr = Gvr::from_static("", "v1", "pods");
pub(crate) static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");
pub(crate) static REPLICA_SETS: Gvr = Gvr::from_static("apps", "v1", "replicasets");
static STATEFUL_SETS: Gvr = Gvr::from_static("apps", "v1", "statefulsets");
static DAEMON_SETS: Gvr = Gvr::from_static("apps", "v1", "daemonsets");
static JOBS: Gvr = Gvr::from_static("batch", "v1", "jobs");

const OWNER_INDEX: &str = "owner";
const WORKERS: usize = 8;
const KUBELET_WORKERS: usize = 16;
/// Changes of pods and replica sets within this time cause one reconciliation.
const OWNER_BATCH_WINDOW: Duration = Duration::from_millis(10);

/// A workload: its kind and "namespace/name".
pub(crate) type WorkloadKey = (WorkloadKind, String);

/// Why a hollow cluster could not be started.
#[derive(Debug, thiserror::Error)]
pub enum HollowStartError {
    /// An option is not a valid quantity.
    #[error("{option}: {why}")]
    Quantity { option: &'static str, why: String },
    /// The nodes could not be created.
    #[error("creating the nodes: {0}")]
    Nodes(#[from] Error),
}

/// A kind of workload whose children are pods or replica sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WorkloadKind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
}

impl WorkloadKind {
    const ALL: [Self; 5] = [
        Self::Deployment,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::Job,
    ];

    pub(crate) fn resource(self) -> &'static Gvr {
        match self {
            Self::Deployment => &DEPLOYMENTS,
            Self::ReplicaSet => &REPLICA_SETS,
            Self::StatefulSet => &STATEFUL_SETS,
            Self::DaemonSet => &DAEMON_SETS,
            Self::Job => &JOBS,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::Job => "Job",
        }
    }

    fn api_version(self) -> &'static str {
        if self == Self::Job {
            "batch/v1"
        } else {
            "apps/v1"
        }
    }

    /// The controller of the kind, as events name it.
    fn component(self) -> &'static str {
        match self {
            Self::Deployment => "deployment-controller",
            Self::ReplicaSet => "replicaset-controller",
            Self::StatefulSet => "statefulset-controller",
            Self::DaemonSet => "daemonset-controller",
            Self::Job => "job-controller",
        }
    }

    fn from_name(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.name() == kind)
    }
}

/// A running hollow cluster.
pub struct HollowCluster {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: HollowClusterOptions,
    recorder: EventRecorder,
    pub(crate) capacity: Mutex<HollowClusterAllocations>,
    parents: HashMap<WorkloadKind, Informer>,
    pub(crate) pods: Informer,
    workloads: Workqueue<WorkloadKey>,
    pub(crate) kubelet: Workqueue<String>,
    /// Pods that were created and that the informer has not seen yet, with the time of their creation.
    pub(crate) unobserved_pods: Mutex<HashMap<String, Instant>>,
    /// Pods that fit on no node, retried when a pod releases capacity.
    pub(crate) unschedulable: Mutex<BTreeSet<String>>,
    /// Until when the status of a workload is delayed.
    pub(crate) status_delayed_until: Mutex<HashMap<WorkloadKey, Instant>>,
}

impl HollowCluster {
    /// Creates the nodes and starts the controllers; they end with the tasks of the context.
    pub async fn start(
        context: &ControllerContext,
        options: HollowClusterOptions,
    ) -> Result<Arc<Self>, HollowStartError> {
        let (api, clock) = (&context.control_plane, &context.clock);
        let parse = |option, text: &str| {
            Quantity::parse(text).map_err(|e| HollowStartError::Quantity {
                option,
                why: e.to_string(),
            })
        };
        let node_resources = ComputeResources {
            cpu: parse("node cpu", &options.node_cpu)?,
            memory: parse("node memory", &options.node_memory)?,
            pods: options.pods_per_node.into(),
        };
        let names: Vec<String> = (0..options.nodes).map(|n| format!("node-{n}")).collect();
        nodes::ensure_nodes(&**api, &names, &options, clock.now()).await?;
        let capacity = HollowClusterAllocations::new(names.into_iter(), node_resources);
        let kinds = WorkloadKind::ALL
            .into_iter()
            .filter(|_| options.run_controllers);
        let parents = kinds.map(|kind| (kind, context.informer(kind.resource())));
        let hollow = Arc::new(Self {
            pods: context.informer(&PODS),
            parents: parents.collect(),
            recorder: EventRecorder::new(Arc::clone(api), "", Arc::clone(clock), &context.tasks),
            api: Arc::clone(api),
            clock: Arc::clone(clock),
            options,
            capacity: Mutex::new(capacity),
            workloads: Workqueue::new(),
            kubelet: Workqueue::new(),
            unobserved_pods: Mutex::default(),
            unschedulable: Mutex::default(),
            status_delayed_until: Mutex::default(),
        });
        hollow.add_event_handlers();
        let listed = async {
            for informer in hollow.parents.values().chain([&hollow.pods]) {
                informer.wait_for_cache_sync().await;
            }
        };
        // After a shutdown the first list may never arrive.
        let shutdown = context.tasks.shutdown();
        if shutdown.run_until_triggered(listed).await.is_none() {
            return Ok(hollow);
        }
        hollow.start_workers(&context.tasks);
        if hollow.options.run_controllers {
            HollowEndpointSliceController::start(context, hollow.pods.clone()).await;
        }
        Ok(hollow)
    }

    fn start_workers(self: &Arc<Self>, tasks: &TaskGroup) {
        let this = Arc::clone(self);
        run_workers(
            tasks,
            "hollow-workloads",
            &self.workloads,
            WORKERS,
            move |key| {
                let this = Arc::clone(&this);
                async move { this.reconcile(key).await }
            },
        );
        let this = Arc::clone(self);
        run_workers(
            tasks,
            "hollow-kubelet",
            &self.kubelet,
            KUBELET_WORKERS,
            move |key| {
                let this = Arc::clone(&this);
                async move { this.reconcile_pod(&key).await }
            },
        );
    }

    fn add_event_handlers(self: &Arc<Self>) {
        let by_owner = |o: &Object| {
            o.meta()
                .controller()
                .map(|c| c.uid.to_string())
                .into_iter()
                .collect()
        };
        self.pods.add_index(OWNER_INDEX, by_owner);
        if let Some(sets) = self.parents.get(&WorkloadKind::ReplicaSet) {
            sets.add_index(OWNER_INDEX, by_owner);
        }
        for (kind, informer) in &self.parents {
            let (kind, queue) = (*kind, self.workloads.clone());
            informer.add_event_handler(move |change| {
                queue.add_event((kind, change.key()), change);
                enqueue_owner(&queue, change);
            });
        }
        let this = Arc::downgrade(self);
        self.pods.add_event_handler(move |change| {
            if let Some(this) = this.upgrade() {
                this.on_pod_event(change);
                if this.options.run_controllers {
                    enqueue_owner(&this.workloads, change);
                }
            }
        });
    }

    /// Records a warning about a workload.
    pub(crate) fn record_warning(
        &self,
        kind: WorkloadKind,
        workload: &Object,
        reason: &str,
        message: String,
    ) {
        let recorder = self.recorder.with_component(kind.component());
        let about = InvolvedObject::from_object(workload);
        recorder.warning(&about, reason, message);
    }

    async fn reconcile(&self, key: WorkloadKey) -> Result<ReconcileAction, Error> {
        let kind = key.0;
        let Some(object) = self.parents[&kind].get_by_key(&key.1) else {
            self.status_delayed_until.lock().remove(&key);
            return Ok(ReconcileAction::Done);
        };
        if object.meta().deleting {
            return Ok(ReconcileAction::Done);
        }
        let parent = ParentWorkload {
            api_version: kind.api_version(),
            kind: kind.name(),
            object: &object,
        };
        let value = object.value()?;
        if kind == WorkloadKind::Deployment {
            return self.reconcile_deployment(&key, &parent, &value).await;
        }
        let pods: Vec<Arc<HollowPodFields>> = self
            .pods
            .by_index(OWNER_INDEX, object.uid())
            .iter()
            .filter_map(|p| p.decode().ok())
            .collect();
        let views: Vec<&HollowPodFields> = pods.iter().map(|p| &**p).collect();
        let now = self.clock.now();
        let plan = match kind {
            WorkloadKind::ReplicaSet | WorkloadKind::Deployment => {
                replica_sets::plan_pods(&parent, &value, &views)
            }
            WorkloadKind::StatefulSet => stateful_sets::plan_pods(&parent, &value, &views),
            WorkloadKind::DaemonSet => {
                let nodes: Vec<String> = self
                    .capacity
                    .lock()
                    .node_names()
                    .map(str::to_owned)
                    .collect();
                daemon_sets::plan_pods(&parent, &value, &views, &nodes)
            }
            WorkloadKind::Job => jobs::plan_pods(&parent, &value, &views, now),
        };
        self.apply_plan(&key, &parent, plan, &views).await
    }

    async fn reconcile_deployment(
        &self,
        key: &WorkloadKey,
        parent: &ParentWorkload<'_>,
        value: &Value,
    ) -> Result<ReconcileAction, Error> {
        let sets =
            self.parents[&WorkloadKind::ReplicaSet].by_index(OWNER_INDEX, parent.object.uid());
        let values: Vec<Value> = sets.iter().map(Object::value).collect::<Result<_, _>>()?;
        let rollout = deployments::plan_rollout(parent, value, &values, self.clock.now());
        self.apply_rollout(key, parent, rollout, &sets).await
    }
}

/// Enqueues the workload that a pod or replica set belongs to.
fn enqueue_owner(queue: &Workqueue<WorkloadKey>, change: &InformerEvent<'_>) {
    let child = change.object();
    if let Some(owner) = child.meta().controller()
        && let Some(kind) = WorkloadKind::from_name(&owner.kind)
    {
        let key = (kind, format!("{}/{}", child.namespace(), owner.name));
        if change.in_initial_list {
            queue.add_low(key);
        } else {
            queue.add_after(key, OWNER_BATCH_WINDOW);
        }
    }
}
