//! Finds out how a write of a binding moved its template, and why. Pure.

use karmada_api::binding::GracefulEvictionTask;
use karmada_api::history::{HistoryEntry, bounded_text};
use karmada_api::well_known_keys::{APPLIED_PLACEMENT, SCHEDULED_FROM};
use karmada_api::{ResourceBinding, ResourceBindingSpec};

use crate::record::{cluster_changes, truncate_changes};

/// A longer placement is not recorded, so that its change cannot be undone.
const MAX_PLACEMENT_BYTES: usize = 16 * 1024;

const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// A write of a binding.
pub(crate) struct BindingWrite<'a> {
    pub(crate) old: &'a ResourceBinding,
    pub(crate) new: &'a ResourceBinding,
    /// The field manager of the new clusters, if it is none of the control plane's own.
    pub(crate) user: Option<String>,
}

/// How a template moved.
pub(crate) struct PlacementMove {
    pub(crate) entry: HistoryEntry,
    /// Whether the template was only scaled in the clusters where it is. That is no move, unless it
    /// gives replicas that lost their cluster another one.
    pub(crate) is_scale: bool,
}

/// How a write moved the template; `None` if it did not. `is_gone`: whether a cluster no longer
/// exists, or is leaving.
pub(crate) fn placement_move(
    write: &BindingWrite<'_>,
    is_gone: impl Fn(&str) -> bool,
) -> Option<PlacementMove> {
    let (old, new) = (write.old, write.new);
    if old.spec.clusters == new.spec.clusters || is_first_placement(old) {
        return None;
    }
    let mut changes = cluster_changes(targets(&old.spec), targets(&new.spec));
    if changes.is_empty() {
        return None;
    }
    let is_same_set = changes.iter().all(|c| c.from.is_some() && c.to.is_some());
    let incomplete = !new.spec.assigns_all_replicas(&new.spec.clusters);
    let is_scale = is_same_set && !incomplete && !new.spec.assigns_all_replicas(&old.spec.clusters);
    let cause = MoveCause::of(write, incomplete, is_gone);
    let truncated = truncate_changes(&mut changes);
    let entry = HistoryEntry {
        reason: cause.reason.to_owned(),
        actor: bounded_text(&cause.actor),
        message: bounded_text(&cause.message),
        former_placement: cause.former_placement,
        count: 1,
        changes,
        incomplete,
        truncated,
        ..HistoryEntry::default()
    };
    let is_scale = is_scale && cause.reason == SCALED;
    Some(PlacementMove { entry, is_scale })
}

const SCALED: &str = "Scaled";
pub(crate) const POLICY_CHANGED: &str = "PolicyChanged";

/// Why a template moved.
struct MoveCause {
    reason: &'static str,
    actor: String,
    message: String,
    former_placement: String,
}

impl MoveCause {
    fn new(reason: &'static str, actor: &str) -> Self {
        Self {
            reason,
            actor: actor.to_owned(),
            message: String::new(),
            former_placement: String::new(),
        }
    }

    fn of(write: &BindingWrite<'_>, incomplete: bool, is_gone: impl Fn(&str) -> bool) -> Self {
        let (old, new) = (write.old, write.new);
        let changes = || cluster_changes(targets(&old.spec), targets(&new.spec)).into_iter();
        let placements = [applied_placement(old), applied_placement(new)];
        if let Some(task) = new_eviction_task(&old.spec, &new.spec) {
            let mut cause = Self::new("Evicted", &task.producer);
            cause.message = match &*task.message {
                "" => task.reason.clone(),
                message => format!("{}: {message}", task.reason),
            };
            return cause;
        }
        if let Some(task) = canceled_eviction(&old.spec, &new.spec) {
            return Self::new("EvictionCanceled", &task.producer);
        }
        let Some(scheduler) = scheduler_of(old, new) else {
            if incomplete && changes().all(|c| c.to.is_some() && c.to < c.from) {
                return Self::new("Descheduled", "descheduler");
            }
            // The API server has no managers of objects that its controllers create.
            return Self::new("UserChanged", write.user.as_deref().unwrap_or("unknown"));
        };
        if placements[0] != placements[1] && !placements[0].is_empty() {
            let mut cause = Self::new(POLICY_CHANGED, scheduler);
            if placements[0].len() <= MAX_PLACEMENT_BYTES {
                placements[0].clone_into(&mut cause.former_placement);
            }
            return cause;
        }
        if old.is_reschedule_triggered() {
            let mut cause = Self::new("Rebalanced", scheduler);
            let triggered = old.spec.reschedule_triggered_at.as_deref();
            cause.message = format!("triggered at {}", triggered.unwrap_or_default());
            return cause;
        }
        let mut left = changes().filter(|c| c.to.is_none());
        if let Some(gone) = left.find(|c| is_gone(&c.cluster)) {
            let mut cause = Self::new("ClusterRemoved", scheduler);
            cause.message = format!("cluster {} is gone or leaving", gone.cluster);
            return cause;
        }
        match new.spec.assigns_all_replicas(&old.spec.clusters) {
            false => Self::new(SCALED, scheduler),
            true => Self::new("Rescheduled", scheduler),
        }
    }
}

