//! Event handlers that enqueue bindings (Karmada's `pkg/scheduler/event_handler.go`).

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use client::{InformerEvent, TaskGroup};
use flotilla_runtime::{PriorityQueueLane, ReconcileAction, run_workers};
use karmada_api::well_known_keys::{OBSERVED_CAPACITY, REPLICA_PREFERENCE};
use karmada_api::{KarmadaFeature, ResourceBinding, well_known_keys};
use machinery::Object;

use super::cluster_update_queue::{affinity_match_may_change, api_enablements_changed};
use super::{Scheduler, SchedulingKey};
use crate::core::{ApiKindHash, ClusterInfo};
use crate::metrics::{self, QueueIncomingEvent};
use crate::reconcile::skip_reason;

/// Bindings visited before the task yields to others.
const YIELD_EVERY_BINDINGS: usize = 256;

/// Whether one write changed both the number of replicas and the target clusters.
fn is_scaled_in_place(old: &Object, new: &Object) -> bool {
    let (Ok(old), Ok(new)) = (
        old.decode::<ResourceBinding>(),
        new.decode::<ResourceBinding>(),
    ) else {
        return false;
    };
    old.spec.replicas != new.spec.replicas && old.spec.clusters != new.spec.clusters
}

/// Whether a binding records another ReplicaSchedulingPreference or other capacities than before.
fn replica_preference_changed(old: &Object, new: &Object) -> bool {
    let (Ok(old), Ok(new)) = (
        old.decode::<ResourceBinding>(),
        new.decode::<ResourceBinding>(),
    ) else {
        return false;
    };
    let (old, new) = (&old.metadata.annotations, &new.metadata.annotations);
    [REPLICA_PREFERENCE, OBSERVED_CAPACITY]
        .iter()
        .any(|key| old.get(*key) != new.get(*key))
}

impl Scheduler {
    pub(super) fn add_event_handlers(self: &Arc<Self>) {
        for (informer, cluster_scoped) in [(&self.bindings, false), (&self.cluster_bindings, true)]
        {
            let scheduler = Arc::downgrade(self);
            informer.add_event_handler(move |change| {
                if let Some(scheduler) = scheduler.upgrade() {
                    scheduler.on_binding_event(cluster_scoped, change);
                }
            });
        }
        let scheduler = Arc::downgrade(self);
        self.options
            .clusters
            .informer()
            .add_event_handler(move |change| {
                let (Some(scheduler), Some(new)) = (scheduler.upgrade(), change.new) else {
                    return;
                };
                // At the start all bindings are enqueued anyway.
                if !change.in_initial_list || scheduler.workers_started.load(Ordering::Acquire) {
                    scheduler.cluster_updates.add(change.old, new);
                }
            });
    }

    /// Enqueues the bindings that cluster changes affect. An affinity may have any form, so
    /// every binding is checked: by a worker, not by the event handler.
    pub(super) fn run_cluster_update_worker(self: &Arc<Self>, tasks: &TaskGroup) {
        let scheduler = Arc::clone(self);
        let queue = self.cluster_updates.queue.clone();
        run_workers(tasks, "cluster-changes", &queue, 1, move |cluster| {
            let scheduler = Arc::clone(&scheduler);
            async move {
                for (old, new) in scheduler.cluster_updates.take(&cluster) {
                    scheduler
                        .enqueue_affected_bindings(old.as_ref(), &new)
                        .await;
                }
                Ok::<_, Infallible>(ReconcileAction::Done)
            }
        });
    }

    /// Whether this scheduler schedules a binding.
    fn is_responsible_for(&self, object: &Object) -> bool {
        let head = object.meta();
        let labeled = [
            well_known_keys::POLICY_ID,
            well_known_keys::CLUSTER_POLICY_ID,
            well_known_keys::BINDING_MANAGED_BY,
        ]
        .iter()
        .any(|l| head.label(l).is_some_and(|v| !v.is_empty()));
        labeled
            && object
                .decode::<ResourceBinding>()
                .is_ok_and(|binding| skip_reason(&binding, &self.options.name).is_none())
    }

    fn priority(&self, object: &Object) -> i32 {
        if !self
            .options
            .gates
            .enabled(KarmadaFeature::PriorityBasedScheduling)
        {
            return 0;
        }
        let binding = object.decode::<ResourceBinding>().ok();
        let priority = binding.and_then(|b| b.spec.schedule_priority.as_ref().map(|p| p.priority));
        i32::try_from(priority.unwrap_or(0)).unwrap_or(0)
    }

    fn enqueue(
        &self,
        object: &Object,
        cluster_scoped: bool,
        lane: PriorityQueueLane,
        event: QueueIncomingEvent,
    ) {
        metrics::record_incoming(event);
        let name = object.meta().key();
        let key = SchedulingKey {
            cluster_scoped,
            name,
        };
        self.queue
            .add_without_backoff(key, lane, self.priority(object));
    }

    fn on_binding_event(&self, cluster_scoped: bool, change: &InformerEvent<'_>) {
        if !cluster_scoped {
            self.update_assume_cache(change);
        }
        let Some(new) = change.new else {
            self.options.decisions.forget(&change.key());
            let key = SchedulingKey {
                cluster_scoped,
                name: change.key(),
            };
            self.cluster_changed.lock().remove(&key);
            self.placed_by_detector.lock().remove(&key);
            return;
        };
        if !self.is_responsible_for(new) {
            return;
        }
        if change.old.is_some_and(|old| is_scaled_in_place(old, new)) {
            self.placed_by_detector.lock().insert(SchedulingKey {
                cluster_scoped,
                name: change.key(),
            });
        }
        // A binding of another scheduler before counts as new, whatever its generation.
        let same = |old: &Object| {
            old.meta().generation == new.meta().generation
                && self.is_responsible_for(old)
                && !replica_preference_changed(old, new)
        };
        if !change.old.is_some_and(same) {
            let event = match change.old {
                Some(_) => QueueIncomingEvent::Update,
                None => QueueIncomingEvent::Add,
            };
            self.enqueue(new, cluster_scoped, PriorityQueueLane::of(change), event);
        }
    }

