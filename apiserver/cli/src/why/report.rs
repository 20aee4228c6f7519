//! Builds the report on a template's placement from its [`WhyInputs`]. Pure.

use std::collections::{BTreeMap, BTreeSet};

use karmada_api::binding::{Condition, PLACED_NOWHERE};
use karmada_api::well_known_keys::{
    TEMPLATE_GENERATION, WAIT_FOR_REMOVAL_FINALIZER, WAITING_FOR_REMOVAL, is_orphaned_on_deletion,
};
use karmada_api::{FeatureGates, ResourceBinding, Work, names};
use machinery::Object;
use overrides::{AppliedOverrides, CandidateOverridePolicies, OverrideFailure};
use scheduler::core::ClusterSnapshot;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use simulation::ClaimExplanation;

use super::inputs::WhyInputs;
use super::rollout::{RolloutSummary, rollout_summary};
use crate::field_differences::{FieldDifference, field_differences};

/// The reason of Propagated when a label in the member says that the object is left alone.
const LEFT_ALONE: &str = "ManagedLabelFalse";
/// The reason of a cluster for which the override policies fail: there is no Work to say so.
const OVERRIDES_FAILED: &str = "ApplyOverridesFailed";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhyReport {
    pub template: TemplateReference,
    pub claim: ClaimExplanation,
    /// The only clusters that the gate of the namespace lets the template go to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_gate: Option<Vec<String>>,
    /// The effect of a deletion of the template, if it does not just delete the copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<BindingSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionSummary>,
    pub clusters: Vec<ClusterRow>,
    /// Where the revisions are, if the changes of the template are staged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutSummary>,
    /// The steps that have not happened yet, and why.
    pub pending: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateReference {
    pub api_version: String,
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BindingSummary {
    pub name: String,
    pub generation: i64,
    pub replicas: i64,
    /// The condition `Scheduled`, in one line.
    pub scheduled: String,
    /// The bindings that depend on it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required_by: Vec<String>,
}

/// The document of the subresource `decision`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DecisionSummary {
    pub recomputed: bool,
    pub generation: i64,
    pub fresh: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_terms: Vec<FailedAffinityTermSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    pub rule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_preference: Option<String>,
    pub replicas: i64,
    pub total_clusters: usize,
    pub feasible_clusters: usize,
    pub chosen_clusters: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_estimators: Vec<String>,
    pub omitted_clusters: usize,
    #[serde(skip_serializing)]
    pub clusters: Vec<ClusterDecision>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedAffinityTermSummary {
    pub affinity_name: String,
    pub failure: String,
}

/// The scheduler's result for a cluster.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterDecision {
    #[serde(skip_serializing)]
    pub name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<FilterRefusal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_replicas: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<String>,
    pub chosen: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct FilterRefusal {
    pub plugin: String,
    pub reason: String,
}

/// A cluster, with the scheduler's result and the Work for it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRow {
    pub name: String,
    /// `Ready`, why it is not, or that the cluster does not exist.
    pub member: String,
    /// Whether the binding has the cluster as a target.
    pub target: bool,
    /// The replicas that the binding assigns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<ClusterDecision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkSummary>,
    /// The override policies that change the manifest for this cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<String>,
    /// Why the override policies cannot be applied for this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub override_failure: Option<String>,
    /// Why the cluster has not what it should have, in one word of a fixed list.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: String,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkSummary {
    pub namespace: String,
    pub name: String,
    /// `True`, `False` or `Unknown`; empty before the first attempt.
    pub applied: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The generation of the template that the cluster has; empty if that is not known, or the
    /// template has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub generation: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub health: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
    /// The fields that another manager in the member changes back.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub conflict: String,
    /// Why the object is left alone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub not_managed: String,
}

pub fn build_report(inputs: &WhyInputs) -> WhyReport {
    let snapshot = ClusterSnapshot::default();
    let input = simulation::SimulationInput {
        policies: &inputs.policies,
        overrides: &inputs.overrides,
        bindings: &[],
        snapshot: &snapshot,
        scheduler: "",
        gates: FeatureGates::default(),
        starts_anew: false,
    };
    let template = &inputs.template;
    let claim = simulation::explain_claim(&input, &inputs.api_resource, template);
    let (decision, undecided) = match &inputs.decision {
        None => (None, None),
        Some(Ok(document)) => match DecisionSummary::deserialize(document) {
            Ok(decision) => (Some(decision), None),
            Err(e) => (None, Some(format!("the decision cannot be read: {e}"))),
        },
        Some(Err(reason)) => (None, Some(format!("the decision cannot be read: {reason}"))),
    };
    let clusters = rows(inputs, decision.as_ref());
    let rollout = inputs.rollout.as_ref();
    let rollout = rollout.and_then(|rollout| rollout_summary(rollout, template));
    // The rollout says why a cluster that is no target any more keeps its replicas.
    let is_kept = |row: &&ClusterRow| {
        let mut summaries = rollout.iter();
        !row.target && summaries.any(|summary| summary.keeps_replicas(&row.name))
    };
    let explained = clusters.iter().filter(|row| !is_kept(row));
    let explained: Vec<&ClusterRow> = explained.collect();
    let mut pending = pending_steps(inputs, &claim, decision.as_ref(), &explained);
    pending.extend(undecided);
    pending.extend(rollout.iter().flat_map(RolloutSummary::pending));
    WhyReport {
        template: TemplateReference {
            api_version: inputs.api_resource.resource.api_version(),
            kind: inputs.api_resource.kind.clone(),
            namespace: template.namespace().to_owned(),
            name: template.name().to_owned(),
        },
        claim,
        namespace_gate: inputs.namespace_gate.clone(),
        deletion: deletion_effect(inputs),
        binding: inputs
            .binding
            .as_ref()
            .map(|(o, b)| binding_summary(o, b, inputs.namespace_gate.is_some())),
        decision,
        clusters,
        rollout,
        pending,
    }
}

/// The steps that have not happened yet, and why.
fn pending_steps(
    inputs: &WhyInputs,
    claim: &ClaimExplanation,
    decision: Option<&DecisionSummary>,
    clusters: &[&ClusterRow],
) -> Vec<String> {
    let mut pending = Vec::new();
    let (template, kind) = (&inputs.template, &inputs.api_resource.kind);
    pending.extend(inputs.disabled_by.propagation.as_ref().map(|config| {
        format!("the FederatedTypeConfig {config} switches the propagation of {kind} off")
    }));
    pending.extend(inputs.disabled_by.status.as_ref().map(|config| {
        format!(
            "the FederatedTypeConfig {config} switches the collection of the status of {kind} off"
        )
    }));
    pending.extend(inputs.preference_remarks.iter().cloned());
    let waits_for = template.annotations().get(WAITING_FOR_REMOVAL).cloned();
    match &inputs.binding {
        // Its binding is gone.
        None if waits_for.is_some() => {}
        None if template.meta().deleting => {
            pending.push("the template is being deleted".to_owned())
        }
        None if claim.policy.is_some() => {
            let (name, namespace) = (template.name(), template.namespace());
            let too_long = names::template_name_error(kind, name, namespace);
            let reason = too_long.unwrap_or_else(|| "its binding has not been created yet".into());
            pending.push(reason);
        }
        None if inputs.works.is_empty() => pending.push(claim.why.clone()),
        None => pending.extend(
            clusters
                .iter()
                .filter_map(|row| pending_of_cluster(row, &ResourceBinding::default())),
        ),
        Some((object, binding)) => {
            pending.extend(pending_of_binding(object, binding));
            pending.extend(unplaced_replicas(decision, binding));
            pending.extend(
                clusters
                    .iter()
                    .filter_map(|row| pending_of_cluster(row, binding)),
            );
        }
    }
    if let Some(copies) = waits_for {
        pending.push(format!(
            "it is deleted, and held until its copies are gone: {copies}"
        ));
    }
    if inputs.binding.is_none() {
        pending.extend(inputs.last_failure.clone());
    }
    pending
}

/// The replicas that a ReplicaSchedulingPreference leaves without a cluster, which is no failure.
fn unplaced_replicas(
    decision: Option<&DecisionSummary>,
    binding: &ResourceBinding,
) -> Option<String> {
    let name = decision?.replica_preference.as_ref()?;
    let total = binding.spec.replicas;
    let targets = binding.spec.targets();
    let placed: i64 = targets.iter().map(|t| t.replicas).sum();
    (placed < total && !targets.is_empty()).then(|| {
        format!(
            "{} of {total} replicas are in no cluster: the ReplicaSchedulingPreference {name} lets no cluster that fits take more (maxReplicas, weights of 0), or their pods found no room",
            total - placed
        )
    })
}

fn deletion_effect(inputs: &WhyInputs) -> Option<&'static str> {
    let binding = inputs.binding.as_ref();
    let is_preserved = is_orphaned_on_deletion(&inputs.template.annotations())
        || binding.is_some_and(|(_, b)| b.spec.preserve_resources_on_deletion == Some(true));
    let finalizers = inputs.template.finalizers();
    if is_preserved {
        return Some("leaves the objects in the members");
    }
    let waits = finalizers.iter().any(|f| f == WAIT_FOR_REMOVAL_FINALIZER);
    waits.then_some("keeps the template until its copies are gone")
}

