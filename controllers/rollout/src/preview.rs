//! Previews the step that would follow a change of a template, for commands. Pure.

use std::collections::BTreeMap;

use flotilla_runtime::ListedCluster;
use jiff::Timestamp;
use karmada_api::rollout::RolloutStatus;
use karmada_api::{ResourceBinding, Rollout};
use machinery::{Gvk, Object};
use overrides::CandidateOverridePolicies;
use serde_json::Value;

use crate::controller::has_partition;
use crate::decision::{DecisionInput, plan_next_step};
use crate::observation::observe_targets;
use crate::observed_works::ObservedWork;
use crate::policies::select_among;
use crate::revision::{revision_content, revision_name};

/// A changed template and what its control plane has.
pub struct RolloutPreviewInput<'a> {
    pub kind: &'a Gvk,
    /// As the server would store it.
    pub template: &'a Object,
    /// The template with replicas that are the same at any scale.
    pub tree: Value,
    pub overrides: &'a CandidateOverridePolicies,
    pub binding: &'a Object,
    pub rollout: Option<&'a Object>,
    /// RolloutPolicies of the namespace, and ClusterRolloutPolicies.
    pub policies: &'a [Object],
    pub clusters: &'a [Object],
    pub works: &'a [Object],
    pub now: Timestamp,
}

/// The first step of a rollout.
pub struct RolloutPreview {
    pub policy: String,
    /// The status after the step.
    pub status: RolloutStatus,
    /// The names in the stages of the policy that no Cluster has.
    pub missing_clusters: Vec<String>,
}

/// The first step that would follow the change; `None` if no policy stages the template.
pub fn preview_rollout(input: RolloutPreviewInput<'_>) -> Result<Option<RolloutPreview>, String> {
    let Some(policy) = select_among(input.policies, input.kind, input.template.meta()) else {
        return Ok(None);
    };
    let binding = input.binding.decode::<ResourceBinding>();
    let binding = binding.map_err(|error| error.to_string())?;
    let view = input.rollout.map(|rollout| rollout.decode::<Rollout>());
    let view = view.transpose().map_err(|error| error.to_string())?;
    let overrides = input.overrides;
    let overrides = overrides.selecting_specs(input.kind, input.template.meta());
    let content = revision_content(input.tree, overrides);
    let target = revision_name(input.binding.name(), &content);
    let cluster = |name: &str| {
        let mut clusters = input.clusters.iter();
        ListedCluster::new(clusters.find(|cluster| cluster.name() == name)?)
    };
    let work = |namespace: &str, name: &str| {
        let mut works = input.works.iter();
        let is_same = |work: &&Object| work.namespace() == namespace && work.name() == name;
        let work = works.find(is_same)?;
        Some(ObservedWork::read(&input.kind.group, work))
    };
    let spec = &policy.policy.spec;
    let targets = binding.spec.targets();
    let resource = &binding.spec.resource;
    let targets = observe_targets(spec, resource, &targets, cluster, work, |_| true);
    let decision = plan_next_step(DecisionInput {
        policy: spec,
        policy_id: &policy.id(),
        spec: &view
            .as_ref()
            .map(|view| view.spec.clone())
            .unwrap_or_default(),
        has_partition: has_partition(input.kind),
        // The server alone knows.
        has_prometheus: true,
        target: &target,
        // The Rollout says it already.
        unusable_revisions: &BTreeMap::new(),
        rollout_uid: input.rollout.map(Object::uid).unwrap_or_default(),
        previous: view.as_ref().and_then(|view| view.status.as_ref()),
        targets: &targets,
        jobs: &[],
        binding_generation: input.binding.meta().generation,
        is_unplaced: false,
        leaving: &[],
        now: input.now,
    });
    let affinities = spec
        .stages
        .iter()
        .filter_map(|s| s.cluster_affinity.as_ref());
    let named = affinities.flat_map(|affinity| &affinity.cluster_names);
    let is_missing = |name: &&String| input.clusters.iter().all(|c| c.name() != name.as_str());
    let mut missing_clusters: Vec<String> = named.filter(is_missing).cloned().collect();
    missing_clusters.sort_unstable();
    missing_clusters.dedup();
    Ok(Some(RolloutPreview {
        policy: policy.name(),
        status: decision.status,
        missing_clusters,
    }))
}
