//! Decides the automatic failover of one binding. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karmada_api::binding::GracefulEvictionTask;
use karmada_api::failover::PURGE_MODE_GRACEFULLY;
use karmada_api::well_known_keys::BEFORE_FAILOVER;
use karmada_api::{ResourceBinding, ResourceBindingSpec, TargetCluster};
use machinery::time::rfc3339_seconds;

use crate::failover::graceful::all_healthy;

pub(super) const EVICTION_PRODUCER: &str = "flotilla-failover";
const EVICTION_REASON: &str = "ClusterNotReady";

/// The readiness of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterReadiness {
    Ready,
    /// Not Ready since this time.
    NotReady(Timestamp),
    /// It has no Ready condition yet.
    NeverReported,
    /// The Cluster is terminating or deleted.
    Deleted,
}

/// The inputs of a decision besides the binding.
pub(super) struct AutoFailoverInputs<'a> {
    pub(super) readiness: &'a dyn Fn(&str) -> ClusterReadiness,
    /// Whether any cluster is Ready. If none is, the fault is more likely in the control
    /// plane.
    pub(super) any_ready: bool,
    /// How long the policy tolerates a cluster that is not Ready; `None`: no automatic
    /// failover.
    pub(super) delay: Option<Duration>,
    pub(super) now: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FailoverTransition {
    /// The eviction started; the scheduler selects another cluster.
    Started(String),
    /// The cluster is Ready again and gets its workload back.
    Canceled(String),
    /// The replacements are healthy; the old workload is removed.
    Completed(String),
    /// The cluster was deleted, and the old workload with it.
    Abandoned(String),
}

/// Evicted cluster → the targets before its failover.
pub(super) type TargetsBeforeFailoverByCluster = BTreeMap<String, Vec<TargetCluster>>;

#[derive(Clone, Debug)]
pub(super) struct BindingFailoverDecision {
    pub(super) spec: ResourceBindingSpec,
    pub(super) targets_before: TargetsBeforeFailoverByCluster,
    pub(super) transitions: Vec<FailoverTransition>,
    /// When the next of its clusters has been not Ready for too long.
    pub(super) next_deadline: Option<Timestamp>,
}

pub(super) fn is_own_task(task: &GracefulEvictionTask) -> bool {
    task.producer == EVICTION_PRODUCER
}

/// The targets saved in the annotation; empty if it cannot be read.
pub(super) fn saved_targets(binding: &ResourceBinding) -> TargetsBeforeFailoverByCluster {
    let text = binding.metadata.annotations.get(BEFORE_FAILOVER);
    text.and_then(|text| machinery::json::from_str(text).ok())
        .unwrap_or_default()
}

pub(super) fn decide_failover(
    binding: &ResourceBinding,
    generation: i64,
    context: &AutoFailoverInputs<'_>,
) -> BindingFailoverDecision {
    let mut plan = BindingFailoverDecision {
        spec: binding.spec.clone(),
        targets_before: saved_targets(binding),
        transitions: Vec::new(),
        next_deadline: None,
    };
    let tasks = binding.spec.graceful_eviction_tasks.iter();
    // The last failover is canceled first.
    for task in tasks.rev().filter(|t| is_own_task(t)) {
        let cluster = task.from_cluster.clone();
        match (context.readiness)(&cluster) {
            ClusterReadiness::Deleted => plan.remove_task(FailoverTransition::Abandoned(cluster)),
            ClusterReadiness::Ready => plan.cancel_failover(task, context),
            ClusterReadiness::NotReady(_) | ClusterReadiness::NeverReported
                if is_replaced(binding, task, generation) =>
            {
                plan.remove_task(FailoverTransition::Completed(cluster));
            }
            ClusterReadiness::NotReady(_) | ClusterReadiness::NeverReported => {}
        }
    }
    plan.targets_before
        .retain(|cluster, _| plan.spec.is_evicting(cluster));
    if let Some(after) = context
        .delay
        .filter(|_| context.any_ready && !is_scheduling_suspended(binding))
    {
        plan.start_failovers(after, context);
    }
    plan
}

/// Scheduling is suspended: no other cluster would be selected.
fn is_scheduling_suspended(binding: &ResourceBinding) -> bool {
    let suspension = binding.spec.suspension.as_ref();
    suspension.is_some_and(|s| s.scheduling == Some(true))
}