fn binding_summary(object: &Object, binding: &ResourceBinding, is_gated: bool) -> BindingSummary {
    let mut conditions = binding.status.conditions.iter();
    let scheduled = match conditions.find(|c| c.condition_type == "Scheduled") {
        None => "not yet".to_owned(),
        Some(c) if c.status == "True" && c.reason == PLACED_NOWHERE && is_gated => {
            "in no cluster, as the placement and the gate say".into()
        }
        Some(c) if c.status == "True" && c.reason == PLACED_NOWHERE => {
            "in no cluster, as the placement says".into()
        }
        Some(c) if c.status == "True" => "yes".into(),
        Some(c) => format!("no: {}: {}", c.reason, c.message),
    };
    let required = binding.spec.required_by.iter();
    let required = required.map(|by| match by.namespace.as_str() {
        "" => by.name.clone(),
        namespace => format!("{namespace}/{}", by.name),
    });
    BindingSummary {
        name: object.name().to_owned(),
        generation: object.meta().generation,
        replicas: binding.spec.replicas,
        scheduled,
        required_by: required.collect(),
    }
}

/// The clusters in the order of the decision; then further targets and clusters with Works.
fn rows(inputs: &WhyInputs, decision: Option<&DecisionSummary>) -> Vec<ClusterRow> {
    let decided = decision.map(|d| d.clusters.as_slice()).unwrap_or_default();
    let targets: BTreeMap<&str, i64> = match &inputs.binding {
        Some((_, binding)) => {
            let targets = binding.spec.targets().into_iter();
            targets.map(|t| (t.name.as_str(), t.replicas)).collect()
        }
        None => BTreeMap::new(),
    };
    let mut names: Vec<&str> = decided.iter().map(|row| row.name.as_str()).collect();
    let target_names: BTreeSet<&str> = names.iter().copied().collect();
    let others = targets.keys().copied();
    let others = others.chain(inputs.works.keys().map(String::as_str));
    let others: BTreeSet<&str> = others.filter(|name| !target_names.contains(name)).collect();
    names.extend(others);
    let counted = inputs
        .binding
        .as_ref()
        .is_some_and(|(_, b)| b.spec.is_workload());
    let row = |name: &str| {
        let overridden = targets
            .get(name)
            .and_then(|_| apply_overrides(inputs, name));
        let (overrides, override_failure) = match overridden {
            Some((_, Ok(applied))) => (applied.policies(), None),
            Some((_, Err(failure))) => (Vec::new(), Some(failure.to_string())),
            None => (Vec::new(), None),
        };
        ClusterRow {
            name: name.to_owned(),
            member: cluster_readiness(inputs, name),
            target: targets.contains_key(name) || inputs.binding.is_none(),
            replicas: targets.get(name).copied().filter(|_| counted),
            decided: decided.iter().find(|row| row.name == name).cloned(),
            work: inputs
                .works
                .get(name)
                .map(|(object, work)| work_summary(object, work)),
            overrides,
            override_failure,
            reason: String::new(),
        }
    };
    let with_reason = |mut row: ClusterRow| {
        row.reason = match (&row.override_failure, inputs.works.get(&row.name)) {
            (Some(_), _) => OVERRIDES_FAILED.to_owned(),
            (None, Some((_, work))) => {
                unpropagated(work).map_or_else(String::new, |c| c.reason.clone())
            }
            (None, None) => String::new(),
        };
        row
    };
    names.into_iter().map(row).map(with_reason).collect()
}