    fn update_assume_cache(&self, change: &InformerEvent<'_>) {
        if !self.depends_on_other_bindings() {
            return;
        }
        let key = change.key();
        let Some(new) = change.new else {
            return self.assume_cache.lock().forget(&key);
        };
        let (Some(Ok(old)), Ok(view)) = (
            change.old.map(Object::decode::<ResourceBinding>),
            new.decode::<ResourceBinding>(),
        ) else {
            return;
        };
        let mut book = self.assume_cache.lock();
        book.observe_update(&key, &old, &view, new);
    }

    async fn enqueue_affected_bindings(&self, old: Option<&Object>, new: &Object) {
        let (moved, serves_other) = (
            affinity_match_may_change(old, new),
            api_enablements_changed(old, new),
        );
        let before = old.and_then(|c| ClusterInfo::new(c.clone()));
        let after = ClusterInfo::new(new.clone());
        let newly_served = |binding: &ResourceBinding| {
            let of = &binding.spec.resource;
            let kind = ApiKindHash::new(&of.api_version, &of.kind);
            let serves = |m: &Option<ClusterInfo>| m.as_ref().is_some_and(|m| m.serves(kind));
            serves_other && serves(&after) && !serves(&before)
        };
        let versions: Vec<&ClusterInfo> = before.iter().chain(&after).collect();
        for (informer, cluster_scoped) in [(&self.bindings, false), (&self.cluster_bindings, true)]
        {
            for (at, object) in informer.list().into_iter().enumerate() {
                if at % YIELD_EVERY_BINDINGS == 0 {
                    tokio::task::yield_now().await;
                }
                if !self.is_responsible_for(&object) {
                    continue;
                }
                let Ok(binding) = object.decode::<ResourceBinding>() else {
                    continue;
                };
                let generation = object.meta().generation;
                let mut any = versions.iter();
                let affected = moved && any.any(|m| is_affected_by(&binding, generation, m));
                let waiting = serves_other && !super::result_writer::is_scheduled(&binding);
                if affected {
                    self.cluster_changed.lock().insert(SchedulingKey {
                        cluster_scoped,
                        name: object.meta().key(),
                    });
                }
                if affected || waiting || newly_served(&binding) {
                    self.enqueue(
                        &object,
                        cluster_scoped,
                        PriorityQueueLane::Low,
                        QueueIncomingEvent::Cluster,
                    );
                }
            }
        }
    }
}

/// Whether a change of a cluster affects a binding.
fn is_affected_by(binding: &ResourceBinding, generation: i64, member: &ClusterInfo) -> bool {
    let Some(placement) = &binding.spec.placement else {
        return false;
    };
    let affinity = if placement.cluster_affinities.is_empty() {
        placement.cluster_affinity.as_ref()
    } else {
        if binding.status.scheduler_observed_generation != generation {
            return true;
        }
        let observed = &binding.status.observed_affinity;
        match placement
            .cluster_affinities
            .iter()
            .find(|t| t.affinity_name == *observed)
        {
            Some(term) => Some(&term.affinity),
            None => return false,
        }
    };
    affinity.is_none_or(|a| a.matcher().matches(&member.attributes()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::core::tests::cluster;
    use crate::core::tests::decision_table::placement;

    // proves: RSP-trigger
    #[test]
    fn a_changed_preference_or_capacity_is_noticed_without_a_new_generation() {
        let binding = |annotations: serde_json::Value| {
            let binding = json!({"metadata": {"name": "b", "annotations": annotations}});
            Object::from_value(&binding).unwrap()
        };
        let plain = binding(json!({"other": "1"}));
        for (annotations, expected) in [
            (json!({"other": "2"}), false),
            (json!({REPLICA_PREFERENCE: "{}"}), true),
            (json!({OBSERVED_CAPACITY: "{}"}), true),
        ] {
            let changed = binding(annotations.clone());
            assert_eq!(
                replica_preference_changed(&plain, &changed),
                expected,
                "{annotations}"
            );
            assert_eq!(
                replica_preference_changed(&changed, &plain),
                expected,
                "{annotations}"
            );
        }
    }

    // proves: SCH-cluster-affects
    #[test]
    fn a_cluster_affects_bindings_whose_affinity_or_observed_term_matches() {
        let member = ClusterInfo::new(cluster("a", 10, json!({}))).unwrap();
        for (words, observed, generation, expected) in [
            ("", "", 1, true),
            ("in:a", "", 1, true),
            ("in:b", "", 1, false),
            ("in:b", "", 2, false),
            ("term:x=a term:y=b", "x", 1, true),
            ("term:x=a term:y=b", "y", 1, false),
            ("term:x=b term:y=a", "y", 1, true),
            ("term:x=a", "gone", 1, false),
            ("term:x=a", "", 1, false),
            ("term:x=b", "x", 2, true),
        ] {
            let mut binding = ResourceBinding::default();
            binding.spec.placement = Some(placement(words));
            binding.status.observed_affinity = observed.into();
            binding.status.scheduler_observed_generation = 1;
            let affected = is_affected_by(&binding, generation, &member);
            assert_eq!(affected, expected, "{words} seen {observed:?}");
        }
        assert!(
            !is_affected_by(&ResourceBinding::default(), 1, &member),
            "no placement"
        );
    }
}
