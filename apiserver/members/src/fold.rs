//! Aggregates the nodes and pods of a member into [`ResourceTotals`] as they stream by.
//! Each object is decoded once and dropped.

use std::sync::Arc;

use ahash::AHashMap;
use client::{Api, Error, Select, Sink, Tasks, reflect};
use machinery::{Gvr, Object, Quantity};
use openapi::karmada::cluster::Taint;
use openapi::{ContainerResources, ResourceList, ResourceRequirements, pod_requests};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::nodes::{Nodes as AllNodes, Shape};
use crate::sums::{Amounts, Model, Node, Pod, Summary, Sums};

static NODES: Gvr = Gvr::constant("", "v1", "nodes");
static PODS: Gvr = Gvr::constant("", "v1", "pods");

#[derive(Default)]
struct State {
    sums: Sums,
    nodes_listed: bool,
    pods_listed: bool,
}

/// The running totals of one member.
#[derive(Clone, Default)]
pub(crate) struct Fold(Arc<Mutex<State>>);

impl Fold {
    /// Starts to list and watch nodes and pods. `one_by_one`: single nodes can be read
    /// too.
    pub(crate) fn start(api: &Arc<dyn Api>, tasks: &Tasks, one_by_one: bool) -> Self {
        let fold = Self::default();
        let nodes = Nodes {
            fold: fold.clone(),
            one_by_one,
            seen: AHashMap::new(),
            epoch: 0,
        };
        let pods = Pods {
            fold: fold.clone(),
            seen: AHashMap::new(),
            epoch: 0,
        };
        follow(api, tasks, &NODES, nodes);
        follow(api, tasks, &PODS, pods);
        fold
    }

    /// `None` until both lists are complete.
    fn read<T>(&self, read: impl FnOnce(&Sums) -> T) -> Option<T> {
        let state = self.0.lock();
        (state.nodes_listed && state.pods_listed).then(|| read(&state.sums))
    }

    pub(crate) fn summary(&self) -> Option<Summary> {
        self.read(Sums::summary)
    }

    pub(crate) fn modelings(&self, models: &[Model]) -> Option<Vec<i64>> {
        self.read(|s| s.modelings(models))
    }

