//! Decides how many replicas of a binding leave the clusters that cannot run them.
//!
//! Pure. Source of the rules: Karmada's `pkg/descheduler/core` and `updateScheduleResult`.

use std::collections::BTreeMap;
use std::fmt::Write;

use karmada_api::ResourceBinding;
use karmada_api::binding::ObjectReference;
use karmada_api::placement::Placement;
use scheduler::core::AssignmentStrategy;

const SUCCESS_MESSAGE: &str = "Binding has been descheduled";

/// Whether the descheduler handles a workload of this kind.
pub(crate) fn is_supported(resource: &ObjectReference) -> bool {
    (resource.api_version.as_str(), resource.kind.as_str()) == ("apps/v1", "Deployment")
}

/// Whether replicas are divided by what clusters can run, so that the scheduler finds other
/// clusters for those that a cluster cannot run.
pub(crate) fn is_dynamically_divided(placement: &Placement) -> bool {
    matches!(
        AssignmentStrategy::from_placement(placement),
        Some(AssignmentStrategy::Aggregated | AssignmentStrategy::DynamicWeight)
    )
}

/// The replicas of a binding in one of its clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterReplicaStatus {
    /// The index in `spec.clusters`.
    pub(crate) index: usize,
    pub(crate) cluster: String,
    pub(crate) assigned: i64,
    /// Unknown before the cluster has reported.
    pub(crate) ready: Option<i64>,
}

/// The clusters in which fewer replicas are ready than are assigned.
pub(crate) fn undesired_clusters(binding: &ResourceBinding) -> Vec<ClusterReplicaStatus> {
    let ready: BTreeMap<&str, i64> = binding
        .status
        .aggregated_status
        .iter()
        .filter_map(|item| {
            let ready = item.status.as_ref()?.get("readyReplicas")?.as_i64()?;
            Some((item.cluster_name.as_str(), ready))
        })
        .collect();
    let targets = binding.spec.clusters.iter().enumerate();
    targets
        .map(|(index, target)| ClusterReplicaStatus {
            index,
            cluster: target.name.clone(),
            assigned: target.replicas,
            ready: ready.get(target.name.as_str()).copied(),
        })
        .filter(|status| status.ready.is_none_or(|ready| ready < status.assigned))
        .collect()
}

/// The replicas that stay in clusters, by their index in `spec.clusters`, and the message of the
/// event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DeschedulingResult {
    pub(crate) remaining: Vec<(usize, i64)>,
    pub(crate) message: String,
}

