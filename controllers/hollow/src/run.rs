//! The shell: watches, decides, and writes the difference.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Api, At, DeleteOptions, Error, Patch, WriteOptions};
use machinery::time::Clock;
use machinery::{Gvr, Object, Quantity};
use parking_lot::Mutex;
use runtime::{Action, Change, Informer, Informers, Queue, Select, Tasks, run_workers};
use serde_json::{Value, json};

use crate::capacity::{Capacity, Room};
use crate::plan::Plan;
use crate::pods::{Parent, PodView};
use crate::{daemons, deployments, jobs, kubelet, replicas, stateful};

static NODES: Gvr = Gvr::constant("", "v1", "nodes");
static PODS: Gvr = Gvr::constant("", "v1", "pods");
static DEPLOYMENTS: Gvr = Gvr::constant("apps", "v1", "deployments");
static REPLICA_SETS: Gvr = Gvr::constant("apps", "v1", "replicasets");
static STATEFUL_SETS: Gvr = Gvr::constant("apps", "v1", "statefulsets");
static DAEMON_SETS: Gvr = Gvr::constant("apps", "v1", "daemonsets");
static JOBS: Gvr = Gvr::constant("batch", "v1", "jobs");

const BY_OWNER: &str = "owner";
const WORKERS: usize = 4;

/// The size of the cluster and the pace of its pods.
#[derive(Clone, Debug)]
pub struct Options {
    pub nodes: usize,
    /// A quantity of cores, as in `64`.
    pub node_cpu: String,
    /// A quantity of bytes, as in `256Gi`.
    pub node_memory: String,
    pub pods_per_node: u32,
    /// From the moment a pod has a node until it is Ready.
    pub ready_after: Duration,
    /// Told by the nodes.
    pub kubelet_version: String,
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
        }
    }
}

