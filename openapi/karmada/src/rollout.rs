//! Typed views of Flotilla's own kinds of staged rollouts (`rollout.flotilla.io/v1alpha1`):
//! RolloutPolicy, ClusterRolloutPolicy and Rollout.

use machinery::Gvr;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::affinity::ClusterAffinity;
use super::object_meta::{Condition, is_zero};
use super::policy::ResourceSelector;

pub const ROLLOUT_GROUP: &str = "rollout.flotilla.io";
pub static ROLLOUT_POLICIES: Gvr = Gvr::from_static(ROLLOUT_GROUP, "v1alpha1", "rolloutpolicies");
pub static CLUSTER_ROLLOUT_POLICIES: Gvr =
    Gvr::from_static(ROLLOUT_GROUP, "v1alpha1", "clusterrolloutpolicies");
pub static ROLLOUTS: Gvr = Gvr::from_static(ROLLOUT_GROUP, "v1alpha1", "rollouts");

/// On Works, on their manifests and so on the objects in members: the name of the
/// ControllerRevision that the manifest was made from.
pub const REVISION: &str = "rollout.flotilla.io/revision";
/// The label of ControllerRevisions of staged templates: the reference key of the binding.
pub const REVISION_OF: &str = "rollout.flotilla.io/binding";
/// Of Jobs of gates and of their Works. The label is the reference key of the Rollout, and the
/// annotation of the Works its namespace and name.
pub const JOB_OF: &str = "rollout.flotilla.io/job-of";

/// Holds a deleted Rollout until it has ended: its status alone says which gates are open.
pub const ROLLOUT_FINALIZER: &str = "rollout.flotilla.io/rollout-controller";

/// The name of the stage of the clusters that no stage of the policy selects.
pub const REMAINING_STAGE: &str = "remaining";

/// The reason of clusters that have failed since they are not Ready: they go on when they are.
pub const CLUSTER_UNREACHABLE: &str = "ClusterUnreachable";
/// The reason of clusters that have left after they had been done with the target.
pub const LEFT_AFTER_END: &str = "LeftAfterEnd";
/// The reason of clusters that have left after they had failed within the budget: the stage had ended
/// with them, and they have proved nothing.
pub const LEFT_AFTER_FAILURE: &str = "LeftAfterFailure";
/// The reason of clusters that have left before their part of the stage had ended.
pub const LEFT_BEFORE_END: &str = "LeftBeforeEnd";

/// The last state of a rollout that has not ended when no policy selects its template any more.
pub const UNSTAGED: &str = "Unstaged";

pub const ON_FAILURE_ROLLBACK: &str = "Rollback";
pub const ON_FAILURE_CONTINUE: &str = "Continue";

/// RolloutPolicy and ClusterRolloutPolicy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RolloutPolicy {
    pub spec: RolloutPolicySpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutPolicySpec {
    pub resource_selectors: Vec<ResourceSelector>,
    pub stages: Vec<RolloutStage>,
    pub progress_deadline: String,
    pub failure_budget: Option<Value>,
    pub on_failure: String,
    pub min_available: Option<Value>,
    pub windows: Vec<RolloutWindow>,
    pub paused: bool,
    pub revision_history_limit: Option<i64>,
}

/// A recurring time in which clusters may begin.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutWindow {
    pub schedule: String,
    pub duration: String,
    /// Empty: UTC.
    pub time_zone: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutStage {
    pub name: String,
    pub cluster_affinity: Option<ClusterAffinity>,
    pub max_concurrency: Option<Value>,
    pub batches: Vec<String>,
    pub gates: RolloutGates,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutGates {
    pub healthy_for: String,
    pub approval: bool,
    pub query: Option<QueryGate>,
    pub job: Option<JobGate>,
}

/// A Job that has to succeed in the clusters of the stage before the stage ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobGate {
    /// The CronJob in the namespace of the template whose `jobTemplate` is run.
    pub cron_job: String,
}

