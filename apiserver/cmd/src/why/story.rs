//! Builds the report on a template's placement from its [`WhyInputs`]. Pure.

use std::collections::{BTreeMap, BTreeSet};

use machinery::Object;
use openapi::karmada::{Binding, FeatureGates, Work};
use propagation::plan::{self, Claiming};
use scheduler::core::Snapshot;
use serde::{Deserialize, Serialize};

use super::gather::Facts;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Story {
    pub(crate) template: Named,
    pub(crate) claim: Claiming,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) binding: Option<Bound>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decision: Option<Decision>,
    pub(crate) clusters: Vec<Row>,
    /// What has not happened yet, and why.
    pub(crate) pending: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Named {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Bound {
    pub(crate) name: String,
    pub(crate) generation: i64,
    pub(crate) replicas: i64,
    /// The condition `Scheduled`, in one line.
    pub(crate) scheduled: String,
    /// The bindings that depend on it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) required_by: Vec<String>,
}

/// The document of the subresource `decision`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Decision {
    pub(crate) recomputed: bool,
    pub(crate) generation: i64,
    pub(crate) fresh: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) failed_terms: Vec<Term>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) affinity_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) strategy: Option<String>,
    pub(crate) rule: String,
    pub(crate) replicas: i64,
    pub(crate) total_clusters: usize,
    pub(crate) feasible_clusters: usize,
    pub(crate) chosen_clusters: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) failed_estimators: Vec<String>,
    pub(crate) omitted_clusters: usize,
    #[serde(skip_serializing)]
    clusters: Vec<Told>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Term {
    pub(crate) affinity_name: String,
    pub(crate) failure: String,
}

/// The scheduler's result for a cluster.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Told {
    #[serde(skip_serializing)]
    name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) refused: Vec<Verdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) score: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current_replicas: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) available_replicas: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) estimate: Option<String>,
    pub(crate) chosen: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replicas: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) weight: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Verdict {
    pub(crate) plugin: String,
    pub(crate) reason: String,
}

/// A cluster, with the scheduler's result and the Work for it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) name: String,
    /// `Ready`, why it is not, or that the cluster does not exist.
    pub(crate) member: String,
    /// Whether the binding has the cluster as a target.
    pub(crate) target: bool,
    /// The replicas that the binding assigns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replicas: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decided: Option<Told>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) work: Option<Sent>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sent {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// `True`, `False` or `Unknown`; empty before the first attempt.
    pub(crate) applied: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) health: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) deleting: bool,
}

pub(crate) fn tell(inputs: &Facts) -> Story {
    let snapshot = Snapshot::default();
    let world = plan::World {
        policies: &inputs.policies,
        overrides: &inputs.overrides,
        bindings: &[],
        snapshot: &snapshot,
        scheduler: "",
        gates: FeatureGates::default(),
    };
    let template = &inputs.template;
    let claim = plan::claiming(&world, &inputs.kind, template);
    let (decision, undecided) = match &inputs.decision {
        None => (None, None),
        Some(Ok(document)) => match Decision::deserialize(document) {
            Ok(decision) => (Some(decision), None),
            Err(e) => (None, Some(format!("the decision cannot be read: {e}"))),
        },
        Some(Err(why)) => (None, Some(format!("the decision cannot be read: {why}"))),
    };
    let clusters = rows(inputs, decision.as_ref());
    let mut pending = Vec::new();
    match &inputs.binding {
        None if claim.policy.is_some() => {
            pending.push("its binding has not been created yet".into());
        }
        None => pending.push(claim.why.clone()),
        Some((object, binding)) => {
            pending.extend(of_binding(object, binding));
            pending.extend(clusters.iter().filter_map(|row| of_cluster(row, binding)));
        }
    }
    pending.extend(undecided);
    Story {
        template: Named {
            api_version: inputs.kind.resource.api_version(),
            kind: inputs.kind.kind.clone(),
            namespace: template.namespace().to_owned(),
            name: template.name().to_owned(),
        },
        claim,
        binding: inputs.binding.as_ref().map(|(o, b)| bound(o, b)),
        decision,
        clusters,
        pending,
    }
}

fn bound(object: &Object, binding: &Binding) -> Bound {
    let mut conditions = binding.status.conditions.iter();
    let scheduled = match conditions.find(|c| c.kind == "Scheduled") {
        None => "not yet".to_owned(),
        Some(c) if c.status == "True" => "yes".into(),
        Some(c) => format!("no: {}: {}", c.reason, c.message),
    };
    let required = binding.spec.required_by.iter();
    let required = required.map(|by| match by.namespace.as_str() {
        "" => by.name.clone(),
        namespace => format!("{namespace}/{}", by.name),
    });
    Bound {
        name: object.name().to_owned(),
        generation: object.head().generation,
        replicas: binding.spec.replicas,
        scheduled,
        required_by: required.collect(),
    }
}

