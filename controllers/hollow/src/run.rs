//! The controllers of the hollow cluster: watches workloads and pods and plans;
//! [`crate::apply_plan`] writes the plans, [`crate::kubelet_controller`] updates pods.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Api, Error};
use machinery::time::Clock;
use machinery::{Gvr, Object, Quantity};
use parking_lot::Mutex;
use flotilla_runtime::{Action, Change, Informer, Informers, Queue, Select, Tasks, run_workers};
use serde_json::Value;

use crate::capacity::{Capacity, Room};
use crate::pods::{Parent, PodView};
use crate::{daemons, deployments, jobs, nodes, replicas, stateful};

pub(crate) static PODS: Gvr = Gvr::constant("", "v1", "pods");
pub(crate) static DEPLOYMENTS: Gvr = Gvr::constant("apps", "v1", "deployments");
pub(crate) static REPLICA_SETS: Gvr = Gvr::constant("apps", "v1", "replicasets");
static STATEFUL_SETS: Gvr = Gvr::constant("apps", "v1", "statefulsets");
static DAEMON_SETS: Gvr = Gvr::constant("apps", "v1", "daemonsets");
static JOBS: Gvr = Gvr::constant("batch", "v1", "jobs");

const BY_OWNER: &str = "owner";
const WORKERS: usize = 8;
const KUBELET_WORKERS: usize = 16;
/// Changes of pods and replica sets within this time cause one reconciliation.
const GATHER: Duration = Duration::from_millis(10);

/// A workload: its kind and "namespace/name".
pub(crate) type Key = (Kind, String);

/// The size of the cluster and the timing of its pods.
#[derive(Clone, Debug)]
pub struct Options {
    pub nodes: usize,
    /// A quantity of cores, as in `64`.
    pub node_cpu: String,
    /// A quantity of bytes, as in `256Gi`.
    pub node_memory: String,
    pub pods_per_node: u32,
    /// Time from the assignment of a pod's node until it is Ready.
    pub ready_after: Duration,
    /// The kubelet version that nodes report.
    pub kubelet_version: String,
    /// Whether to run the workload controllers in addition to the kubelet. Beside a
    /// kube-controller-manager they must be off: both would create pods.
    pub controllers: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 10,
            node_cpu: "64".into(),
            node_memory: "256Gi".into(),
            pods_per_node: 500,
            ready_after: Duration::from_millis(100),
            kubelet_version: "v1.36.0".into(),
            controllers: true,
        }
    }
}

/// Why a hollow cluster could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An option is not a valid quantity.
    #[error("{option}: {why}")]
    Quantity { option: &'static str, why: String },
    /// The nodes could not be created.
    #[error("creating the nodes: {0}")]
    Nodes(#[from] Error),
}

/// A kind of workload whose children are pods or replica sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
}

impl Kind {
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

    fn named(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.name() == kind)
    }
}

/// A running hollow cluster.
pub struct Hollow {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Options,
    pub(crate) capacity: Mutex<Capacity>,
    parents: HashMap<Kind, Informer>,
    pub(crate) pods: Informer,
    workloads: Queue<Key>,
    pub(crate) kubelet: Queue<String>,
    /// Pods that fit on no node, retried when a pod releases capacity.
    pub(crate) waiting: Mutex<BTreeSet<String>>,
    /// Until when the status of a workload is delayed.
    pub(crate) held: Mutex<HashMap<Key, Instant>>,
}

impl Hollow {
    /// Creates the nodes and starts the controllers; they end with `tasks`.
    pub async fn start(
        api: Arc<dyn Api>,
        clock: Arc<dyn Clock>,
        options: Options,
        informers: &Informers,
        tasks: &Tasks,
    ) -> Result<Arc<Self>, StartError> {
        let parse = |option, text: &str| {
            Quantity::parse(text).map_err(|e| StartError::Quantity {
                option,
                why: e.to_string(),
            })
        };
        let node_resources = Room {
            cpu: parse("node cpu", &options.node_cpu)?,
            memory: parse("node memory", &options.node_memory)?,
            pods: options.pods_per_node.into(),
        };
        let names: Vec<String> = (0..options.nodes).map(|n| format!("node-{n}")).collect();
        nodes::provide(&*api, &names, &options, clock.now()).await?;
        let capacity = Capacity::new(names.into_iter(), node_resources);
        let kinds = Kind::ALL.into_iter().filter(|_| options.controllers);
        let parents = kinds.map(|kind| (kind, informers.get(&api, &Select::all(kind.resource()))));
        let hollow = Arc::new(Self {
            pods: informers.get(&api, &Select::all(&PODS)),
            parents: parents.collect(),
            api,
            clock,
            options,
            capacity: Mutex::new(capacity),
            workloads: Queue::new(),
            kubelet: Queue::new(),
            waiting: Mutex::default(),
            held: Mutex::default(),
        });
        hollow.listen();
        let listed = async {
            for informer in hollow.parents.values().chain([&hollow.pods]) {
                informer.wait_synced().await;
            }
        };
        // After a shutdown the first list may never arrive.
        if tasks.shutdown().unless(listed).await.is_none() {
            return Ok(hollow);
        }
        hollow.work(tasks);
        Ok(hollow)
    }