/// A PromQL query, whose result has to satisfy a threshold.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueryGate {
    /// `None`: the Prometheus of the control plane.
    pub prometheus: Option<PrometheusService>,
    /// `$cluster` in it is the name of the cluster.
    pub expression: String,
    pub operator: ThresholdOperator,
    pub threshold: f64,
    pub interval: String,
    pub failure_limit: i64,
}

/// A Service of members that answers queries as Prometheus does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PrometheusService {
    /// Empty: the namespace of the template.
    pub namespace: String,
    pub name: String,
    pub port: i64,
    pub scheme: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum ThresholdOperator {
    LessThan,
    #[default]
    AtMost,
    AtLeast,
    GreaterThan,
}

impl ThresholdOperator {
    /// Whether a value satisfies the threshold. NaN satisfies none.
    pub fn accepts(self, value: f64, threshold: f64) -> bool {
        match self {
            Self::LessThan => value < threshold,
            Self::AtMost => value <= threshold,
            Self::AtLeast => value >= threshold,
            Self::GreaterThan => value > threshold,
        }
    }

    pub fn as_words(self) -> &'static str {
        match self {
            Self::LessThan => "less than",
            Self::AtMost => "at most",
            Self::AtLeast => "at least",
            Self::GreaterThan => "greater than",
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Rollout {
    pub spec: RolloutSpec,
    /// Absent until the controller has written the first one.
    pub status: Option<RolloutStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RolloutSpec {
    pub paused: bool,
    pub approvals: Vec<StageApproval>,
    pub retry: Option<RolloutRequest>,
    pub abort: Option<RolloutRequest>,
}

/// A retry or an abort of a revision. Of both, the one with the greater number is the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RolloutRequest {
    pub revision: String,
    pub number: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StageApproval {
    pub stage: String,
    pub revision: String,
    /// Whether the stage also passes if it has lost its clusters.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_clusters: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutStatus {
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_template_generation: i64,
    /// The generation of the binding to which `replicas` belong; 0 without `minAvailable`.
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_binding_generation: i64,
    pub policy: String,
    pub target_revision: String,
    pub stable_revision: String,
    /// The stable revision before that one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub former_revision: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rejected_revision: String,
    /// Whether the template has been in a cluster: the stable revision is one to return to.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub placed: bool,
    /// Of how many clusters a percentage of the failure budget is.
    #[serde(skip_serializing_if = "is_zero")]
    pub budget_base: i64,
    /// The number of the last retry or abort that was decided.
    #[serde(skip_serializing_if = "is_zero")]
    pub handled_request: i64,
    /// How many Jobs of gates have been named, which makes the name of each one its own.
    #[serde(skip_serializing_if = "is_zero")]
    pub started_jobs: i64,
    pub state: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stage: String,
    /// The reason why the rollout waits, as far as state and stages do not say it, and the revisions
    /// that are not used.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    pub progress: String,
    pub stages: Vec<StageRolloutStatus>,
    /// The replicas that clusters keep, by name; none without `minAvailable`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ClusterReplicas>,
    pub conditions: Vec<Condition>,
}

/// The replicas that a cluster keeps: as many as it should have, or more while the others have too
/// few available ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterReplicas {
    pub cluster: String,
    pub replicas: i64,
    /// The revision of the Work of a cluster that is no target any more, or in a batch.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// The batch of the Work; 0 if all of its replicas may have its revision.
    #[serde(skip_serializing_if = "is_zero")]
    pub batch: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub batch_percent: i64,
    /// Since when the cluster has kept more than it should have; empty if it does not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub since: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageRolloutStatus {
    pub name: String,
    pub phase: RolloutPhase,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<StageJobStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterRolloutStatus>,
}

impl StageRolloutStatus {
    /// Whether all clusters of the stage have left, and none after its part had ended.
    pub fn has_lost_clusters(&self) -> bool {
        have_left_before_end(self.clusters.iter())
    }
}

/// Whether clusters, of which there is one at least, have left, and none after its part of the stage
/// had ended.
pub fn have_left_before_end<'a>(clusters: impl Iterator<Item = &'a ClusterRolloutStatus>) -> bool {
    let mut clusters = clusters.peekable();
    clusters.peek().is_some() && clusters.all(ClusterRolloutStatus::has_left_before_end)
}

/// The Job of a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageJobStatus {
    pub name: String,
    pub state: StageJobState,
    /// Since when it has been started, or in its final state; empty while it waits for the clusters
    /// of its stage.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub since: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Where it runs, once it has been started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
}

