//! Decides the automatic failover of one binding. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use machinery::time::rfc3339_seconds;
use openapi::karmada::binding::EvictionTask;
use openapi::karmada::failover::GRACEFULLY;
use openapi::karmada::labels::BEFORE_FAILOVER;
use openapi::karmada::{Binding, BindingSpec, TargetCluster};

use crate::failover::graceful::all_healthy;

pub(super) const PRODUCER: &str = "flotilla-failover";
const REASON: &str = "ClusterNotReady";

/// The readiness of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// Not Ready since this time.
    Down(Timestamp),
    /// It has no Ready condition yet.
    Unheard,
    /// The Cluster is terminating or deleted.
    Gone,
}

/// The inputs of a decision besides the binding.
pub(super) struct Sight<'a> {
    pub(super) state: &'a dyn Fn(&str) -> State,
    /// Whether any cluster is Ready. If none is, the fault is more likely in the control
    /// plane.
    pub(super) any_ready: bool,
    /// How long the policy tolerates a cluster that is not Ready; `None`: no automatic
    /// failover.
    pub(super) after: Option<Duration>,
    pub(super) now: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// The eviction started; the scheduler selects another cluster.
    Begun(String),
    /// The cluster is Ready again and gets its workload back.
    CalledOff(String),
    /// The replacements are healthy; the old workload is removed.
    Ended(String),
    /// The cluster was deleted, and the old workload with it.
    Dropped(String),
}

/// Evicted cluster → the targets before its failover.
pub(super) type Before = BTreeMap<String, Vec<TargetCluster>>;

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) spec: BindingSpec,
    pub(super) before: Before,
    pub(super) deeds: Vec<Deed>,
    /// When the next of its clusters has been not Ready for too long.
    pub(super) next: Option<Timestamp>,
}

pub(super) fn is_ours(task: &EvictionTask) -> bool {
    task.producer == PRODUCER
}

