//! How a placement divides replicas among clusters.

use karmada_api::{ResourceBindingSpec, placement::Placement};
use serde::Serialize;

use super::failure::SchedulingFailure;
use super::scheduling_settings::SchedulingSettings;

/// How replicas are divided among clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum AssignmentStrategy {
    Duplicated,
    StaticWeight,
    Aggregated,
    DynamicWeight,
}

impl AssignmentStrategy {
    /// `None`: the placement asks for an unknown strategy.
    pub fn from_placement(placement: &Placement) -> Option<Self> {
        if is_duplicated(placement) {
            return Some(Self::Duplicated);
        }
        let scheduling = placement.replica_scheduling.as_ref()?;
        let preference = scheduling.replica_division_preference.as_str();
        if scheduling.replica_scheduling_type != "Divided" {
            return None;
        }
        let weights = scheduling.weight_preference.as_ref();
        match preference {
            "Aggregated" => Some(Self::Aggregated),
            "Weighted" if weights.is_some_and(|w| !w.dynamic_weight.is_empty()) => {
                Some(Self::DynamicWeight)
            }
            "Weighted" => Some(Self::StaticWeight),
            _ => None,
        }
    }
}

pub(crate) fn is_duplicated(placement: &Placement) -> bool {
    let scheduling = placement.replica_scheduling.as_ref();
    scheduling.is_none_or(|s| s.replica_scheduling_type == "Duplicated")
}

pub(crate) fn unsupported_strategy(placement: &Placement) -> SchedulingFailure {
    let scheduling = placement.replica_scheduling.as_ref();
    let of = |get: fn(&karmada_api::placement::ReplicaSchedulingStrategy) -> &String| {
        scheduling.map_or("", |s| get(s).as_str())
    };
    let kind = of(|s| &s.replica_scheduling_type);
    let preference = of(|s| &s.replica_division_preference);
    SchedulingFailure::Error(format!(
        "unsupported replica scheduling strategy, replicaSchedulingType: {kind}, \
         replicaDivisionPreference: {preference}, please try another scheduling strategy"
    ))
}

/// Whether the components of a workload are scheduled as a set, which has to go to exactly
/// one cluster.
pub(crate) fn schedules_component_sets(
    spec: &ResourceBindingSpec,
    placement: &Placement,
    rules: SchedulingSettings,
) -> bool {
    let one = placement
        .spread_constraints
        .iter()
        .any(|c| c.spread_by_field == "cluster" && c.min_groups == 1 && c.max_groups == 1);
    rules.component_sets && !spec.components.is_empty() && one
}