/// The result for clusters whose unschedulable replicas were counted; `None` if all replicas
/// stay. Replicas that are ready always stay.
pub(crate) fn deschedule(
    clusters: &[ClusterReplicaStatus],
    unschedulable: &[i64],
) -> Option<DeschedulingResult> {
    let (mut remaining, mut total) = (Vec::new(), 0);
    let mut message = SUCCESS_MESSAGE.to_owned();
    for (status, unschedulable) in clusters.iter().zip(unschedulable.iter().copied()) {
        if unschedulable <= 0 || unschedulable > status.assigned {
            continue;
        }
        let ready = status.ready.filter(|ready| *ready <= status.assigned);
        let target = (status.assigned - unschedulable).max(ready.unwrap_or(0));
        let removed = status.assigned - target;
        total += removed;
        remaining.push((status.index, target));
        // Writing into a String cannot fail.
        let _ = write!(
            message,
            ", {removed} replica(s) in cluster({})",
            status.cluster
        );
    }
    let _ = write!(message, ", {total} total descheduled replica(s)");
    (total > 0).then_some(DeschedulingResult { remaining, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn binding(clusters: &[(&str, i64)], ready: &[(&str, Value)]) -> ResourceBinding {
        let clusters: Vec<_> = clusters
            .iter()
            .map(|(name, replicas)| json!({"name": name, "replicas": replicas}))
            .collect();
        let statuses: Vec<_> = ready
            .iter()
            .map(|(name, status)| json!({"clusterName": name, "status": status}))
            .collect();
        let binding =
            json!({"spec": {"clusters": clusters}, "status": {"aggregatedStatus": statuses}});
        serde_json::from_value(binding).unwrap()
    }

    // proves: DES-candidates
    #[test]
    fn clusters_with_fewer_ready_replicas_than_assigned_are_candidates() {
        let all = [("a", 2), ("b", 2), ("c", 2), ("d", 2), ("e", 0), ("f", 0)];
        let binding = binding(
            &all,
            &[
                ("a", json!({"readyReplicas": 2})),
                ("b", json!({"readyReplicas": 1})),
                ("c", json!({"replicas": 2})),
                ("e", json!({"readyReplicas": 0})),
                ("gone", json!({"readyReplicas": 0})),
            ],
        );
        let actual: Vec<_> = undesired_clusters(&binding)
            .into_iter()
            .map(|status| (status.index, status.cluster, status.ready))
            .collect();
        let expected = [
            (1, "b", Some(1)),
            (2, "c", None),
            (3, "d", None),
            (5, "f", None),
        ];
        assert_eq!(
            actual,
            expected.map(|(i, name, ready)| (i, name.to_owned(), ready))
        );
    }

    // proves: DES-result
    #[test]
    fn unschedulable_replicas_leave_and_ready_ones_stay() {
        // Assigned, ready, unschedulable, remaining.
        for (assigned, ready, unschedulable, remaining) in [
            (5, Some(2), 2, Some(3)),
            (5, Some(4), 2, Some(4)),
            (5, Some(0), 5, Some(0)),
            (5, None, 1, Some(4)),
            (5, Some(2), 0, None),
            (5, Some(2), -1, None),
            (5, Some(2), 6, None),
            (0, None, 1, None),
        ] {
            let status = ClusterReplicaStatus {
                index: 3,
                cluster: "m1".into(),
                assigned,
                ready,
            };
            let result = deschedule(&[status], &[unschedulable]);
            let actual = result.map(|result| result.remaining);
            let row = format!("{assigned} {ready:?} {unschedulable}");
            assert_eq!(
                actual,
                remaining.map(|replicas| vec![(3, replicas)]),
                "{row}"
            );
        }
    }

    // proves: DES-events
    #[test]
    fn the_message_names_each_cluster_and_the_total() {
        let status = |index, cluster: &str, assigned, ready| ClusterReplicaStatus {
            index,
            cluster: cluster.into(),
            assigned,
            ready,
        };
        let clusters = [
            status(0, "m1", 3, Some(1)),
            status(1, "m2", 3, Some(1)),
            status(3, "m4", 4, Some(1)),
        ];
        let result = deschedule(&clusters, &[2, 0, 3]).unwrap();
        assert_eq!(result.remaining, [(0, 1), (3, 1)]);
        assert_eq!(
            result.message,
            "Binding has been descheduled, 2 replica(s) in cluster(m1), \
             3 replica(s) in cluster(m4), 5 total descheduled replica(s)"
        );
        assert_eq!(deschedule(&clusters, &[0, 0, 0]), None);
    }

    // proves: DES-kinds
    #[test]
    fn deployments_that_are_divided_by_capacity_are_descheduled() {
        let scheduling = |value: Value| json!({"replicaScheduling": value});
        for (placement, expected) in [
            (json!({}), false),
            (
                scheduling(json!({"replicaSchedulingType": "Duplicated"})),
                false,
            ),
            (
                scheduling(json!({"replicaSchedulingType": "Divided",
                                  "replicaDivisionPreference": "Aggregated"})),
                true,
            ),
            (
                scheduling(json!({"replicaSchedulingType": "Divided",
                                  "replicaDivisionPreference": "Weighted"})),
                false,
            ),
            (
                scheduling(json!({"replicaSchedulingType": "Divided",
                                  "replicaDivisionPreference": "Weighted",
                                  "weightPreference": {"staticWeightList": []}})),
                false,
            ),
            (
                scheduling(json!({"replicaSchedulingType": "Divided",
                                  "replicaDivisionPreference": "Weighted",
                                  "weightPreference": {"dynamicWeight": "AvailableReplicas"}})),
                true,
            ),
        ] {
            let parsed: Placement = serde_json::from_value(placement.clone()).unwrap();
            assert_eq!(is_dynamically_divided(&parsed), expected, "{placement}");
        }
        for (api_version, kind, expected) in [
            ("apps/v1", "Deployment", true),
            ("apps/v1", "StatefulSet", false),
            ("x.io/v1", "Deployment", false),
        ] {
            let resource = ObjectReference {
                api_version: api_version.into(),
                kind: kind.into(),
                ..ObjectReference::default()
            };
            assert_eq!(is_supported(&resource), expected, "{api_version} {kind}");
        }
    }
}