/// The condition Propagated of a Work whose cluster has not what the Work says.
fn unpropagated(work: &Work) -> Option<&Condition> {
    let condition = work.condition("Propagated");
    condition.filter(|c| c.status != "True")
}

/// The generation of the template that a cluster has; empty while the Work is not applied as it is.
fn propagated_generation(object: &Object, work: &Work) -> String {
    let is_current =
        |c: &&Condition| c.status == "True" && c.observed_generation == object.meta().generation;
    let manifest = work.spec.workload.manifests.first();
    let generation = work
        .condition("Applied")
        .filter(is_current)
        .and_then(|_| manifest?["metadata"]["annotations"][TEMPLATE_GENERATION].as_str());
    generation.unwrap_or_default().to_owned()
}

/// The fields that the override policies change for a cluster; none if they cannot be applied.
pub fn override_differences(inputs: &WhyInputs, cluster: &str) -> Vec<FieldDifference> {
    match (inputs.template.value(), apply_overrides(inputs, cluster)) {
        (Ok(template), Some((manifest, Ok(_)))) => field_differences(&template, &manifest),
        _ => Vec::new(),
    }
}

/// Applies the override policies to the template as the binding controller does.
fn apply_overrides(
    inputs: &WhyInputs,
    cluster: &str,
) -> Option<(Value, Result<AppliedOverrides, OverrideFailure>)> {
    let (object, cluster) = inputs.clusters.get(cluster)?;
    let served = &inputs.api_resource;
    let kind = served.resource.with_kind(&served.kind);
    let candidates = CandidateOverridePolicies::of_objects(&inputs.overrides);
    let mut manifest = inputs.template.value().ok()?;
    let applied = candidates.apply(&mut manifest, &kind, &cluster.attributes(object));
    Some((manifest, applied))
}

