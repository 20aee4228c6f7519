//! Observes the target clusters of a template: their stages, Works and health. A member is
//! untrusted: what it reports is only compared.

use flotilla_runtime::ListedCluster;
use karmada_api::binding::ObjectReference;
use karmada_api::names;
use karmada_api::rollout::{REVISION, RolloutPolicySpec};
use karmada_api::work::WorkStatus;
use karmada_api::{ClusterAffinityMatcher, TargetCluster};
use machinery::bounded_text::truncated;
use machinery::{Gvk, Object};
use serde::Deserialize;

use crate::decision::ObservedTarget;
use crate::reported_replicas::{
    desired_replicas, has_old_replicas, read_counters, replicas_of_manifest,
};

/// The bytes of the reason of a member that a status shows.
const MAX_MESSAGE_BYTES: usize = 256;

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReportedWork {
    status: WorkStatus,
}

/// The target clusters by name. `find_cluster` and `find_work` look up a Cluster and a Work;
/// `is_known_revision`: whether a revision exists. `reads_manifests`: whether the replicas of the
/// manifests, which are large, are needed.
pub(crate) fn observe_targets(
    policy: &RolloutPolicySpec,
    resource: &ObjectReference,
    targets: &[&TargetCluster],
    find_cluster: impl Fn(&str) -> Option<ListedCluster>,
    find_work: impl Fn(&str, &str) -> Option<Object>,
    reads_manifests: bool,
    is_known_revision: impl Fn(&str) -> bool,
) -> Vec<ObservedTarget> {
    let stages = policy.stages.iter();
    let matchers: Vec<Option<ClusterAffinityMatcher<'_>>> = stages
        .map(|stage| {
            stage
                .cluster_affinity
                .as_ref()
                .map(|affinity| affinity.matcher())
        })
        .collect();
    let work_name = names::work_name(&resource.kind, &resource.name, &resource.namespace);
    let observe = |target: &&TargetCluster| {
        let mut observed = ObservedTarget {
            name: target.name.clone(),
            stage: matchers.len(),
            replicas: desired_replicas(target),
            ..ObservedTarget::default()
        };
        if let Some(cluster) = find_cluster(&target.name) {
            let attributes = cluster.attributes();
            let selects = |matcher: &Option<ClusterAffinityMatcher<'_>>| {
                matcher
                    .as_ref()
                    .is_none_or(|matcher| matcher.matches(&attributes))
            };
            observed.stage = matchers.iter().position(selects).unwrap_or(matchers.len());
            observed.reachable = cluster.cluster.is_ready();
        }
        let namespace = names::execution_space_name(&target.name);
        if let Some(work) = find_work(&namespace, &work_name) {
            let kind = Gvk::from_api_version(&resource.api_version, &resource.kind);
            observe_work(&kind.group, &work, &mut observed, &is_known_revision);
            if reads_manifests {
                observed.replicas.in_manifest = replicas_of_manifest(&work);
            }
        }
        observed
    };
    let mut all: Vec<ObservedTarget> = targets.iter().map(observe).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn observe_work(
    group: &str,
    work: &Object,
    observed: &mut ObservedTarget,
    is_known_revision: impl Fn(&str) -> bool,
) {
    let revision = work.annotation(REVISION).unwrap_or_default();
    if is_known_revision(&revision) {
        observed.work_revision = revision;
    }
    observed.replicas.available = None;
    let Ok(report) = machinery::json::from_slice::<ReportedWork>(&work.bytes()) else {
        return;
    };
    let status = report.status;
    if let Some(manifest) = status.manifest_statuses.first() {
        observed.reported_revision.clone_from(&manifest.revision);
        let has_old_replicas = manifest.status.as_ref().is_some_and(has_old_replicas);
        let is_healthy = manifest.health == "Healthy";
        observed.healthy = is_healthy && !has_old_replicas;
        let replicas = &mut observed.replicas;
        read_counters(group, manifest.status.as_ref(), is_healthy, replicas);
    }
    let mut conditions = status.conditions.iter();
    if let Some(applied) = conditions.find(|c| c.condition_type == "Applied" && c.status != "True")
    {
        observed.message = truncated(&applied.message, MAX_MESSAGE_BYTES).into_owned();
        if observed.message.is_empty() {
            "the Work is not applied".clone_into(&mut observed.message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    // proves: ROL-health-exact
    #[test]
    fn health_is_that_of_the_revision_in_the_member() {
        let report = |health: &str, revision: &str, status: Value| json!({"health": health, "revision": revision, "status": status});
        let web = |replicas: i64, updated: i64| json!({"replicas": replicas, "updatedReplicas": updated, "availableReplicas": 1});
        for (work, applied, reported, expected) in [
            (
                "1",
                "True",
                report("Healthy", "1", web(1, 1)),
                ("1", "1", true, ""),
            ),
            // The old pod is available, and the new one is not.
            (
                "1",
                "True",
                report("Healthy", "1", web(2, 1)),
                ("1", "1", false, ""),
            ),
            (
                "1",
                "True",
                report("Unhealthy", "1", web(1, 1)),
                ("1", "1", false, ""),
            ),
            (
                "2",
                "True",
                report("Healthy", "1", json!(null)),
                ("2", "1", true, ""),
            ),
            (
                "unknown",
                "True",
                report("Healthy", "1", json!({})),
                ("", "1", true, ""),
            ),
            (
                "1",
                "False",
                report("Healthy", "1", json!({})),
                ("1", "1", true, "because"),
            ),
        ] {
            let condition = json!({"type": "Applied", "status": applied, "message": "because"});
            let work = json!({"metadata": {"name": "w", "annotations": {REVISION: work}},
                "status": {"conditions": [condition], "manifestStatuses": [reported]}});
            let mut observed = ObservedTarget::default();
            let work = Object::from_value(&work).unwrap();
            observe_work("apps", &work, &mut observed, |revision| {
                revision != "unknown"
            });
            let actual = (
                &*observed.work_revision,
                &*observed.reported_revision,
                observed.healthy,
                &*observed.message,
            );
            assert_eq!(actual, expected, "{reported}");
        }
    }
}