/// Why a hollow cluster could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An option is not a quantity.
    #[error("{option}: {why}")]
    Quantity { option: &'static str, why: String },
    /// The nodes could not be written.
    #[error("creating the nodes: {0}")]
    Nodes(#[from] Error),
}

/// A kind of parent whose children are pods, or replica sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
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

    fn resource(self) -> &'static Gvr {
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
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    options: Options,
    capacity: Mutex<Capacity>,
    parents: HashMap<Kind, Informer>,
    pods: Informer,
    workloads: Queue<(Kind, String)>,
    kubelet: Queue<String>,
    /// Pods that no node had room for, tried again when one leaves.
    waiting: Mutex<Vec<String>>,
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
        let room = Room {
            cpu: parse("node cpu", &options.node_cpu)?,
            memory: parse("node memory", &options.node_memory)?,
            pods: options.pods_per_node.into(),
        };
        let capacity = Capacity::new((0..options.nodes).map(|n| format!("node-{n}")), room);
        create_nodes(&*api, &capacity, &options, clock.now()).await?;
        let parents =
            Kind::ALL.map(|kind| (kind, informers.get(&api, &Select::all(kind.resource()))));
        let hollow = Arc::new(Self {
            pods: informers.get(&api, &Select::all(&PODS)),
            parents: parents.into(),
            api,
            clock,
            options,
            capacity: Mutex::new(capacity),
            workloads: Queue::new(),
            kubelet: Queue::new(),
            waiting: Mutex::default(),
        });
        hollow.listen();
        for informer in hollow.parents.values().chain([&hollow.pods]) {
            informer.wait_synced().await;
        }
        let it = Arc::clone(&hollow);
        run_workers(
            tasks,
            "hollow-workloads",
            &hollow.workloads,
            WORKERS,
            move |(kind, key)| {
                let it = Arc::clone(&it);
                async move { it.reconcile(kind, &key).await }
            },
        );
        let it = Arc::clone(&hollow);
        run_workers(
            tasks,
            "hollow-kubelet",
            &hollow.kubelet,
            WORKERS,
            move |key| {
                let it = Arc::clone(&it);
                async move { it.tend(&key).await }
            },
        );
        Ok(hollow)
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
        self.parents[&Kind::ReplicaSet].add_index(BY_OWNER, by_owner);
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
            }
        });
    }

    fn pod_changed(&self, change: &Change<'_>) {
        wake_owner(&self.workloads, change);
        let key = change.key();
        let view = change.new.and_then(|pod| pod.view::<PodView>().ok());
        match view {
            Some(pod) if !pod.finished() => {
                if !pod.spec.node_name.is_empty() {
                    self.capacity
                        .lock()
                        .observe(&key, &pod.spec.node_name, pod.room());
                }
                match kubelet::next(&pod, owned_by_job(change.object())) {
                    kubelet::Next::Nothing => {}
                    kubelet::Next::Start | kubelet::Next::Finish => {
                        self.kubelet.add_after(key, self.options.ready_after);
                    }
                    kubelet::Next::Place | kubelet::Next::Fail => self.kubelet.add(key),
                }
            }
            _ => {
                if self.capacity.lock().release(&key) {
                    for waiting in std::mem::take(&mut *self.waiting.lock()) {
                        self.kubelet.add(waiting);
                    }
                }
            }
        }
    }

    async fn reconcile(&self, kind: Kind, key: &str) -> Result<Action, Error> {
        let Some(object) = self.parents[&kind].get_key(key) else {
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
            return self.roll_out(&parent, &value).await;
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
        self.carry_out(kind.resource(), &object, plan).await
    }

    async fn carry_out(
        &self,
        resource: &Gvr,
        parent: &Object,
        plan: Plan,
    ) -> Result<Action, Error> {
        let namespace = parent.namespace();
        for name in &plan.delete {
            ignore_gone(
                self.api
                    .delete(At::one(&PODS, namespace, name), &DeleteOptions::default())
                    .await
                    .map(drop),
            )?;
        }
        for mut pod in plan.create {
            self.place(&mut pod, namespace);
            match self
                .api
                .create(At::all(&PODS, namespace), pod, &WriteOptions::default())
                .await
            {
                Err(e) if !e.is_already_exists() => return Err(e),
                _ => {}
            }
        }
        self.write_status(resource, parent, plan.status).await?;
        Ok(Action::Done)
    }

    /// Gives a pod its node before it exists, which saves a binding.
    fn place(&self, pod: &mut Value, namespace: &str) {
        let Ok(view) = serde_json::from_value::<PodView>(pod.clone()) else {
            return;
        };
        let key = format!("{namespace}/{}", view.metadata.name);
        let mut capacity = self.capacity.lock();
        if view.spec.node_name.is_empty()
            && let Some(node) = capacity.place(&key, view.room())
        {
            pod["spec"]["nodeName"] = node.into();
        }
    }

    async fn roll_out(&self, parent: &Parent<'_>, deployment: &Value) -> Result<Action, Error> {
        let sets = self.parents[&Kind::ReplicaSet].by_index(BY_OWNER, parent.object.uid());
        let sets: Vec<Value> = sets.iter().map(Object::value).collect::<Result<_, _>>()?;
        let rollout = deployments::decide(parent, deployment, &sets, self.clock.now());
        let namespace = parent.object.namespace();
        if let Some(set) = rollout.create {
            match self
                .api
                .create(
                    At::all(&REPLICA_SETS, namespace),
                    set,
                    &WriteOptions::default(),
                )
                .await
            {
                Err(e) if !e.is_already_exists() => return Err(e),
                _ => {}
            }
        }
        for (name, replicas) in rollout.scale {
            let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
            let at = At::one(&REPLICA_SETS, namespace, &name);
            ignore_gone(
                self.api
                    .patch(at, patch, &WriteOptions::default())
                    .await
                    .map(drop),
            )?;
        }
        self.write_status(&DEPLOYMENTS, parent.object, rollout.status)
            .await?;
        Ok(Action::Done)
    }

    async fn write_status(
        &self,
        resource: &Gvr,
        object: &Object,
        status: Option<Value>,
    ) -> Result<(), Error> {
        let Some(status) = status else { return Ok(()) };
        let mut body = object.value()?;
        body["status"] = status;
        let at = At::of(resource, object).sub("status");
        ignore_gone(
            self.api
                .update(at, body, &WriteOptions::default())
                .await
                .map(drop),
        )
    }

    /// Does what a pod waits for.
    async fn tend(&self, key: &str) -> Result<Action, Error> {
        let Some(object) = self.pods.get_key(key) else {
            return Ok(Action::Done);
        };
        let pod = object.view::<PodView>()?;
        let now = self.clock.now();
        let status = match kubelet::next(&pod, owned_by_job(&object)) {
            kubelet::Next::Nothing => return Ok(Action::Done),
            kubelet::Next::Place => match self.bind(key, &object, &pod).await? {
                true => return Ok(Action::Done),
                false if pod.status.told() => return Ok(Action::Done),
                false => kubelet::unschedulable(now),
            },
            kubelet::Next::Start => kubelet::running(&pod, &address(object.uid()), now),
            kubelet::Next::Finish => kubelet::succeeded(&pod, now),
            kubelet::Next::Fail => kubelet::broken(&pod, now),
        };
        self.write_status(&PODS, &object, Some(status)).await?;
        Ok(Action::Done)
    }

    /// Binds a pod that somebody else made; false when no node has room.
    async fn bind(&self, key: &str, object: &Object, pod: &PodView) -> Result<bool, Error> {
        let node = self
            .capacity
            .lock()
            .place(key, pod.room())
            .map(str::to_owned);
        let Some(node) = node else {
            let mut waiting = self.waiting.lock();
            if !waiting.iter().any(|w| w == key) {
                waiting.push(key.to_owned());
            }
            return Ok(false);
        };
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": object.name(), "namespace": object.namespace()},
                             "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        let at = At::of(&PODS, object).sub("binding");
        ignore_gone(
            self.api
                .create(at, binding, &WriteOptions::default())
                .await
                .map(drop),
        )?;
        Ok(true)
    }
}

