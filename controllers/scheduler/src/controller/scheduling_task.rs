//! The binding that a worker schedules.

use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS};
use karmada_api::{Placement, ResourceBinding};
use machinery::{Gvr, Object};

/// A binding: its resource and `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SchedulingKey {
    pub(super) cluster_scoped: bool,
    pub(super) name: String,
}

/// A binding that is being scheduled, with its placement.
pub(super) struct SchedulingTask<'a> {
    pub(super) key: &'a SchedulingKey,
    pub(super) object: &'a Object,
    pub(super) binding: &'a ResourceBinding,
    pub(super) placement: &'a Placement,
    /// A cluster that the binding selects or selected has changed since the last attempt.
    pub(super) cluster_changed: bool,
    /// The detector wrote this result together with the number of replicas; the scheduler
    /// has not recorded an event for it yet.
    pub(super) placed_by_detector: bool,
}

impl SchedulingKey {
    /// The kind as messages spell it.
    pub(super) fn kind(&self) -> &'static str {
        if self.cluster_scoped {
            "clusterResourceBinding"
        } else {
            "resourceBinding"
        }
    }

    pub(super) fn resource(&self) -> &'static Gvr {
        if self.cluster_scoped {
            &CLUSTER_BINDINGS
        } else {
            &BINDINGS
        }
    }
}