/// The clusters in the order of the decision; then further targets and clusters with Works.
fn rows(inputs: &Facts, decision: Option<&Decision>) -> Vec<Row> {
    let decided = decision.map(|d| d.clusters.as_slice()).unwrap_or_default();
    let targets: BTreeMap<&str, i64> = match &inputs.binding {
        Some((_, binding)) => {
            let targets = binding.spec.targets().into_iter();
            targets.map(|t| (t.name.as_str(), t.replicas)).collect()
        }
        None => BTreeMap::new(),
    };
    let mut names: Vec<&str> = decided.iter().map(|row| row.name.as_str()).collect();
    let known: BTreeSet<&str> = names.iter().copied().collect();
    let others = targets.keys().copied();
    let others = others.chain(inputs.works.keys().map(String::as_str));
    let others: BTreeSet<&str> = others.filter(|name| !known.contains(name)).collect();
    names.extend(others);
    let counted = inputs
        .binding
        .as_ref()
        .is_some_and(|(_, b)| b.spec.is_workload());
    let row = |name: &str| Row {
        name: name.to_owned(),
        member: member(inputs, name),
        target: targets.contains_key(name),
        replicas: targets.get(name).copied().filter(|_| counted),
        decided: decided.iter().find(|row| row.name == name).cloned(),
        work: inputs
            .works
            .get(name)
            .map(|(object, work)| sent(object, work)),
    };
    names.into_iter().map(row).collect()
}

fn member(inputs: &Facts, name: &str) -> String {
    let Some(cluster) = inputs.clusters.get(name) else {
        return "no such cluster".into();
    };
    match cluster.condition("Ready") {
        Some(ready) if ready.status == "True" => "Ready".into(),
        Some(ready) => format!("{}: {}", ready.reason, ready.message),
        None => "it has no condition Ready".into(),
    }
}

fn sent(object: &Object, work: &Work) -> Sent {
    let applied = work.condition("Applied");
    let health = work.status.manifest_statuses.first();
    Sent {
        namespace: object.namespace().to_owned(),
        name: object.name().to_owned(),
        applied: applied.map(|c| c.status.clone()).unwrap_or_default(),
        message: applied
            .filter(|c| c.status != "True")
            .map(|c| c.message.clone())
            .unwrap_or_default(),
        health: health.map(|m| m.health.clone()).unwrap_or_default(),
        deleting: object.head().deleting,
    }
}

fn of_binding(object: &Object, binding: &Binding) -> Vec<String> {
    let spec = &binding.spec;
    let mut pending = Vec::new();
    if object.head().deleting {
        pending.push("the binding is being deleted".to_owned());
    }
    let suspension = spec.suspension.as_ref();
    if suspension.is_some_and(|s| s.scheduling == Some(true)) {
        pending.push("scheduling is suspended (spec.suspension.scheduling of the binding)".into());
    }
    if suspension.is_some_and(|s| s.dispatching == Some(true)) {
        pending.push("dispatching is suspended by the policy".into());
    }
    let mut conditions = binding.status.conditions.iter();
    match conditions.find(|c| c.kind == "Scheduled") {
        Some(c) if c.status != "True" => {
            pending.push(format!("not scheduled: {}: {}", c.reason, c.message));
        }
        Some(_) if binding.status.scheduler_observed_generation >= object.head().generation => {}
        None if spec.placement.is_none() => {}
        _ => pending.push(format!(
            "the scheduler has not observed generation {} of the binding yet",
            object.head().generation
        )),
    }
    let evicted = spec.graceful_eviction_tasks.iter();
    pending.extend(evicted.map(|task| {
        format!(
            "{}: being evicted gracefully, until the replacement is healthy",
            task.from_cluster
        )
    }));
    pending
}

/// What is pending for a cluster, if anything.
fn of_cluster(row: &Row, binding: &Binding) -> Option<String> {
    let name = &row.name;
    let suspended =
        |s: &openapi::karmada::policy::Suspension| s.dispatching != Some(true) && s.suspends(name);
    if row.target && binding.spec.suspension.as_ref().is_some_and(suspended) {
        return Some(format!("{name}: dispatching is suspended for this cluster"));
    }
    let evicted = binding.spec.graceful_eviction_tasks.iter();
    let evicted = evicted.map(|task| &task.from_cluster).any(|c| c == name);
    let unready = row.member != "Ready";
    let reason = match &row.work {
        None if row.target => "its Work has not been created yet".to_owned(),
        None => return None,
        Some(_) if !row.target && evicted => return None,
        Some(_) if !row.target => "it is being removed from the cluster".into(),
        Some(work) if work.applied.is_empty() => "not applied yet".into(),
        Some(work) if work.applied != "True" => format!("not applied: {}", work.message),
        Some(work) if work.health == "Unhealthy" => "applied, and not healthy".into(),
        Some(_) if unready => String::new(),
        Some(_) => return None,
    };
    Some(match (unready, reason.as_str()) {
        (false, _) => format!("{name}: {reason}"),
        (true, "") => format!("{name}: the cluster is not Ready: {}", row.member),
        (true, _) => format!("{name}: {reason}; the cluster is not Ready: {}", row.member),
    })
}
