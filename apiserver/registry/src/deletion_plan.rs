//! Decides what a deletion does to an object: whether it is removed at once, or marked and
//! kept until its finalizers are gone and its grace period is over
//! (`apiserver/pkg/registry/rest/delete.go`).

use client::{DeleteOptions, DeletionPropagation};
use jiff::{SignedDuration, Timestamp};
use machinery::time;
use serde_json::{Value, json};

use crate::object_meta::{self, FOREGROUND_FINALIZER, ORPHAN_FINALIZER};
use crate::strategy::RestStrategy;

/// The effect of a deletion on an object.
#[derive(Debug, PartialEq)]
pub(crate) enum DeletionEffect {
    /// The object is removed; its last state.
    Remove(Value),
    SetDeletionTimestamp(Value),
    /// The deletion timestamp is set already, and nothing changes.
    Wait,
}

/// A deletion of one object.
pub(crate) struct ObjectDeletion {
    propagation: Option<DeletionPropagation>,
    requested_grace_period: Option<i64>,
    /// The grace period of an object that is not being deleted yet; `None` for kinds that are
    /// not deleted gracefully.
    grace_period: Option<i64>,
    now: Timestamp,
}

impl ObjectDeletion {
    /// A deletion of `old`. `is_confirmed`: somebody will confirm the end of the grace period.
    pub(crate) fn new(
        strategy: &RestStrategy,
        old: &Value,
        options: &DeleteOptions,
        is_confirmed: bool,
        now: Timestamp,
    ) -> Self {
        let requested = requested_grace_period(options);
        let (requested, grace_period) = match (strategy.grace_period)(old, requested) {
            Some(_) if !is_confirmed => (Some(0), Some(0)),
            period => (requested, period),
        };
        Self {
            propagation: options.propagation,
            requested_grace_period: requested,
            grace_period,
            now,
        }
    }

    /// The effect on `old`.
    pub(crate) fn plan(&self, strategy: &RestStrategy, old: &Value) -> DeletionEffect {
        let mut new = old.clone();
        let is_deleting = object_meta::is_deleting(old);
        let remaining = object_meta::deletion_grace_period(old);
        if is_deleting && remaining > 0 {
            // A deletion that is pending may only be shortened.
            match self.requested_grace_period {
                Some(period) if period < remaining => shorten(&mut new, remaining, period),
                _ => return DeletionEffect::Wait,
            }
        }
        let finalizers = deletion_finalizers(strategy, old, self.propagation);
        let Ok(meta) = object_meta::metadata_mut(&mut new) else {
            return DeletionEffect::Remove(new);
        };
        if finalizers.is_empty() {
            meta.remove("finalizers");
        } else {
            meta.insert("finalizers".into(), json!(finalizers));
        }
        if !is_deleting {
            let period = self.grace_period.unwrap_or(0);
            set_deletion(meta, add_seconds(self.now, period), period);
            object_meta::increment_generation(&mut new);
            (strategy.begin_delete)(&mut new, &time::rfc3339_seconds(self.now));
        }
        if is_removable(&new, strategy) {
            // A kind without a grace period is removed without being marked first.
            let last = if self.grace_period.is_some() {
                new
            } else {
                old.clone()
            };
            DeletionEffect::Remove(last)
        } else if new == *old {
            DeletionEffect::Wait
        } else {
            DeletionEffect::SetDeletionTimestamp(new)
        }
    }
}

/// Whether the deletion of an object is complete: no finalizer and no grace period is left.
pub(crate) fn is_removable(value: &Value, strategy: &RestStrategy) -> bool {
    object_meta::is_deleting(value)
        && object_meta::deletion_grace_period(value) == 0
        && object_meta::finalizers(value).next().is_none()
        && !(strategy.delays_removal)(value)
}