impl StageJobStatus {
    pub fn has_started(&self) -> bool {
        !self.since.is_empty()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StageJobState {
    /// It may not exist yet.
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl StageJobState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterRolloutStatus {
    pub name: String,
    pub revision: String,
    /// The number of the batch, from 1; 0 without batches, and for a batch that the cluster has from before
    /// the rollout, or before it came back, and with which it has not begun.
    #[serde(skip_serializing_if = "is_zero")]
    pub batch: i64,
    /// The percentage of the replicas that may have the revision; 0 if nothing was ever divided.
    #[serde(skip_serializing_if = "is_zero")]
    pub batch_percent: i64,
    pub phase: RolloutPhase,
    pub since: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<ClusterQueryStatus>,
    /// Whether the cluster had failed with the target when it left or was not Ready any more, and has not
    /// been done with it since.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

impl ClusterRolloutStatus {
    /// Whether the cluster has failed with its revision, and not merely been unreachable.
    pub fn has_failed_itself(&self) -> bool {
        self.phase == RolloutPhase::Failed && self.reason != CLUSTER_UNREACHABLE
    }

    /// Whether the rollout changes the workload of the cluster at the moment, so that it may be unhealthy.
    pub fn is_being_updated(&self) -> bool {
        match self.phase {
            RolloutPhase::Updating | RolloutPhase::Soaking => true,
            RolloutPhase::Failed => false,
            _ => self.is_divided(),
        }
    }

    /// Whether a part of the replicas may have the revision, and the others keep the one before.
    pub fn is_divided(&self) -> bool {
        (1..100).contains(&self.batch_percent)
    }

    /// Whether the cluster counts against the failure budget.
    pub fn counts_as_failed(&self) -> bool {
        self.phase == RolloutPhase::Failed || self.failed
    }

    fn has_left_before_end(&self) -> bool {
        self.phase == RolloutPhase::Skipped && self.reason == LEFT_BEFORE_END
    }
}

/// A result of the query of the stage since the cluster has been healthy: the last one that counts
/// as a failure, or with which the outcome changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterQueryStatus {
    pub time: String,
    pub value: String,
    pub satisfied: bool,
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: i64,
}

/// The phase of a cluster or of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RolloutPhase {
    #[default]
    Pending,
    Blocked,
    Updating,
    Soaking,
    Done,
    Failed,
    Skipped,
}

impl RolloutPhase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Blocked => "Blocked",
            Self::Updating => "Updating",
            Self::Soaking => "Soaking",
            Self::Done => "Done",
            Self::Failed => "Failed",
            Self::Skipped => "Skipped",
        }
    }
}

impl RolloutStatus {
    /// The state of a cluster that has the template.
    pub fn cluster(&self, name: &str) -> Option<&ClusterRolloutStatus> {
        let mut clusters = self.stages.iter().flat_map(|stage| &stage.clusters);
        clusters.find(|c| c.name == name && c.phase != RolloutPhase::Skipped)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_are_in_the_catalog() {
        for gvr in [
            &super::ROLLOUT_POLICIES,
            &super::CLUSTER_ROLLOUT_POLICIES,
            &super::ROLLOUTS,
        ] {
            let mut kinds = openapi::catalog().kinds().iter();
            assert!(kinds.any(|kind| kind.gvr == *gvr), "{gvr:?}");
        }
    }
}
