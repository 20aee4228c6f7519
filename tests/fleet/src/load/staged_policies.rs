//! The RolloutPolicies that the load writes.

use machinery::Gvr;
use serde_json::{Value, json};

use super::objects::{LoadObject, STAGE_LABEL};
use crate::sizes::STAGES;

static ROLLOUT_POLICIES: Gvr =
    Gvr::from_static("rollout.flotilla.io", "v1alpha1", "rolloutpolicies");

/// A policy with the three stages, in which clusters soak for some seconds.
pub(crate) fn rollout_policy(name: &str, selector: &Value, soak_seconds: u64) -> LoadObject {
    let stage = |stage: &&str| {
        json!({
            "name": stage,
            "clusterAffinity": {"labelSelector": {"matchLabels": {STAGE_LABEL: stage}}},
            "gates": {"healthyFor": format!("{soak_seconds}s")},
        })
    };
    let stages: Vec<Value> = STAGES.iter().map(stage).collect();
    let object = json!({
        "apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "RolloutPolicy",
        "metadata": {"name": name},
        "spec": {"resourceSelectors": [selector], "stages": stages},
    });
    LoadObject::in_namespace(&ROLLOUT_POLICIES, object)
}
