//! Event handlers that enqueue bindings (Karmada's `pkg/scheduler/event_handler.go`).

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use machinery::Object;
use openapi::karmada::{Binding, Cluster, Gate, labels};
use parking_lot::Mutex;
use flotilla_runtime::{Action, Change, Queue, Tasks, run_workers};

use super::{Key, Scheduler};
use crate::core::{ApiKey, Member};
use crate::decide::left_alone;
use crate::figures::{self, Incoming};

/// Bindings visited before the task yields to others.
const CHUNK: usize = 256;

/// The affinity groups of a binding, as keys of an index.
pub(super) fn groups(object: &Object) -> Vec<String> {
    let Ok(binding) = object.view::<Binding>() else {
        return Vec::new();
    };
    let Some(groups) = &binding.spec.workload_affinity_groups else {
        return Vec::new();
    };
    let namespace = object.namespace();
    let with = ("together", &groups.affinity_group);
    let against = ("apart", &groups.anti_affinity_group);
    [with, against]
        .into_iter()
        .filter(|(_, group)| !group.is_empty())
        .map(|(how, group)| format!("{namespace} {how} {group}"))
        .collect()
}

/// Whether one write changed both the number of replicas and the target clusters.
fn is_scaled_in_place(old: &Object, new: &Object) -> bool {
    let (Ok(old), Ok(new)) = (old.view::<Binding>(), new.view::<Binding>()) else {
        return false;
    };
    old.spec.replicas != new.spec.replicas && old.spec.clusters != new.spec.clusters
}

impl Scheduler {
    pub(super) fn listen(self: &Arc<Self>) {
        for (informer, cluster_scoped) in [(&self.bindings, false), (&self.cluster_bindings, true)]
        {
            let it = Arc::downgrade(self);
            informer.on_change(move |change| {
                if let Some(it) = it.upgrade() {
                    it.binding_changed(cluster_scoped, change);
                }
            });
        }
        let it = Arc::downgrade(self);
        self.clusters.informer().on_change(move |change| {
            let (Some(it), Some(new)) = (it.upgrade(), change.new) else {
                return;
            };
            // At the start all bindings are enqueued anyway.
            if !change.initial || it.is_working.load(Ordering::Acquire) {
                it.cluster_changes.add(change.old, new);
            }
        });
    }

    /// Enqueues the bindings that cluster changes affect. An affinity may have any form, so
    /// every binding is checked: by a worker, not by the event handler.
    pub(super) fn follow_cluster_changes(self: &Arc<Self>, tasks: &Tasks) {
        let it = Arc::clone(self);
        let queue = self.cluster_changes.queue.clone();
        run_workers(tasks, "cluster-changes", &queue, 1, move |cluster| {
            let it = Arc::clone(&it);
            async move {
                for (old, new) in it.cluster_changes.take(&cluster) {
                    it.cluster_changed(old.as_ref(), &new).await;
                }
                Ok::<_, Infallible>(Action::Done)
            }
        });
    }

    /// Whether this scheduler schedules a binding.
    fn is_ours(&self, object: &Object) -> bool {
        let head = object.head();
        let labeled = [
            labels::POLICY_ID,
            labels::CLUSTER_POLICY_ID,
            labels::BINDING_MANAGED_BY,
        ]
        .iter()
        .any(|l| head.label(l).is_some_and(|v| !v.is_empty()));
        labeled
            && object
                .view::<Binding>()
                .is_ok_and(|binding| left_alone(&binding, &self.options.name).is_none())
    }

    fn priority(&self, object: &Object) -> i32 {
        if !self.options.gates.is_on(Gate::PriorityBasedScheduling) {
            return 0;
        }
        let binding = object.view::<Binding>().ok();
        let priority = binding.and_then(|b| b.spec.schedule_priority.as_ref().map(|p| p.priority));
        i32::try_from(priority.unwrap_or(0)).unwrap_or(0)
    }

    fn enqueue(&self, object: &Object, cluster_scoped: bool, low: bool, why: Incoming) {
        figures::came(why);
        let name = object.head().key();
        let key = Key {
            cluster_scoped,
            name,
        };
        self.queue.add_anew(key, low, self.priority(object));
    }

    fn binding_changed(&self, cluster_scoped: bool, change: &Change<'_>) {
        if !cluster_scoped {
            self.note_in_book(change);
        }
        let Some(new) = change.new else {
            self.options.decisions.forget(&change.key());
            let key = Key {
                cluster_scoped,
                name: change.key(),
            };
            self.stirred.lock().remove(&key);
            self.placed_by_detector.lock().remove(&key);
            return;
        };
        if !self.is_ours(new) {
            return;
        }
        if change.old.is_some_and(|old| is_scaled_in_place(old, new)) {
            self.placed_by_detector.lock().insert(Key {
                cluster_scoped,
                name: change.key(),
            });
        }
        // A binding of another scheduler before counts as new, whatever its generation.
        let same =
            |old: &Object| old.head().generation == new.head().generation && self.is_ours(old);
        if !change.old.is_some_and(same) {
            let why = match change.old {
                Some(_) => Incoming::Update,
                None => Incoming::Add,
            };
            self.enqueue(new, cluster_scoped, change.initial, why);
        }
    }

