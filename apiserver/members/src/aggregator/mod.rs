//! Aggregates the nodes and pods of a member into [`ResourceTotals`] as they stream by.
//! Each object is decoded once and dropped.

use std::sync::Arc;

use ahash::AHashMap;
use client::{Api, Error, ListWatchSelector, ReflectorSink, TaskGroup, run_reflector};
use karmada_api::cluster::Taint;
use machinery::{Gvr, Object, Quantity};
use parking_lot::Mutex;
use quota::{RequestingContainer, ResourceList, ResourceRequirements, pod_requests};
use serde::Deserialize;

use crate::node_infos::NodeInfos as AllNodes;
use crate::nodes::NodeSchedulingInfo;
use crate::resource_totals::{
    ClusterResourceSummary, ResourceModelGradeMinimums, ResourceTotals, TrackedNode, TrackedPod,
};
use crate::running_total::AmountsByResourceId;

static NODES: Gvr = Gvr::from_static("", "v1", "nodes");
static PODS: Gvr = Gvr::from_static("", "v1", "pods");

#[derive(Default)]
struct AggregatorState {
    totals: ResourceTotals,
    nodes_listed: bool,
    pods_listed: bool,
}

/// The running totals of one member.
#[derive(Clone, Default)]
pub(crate) struct NodePodAggregator(Arc<Mutex<AggregatorState>>);

impl NodePodAggregator {
    /// Starts to list and watch nodes and pods. `one_by_one`: single nodes can be read
    /// too.
    pub(crate) fn start(api: &Arc<dyn Api>, tasks: &TaskGroup, one_by_one: bool) -> Self {
        let fold = Self::default();
        let nodes = NodeSink {
            aggregator: fold.clone(),
            keep_individual_nodes: one_by_one,
            last_listed: AHashMap::new(),
            epoch: 0,
        };
        let pods = PodSink {
            aggregator: fold.clone(),
            pods_by_key: AHashMap::new(),
            epoch: 0,
        };
        spawn_reflector(api, tasks, &NODES, nodes);
        spawn_reflector(api, tasks, &PODS, pods);
        fold
    }

    /// `None` until both lists are complete.
    fn read_when_listed<T>(&self, read: impl FnOnce(&ResourceTotals) -> T) -> Option<T> {
        let state = self.0.lock();
        (state.nodes_listed && state.pods_listed).then(|| read(&state.totals))
    }

    pub(crate) fn summary(&self) -> Option<ClusterResourceSummary> {
        self.read_when_listed(ResourceTotals::summary)
    }

    pub(crate) fn allocatable_modelings(
        &self,
        models: &[ResourceModelGradeMinimums],
    ) -> Option<Vec<i64>> {
        self.read_when_listed(|s| s.allocatable_modelings(models))
    }