    pub(crate) fn nodes<T>(&self, read: impl FnOnce(AllNodes<'_>) -> T) -> Option<T> {
        self.read(|sums| read(AllNodes(sums)))
    }
}

pub(crate) fn follow(
    api: &Arc<dyn Api>,
    tasks: &Tasks,
    resource: &Gvr,
    mut sink: impl Sink + 'static,
) {
    let (api, select) = (Arc::clone(api), Select::all(resource));
    let shutdown = tasks.shutdown().clone();
    tasks.spawn(async move { reflect(&*api, &select, &mut sink, &shutdown).await });
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeView {
    spec: NodeSpec,
    status: NodeStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    taints: Option<Vec<Taint>>,
    unschedulable: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    allocatable: Option<ResourceList>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}

#[derive(Deserialize)]
struct PodView {
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    node_name: Option<String>,
    containers: Option<Vec<ContainerResources>>,
    init_containers: Option<Vec<ContainerResources>>,
    resources: Option<ResourceRequirements>,
    overhead: Option<ResourceList>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: String,
}

/// The resources that the scheduler reserves for a pod, including one pod slot.
fn requests(spec: &PodSpec) -> ResourceList {
    let mut requests = pod_requests(
        spec.containers.iter().flatten(),
        spec.init_containers.iter().flatten(),
        spec.resources.as_ref(),
        spec.overhead.as_ref(),
    );
    requests.insert("pods".into(), Quantity::from_units(1));
    requests
}

fn amounts(sums: &mut Sums, resources: ResourceList) -> Amounts {
    let known = resources.into_iter().filter(|(_, q)| !q.is_zero());
    let mut amounts: Vec<_> = known
        .filter_map(|(name, q)| Some((sums.id(&name)?, q)))
        .collect();
    amounts.sort_unstable_by_key(|(id, _)| *id);
    amounts.into()
}

/// Decodes an object; one that cannot be decoded is logged and counts as empty.
pub(crate) fn view<T: for<'de> Deserialize<'de>>(object: &Object) -> Option<T> {
    let parsed = serde_json::from_slice(object.bytes());
    if let Err(error) = &parsed {
        tracing::debug!(%error, ?object, "cannot decode the object; it is not counted");
    }
    parsed.ok()
}

struct Nodes {
    fold: Fold,
    one_by_one: bool,
    /// Name → number of the last list that contained it.
    seen: AHashMap<Box<str>, u64>,
    epoch: u64,
}

impl Sink for Nodes {
    fn restart(&mut self) {
        self.epoch += 1;
    }

    fn item(&mut self, object: Object) {
        self.changed(object);
    }

    fn listed(&mut self) {
        let mut state = self.fold.0.lock();
        let epoch = self.epoch;
        self.seen.retain(|name, seen| {
            let stays = *seen == epoch;
            if !stays {
                state.sums.set_node(name, None);
            }
            stays
        });
        state.nodes_listed = true;
    }

    fn changed(&mut self, object: Object) {
        let NodeView { spec, status } = view(&object).unwrap_or_default();
        let mut conditions = status.conditions.iter().flatten();
        let ready = conditions.any(|c| c.r#type == "Ready" && c.status == "True");
        let shape = self.one_by_one.then(|| {
            let taints = spec.taints.unwrap_or_default();
            let shape = Shape::new(&object.head().labels, taints, spec.unschedulable);
            Box::new(shape)
        });
        let mut state = self.fold.0.lock();
        let allocatable = amounts(&mut state.sums, status.allocatable.unwrap_or_default());
        let node = Node {
            ready,
            allocatable,
            shape,
        };
        state.sums.set_node(object.name(), Some(node));
        self.seen.insert(object.name().into(), self.epoch);
    }

    fn deleted(&mut self, object: Object) {
        self.seen.remove(object.name());
        self.fold.0.lock().sums.set_node(object.name(), None);
    }

    fn health(&mut self, _error: Option<&Error>) {}
}

struct Pods {
    fold: Fold,
    /// Key → its amounts and the number of the last list that contained it.
    seen: AHashMap<Box<str>, (Pod, u64)>,
    epoch: u64,
}

impl Sink for Pods {
    fn restart(&mut self) {
        self.epoch += 1;
    }

    fn item(&mut self, object: Object) {
        self.changed(object);
    }

    fn listed(&mut self) {
        let mut state = self.fold.0.lock();
        let epoch = self.epoch;
        self.seen.retain(|_, (pod, seen)| {
            let stays = *seen == epoch;
            if !stays {
                state.sums.remove_pod(pod);
            }
            stays
        });
        state.pods_listed = true;
    }

    fn changed(&mut self, object: Object) {
        let found: Option<PodView> = view(&object);
        let (spec, status) = found.map(|v| (v.spec, v.status)).unwrap_or_default();
        let wanted = requests(&spec);
        let mut state = self.fold.0.lock();
        let pod = Pod {
            node: spec.node_name.filter(|n| !n.is_empty()).map(Into::into),
            ended: matches!(status.phase.as_str(), "Succeeded" | "Failed"),
            requests: amounts(&mut state.sums, wanted),
        };
        state.sums.add_pod(&pod);
        let key = object.head().key().into();
        if let Some((old, _)) = self.seen.insert(key, (pod, self.epoch)) {
            state.sums.remove_pod(&old);
        }
    }

    fn deleted(&mut self, object: Object) {
        if let Some((old, _)) = self.seen.remove(&*object.head().key()) {
            self.fold.0.lock().sums.remove_pod(&old);
        }
    }

    fn health(&mut self, _error: Option<&Error>) {}
}

#[cfg(test)]
#[path = "aggregator_tests.rs"]
mod tests;