/// The clusters of a binding with their replicas. The first entry of a cluster counts.
fn targets(spec: &ResourceBindingSpec) -> impl Iterator<Item = (&str, i64)> {
    let targets = spec.clusters.iter().rev();
    targets.map(|target| (&*target.name, target.replicas))
}

/// Whether the template was nowhere because nothing had placed it yet.
fn is_first_placement(old: &ResourceBinding) -> bool {
    old.spec.clusters.is_empty() && old.status.last_scheduled_time.is_none()
}

fn applied_placement(binding: &ResourceBinding) -> &str {
    let annotations = &binding.metadata.annotations;
    annotations
        .get(APPLIED_PLACEMENT)
        .map_or("", String::as_str)
}

/// The scheduler, if the write is one of it: Flotilla's signs those that move a template, and from
/// another one, which the policy names, comes any write.
fn scheduler_of<'a>(old: &ResourceBinding, new: &'a ResourceBinding) -> Option<&'a str> {
    let signature = |binding: &'a ResourceBinding| binding.metadata.annotations.get(SCHEDULED_FROM);
    match &*new.spec.scheduler_name {
        "" | DEFAULT_SCHEDULER => {
            let former = old.metadata.annotations.get(SCHEDULED_FROM);
            let is_signed = signature(new).is_some() && signature(new) != former;
            // Nothing was there to move, so that the write is not signed.
            let is_placed_anew = old.spec.clusters.is_empty();
            (is_signed || is_placed_anew).then_some("scheduler")
        }
        other => Some(other),
    }
}

/// The task of a cluster to which the write returned the template.
fn canceled_eviction<'a>(
    old: &'a ResourceBindingSpec,
    new: &ResourceBindingSpec,
) -> Option<&'a GracefulEvictionTask> {
    let mut tasks = old.graceful_eviction_tasks.iter();
    tasks.find(|task| {
        let is_from = |other: &GracefulEvictionTask| other.from_cluster == task.from_cluster;
        let is_target = |spec: &ResourceBindingSpec| {
            let mut clusters = spec.clusters.iter();
            clusters.any(|target| target.name == task.from_cluster)
        };
        !new.graceful_eviction_tasks.iter().any(is_from) && is_target(new) && !is_target(old)
    })
}