    pub(crate) fn with_nodes<T>(&self, read: impl FnOnce(AllNodes<'_>) -> T) -> Option<T> {
        self.read_when_listed(|sums| read(AllNodes(sums)))
    }
}

pub(crate) fn spawn_reflector(
    api: &Arc<dyn Api>,
    tasks: &TaskGroup,
    resource: &Gvr,
    mut sink: impl ReflectorSink + 'static,
) {
    let (api, select) = (Arc::clone(api), ListWatchSelector::all(resource));
    let shutdown = tasks.shutdown().clone();
    tasks.spawn(async move { run_reflector(&*api, &select, &mut sink, &shutdown).await });
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AggregatorNodeFields {
    spec: AggregatorNodeSpec,
    status: AggregatorNodeStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AggregatorNodeSpec {
    taints: Option<Vec<Taint>>,
    unschedulable: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AggregatorNodeStatus {
    allocatable: Option<ResourceList>,
    conditions: Option<Vec<AggregatorNodeCondition>>,
}

#[derive(Deserialize)]
struct AggregatorNodeCondition {
    r#type: String,
    status: String,
}

#[derive(Deserialize)]
struct AggregatorPodFields {
    #[serde(default)]
    spec: AggregatorPodSpec,
    #[serde(default)]
    status: AggregatorPodStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AggregatorPodSpec {
    node_name: Option<String>,
    containers: Option<Vec<RequestingContainer>>,
    init_containers: Option<Vec<RequestingContainer>>,
    resources: Option<ResourceRequirements>,
    overhead: Option<ResourceList>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AggregatorPodStatus {
    phase: String,
}

/// The resources that the scheduler reserves for a pod, including one pod slot.
fn pod_resource_requests(spec: &AggregatorPodSpec) -> ResourceList {
    let mut requests = pod_requests(
        spec.containers.iter().flatten(),
        spec.init_containers.iter().flatten(),
        spec.resources.as_ref(),
        spec.overhead.as_ref(),
    );
    requests.insert("pods".into(), Quantity::from_units(1));
    requests
}

fn resource_amounts(sums: &mut ResourceTotals, resources: ResourceList) -> AmountsByResourceId {
    let nonzero = resources.into_iter().filter(|(_, q)| !q.is_zero());
    let mut amounts: Vec<_> = nonzero
        .filter_map(|(name, q)| Some((sums.intern_resource(&name)?, q)))
        .collect();
    amounts.sort_unstable_by_key(|(id, _)| *id);
    amounts.into()
}

/// Decodes an object; one that cannot be decoded is logged and counts as empty.
pub(crate) fn decode_or_none<T: for<'de> Deserialize<'de>>(object: &Object) -> Option<T> {
    let parsed = machinery::json::from_slice(&object.bytes());
    if let Err(error) = &parsed {
        tracing::debug!(%error, ?object, "cannot decode the object; it is not counted");
    }
    parsed.ok()
}

struct NodeSink {
    aggregator: NodePodAggregator,
    keep_individual_nodes: bool,
    /// Name → number of the last list that contained it.
    last_listed: AHashMap<Box<str>, u64>,
    epoch: u64,
}

impl ReflectorSink for NodeSink {
    fn begin_list(&mut self) {
        self.epoch += 1;
    }

    fn list_item(&mut self, object: Object) {
        self.upsert(object);
    }

    fn end_list(&mut self) {
        let mut state = self.aggregator.0.lock();
        let epoch = self.epoch;
        self.last_listed.retain(|name, listed_epoch| {
            let is_listed = *listed_epoch == epoch;
            if !is_listed {
                state.totals.set_node(name, None);
            }
            is_listed
        });
        state.nodes_listed = true;
    }

    fn upsert(&mut self, object: Object) {
        let AggregatorNodeFields { spec, status } = decode_or_none(&object).unwrap_or_default();
        let mut conditions = status.conditions.iter().flatten();
        let ready = conditions.any(|c| c.r#type == "Ready" && c.status == "True");
        let shape = self.keep_individual_nodes.then(|| {
            let taints = spec.taints.unwrap_or_default();
            let shape = NodeSchedulingInfo::new(&object.meta().labels, taints, spec.unschedulable);
            Box::new(shape)
        });
        let mut state = self.aggregator.0.lock();
        let allocatable =
            resource_amounts(&mut state.totals, status.allocatable.unwrap_or_default());
        let node = TrackedNode {
            ready,
            allocatable,
            scheduling: shape,
        };
        state.totals.set_node(object.name(), Some(node));
        self.last_listed.insert(object.name().into(), self.epoch);
    }

    fn delete(&mut self, object: Object) {
        self.last_listed.remove(object.name());
        self.aggregator
            .0
            .lock()
            .totals
            .set_node(object.name(), None);
    }

    fn report_health(&mut self, _error: Option<&Error>) {}
}

struct PodSink {
    aggregator: NodePodAggregator,
    /// Key → its amounts and the number of the last list that contained it.
    pods_by_key: AHashMap<Box<str>, (TrackedPod, u64)>,
    epoch: u64,
}

impl ReflectorSink for PodSink {
    fn begin_list(&mut self) {
        self.epoch += 1;
    }

    fn list_item(&mut self, object: Object) {
        self.upsert(object);
    }

    fn end_list(&mut self) {
        let mut state = self.aggregator.0.lock();
        let epoch = self.epoch;
        self.pods_by_key.retain(|_, (pod, listed_epoch)| {
            let is_listed = *listed_epoch == epoch;
            if !is_listed {
                state.totals.remove_pod(pod);
            }
            is_listed
        });
        state.pods_listed = true;
    }

    fn upsert(&mut self, object: Object) {
        let fields: Option<AggregatorPodFields> = decode_or_none(&object);
        let (spec, status) = fields.map(|v| (v.spec, v.status)).unwrap_or_default();
        let pod_requests = pod_resource_requests(&spec);
        let node = spec.node_name.filter(|name| !name.is_empty());
        let mut state = self.aggregator.0.lock();
        let pod = TrackedPod {
            node: node.map(Into::into),
            terminated: matches!(status.phase.as_str(), "Succeeded" | "Failed"),
            requests: resource_amounts(&mut state.totals, pod_requests),
        };
        state.totals.add_pod(&pod);
        let key = object.meta().key().into();
        if let Some((old, _)) = self.pods_by_key.insert(key, (pod, self.epoch)) {
            state.totals.remove_pod(&old);
        }
    }

    fn delete(&mut self, object: Object) {
        if let Some((old, _)) = self.pods_by_key.remove(&*object.meta().key()) {
            self.aggregator.0.lock().totals.remove_pod(&old);
        }
    }

    fn report_health(&mut self, _error: Option<&Error>) {}
}

#[cfg(test)]
mod tests;