    fn work(self: &Arc<Self>, tasks: &Tasks) {
        let it = Arc::clone(self);
        run_workers(
            tasks,
            "hollow-workloads",
            &self.workloads,
            WORKERS,
            move |key| {
                let it = Arc::clone(&it);
                async move { it.reconcile(key).await }
            },
        );
        let it = Arc::clone(self);
        run_workers(
            tasks,
            "hollow-kubelet",
            &self.kubelet,
            KUBELET_WORKERS,
            move |key| {
                let it = Arc::clone(&it);
                async move { it.tend(&key).await }
            },
        );
    }

    fn listen(self: &Arc<Self>) {
        let by_owner = |o: &Object| {
            o.head()
                .controller()
                .map(|c| c.uid.to_string())
                .into_iter()
                .collect()
        };
        self.pods.add_index(BY_OWNER, by_owner);
        if let Some(sets) = self.parents.get(&Kind::ReplicaSet) {
            sets.add_index(BY_OWNER, by_owner);
        }
        for (kind, informer) in &self.parents {
            let (kind, queue) = (*kind, self.workloads.clone());
            informer.on_change(move |change| {
                queue.add_lane((kind, change.key()), change.initial);
                wake_owner(&queue, change);
            });
        }
        let it = Arc::downgrade(self);
        self.pods.on_change(move |change| {
            if let Some(it) = it.upgrade() {
                it.pod_changed(change);
                if it.options.controllers {
                    wake_owner(&it.workloads, change);
                }
            }
        });
    }

    async fn reconcile(&self, key: Key) -> Result<Action, Error> {
        let kind = key.0;
        let Some(object) = self.parents[&kind].get_key(&key.1) else {
            self.held.lock().remove(&key);
            return Ok(Action::Done);
        };
        if object.head().deleting {
            return Ok(Action::Done);
        }
        let parent = Parent {
            api_version: kind.api_version(),
            kind: kind.name(),
            object: &object,
        };
        let value = object.value()?;
        if kind == Kind::Deployment {
            return self.roll_out(&key, &parent, &value).await;
        }
        let pods: Vec<Arc<PodView>> = self
            .pods
            .by_index(BY_OWNER, object.uid())
            .iter()
            .filter_map(|p| p.view().ok())
            .collect();
        let views: Vec<&PodView> = pods.iter().map(|p| &**p).collect();
        let now = self.clock.now();
        let plan = match kind {
            Kind::ReplicaSet | Kind::Deployment => replicas::decide(&parent, &value, &views),
            Kind::StatefulSet => stateful::decide(&parent, &value, &views),
            Kind::DaemonSet => {
                let nodes: Vec<String> = self
                    .capacity
                    .lock()
                    .node_names()
                    .map(str::to_owned)
                    .collect();
                daemons::decide(&parent, &value, &views, &nodes)
            }
            Kind::Job => jobs::decide(&parent, &value, &views, now),
        };
        self.carry_out(&key, &parent, plan, &views).await
    }

    async fn roll_out(
        &self,
        key: &Key,
        parent: &Parent<'_>,
        value: &Value,
    ) -> Result<Action, Error> {
        let sets = self.parents[&Kind::ReplicaSet].by_index(BY_OWNER, parent.object.uid());
        let values: Vec<Value> = sets.iter().map(Object::value).collect::<Result<_, _>>()?;
        let rollout = deployments::decide(parent, value, &values, self.clock.now());
        self.carry_out_rollout(key, parent, rollout, &sets).await
    }
}

/// Enqueues the workload that a pod or replica set belongs to.
fn wake_owner(queue: &Queue<Key>, change: &Change<'_>) {
    let child = change.object();
    if let Some(owner) = child.head().controller()
        && let Some(kind) = Kind::named(&owner.kind)
    {
        let key = (kind, format!("{}/{}", child.namespace(), owner.name));
        if change.initial {
            queue.add_low(key);
        } else {
            queue.add_after(key, GATHER);
        }
    }
}
