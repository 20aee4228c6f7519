//! Typed view of CronFederatedHPA (`autoscaling.karmada.io/v1alpha1`).

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CronFederatedHpa {
    pub spec: CronFederatedHpaSpec,
    pub status: CronFederatedHpaStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronFederatedHpaSpec {
    pub scale_target_ref: ScaleTargetReference,
    pub rules: Vec<CronFederatedHpaRule>,
}

/// A workload with the subresource `scale`, or a FederatedHPA, in the namespace of the referrer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScaleTargetReference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronFederatedHpaRule {
    pub name: String,
    pub schedule: String,
    pub target_replicas: Option<i32>,
    pub target_min_replicas: Option<i32>,
    pub target_max_replicas: Option<i32>,
    pub suspend: Option<bool>,
    /// Absent: the zone of the process.
    pub time_zone: Option<String>,
    pub successful_history_limit: Option<usize>,
    pub failed_history_limit: Option<usize>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronFederatedHpaStatus {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub execution_histories: Vec<ExecutionHistory>,
}

/// The executions of a rule, the latest first. Times are RFC 3339 texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecutionHistory {
    pub rule_name: String,
    /// Absent while the rule is suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_execution_time: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub successful_executions: Vec<SuccessfulExecution>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_executions: Vec<FailedExecution>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuccessfulExecution {
    pub schedule_time: String,
    pub execution_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_max_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_min_replicas: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailedExecution {
    pub schedule_time: String,
    pub execution_time: String,
    pub message: String,
}