/// Whether other clusters have taken over: the workload is healthy on all targets, has
/// its replicas where the status counts them, and the targets together have the wanted
/// replicas; without divided scheduling, at least one target is new.
fn is_replaced(binding: &ResourceBinding, task: &GracefulEvictionTask, generation: i64) -> bool {
    let spec = &binding.spec;
    let observed = binding.status.scheduler_observed_generation == generation;
    if !observed || spec.clusters.is_empty() || !all_healthy(binding) {
        return false;
    }
    let is_there = |target: &TargetCluster| {
        let statuses = &binding.status.aggregated_status;
        let item = statuses.iter().find(|i| i.cluster_name == target.name);
        let replicas_in_status = item.and_then(|i| i.status.as_ref()?.get("replicas")?.as_i64());
        replicas_in_status.is_none_or(|replicas| replicas >= target.replicas)
    };
    let placement = spec.placement.as_ref();
    let scheduling = placement.and_then(|p| p.replica_scheduling.as_ref());
    let divided = scheduling.is_some_and(|s| s.replica_scheduling_type == "Divided");
    let replaced = if spec.is_workload() && divided && spec.components.is_empty() {
        spec.clusters.iter().map(|t| t.replicas).sum::<i64>() >= spec.replicas
    } else {
        let before = &task.clusters_before_failover;
        spec.clusters.iter().any(|t| !before.contains(&t.name))
    };
    replaced && spec.clusters.iter().all(is_there)
}

impl BindingFailoverDecision {
    fn remove_task(&mut self, action: FailoverTransition) {
        let (FailoverTransition::Started(cluster)
        | FailoverTransition::Canceled(cluster)
        | FailoverTransition::Completed(cluster)
        | FailoverTransition::Abandoned(cluster)) = &action;
        let tasks = &mut self.spec.graceful_eviction_tasks;
        tasks.retain(|t| !(is_own_task(t) && t.from_cluster == *cluster));
        self.transitions.push(action);
    }

    /// Restores the targets from before the failover, without those that have failed
    /// meanwhile.
    fn cancel_failover(&mut self, task: &GracefulEvictionTask, context: &AutoFailoverInputs<'_>) {
        let cluster = &task.from_cluster;
        self.remove_task(FailoverTransition::Canceled(cluster.clone()));
        let before = self.targets_before.remove(cluster).unwrap_or_else(|| {
            let back = TargetCluster {
                name: cluster.clone(),
                replicas: task.replicas.unwrap_or_default(),
                ..TargetCluster::default()
            };
            let others = self.spec.clusters.iter().filter(|t| t.name != *cluster);
            others.cloned().chain([back]).collect()
        });
        let stays = |t: &TargetCluster| {
            !self.spec.is_evicting(&t.name)
                && (context.readiness)(&t.name) != ClusterReadiness::Deleted
        };
        self.spec.clusters = before.into_iter().filter(stays).collect();
    }