/// The targets saved in the annotation; empty if it cannot be read.
pub(super) fn remembered(binding: &Binding) -> Before {
    let text = binding.metadata.annotations.get(BEFORE_FAILOVER);
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

pub(super) fn plan(binding: &Binding, generation: i64, context: &Sight<'_>) -> Plan {
    let mut plan = Plan {
        spec: binding.spec.clone(),
        before: remembered(binding),
        deeds: Vec::new(),
        next: None,
    };
    let ours = binding.spec.graceful_eviction_tasks.iter();
    // The last failover is canceled first.
    for task in ours.rev().filter(|t| is_ours(t)) {
        let cluster = task.from_cluster.clone();
        match (context.state)(&cluster) {
            State::Gone => plan.forget(Deed::Dropped(cluster)),
            State::Ready => plan.call_off(task, context),
            State::Down(_) | State::Unheard if is_replaced(binding, task, generation) => {
                plan.forget(Deed::Ended(cluster));
            }
            State::Down(_) | State::Unheard => {}
        }
    }
    plan.before
        .retain(|cluster, _| plan.spec.is_evicting(cluster));
    if let Some(after) = context
        .after
        .filter(|_| context.any_ready && !is_held(binding))
    {
        plan.begin(after, context);
    }
    plan
}

/// Scheduling is suspended: no other cluster would be selected.
fn is_held(binding: &Binding) -> bool {
    let suspension = binding.spec.suspension.as_ref();
    suspension.is_some_and(|s| s.scheduling == Some(true))
}

/// Whether other clusters have taken over: the workload is healthy on all targets, has
/// its replicas where the status counts them, and the targets together have the wanted
/// replicas; without divided scheduling, at least one target is new.
fn is_replaced(binding: &Binding, task: &EvictionTask, generation: i64) -> bool {
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

impl Plan {
    fn forget(&mut self, action: Deed) {
        let (Deed::Begun(cluster)
        | Deed::CalledOff(cluster)
        | Deed::Ended(cluster)
        | Deed::Dropped(cluster)) = &action;
        let tasks = &mut self.spec.graceful_eviction_tasks;
        tasks.retain(|t| !(is_ours(t) && t.from_cluster == *cluster));
        self.deeds.push(action);
    }

    /// Restores the targets from before the failover, without those that have failed
    /// meanwhile.
    fn call_off(&mut self, task: &EvictionTask, context: &Sight<'_>) {
        let cluster = &task.from_cluster;
        self.forget(Deed::CalledOff(cluster.clone()));
        let before = self.before.remove(cluster).unwrap_or_else(|| {
            let back = TargetCluster {
                name: cluster.clone(),
                replicas: task.replicas.unwrap_or_default(),
                ..TargetCluster::default()
            };
            let others = self.spec.clusters.iter().filter(|t| t.name != *cluster);
            others.cloned().chain([back]).collect()
        });
        let stays = |t: &TargetCluster| {
            !self.spec.is_evicting(&t.name) && (context.state)(&t.name) != State::Gone
        };
        self.spec.clusters = before.into_iter().filter(stays).collect();
    }

    fn begin(&mut self, after: Duration, context: &Sight<'_>) {
        let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
        for target in self.spec.clusters.clone() {
            let State::Down(since) = (context.state)(&target.name) else {
                continue;
            };
            let Ok(end) = since.checked_add(after) else {
                continue;
            };
            if end > context.now {
                self.next = Some(self.next.map_or(end, |next| next.min(end)));
                continue;
            }
            let before = self.spec.clusters.clone();
            let names = before.iter().map(|t| t.name.clone()).collect();
            let evicted = self.spec.evict(EvictionTask {
                from_cluster: target.name.clone(),
                purge_mode: GRACEFULLY.to_owned(),
                reason: REASON.to_owned(),
                message: format!(
                    "Cluster {} has not been Ready since {}.",
                    target.name,
                    rfc3339_seconds(since)
                ),
                producer: PRODUCER.to_owned(),
                suppress_deletion: Some(true),
                creation_timestamp: Some(rfc3339_seconds(context.now)),
                clusters_before_failover: names,
                ..EvictionTask::default()
            });
            if evicted {
                self.before.insert(target.name.clone(), before);
                self.deeds.push(Deed::Begun(target.name));
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
    fn state(cluster: &str) -> State {
        match cluster {
            "down" => State::Down(at(0)),
            "unheard" => State::Unheard,
            "gone" => State::Gone,
            _ => State::Ready,
        }
    }

    fn targets(all: &[(&str, i64)]) -> Value {
        let one = |(name, replicas): &(&str, i64)| match replicas {
            0 => json!({"name": name}),
            n => json!({"name": name, "replicas": n}),
        };
        all.iter().map(one).collect()
    }

    fn binding(clusters: &[(&str, i64)], more: Value) -> Binding {
        let mut spec = json!({"replicas": 4, "clusters": targets(clusters),
            "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let status = json!({"schedulerObservedGeneration": GENERATION});
        serde_json::from_value(json!({"spec": spec, "status": status})).unwrap()
    }

    fn task(cluster: &str, before: &[&str]) -> Value {
        json!({"fromCluster": cluster, "purgeMode": "Gracefully", "replicas": 2, "reason": REASON,
               "producer": PRODUCER, "suppressDeletion": true, "clustersBeforeFailover": before})
    }

    fn decide(binding: &Binding, after: Option<u64>, any_ready: bool, now: i64) -> Plan {
        let context = Sight {
            state: &state,
            any_ready,
            after: after.map(Duration::from_secs),
            now: at(now),
        };
        plan(binding, GENERATION, &context)
    }

    // proves: AFO-asked, AFO-moves, AFO-nowhere
    #[test]
    fn a_cluster_that_stays_not_ready_is_evicted() {
        let placed = [("down", 2), ("a", 2)];
        let check = |more: Value, after, any_ready, now, begun: bool, next: Option<i64>| {
            let plan = decide(&binding(&placed, more.clone()), after, any_ready, now);
            assert_eq!(
                plan.deeds.len(),
                usize::from(begun),
                "{more} {after:?} {now}"
            );
            assert_eq!(plan.next, next.map(at), "{more} {after:?} {now}");
        };
        let none = || json!({});
        check(none(), None, true, 999, false, None);
        check(none(), Some(300), true, 299, false, Some(300));
        check(none(), Some(300), true, 300, true, None);
        check(none(), Some(300), false, 300, false, None);
        check(none(), Some(0), true, 0, true, None);
        let held = json!({"suspension": {"scheduling": true}});
        check(held, Some(300), true, 300, false, None);

        let plan = decide(&binding(&placed, none()), Some(300), true, 310);
        assert_eq!(plan.deeds, [Deed::Begun("down".into())]);
        assert_eq!(json!(plan.spec.clusters), targets(&[("a", 2)]));
        assert_eq!(json!(plan.before), json!({"down": targets(&placed)}));
        assert_eq!(
            json!(plan.spec.graceful_eviction_tasks),
            json!([{
                "fromCluster": "down", "purgeMode": "Gracefully", "replicas": 2, "reason": REASON,
                "message": "Cluster down has not been Ready since 2026-01-01T00:00:00Z.",
                "producer": PRODUCER, "suppressDeletion": true,
                "creationTimestamp": "2026-01-01T00:05:10Z", "clustersBeforeFailover": ["down", "a"],
            }])
        );
        // Clusters that never reported or are being deleted are not failed over.
        let plan = decide(
            &binding(&[("unheard", 1), ("gone", 1)], none()),
            Some(0),
            true,
            9,
        );
        assert_eq!(plan.deeds, []);
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
                binding.spec = serde_json::from_value::<Binding>(
                    json!({"spec": {"gracefulEvictionTasks": [task("down", &["down", "a"])], "clusters": targets(clusters), "placement": more["placement"]}}),
                )
                .unwrap()
                .spec;
            }
            binding.status.scheduler_observed_generation = observed;
            binding.status.aggregated_status = serde_json::from_value(items.clone()).unwrap();
            let plan = decide(&binding, Some(300), true, 999);
            let expected: &[Deed] = match ended {
                true => &[Deed::Ended("down".into())],
                false => &[],
            };
            assert_eq!(plan.deeds, expected, "{clusters:?} {items}");
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
        let whole = json!({"placement": {}});
        let both = json!([well("a", json!(0)), well("b", json!(0))]);
        check(&[("a", 0), ("b", 0)], whole.clone(), both.clone(), 7, true);
        check(&[("a", 0)], whole, both, 7, false);
    }

    // proves: AFO-back
    #[test]
    fn a_cluster_that_is_ready_again_gets_its_workload_back() {
        let check = |clusters: &[(&str, i64)],
                     tasks: Value,
                     before: Value,
                     deeds: &[Deed],
                     expected: &[(&str, i64)]| {
            let mut binding = binding(clusters, json!({"gracefulEvictionTasks": tasks}));
            binding
                .metadata
                .annotations
                .insert(BEFORE_FAILOVER.into(), before.to_string());
            let plan = decide(&binding, None, true, 999);
            assert_eq!(plan.deeds, deeds, "{tasks} {before}");
            assert_eq!(
                json!(plan.spec.clusters),
                targets(expected),
                "{tasks} {before}"
            );
            let left = plan.before.keys().all(|c| plan.spec.is_evicting(c));
            assert!(left, "{:?}", plan.before);
        };
        let off = |c: &str| Deed::CalledOff(c.into());
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
            let first = decide(&binding, Some(300), true, 999);
            assert_eq!(first.deeds.is_empty(), round > 0, "{:?}", first.deeds);
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
        let plan = decide(&binding, Some(0), true, 999);
        assert_eq!(plan.deeds, [Deed::Dropped("gone".into())]);
        let left = plan.spec.graceful_eviction_tasks.iter();
        let left: Vec<&str> = left.map(|t| &*t.from_cluster).collect();
        assert_eq!(left, ["back", "unheard"]);
    }
}
