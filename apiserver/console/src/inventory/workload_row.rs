//! A template as its binding describes it, and the rollout of one.

use std::sync::Arc;

use karmada_api::binding::{GracefulEvictionTask, PLACED_NOWHERE, ResourceBindingStatus};
use karmada_api::well_known_keys::{CLUSTER_POLICY_NAME, POLICY_NAME, POLICY_NAMESPACE};
use karmada_api::{ResourceBinding, Rollout};
use machinery::Object;

use super::projection::{NamePool, ObjectKey};

/// The states of a workload, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkloadHealth {
    Unhealthy,
    Unscheduled,
    Progressing,
    Unknown,
    Healthy,
}

impl WorkloadHealth {
    pub(crate) const ALL: [Self; 5] = [
        Self::Unhealthy,
        Self::Unscheduled,
        Self::Progressing,
        Self::Unknown,
        Self::Healthy,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unhealthy => "Unhealthy",
            Self::Unscheduled => "Unscheduled",
            Self::Progressing => "Progressing",
            Self::Unknown => "Unknown",
            Self::Healthy => "Healthy",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|health| health.as_str() == text)
    }
}

#[derive(Debug)]
pub(crate) struct WorkloadRow {
    pub(crate) kind: Arc<str>,
    pub(crate) name: Box<str>,
    pub(crate) replicas: i64,
    /// Whether its replicas are scheduled; other objects are in a cluster or not.
    pub(crate) is_workload: bool,
    pub(crate) targets: Box<[(Arc<str>, i64)]>,
    /// The clusters that it is evicted from.
    pub(crate) evictions: Box<[Eviction]>,
    /// The policy that has claimed it, as [`policy_text`] names it.
    pub(crate) policy: Option<Arc<str>>,
    pub(crate) health: WorkloadHealth,
    /// The text in which a search looks, in lower case.
    pub(crate) search_text: Box<str>,
    pub(crate) revision: u64,
}

/// A cluster in which a template is no longer placed, and stays until it runs elsewhere.
#[derive(Debug)]
pub(crate) struct Eviction {
    pub(crate) cluster: Arc<str>,
    pub(crate) reason: Box<str>,
    /// RFC 3339; empty until its controller has seen it.
    pub(crate) since: Box<str>,
    /// The health that its Work reports; `None`: the Work has not reported or is being deleted.
    pub(crate) health: Option<Box<str>>,
}

impl Eviction {
    fn new(
        task: &GracefulEvictionTask,
        status: &ResourceBindingStatus,
        names: &mut NamePool,
    ) -> Self {
        let cluster = &task.from_cluster;
        let mut statuses = status.aggregated_status.iter();
        let item = statuses.find(|item| item.cluster_name == *cluster);
        Self {
            cluster: names.get(cluster),
            reason: task.reason.as_str().into(),
            since: task.creation_timestamp.clone().unwrap_or_default().into(),
            health: item.map(|item| item.health.as_str().into()),
        }
    }
}

impl WorkloadRow {
    pub(super) fn new(object: &Object, names: &mut NamePool) -> Option<Self> {
        let binding = object.decode::<ResourceBinding>().ok()?;
        let resource = &binding.spec.resource;
        let targets = binding.spec.targets().into_iter();
        let targets = targets.map(|target| (names.get(&target.name), target.replicas));
        let targets = targets.collect();
        let evictions = binding.spec.graceful_eviction_tasks.iter();
        let evictions = evictions.map(|task| Eviction::new(task, &binding.status, names));
        let evictions = evictions.collect();
        let search_text = format!("{}/{} {}", object.namespace(), resource.name, resource.kind);
        Some(Self {
            kind: names.get(&resource.kind),
            name: resource.name.as_str().into(),
            replicas: binding.spec.replicas,
            is_workload: binding.spec.is_workload(),
            targets,
            evictions,
            policy: claiming_policy(&binding).map(|policy| names.get(&policy)),
            health: health(&binding),
            search_text: search_text.to_lowercase().into(),
            revision: object.revision(),
        })
    }

    /// Its eviction from a cluster, if it is evicted from there.
    pub(crate) fn eviction_from(&self, cluster: &str) -> Option<&Eviction> {
        self.evictions.iter().find(|e| *e.cluster == *cluster)
    }

    pub(crate) fn is_in(&self, cluster: &str) -> bool {
        self.targets.iter().any(|(name, _)| **name == *cluster)
    }
}

/// `NAMESPACE/NAME` of a policy; the name of a cluster policy.
pub(crate) fn policy_text((namespace, name): &ObjectKey) -> String {
    match namespace.as_str() {
        "" => name.clone(),
        namespace => format!("{namespace}/{name}"),
    }
}

fn claiming_policy(binding: &ResourceBinding) -> Option<String> {
    let annotations = &binding.metadata.annotations;
    let annotation = |key: &str| annotations.get(key).cloned();
    let local = annotation(POLICY_NAME).map(|name| {
        let namespace = annotation(POLICY_NAMESPACE).unwrap_or_default();
        policy_text(&(namespace, name))
    });
    local.or_else(|| annotation(CLUSTER_POLICY_NAME))
}

fn health(binding: &ResourceBinding) -> WorkloadHealth {
    let mut conditions = binding.status.conditions.iter();
    let scheduled = conditions.find(|c| c.condition_type == "Scheduled");
    // A template that another binding requires has no placement of its own.
    let is_scheduled =
        scheduled.is_some_and(|c| c.status == "True") || binding.spec.placement.is_none();
    let targets = binding.spec.targets();
    let statuses = &binding.status.aggregated_status;
    let of_cluster = |name: &str| statuses.iter().find(|status| status.cluster_name == name);
    let states = targets.iter().map(|target| match of_cluster(&target.name) {
        Some(status) if status.health == "Unhealthy" => WorkloadHealth::Unhealthy,
        Some(status) if !status.applied => WorkloadHealth::Progressing,
        Some(status) if status.health == "Healthy" => WorkloadHealth::Healthy,
        Some(_) => WorkloadHealth::Unknown,
        None => WorkloadHealth::Progressing,
    });
    let is_nowhere = scheduled.is_some_and(|c| c.reason == PLACED_NOWHERE);
    match states.min() {
        Some(WorkloadHealth::Unhealthy) => WorkloadHealth::Unhealthy,
        _ if !is_scheduled => WorkloadHealth::Unscheduled,
        Some(state) => state,
        // On purpose.
        None if is_nowhere => WorkloadHealth::Healthy,
        None => WorkloadHealth::Unscheduled,
    }
}

#[derive(Debug)]
pub(crate) struct RolloutRow {
    /// The kind and the name of the policy, such as `RolloutPolicy/web`.
    pub(crate) policy: Box<str>,
    pub(crate) state: String,
    pub(crate) stage: String,
    pub(crate) progress: String,
    pub(crate) revision: u64,
}

impl RolloutRow {
    pub(super) fn new(object: &Object) -> Option<Self> {
        let rollout = object.decode::<Rollout>().ok()?;
        let status = rollout.status.as_ref()?;
        // The uid and the generation of the policy follow.
        let policy = status.policy.split(' ').next().unwrap_or_default();
        Some(Self {
            policy: policy.into(),
            state: status.state.clone(),
            stage: status.stage.clone(),
            progress: status.progress.clone(),
            revision: object.revision(),
        })
    }

    /// The namespace of its policy.
    pub(crate) fn policy_namespace<'a>(&self, key: &'a ObjectKey) -> &'a str {
        match self.policy.starts_with("RolloutPolicy/") {
            true => &key.0,
            false => "",
        }
    }
}
