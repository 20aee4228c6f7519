//! The inputs and the result of the decision about the next step of a rollout.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use karmada_api::rollout::{RolloutPolicySpec, RolloutSpec, RolloutStatus};

use super::replicas::ObservedReplicas;

/// A target cluster of the template, as the control plane observes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ObservedTarget {
    pub(crate) name: String,
    /// The index of the first stage that selects the cluster; the number of stages if none does.
    pub(crate) stage: usize,
    /// Whether the cluster is Ready.
    pub(crate) reachable: bool,
    /// Whether it has a Work.
    pub(crate) has_work: bool,
    /// The revision of the Work, empty if it has none that is known.
    pub(crate) work_revision: String,
    /// The revision that the object in the member carried when its health was observed.
    pub(crate) reported_revision: String,
    pub(crate) healthy: bool,
    pub(crate) replicas: ObservedReplicas,
    /// Why the Work is not applied; empty if it is.
    pub(crate) message: String,
    /// The latest answer to the query of the stage since the cluster has been in its phase.
    pub(crate) query: Option<QueryObservation>,
}

/// The answer of a member to a query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueryObservation {
    pub(crate) asked_at: Timestamp,
    /// The value, or why there is none.
    pub(crate) outcome: Result<f64, String>,
}

/// How far the Job of a stage is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobObservation {
    pub(crate) name: String,
    pub(crate) outcome: JobOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobOutcome {
    Running,
    /// A member does not have it, with the reason.
    NotApplied(String),
    Succeeded,
    /// With the reason.
    Failed(String),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionInput<'a> {
    pub(crate) policy: &'a RolloutPolicySpec,
    /// Names the policy and its generation: if it changes, clusters are assigned to stages anew.
    pub(crate) policy_id: &'a str,
    /// What users have decided about the rollout.
    pub(crate) spec: &'a RolloutSpec,
    /// Whether the kind of the template has a partition.
    pub(crate) has_partition: bool,
    /// Whether the control plane has a Prometheus, for queries that name no Service.
    pub(crate) has_prometheus: bool,
    /// The revision with the current content of the template.
    pub(crate) target: &'a str,
    /// Why revisions, by name, are not used: what was made from them stays as it is.
    pub(crate) unusable_revisions: &'a BTreeMap<String, String>,
    /// The uid of the Rollout, whose Jobs have names of their own.
    pub(crate) rollout_uid: &'a str,
    pub(crate) previous: Option<&'a RolloutStatus>,
    /// By name.
    pub(crate) targets: &'a [ObservedTarget],
    /// The Jobs of the status before that have no final state.
    pub(crate) jobs: &'a [JobObservation],
    /// The generation of the binding that names the targets.
    pub(crate) binding_generation: i64,
    /// Whether the binding names no target though the template is to be placed.
    pub(crate) is_unplaced: bool,
    /// Clusters that keep replicas by the status before, and are no targets any more.
    pub(crate) leaving: &'a [ObservedTarget],
    pub(crate) now: Timestamp,
}

impl DecisionInput<'_> {
    pub(super) fn number_of_targets(&self) -> i64 {
        i64::try_from(self.targets.len()).unwrap_or(i64::MAX)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RolloutDecision {
    pub(crate) status: RolloutStatus,
    /// When time alone allows the next step; `None`: never.
    pub(crate) next: Option<Duration>,
    /// Clusters whose replicas go at the deadline though too few others are available, with what is
    /// missing.
    pub(crate) given_up: Vec<String>,
}