/// The task of a cluster that the write evicted.
fn new_eviction_task<'a>(
    old: &ResourceBindingSpec,
    new: &'a ResourceBindingSpec,
) -> Option<&'a GracefulEvictionTask> {
    let has_task = |spec: &ResourceBindingSpec, cluster: &str| {
        let mut tasks = spec.graceful_eviction_tasks.iter();
        tasks.any(|task| task.from_cluster == cluster)
    };
    let mut tasks = new.graceful_eviction_tasks.iter();
    tasks.find(|task| !has_task(old, &task.from_cluster))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const DIVIDED: &str = r#"{"replicaScheduling":{"replicaSchedulingType":"Divided"}}"#;

    fn binding(clusters: &[(&str, i64)], replicas: i64) -> Value {
        let clusters: Vec<Value> = clusters
            .iter()
            .map(|(name, replicas)| json!({"name": name, "replicas": replicas}))
            .collect();
        let placement: Value = machinery::json::from_str(DIVIDED).unwrap();
        json!({"metadata": {"generation": 3, "annotations": {APPLIED_PLACEMENT: DIVIDED}},
            "spec": {"replicas": replicas, "clusters": clusters, "placement": placement},
            "status": {"lastScheduledTime": "2026-01-01T00:00:00Z", "schedulerObservedGeneration": 3}})
    }

    fn check(old: &Value, new: &Value, user: Option<&str>) -> Option<PlacementMove> {
        let view =
            |value: &Value| serde_json::from_value::<ResourceBinding>(value.clone()).unwrap();
        let mut new = view(new);
        if user.is_none() {
            let annotations = &mut new.metadata.annotations;
            annotations.insert(SCHEDULED_FROM.to_owned(), "7".to_owned());
        }
        let write = BindingWrite {
            old: &view(old),
            new: &new,
            user: user.map(str::to_owned),
        };
        placement_move(&write, |cluster| cluster == "gone")
    }

    fn with(mut binding: Value, pointer: &str, value: Value) -> Value {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        binding.pointer_mut(parent).unwrap()[field] = value;
        binding
    }

    // proves: HIS-placement, HIS-reasons
    #[test]
    fn a_move_has_its_reason() {
        let on = |clusters: &[(&str, i64)]| binding(clusters, 4);
        let (ab, ac) = ([("a", 2), ("b", 2)], [("a", 2), ("c", 2)]);
        let task =
            json!([{"fromCluster": "b", "producer": "TaintManager", "reason": "TaintUntolerated"}]);
        let other = json!({APPLIED_PLACEMENT: "{}"});
        let later = json!("2026-01-01T00:00:01Z");
        for (old, new, user, reason, actor, incomplete) in [
            (on(&ab), on(&ac), None, "Rescheduled", "scheduler", false),
            (
                on(&ab),
                on(&ac),
                Some("kubectl-edit"),
                "UserChanged",
                "kubectl-edit",
                false,
            ),
            (
                on(&ab),
                with(on(&[("a", 2)]), "/spec/gracefulEvictionTasks", task.clone()),
                None,
                "Evicted",
                "TaintManager",
                true,
            ),
            (
                with(on(&ab), "/metadata/annotations", other),
                on(&ac),
                None,
                "PolicyChanged",
                "scheduler",
                false,
            ),
            (
                with(on(&ab), "/spec/rescheduleTriggeredAt", later),
                on(&ac),
                None,
                "Rebalanced",
                "scheduler",
                false,
            ),
            (
                on(&ab),
                on(&[("a", 1), ("b", 2)]),
                Some(""),
                "Descheduled",
                "descheduler",
                true,
            ),
            (
                with(on(&[("a", 4)]), "/spec/gracefulEvictionTasks", task),
                on(&ab),
                None,
                "EvictionCanceled",
                "TaintManager",
                false,
            ),
            (
                on(&[("gone", 4)]),
                on(&ac),
                None,
                "ClusterRemoved",
                "scheduler",
                false,
            ),
            (
                binding(&[("a", 2)], 4),
                on(&ac),
                None,
                "Scaled",
                "scheduler",
                false,
            ),
            (on(&ab), on(&[]), None, "Rescheduled", "scheduler", true),
        ] {
            let moved = check(&old, &new, user).unwrap();
            let entry = &moved.entry;
            assert_eq!((&*entry.reason, &*entry.actor), (reason, actor));
            assert_eq!(entry.incomplete, incomplete, "{reason}");
            assert!(!moved.is_scale, "{reason}");
        }
        let moved = check(&on(&ab), &on(&ac), None).unwrap();
        let changes: Vec<_> = moved
            .entry
            .changes
            .iter()
            .map(|c| (&*c.cluster, c.from, c.to))
            .collect();
        assert_eq!(changes, [("b", Some(2), None), ("c", None, Some(2))]);
    }

    // proves: HIS-first, HIS-scale
    #[test]
    fn the_first_placement_and_scaling_are_no_moves() {
        let placed = binding(&[("a", 2), ("b", 2)], 4);
        let unplaced = with(binding(&[], 4), "/status", json!({}));
        assert!(check(&unplaced, &placed, None).is_none());
        assert!(check(&placed, &placed, None).is_none());
        let cleared = binding(&[], 4);
        assert!(!check(&cleared, &placed, None).unwrap().is_scale);
        let scaled = check(
            &binding(&[("a", 2), ("b", 2)], 6),
            &binding(&[("a", 3), ("b", 3)], 6),
            None,
        );
        assert!(scaled.unwrap().is_scale);
        let duplicated = |replicas: i64, total: i64| {
            with(
                binding(&[("a", replicas), ("b", replicas)], total),
                "/spec/placement",
                json!({}),
            )
        };
        let scaled = check(&duplicated(2, 3), &duplicated(3, 3), None);
        assert!(scaled.unwrap().is_scale);
    }
}