    fn note_in_book(&self, change: &Change<'_>) {
        if !self.is_bound() {
            return;
        }
        let key = change.key();
        let Some(new) = change.new else {
            return self.book.lock().gone(&key);
        };
        let (Some(Ok(old)), Ok(view)) = (
            change.old.map(Object::view::<Binding>),
            new.view::<Binding>(),
        ) else {
            return;
        };
        let mut book = self.book.lock();
        book.changed(&key, &old, &view, new.revision());
    }

    async fn cluster_changed(&self, old: Option<&Object>, new: &Object) {
        let (moved, serves_other) = (is_moved(old, new), serves_other(old, new));
        let before = old.and_then(|c| Member::new(c.clone()));
        let after = Member::new(new.clone());
        let newly_served = |binding: &Binding| {
            let of = &binding.spec.resource;
            let kind = ApiKey::new(&of.api_version, &of.kind);
            let serves = |m: &Option<Member>| m.as_ref().is_some_and(|m| m.serves(kind));
            serves_other && serves(&after) && !serves(&before)
        };
        let versions: Vec<&Member> = before.iter().chain(&after).collect();
        for (informer, cluster_scoped) in [(&self.bindings, false), (&self.cluster_bindings, true)]
        {
            for (at, object) in informer.list().into_iter().enumerate() {
                if at % CHUNK == 0 {
                    tokio::task::yield_now().await;
                }
                if !self.is_ours(&object) {
                    continue;
                }
                let Ok(binding) = object.view::<Binding>() else {
                    continue;
                };
                let generation = object.head().generation;
                let mut any = versions.iter();
                let affected = moved && any.any(|m| concerns(&binding, generation, m));
                let waiting = serves_other && !super::result::is_scheduled(&binding);
                if affected {
                    self.stirred.lock().insert(Key {
                        cluster_scoped,
                        name: object.head().key(),
                    });
                }
                if affected || waiting || newly_served(&binding) {
                    self.enqueue(&object, cluster_scoped, true, Incoming::Cluster);
                }
            }
        }
    }
}

/// Whether affinities may match a cluster that they did not match before, or the reverse.
fn is_moved(old: Option<&Object>, new: &Object) -> bool {
    old.is_some_and(|old| {
        let (before, after) = (old.head(), new.head());
        after.deleting != before.deleting
            || after.labels != before.labels
            || after.generation != before.generation
    })
}

/// Whether a cluster serves other kinds than before. A newly served kind matters to
/// bindings that found no cluster, and to those that select every cluster that serves it.
fn serves_other(old: Option<&Object>, new: &Object) -> bool {
    let view = |cluster: &Object| cluster.view::<Cluster>().ok();
    let (before, after) = (old.and_then(view), view(new));
    let enablements = |cluster: &Option<Arc<Cluster>>| {
        let cluster = cluster.as_ref();
        cluster.map_or_else(Vec::new, |c| c.status.api_enablements.clone())
    };
    enablements(&before) != enablements(&after)
}

/// A cluster before the change, if it existed, and after it.
type ClusterChange = (Option<Object>, Object);

/// Cluster changes, by cluster name, whose affected bindings have not been looked up yet.
#[derive(Default)]
pub(super) struct ClusterChanges {
    queue: Queue<String>,
    changes: Mutex<HashMap<String, Vec<ClusterChange>>>,
}

impl ClusterChanges {
    fn add(&self, old: Option<&Object>, new: &Object) {
        if !is_moved(old, new) && !serves_other(old, new) {
            return;
        }
        let mut changes = self.changes.lock();
        let of_cluster = changes.entry(new.name().to_owned()).or_default();
        of_cluster.push((old.cloned(), new.clone()));
        drop(changes);
        self.queue.add_low(new.name().to_owned());
    }

    fn take(&self, cluster: &str) -> Vec<ClusterChange> {
        self.changes.lock().remove(cluster).unwrap_or_default()
    }
}

/// Whether a change of a cluster affects a binding.
fn concerns(binding: &Binding, generation: i64, member: &Member) -> bool {
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
    affinity.is_none_or(|a| a.matcher().matches(&member.facts()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::core::tests::cluster;
    use crate::core::tests::table::placement;

    // proves: SCH-cluster-affects
    #[test]
    fn a_cluster_affects_bindings_whose_affinity_or_observed_term_matches() {
        let member = Member::new(cluster("a", 10, json!({}))).unwrap();
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
            let mut binding = Binding::default();
            binding.spec.placement = Some(placement(words));
            binding.status.observed_affinity = observed.into();
            binding.status.scheduler_observed_generation = 1;
            let affected = concerns(&binding, generation, &member);
            assert_eq!(affected, expected, "{words} seen {observed:?}");
        }
        assert!(!concerns(&Binding::default(), 1, &member), "no placement");
    }
}
