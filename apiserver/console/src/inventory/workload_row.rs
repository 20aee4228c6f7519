//! A template as its binding describes it, and the rollout of one.

use std::sync::Arc;

use karmada_api::binding::PLACED_NOWHERE;
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
    /// The policy that has claimed it, as [`policy_text`] names it.
    pub(crate) policy: Option<Arc<str>>,
    pub(crate) health: WorkloadHealth,
    /// The text in which a search looks, in lower case.
    pub(crate) search_text: Box<str>,
    pub(crate) revision: u64,
}

impl WorkloadRow {
    pub(super) fn new(object: &Object, names: &mut NamePool) -> Option<Self> {
        let binding = object.decode::<ResourceBinding>().ok()?;
        let resource = &binding.spec.resource;
        let targets = binding.spec.targets().into_iter();
        let targets = targets.map(|target| (names.get(&target.name), target.replicas));
        let targets = targets.collect();
        let search_text = format!("{}/{} {}", object.namespace(), resource.name, resource.kind);
        Some(Self {
            kind: names.get(&resource.kind),
            name: resource.name.as_str().into(),
            replicas: binding.spec.replicas,
            is_workload: binding.spec.is_workload(),
            targets,
            policy: claiming_policy(&binding).map(|policy| names.get(&policy)),
            health: health(&binding),
            search_text: search_text.to_lowercase().into(),
            revision: object.revision(),
        })
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
    pub(crate) state: String,
    pub(crate) stage: String,
    pub(crate) progress: String,
    pub(crate) revision: u64,
}

impl RolloutRow {
    pub(super) fn new(object: &Object) -> Option<Self> {
        let rollout = object.decode::<Rollout>().ok()?;
        let status = rollout.status.as_ref()?;
        Some(Self {
            state: status.state.clone(),
            stage: status.stage.clone(),
            progress: status.progress.clone(),
            revision: object.revision(),
        })
    }
}
