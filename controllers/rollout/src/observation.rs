//! Observes the target clusters of a template: their stages, Works and health. A member is
//! untrusted: what it reports is only compared.

use flotilla_runtime::ListedCluster;
use karmada_api::binding::ObjectReference;
use karmada_api::rollout::RolloutPolicySpec;
use karmada_api::{ClusterAffinityMatcher, TargetCluster, names};

use crate::decision::{ObservedReplicas, ObservedTarget};
use crate::observed_works::ObservedWork;
use crate::reported_replicas::desired_replicas;

/// The target clusters by name. `find_cluster` looks up a Cluster, and `observe_work` the Work of an
/// object of a group by namespace and name; `is_known_revision`: whether a revision exists.
pub(crate) fn observe_targets(
    policy: &RolloutPolicySpec,
    resource: &ObjectReference,
    targets: &[&TargetCluster],
    find_cluster: impl Fn(&str) -> Option<ListedCluster>,
    mut observe_work: impl FnMut(&str, &str) -> Option<ObservedWork>,
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
        if let Some(work) = observe_work(&namespace, &work_name) {
            observed.has_work = true;
            observed.replicas = ObservedReplicas {
                desired: observed.replicas.desired,
                ..work.replicas
            };
            if is_known_revision(&work.revision) {
                observed.work_revision = work.revision;
            }
            observed.reported_revision = work.reported_revision;
            observed.healthy = work.healthy;
            observed.message = work.message;
        }
        observed
    };
    let mut all: Vec<ObservedTarget> = targets.iter().map(observe).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_with_an_unknown_revision_has_none() {
        let target = TargetCluster {
            name: "m".to_owned(),
            replicas: 2,
            ..TargetCluster::default()
        };
        for (existing, expected) in [("1", "1"), ("2", "")] {
            let work = |namespace: &str, _: &str| {
                Some(ObservedWork {
                    revision: "1".to_owned(),
                    reported_revision: "1".to_owned(),
                    ..ObservedWork::default()
                })
                .filter(|_| namespace == "karmada-es-m")
            };
            let (policy, resource) = Default::default();
            let observed = observe_targets(
                &policy,
                &resource,
                &[&target],
                |_| None,
                work,
                |revision| revision == existing,
            );
            let revisions = (&*observed[0].work_revision, &*observed[0].reported_revision);
            assert_eq!(revisions, (expected, "1"));
            let replicas = &observed[0].replicas;
            assert_eq!((replicas.desired, replicas.available), (2, None));
        }
    }
}