fn owned_by_job(pod: &Object) -> bool {
    pod.head().controller().is_some_and(|c| &*c.kind == "Job")
}

/// Wakes the workload that a pod or replica set belongs to.
fn wake_owner(queue: &Queue<(Kind, String)>, change: &Change<'_>) {
    let child = change.object();
    if let Some(owner) = child.head().controller()
        && let Some(kind) = Kind::named(&owner.kind)
    {
        queue.add_lane(
            (kind, format!("{}/{}", child.namespace(), owner.name)),
            change.initial,
        );
    }
}

/// What is gone needs no more care; what has changed meanwhile comes again.
fn ignore_gone(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(e) if e.is_not_found() || e.is_conflict() => Ok(()),
        other => other,
    }
}

/// An address out of 10.0.0.0/8, made from the uid.
fn address(uid: &str) -> String {
    let sum = uid
        .bytes()
        .fold(7_u32, |sum, b| sum.wrapping_mul(31).wrapping_add(b.into()));
    format!(
        "10.{}.{}.{}",
        sum >> 16 & 255,
        sum >> 8 & 255,
        1 + sum % 254
    )
}

async fn create_nodes(
    api: &dyn Api,
    capacity: &Capacity,
    options: &Options,
    now: jiff::Timestamp,
) -> Result<(), Error> {
    let time = machinery::time::rfc3339_seconds(now);
    for name in capacity.node_names() {
        let offer = json!({"cpu": options.node_cpu, "memory": options.node_memory, "pods": options.pods_per_node.to_string()});
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "hollow"}},
            "spec": {},
        });
        let created = match api
            .create(At::all(&NODES, ""), node, &WriteOptions::default())
            .await
        {
            Ok(created) => created,
            Err(e) if e.is_already_exists() => continue,
            Err(e) => return Err(e),
        };
        let mut body = created.value()?;
        body["status"] = json!({
            "capacity": offer, "allocatable": offer,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "hollow kubelet is ready",
                            "lastHeartbeatTime": time, "lastTransitionTime": time}],
            "nodeInfo": {"kubeletVersion": options.kubelet_version, "kubeProxyVersion": options.kubelet_version, "operatingSystem": "linux",
                         "architecture": "amd64", "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "hollow",
                         "osImage": "hollow", "containerRuntimeVersion": "hollow://1"},
        });
        api.update(
            At::one(&NODES, "", name).sub("status"),
            body,
            &WriteOptions::default(),
        )
        .await?;
    }
    Ok(())
}