    fn start_failovers(&mut self, after: Duration, context: &AutoFailoverInputs<'_>) {
        let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
        for target in self.spec.clusters.clone() {
            let ClusterReadiness::NotReady(since) = (context.readiness)(&target.name) else {
                continue;
            };
            let Ok(end) = since.checked_add(after) else {
                continue;
            };
            if end > context.now {
                self.next_deadline = Some(self.next_deadline.map_or(end, |next| next.min(end)));
                continue;
            }
            let before = self.spec.clusters.clone();
            let names = before.iter().map(|t| t.name.clone()).collect();
            let evicted = self.spec.evict(GracefulEvictionTask {
                from_cluster: target.name.clone(),
                purge_mode: PURGE_MODE_GRACEFULLY.to_owned(),
                reason: EVICTION_REASON.to_owned(),
                message: format!(
                    "Cluster {} has not been Ready since {}.",
                    target.name,
                    rfc3339_seconds(since)
                ),
                producer: EVICTION_PRODUCER.to_owned(),
                suppress_deletion: Some(true),
                creation_timestamp: Some(rfc3339_seconds(context.now)),
                clusters_before_failover: names,
                ..GracefulEvictionTask::default()
            });
            if evicted {
                self.targets_before.insert(target.name.clone(), before);
                self.transitions
                    .push(FailoverTransition::Started(target.name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const GENERATION: i64 = 7;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).unwrap()
    }

    /// Any other cluster is Ready.
    fn readiness(cluster: &str) -> ClusterReadiness {
        match cluster {
            "down" => ClusterReadiness::NotReady(at(0)),
            "unheard" => ClusterReadiness::NeverReported,
            "gone" => ClusterReadiness::Deleted,
            _ => ClusterReadiness::Ready,
        }
    }

    fn targets(all: &[(&str, i64)]) -> Value {
        let one = |(name, replicas): &(&str, i64)| match replicas {
            0 => json!({"name": name}),
            n => json!({"name": name, "replicas": n}),
        };
        all.iter().map(one).collect()
    }

    fn binding(clusters: &[(&str, i64)], more: Value) -> ResourceBinding {
        let mut spec = json!({"replicas": 4, "clusters": targets(clusters),
            "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let status = json!({"schedulerObservedGeneration": GENERATION});
        serde_json::from_value(json!({"spec": spec, "status": status})).unwrap()
    }

    fn task(cluster: &str, before: &[&str]) -> Value {
        json!({"fromCluster": cluster, "purgeMode": "Gracefully", "replicas": 2, "reason": EVICTION_REASON,
               "producer": EVICTION_PRODUCER, "suppressDeletion": true, "clustersBeforeFailover": before})
    }

    fn decide_with(
        binding: &ResourceBinding,
        after: Option<u64>,
        any_ready: bool,
        now: i64,
    ) -> BindingFailoverDecision {
        let context = AutoFailoverInputs {
            readiness: &readiness,
            any_ready,
            delay: after.map(Duration::from_secs),
            now: at(now),
        };
        decide_failover(binding, GENERATION, &context)
    }

    // proves: AFO-asked, AFO-moves, AFO-nowhere
    #[test]
    fn a_cluster_that_stays_not_ready_is_evicted() {
        let placed = [("down", 2), ("a", 2)];
        let check = |more: Value, after, any_ready, now, begun: bool, next: Option<i64>| {
            let plan = decide_with(&binding(&placed, more.clone()), after, any_ready, now);
            assert_eq!(
                plan.transitions.len(),
                usize::from(begun),
                "{more} {after:?} {now}"
            );
            assert_eq!(plan.next_deadline, next.map(at), "{more} {after:?} {now}");
        };
        let none = || json!({});
        check(none(), None, true, 999, false, None);
        check(none(), Some(300), true, 299, false, Some(300));
        check(none(), Some(300), true, 300, true, None);
        check(none(), Some(300), false, 300, false, None);
        check(none(), Some(0), true, 0, true, None);
        let suspended = json!({"suspension": {"scheduling": true}});
        check(suspended, Some(300), true, 300, false, None);

        let plan = decide_with(&binding(&placed, none()), Some(300), true, 310);
        assert_eq!(
            plan.transitions,
            [FailoverTransition::Started("down".into())]
        );
        assert_eq!(json!(plan.spec.clusters), targets(&[("a", 2)]));
        assert_eq!(
            json!(plan.targets_before),
            json!({"down": targets(&placed)})
        );
        assert_eq!(
            json!(plan.spec.graceful_eviction_tasks),
            json!([{
                "fromCluster": "down", "purgeMode": "Gracefully", "replicas": 2, "reason": EVICTION_REASON,
                "message": "Cluster down has not been Ready since 2026-01-01T00:00:00Z.",
                "producer": EVICTION_PRODUCER, "suppressDeletion": true,
                "creationTimestamp": "2026-01-01T00:05:10Z", "clustersBeforeFailover": ["down", "a"],
            }])
        );
        // Clusters that never reported or are being deleted are not failed over.
        let plan = decide_with(
            &binding(&[("unheard", 1), ("gone", 1)], none()),
            Some(0),
            true,
            9,
        );
        assert_eq!(plan.transitions, []);
    }

    // proves: AFO-old-copy
    #[test]
    fn the_old_workload_is_removed_when_it_is_replaced() {
        let well = |cluster: &str, replicas: Value| json!({"clusterName": cluster, "health": "Healthy", "status": {"replicas": replicas}});
        let check = |clusters: &[(&str, i64)], more: Value, items: Value, observed, ended: bool| {
            let mut binding = binding(
                clusters,
                json!({"gracefulEvictionTasks": [task("down", &["down", "a"])]}),
            );
            if more != json!({}) {
                let more = more.as_object().unwrap().clone();
                binding.spec = serde_json::from_value::<ResourceBinding>(
                    json!({"spec": {"gracefulEvictionTasks": [task("down", &["down", "a"])], "clusters": targets(clusters), "placement": more["placement"]}}),
                )
                .unwrap()
                .spec;
            }
            binding.status.scheduler_observed_generation = observed;
            binding.status.aggregated_status = serde_json::from_value(items.clone()).unwrap();
            let plan = decide_with(&binding, Some(300), true, 999);
            let expected: &[FailoverTransition] = match ended {
                true => &[FailoverTransition::Completed("down".into())],
                false => &[],
            };
            assert_eq!(plan.transitions, expected, "{clusters:?} {items}");
            assert_eq!(plan.spec.is_evicting("down"), !ended);
            assert_eq!(json!(plan.spec.clusters), targets(clusters));
        };
        let none = || json!({});
        check(&[("a", 4)], none(), json!([well("a", json!(4))]), 7, true);
        // Not replaced: too few replicas, unhealthy, not observed by the scheduler, or
        // too few replicas assigned.
        check(&[("a", 4)], none(), json!([well("a", json!(2))]), 7, false);
        let sick = json!([{"clusterName": "a", "health": "Unhealthy", "status": {"replicas": 4}}]);
        check(&[("a", 4)], none(), sick, 7, false);
        check(&[("a", 4)], none(), json!([]), 7, false);
        check(&[("a", 4)], none(), json!([well("a", json!(4))]), 6, false);
        check(&[("a", 2)], none(), json!([well("a", json!(4))]), 7, false);
        check(&[], none(), json!([]), 7, false);
        // Kinds without replicas only have a health.
        check(
            &[("a", 4)],
            none(),
            json!([{"clusterName": "a", "health": "Healthy"}]),
            7,
            true,
        );
        // Without divided scheduling, a new cluster must take over.
        let undivided = json!({"placement": {}});
        let both = json!([well("a", json!(0)), well("b", json!(0))]);
        check(
            &[("a", 0), ("b", 0)],
            undivided.clone(),
            both.clone(),
            7,
            true,
        );
        check(&[("a", 0)], undivided, both, 7, false);
    }

    // proves: AFO-back
    #[test]
    fn a_cluster_that_is_ready_again_gets_its_workload_back() {
        let check = |clusters: &[(&str, i64)],
                     tasks: Value,
                     before: Value,
                     deeds: &[FailoverTransition],
                     expected: &[(&str, i64)]| {
            let mut binding = binding(clusters, json!({"gracefulEvictionTasks": tasks}));
            binding
                .metadata
                .annotations
                .insert(BEFORE_FAILOVER.into(), before.to_string());
            let plan = decide_with(&binding, None, true, 999);
            assert_eq!(plan.transitions, deeds, "{tasks} {before}");
            assert_eq!(
                json!(plan.spec.clusters),
                targets(expected),
                "{tasks} {before}"
            );
            let left = plan.targets_before.keys().all(|c| plan.spec.is_evicting(c));
            assert!(left, "{:?}", plan.targets_before);
        };
        let off = |c: &str| FailoverTransition::Canceled(c.into());
        let was = targets(&[("back", 2), ("a", 2)]);
        check(
            &[("a", 4)],
            json!([task("back", &[])]),
            json!({"back": was}),
            &[off("back")],
            &[("back", 2), ("a", 2)],
        );
        // Without saved targets the cluster is added; the scheduler then removes the
        // surplus.
        check(
            &[("a", 4)],
            json!([task("back", &[])]),
            json!({}),
            &[off("back")],
            &[("a", 4), ("back", 2)],
        );
        // Targets that have failed or were deleted meanwhile are not restored.
        let was = targets(&[("back", 1), ("down", 1), ("gone", 1), ("a", 1)]);
        check(
            &[("b", 4)],
            json!([task("back", &[]), task("down", &[])]),
            json!({"back": was}),
            &[off("back")],
            &[("back", 1), ("a", 1)],
        );
        // The last failover is canceled first.
        check(
            &[("c", 4)],
            json!([task("first", &[]), task("second", &[])]),
            json!({"first": targets(&[("first", 2), ("second", 2)]), "second": targets(&[("second", 4)])}),
            &[off("second"), off("first")],
            &[("first", 2), ("second", 2)],
        );
    }

    #[test]
    fn decisions_are_idempotent() {
        let was = targets(&[("back", 2), ("down", 2)]);
        let annotation = json!({"back": was}).to_string();
        let more = json!({"gracefulEvictionTasks": [task("back", &[]), task("gone", &[])]});
        let mut binding = binding(&[("a", 4)], more);
        for round in 0..3 {
            let annotations = &mut binding.metadata.annotations;
            annotations.insert(BEFORE_FAILOVER.into(), annotation.clone());
            let first = decide_with(&binding, Some(300), true, 999);
            assert_eq!(
                first.transitions.is_empty(),
                round > 0,
                "{:?}",
                first.transitions
            );
            if round > 0 {
                assert_eq!(first.spec.clusters, binding.spec.clusters);
            }
            binding.spec = first.spec;
        }
        assert_eq!(json!(binding.spec.clusters), targets(&[("back", 2)]));
        assert!(binding.spec.is_evicting("down"));
    }

    // proves: AFO-gone
    #[test]
    fn tasks_of_deleted_clusters_are_removed_and_others_stay() {
        let mut foreign = task("back", &[]);
        foreign["producer"] = "TaintManager".into();
        let tasks = json!([foreign, task("gone", &[]), task("unheard", &[])]);
        let binding = binding(&[("a", 4)], json!({"gracefulEvictionTasks": tasks}));
        let plan = decide_with(&binding, Some(0), true, 999);
        assert_eq!(
            plan.transitions,
            [FailoverTransition::Abandoned("gone".into())]
        );
        let left = plan.spec.graceful_eviction_tasks.iter();
        let left: Vec<&str> = left.map(|t| &*t.from_cluster).collect();
        assert_eq!(left, ["back", "unheard"]);
    }
}