fn cluster_readiness(inputs: &WhyInputs, name: &str) -> String {
    let Some((_, cluster)) = inputs.clusters.get(name) else {
        return "no such cluster".into();
    };
    match cluster.condition("Ready") {
        Some(ready) if ready.status == "True" => "Ready".into(),
        Some(ready) => format!("{}: {}", ready.reason, ready.message),
        None => "it has no condition Ready".into(),
    }
}

fn work_summary(object: &Object, work: &Work) -> WorkSummary {
    let applied = work.condition("Applied");
    // The condition that names objects, reasons and versions, if it is there.
    let explained = unpropagated(work).map(|c| c.message.clone());
    let left_alone = unpropagated(work).filter(|c| c.reason == LEFT_ALONE);
    let left_alone = left_alone.map(|c| c.message.clone());
    let health = work.status.manifest_statuses.first();
    WorkSummary {
        namespace: object.namespace().to_owned(),
        name: object.name().to_owned(),
        applied: applied.map(|c| c.status.clone()).unwrap_or_default(),
        message: applied
            .filter(|c| c.status != "True")
            .map(|c| explained.clone().unwrap_or_else(|| c.message.clone()))
            .or_else(|| explained.clone().filter(|_| applied.is_none()))
            .unwrap_or_default(),
        generation: propagated_generation(object, work),
        health: health.map(|m| m.health.clone()).unwrap_or_default(),
        deleting: object.meta().deleting,
        conflict: message_if_true(work, "FieldConflict"),
        not_managed: left_alone.unwrap_or_default(),
    }
}

/// The message of a condition that is True; empty otherwise.
fn message_if_true(work: &Work, condition: &str) -> String {
    let condition = work.condition(condition).filter(|c| c.status == "True");
    condition.map(|c| c.message.clone()).unwrap_or_default()
}

fn pending_of_binding(object: &Object, binding: &ResourceBinding) -> Vec<String> {
    let spec = &binding.spec;
    let mut pending = Vec::new();
    if object.meta().deleting {
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
    match conditions.find(|c| c.condition_type == "Scheduled") {
        Some(c) if c.status != "True" => {
            pending.push(format!("not scheduled: {}: {}", c.reason, c.message));
        }
        Some(_) if binding.status.scheduler_observed_generation >= object.meta().generation => {}
        None if spec.placement.is_none() => {}
        _ => pending.push(format!(
            "the scheduler has not observed generation {} of the binding yet",
            object.meta().generation
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

/// The pending step of a cluster, if any.
fn pending_of_cluster(row: &ClusterRow, binding: &ResourceBinding) -> Option<String> {
    let name = &row.name;
    let suspended =
        |s: &karmada_api::policy::Suspension| s.dispatching != Some(true) && s.suspends(name);
    if row.target && binding.spec.suspension.as_ref().is_some_and(suspended) {
        return Some(format!("{name}: dispatching is suspended for this cluster"));
    }
    let evicted = binding.spec.graceful_eviction_tasks.iter();
    let evicted = evicted.map(|task| &task.from_cluster).any(|c| c == name);
    let unready = row.member != "Ready";
    let reason = match &row.work {
        _ if row.override_failure.is_some() => {
            let failure = row.override_failure.as_deref().unwrap_or_default();
            format!("its Work is not written: {failure}")
        }
        None if row.target => "its Work has not been created yet".to_owned(),
        None => return None,
        Some(_) if !row.target && evicted => return None,
        Some(_) if !row.target && row.reason.is_empty() => {
            "it is being removed from the cluster".into()
        }
        Some(_) if !row.target => {
            format!("it is being removed from the cluster: {}", row.reason)
        }
        Some(work) if work.applied.is_empty() && work.message.is_empty() => {
            "not applied yet".into()
        }
        Some(work) if work.applied.is_empty() => {
            format!("not applied yet: {}: {}", row.reason, work.message)
        }
        Some(work) if work.applied != "True" => format!("not applied: {}", work.message),
        Some(work) if !work.conflict.is_empty() => {
            format!("another manager undoes repairs: {}", work.conflict)
        }
        Some(work) if !work.not_managed.is_empty() => {
            format!("left alone: {}", work.not_managed)
        }
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