/// The grace period that a request names; a negative one is a second.
pub(crate) fn requested_grace_period(options: &DeleteOptions) -> Option<i64> {
    let requested = options.grace_period_seconds;
    requested.map(|seconds| if seconds < 0 { 1 } else { seconds })
}

fn set_deletion(meta: &mut serde_json::Map<String, Value>, at: Timestamp, period: i64) {
    meta.insert("deletionTimestamp".into(), time::rfc3339_seconds(at).into());
    meta.insert("deletionGracePeriodSeconds".into(), period.into());
}

/// A timestamp that is too far away stays as it was.
fn add_seconds(at: Timestamp, seconds: i64) -> Timestamp {
    let later = at.checked_add(SignedDuration::from_secs(seconds));
    later.unwrap_or(at)
}

/// Shortens the grace period of an object that is being deleted.
fn shorten(object: &mut Value, remaining: i64, period: i64) {
    let end = time::parse(object_meta::metadata_string(object, "deletionTimestamp"));
    if let (Ok(end), Ok(meta)) = (end, object_meta::metadata_mut(object)) {
        set_deletion(
            meta,
            add_seconds(add_seconds(end, -remaining), period),
            period,
        );
    }
}

/// The finalizers after the propagation policy is applied.
fn deletion_finalizers(
    strategy: &RestStrategy,
    old: &Value,
    policy: Option<DeletionPropagation>,
) -> Vec<String> {
    let has = |name: &str| object_meta::finalizers(old).any(|f| f == name);
    let policy = policy.unwrap_or_else(|| {
        if has(ORPHAN_FINALIZER) {
            DeletionPropagation::Orphan
        } else if has(FOREGROUND_FINALIZER) {
            DeletionPropagation::Foreground
        } else {
            strategy.propagation
        }
    });
    let policy_finalizer = match policy {
        DeletionPropagation::Orphan => Some(ORPHAN_FINALIZER),
        DeletionPropagation::Foreground => Some(FOREGROUND_FINALIZER),
        DeletionPropagation::Background => None,
    };
    let mut list: Vec<String> = object_meta::finalizers(old)
        .filter(|f| {
            policy_finalizer == Some(*f) || (*f != ORPHAN_FINALIZER && *f != FOREGROUND_FINALIZER)
        })
        .map(str::to_owned)
        .collect();
    if let Some(finalizer) = policy_finalizer
        && !list.iter().any(|f| f == finalizer)
    {
        list.push(finalizer.to_owned());
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy;

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().unwrap()
    }

    fn plan(
        strategy: &RestStrategy,
        object: &Value,
        propagation: Option<DeletionPropagation>,
        grace_period_seconds: Option<i64>,
    ) -> DeletionEffect {
        let options = DeleteOptions {
            propagation,
            grace_period_seconds,
            ..DeleteOptions::default()
        };
        ObjectDeletion::new(strategy, object, &options, true, now()).plan(strategy, object)
    }

    fn check(object: Value, policy: Option<DeletionPropagation>, expected: Option<Value>) {
        let strategy_of_config_maps = strategy::built_in_strategy("", "configmaps", false);
        let finalizers = match plan(strategy_of_config_maps, &object, policy, None) {
            DeletionEffect::SetDeletionTimestamp(new) => {
                Some(new["metadata"]["finalizers"].clone())
            }
            DeletionEffect::Wait => Some(json!("wait")),
            DeletionEffect::Remove(_) => None,
        };
        assert_eq!(finalizers, expected, "{object}");
    }

    #[test]
    fn policy_and_finalizers_determine_the_plan() {
        use DeletionPropagation::{Background, Foreground, Orphan};
        check(json!({"metadata": {}}), None, None);
        check(
            json!({"metadata": {}}),
            Some(Foreground),
            Some(json!([FOREGROUND_FINALIZER])),
        );
        check(
            json!({"metadata": {}}),
            Some(Orphan),
            Some(json!([ORPHAN_FINALIZER])),
        );
        check(
            json!({"metadata": {"finalizers": ["a/b"]}}),
            Some(Background),
            Some(json!(["a/b"])),
        );
        check(
            json!({"metadata": {"finalizers": [ORPHAN_FINALIZER]}}),
            Some(Background),
            None,
        );
        check(
            json!({"metadata": {"finalizers": [ORPHAN_FINALIZER]}}),
            None,
            Some(json!([ORPHAN_FINALIZER])),
        );
        let deleting = json!({"metadata": {"deletionTimestamp": "t", "finalizers": ["a/b"]}});
        check(deleting.clone(), None, Some(json!("wait")));
        check(
            deleting,
            Some(Foreground),
            Some(json!(["a/b", FOREGROUND_FINALIZER])),
        );
    }

    #[test]
    fn setting_the_deletion_timestamp_raises_the_generation() {
        let object = json!({"metadata": {"generation": 2, "finalizers": ["a/b"]}});
        let custom = strategy::custom_resource_strategy(true);
        let DeletionEffect::SetDeletionTimestamp(new) = plan(custom, &object, None, None) else {
            panic!("the deletion timestamp is not set");
        };
        assert_eq!(
            new["metadata"],
            json!({"generation": 3, "finalizers": ["a/b"],
            "deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 0})
        );
    }

    /// Checks the effect on a pod: `removed`, `wait`, or its new time and grace period.
    fn check_pod(pod: Value, requested: Option<i64>, expected: &str) {
        let pods = strategy::built_in_strategy("", "pods", true);
        let effect = match plan(pods, &pod, None, requested) {
            DeletionEffect::Remove(last) => {
                assert_eq!(last["metadata"]["deletionGracePeriodSeconds"], 0, "{pod}");
                "removed".to_owned()
            }
            DeletionEffect::Wait => "wait".to_owned(),
            DeletionEffect::SetDeletionTimestamp(new) => {
                let meta = &new["metadata"];
                let time = meta["deletionTimestamp"].as_str().unwrap();
                format!("{time} {}", meta["deletionGracePeriodSeconds"])
            }
        };
        assert_eq!(effect, expected, "{pod} {requested:?}");
    }

    #[test]
    fn scheduled_pods_are_deleted_after_their_grace_period() {
        let pod = |phase: &str, node: &str| {
            json!({"metadata": {},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 30}, "status": {"phase": phase}})
        };
        let running = pod("Running", "n");
        check_pod(running.clone(), None, "2026-01-02T03:04:35Z 30");
        check_pod(running.clone(), Some(5), "2026-01-02T03:04:10Z 5");
        check_pod(running.clone(), Some(-1), "2026-01-02T03:04:06Z 1");
        check_pod(running, Some(0), "removed");
        check_pod(pod("Pending", ""), None, "removed");
        check_pod(pod("Succeeded", "n"), Some(9), "removed");
        check_pod(pod("Failed", "n"), None, "removed");
    }

    #[test]
    fn a_pending_deletion_is_only_shortened() {
        let deleting = |seconds: i64, finalizers: Value| {
            json!({
            "metadata": {"deletionTimestamp": "2026-01-02T03:04:35Z",
                         "deletionGracePeriodSeconds": seconds, "finalizers": finalizers},
            "spec": {"nodeName": "n"}, "status": {"phase": "Running"}})
        };
        let pending = deleting(30, json!([]));
        check_pod(pending.clone(), None, "wait");
        check_pod(pending.clone(), Some(30), "wait");
        check_pod(pending.clone(), Some(40), "wait");
        check_pod(pending.clone(), Some(10), "2026-01-02T03:04:15Z 10");
        check_pod(pending, Some(0), "removed");
        check_pod(
            deleting(30, json!(["a/b"])),
            Some(0),
            "2026-01-02T03:04:05Z 0",
        );
        check_pod(deleting(0, json!(["a/b"])), Some(0), "wait");
        check_pod(deleting(0, json!([])), Some(10), "removed");
    }
}
