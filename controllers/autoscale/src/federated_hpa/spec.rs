//! Typed view of a FederatedHPA (`autoscaling.karmada.io/v1alpha1`).

use karmada_api::cron_federated_hpa::ScaleTargetReference;
use machinery::Quantity;
use serde::Deserialize;
use serde_json::{Value, json};

use super::behavior::ScalingBehavior;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FederatedHpa {
    pub(crate) spec: FederatedHpaSpec,
    pub(crate) status: FederatedHpaStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FederatedHpaSpec {
    pub(crate) scale_target_ref: ScaleTargetReference,
    pub(crate) min_replicas: Option<i32>,
    pub(crate) max_replicas: i32,
    pub(crate) metrics: Vec<MetricSpec>,
    pub(crate) behavior: Option<ScalingBehavior>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FederatedHpaStatus {
    pub(crate) last_scale_time: Option<String>,
    pub(crate) current_replicas: i32,
    pub(crate) desired_replicas: i32,
    pub(crate) current_metrics: Value,
    pub(crate) conditions: Value,
}

impl FederatedHpaStatus {
    pub(crate) fn value(&self) -> Value {
        let mut status = json!({"currentReplicas": self.current_replicas,
            "desiredReplicas": self.desired_replicas});
        let parts = [
            ("lastScaleTime", self.last_scale_time.clone().into()),
            ("currentMetrics", self.current_metrics.clone()),
            ("conditions", self.conditions.clone()),
        ];
        for (field, value) in parts {
            if !value.is_null() {
                status[field] = value;
            }
        }
        status
    }
}

/// One metric. Admission has checked that the source of its type is there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct MetricSpec {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) object: Option<ObjectMetricSource>,
    pub(crate) pods: Option<PodsMetricSource>,
    pub(crate) resource: Option<ResourceMetricSource>,
    pub(crate) container_resource: Option<ResourceMetricSource>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObjectMetricSource {
    pub(crate) described_object: ScaleTargetReference,
    pub(crate) metric: MetricIdentifier,
    pub(crate) target: MetricTarget,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodsMetricSource {
    pub(crate) metric: MetricIdentifier,
    pub(crate) target: MetricTarget,
}

/// A resource of the pods, or of one of their containers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ResourceMetricSource {
    pub(crate) name: String,
    /// Empty: all containers.
    pub(crate) container: String,
    pub(crate) target: MetricTarget,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MetricIdentifier {
    pub(crate) name: String,
    /// A label selector of series.
    pub(crate) selector: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct MetricTarget {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) value: Option<Quantity>,
    pub(crate) average_value: Option<Quantity>,
    pub(crate) average_utilization: Option<i32>,
}
