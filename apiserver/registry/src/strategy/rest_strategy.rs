//! The parts of a kind's strategy, and the default of each.

use std::time::Duration;

use client::DeletionPropagation;
use serde_json::Value;

/// Which changes raise `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GenerationPolicy {
    /// The kind has no generation.
    Absent,
    /// A change of `spec`.
    Spec,
    /// A change of `spec` or of annotations.
    SpecOrAnnotations,
    /// A change of anything but metadata.
    AllButMetadata,
    /// A change of anything but metadata and status.
    AllButStatus,
}

impl GenerationPolicy {
    /// Whether the kind has a generation.
    pub(crate) fn is_tracked(self) -> bool {
        self != Self::Absent
    }

    /// Whether an update from `old` to `new` raises the generation.
    pub(crate) fn is_raised(self, new: &Value, old: &Value) -> bool {
        let differ_except = |ignored: &[&str]| {
            let differs = |a: &Value, b: &Value| {
                a.as_object()
                    .into_iter()
                    .flatten()
                    .any(|(k, v)| !ignored.contains(&k.as_str()) && b.get(k) != Some(v))
            };
            differs(new, old) || differs(old, new)
        };
        match self {
            Self::Absent => false,
            Self::Spec => new["spec"] != old["spec"],
            Self::SpecOrAnnotations => {
                new["spec"] != old["spec"]
                    || new["metadata"]["annotations"] != old["metadata"]["annotations"]
            }
            Self::AllButMetadata => differ_except(&["metadata"]),
            Self::AllButStatus => differ_except(&["metadata", "status"]),
        }
    }
}

/// The strategy of a kind.
#[derive(Debug)]
pub(crate) struct RestStrategy {
    pub(crate) generation: GenerationPolicy,
    /// Called after uid and timestamps are set, before validation.
    pub(crate) create: fn(new: &mut Value),
    /// Called after metadata is copied from the old object, before validation.
    pub(crate) update: fn(new: &mut Value, old: &Value),
    /// Called when the deletion timestamp is set.
    pub(crate) begin_delete: fn(new: &mut Value, now: &str),
    /// The grace period of a deletion that requests one, or none; `None` for a kind that has
    /// no grace periods.
    pub(crate) grace_period: fn(object: &Value, requested: Option<i64>) -> Option<i64>,
    /// Whether anything besides `metadata.finalizers` delays the removal.
    pub(crate) delays_removal: fn(&Value) -> bool,
    /// The propagation policy of deletions that request none.
    pub(crate) propagation: DeletionPropagation,
    pub(crate) ttl: Option<Duration>,
    /// Whether the validation of a status looks at the spec.
    pub(crate) status_depends_on_spec: bool,
    /// Whether a new object keeps the status that the client sends.
    pub(crate) keeps_created_status: bool,
}

fn no_op_create(_: &mut Value) {}

fn no_op_update(_: &mut Value, _: &Value) {}

fn no_op_begin_delete(_: &mut Value, _: &str) {}

fn no_grace_period(_: &Value, _: Option<i64>) -> Option<i64> {
    None
}

fn never_delays_removal(_: &Value) -> bool {
    false
}

/// The default strategy.
pub(crate) const DEFAULT_STRATEGY: RestStrategy = RestStrategy {
    generation: GenerationPolicy::Absent,
    create: no_op_create,
    update: no_op_update,
    begin_delete: no_op_begin_delete,
    grace_period: no_grace_period,
    delays_removal: never_delays_removal,
    propagation: DeletionPropagation::Background,
    ttl: None,
    status_depends_on_spec: false,
    keeps_created_status: false,
};
