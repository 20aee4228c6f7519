//! Says which stages of running rollouts would lose their last cluster to another placement.

use std::collections::HashMap;

use client::{Api, ListOptions, ResourcePath};
use karmada_api::rollout::{
    ClusterRolloutStatus, LEFT_BEFORE_END, REMAINING_STAGE, ROLLOUTS, RolloutPhase, RolloutStatus,
    StageRolloutStatus,
};
use karmada_api::{Rollout, TargetCluster};

/// The statuses of Rollouts, by the keys of their bindings.
#[derive(Default)]
pub(crate) struct ListedRollouts(HashMap<String, RolloutStatus>);

impl ListedRollouts {
    /// Lists the Rollouts of a namespace, or of all; none for users who may not, and where the server
    /// has no such kind.
    pub(crate) async fn list(api: &dyn Api, namespace: &str) -> anyhow::Result<Self> {
        let at = ResourcePath::collection(&ROLLOUTS, namespace);
        let list = match api.list(at, &ListOptions::default()).await {
            Err(error) if error.is_forbidden() || error.is_not_found() => {
                return Ok(Self::default());
            }
            list => list?,
        };
        let mut statuses = HashMap::new();
        for rollout in list.items {
            let view = rollout.decode::<Rollout>()?;
            if let Some(status) = &view.status {
                statuses.insert(rollout.meta().key(), status.clone());
            }
        }
        Ok(Self(statuses))
    }

    /// The stages of the rollout of a binding, each as a sentence, that another placement would leave
    /// without a cluster before they have ended.
    pub(crate) fn lost_stages(&self, binding: &str, then: &[TargetCluster]) -> Vec<String> {
        let status = self.0.get(binding);
        status
            .map(|status| lost_stages(status, then))
            .unwrap_or_default()
    }
}

fn lost_stages(status: &RolloutStatus, then: &[TargetCluster]) -> Vec<String> {
    let is_staged = !status.stage.is_empty() && status.rejected_revision != status.target_revision;
    if !is_staged || then.is_empty() {
        return Vec::new();
    }
    let fails = matches!(&*status.state, "FailureBudgetExceeded" | "JobFailed");
    let may_lose = |stage: &&StageRolloutStatus| match stage.phase {
        RolloutPhase::Done => false,
        RolloutPhase::Failed => fails,
        _ => stage.name != REMAINING_STAGE,
    };
    let stages = status.stages.iter().filter(may_lose);
    let sentence = |stage: &StageRolloutStatus| {
        let has_left = |c: &&ClusterRolloutStatus| c.phase == RolloutPhase::Skipped;
        let (left, present): (Vec<_>, Vec<_>) = stage.clusters.iter().partition(has_left);
        let had_ended = left.iter().any(|cluster| cluster.reason != LEFT_BEFORE_END);
        let stays = |c: &&ClusterRolloutStatus| then.iter().any(|target| target.name == c.name);
        if present.is_empty() || had_ended || present.iter().any(stays) {
            return None;
        }
        let names: Vec<&str> = present.iter().map(|cluster| &*cluster.name).collect();
        Some(format!(
            "stage {} of its rollout has not ended and would lose its last cluster ({}): unless onFailure is \
            Continue, the rollout then waits until one joins the stage",
            stage.name,
            names.join(", ")
        ))
    };
    stages.filter_map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    // proves: CLI-lost-stage
    #[test]
    fn a_stage_that_would_lose_its_last_cluster_is_named() {
        let cluster = |name: &str, phase: &str, reason: &str| json!({"name": name, "phase": phase, "reason": reason});
        let (a, b) = (cluster("a", "Soaking", ""), cluster("b", "Pending", ""));
        let left = |reason: &str| cluster("c", "Skipped", reason);
        let canary = |phase: &str, clusters: Value| json!({"name": "canary", "phase": phase, "clusters": clusters});
        for (stage, state, canary, then, is_lost) in [
            (
                "canary",
                "Progressing",
                canary("Soaking", json!([a])),
                "b",
                true,
            ),
            (
                "canary",
                "Progressing",
                canary("Soaking", json!([a])),
                "ab",
                false,
            ),
            (
                "canary",
                "Progressing",
                canary("Soaking", json!([a, left("LeftBeforeEnd")])),
                "b",
                true,
            ),
            (
                "canary",
                "Progressing",
                canary("Soaking", json!([a, left("LeftAfterEnd")])),
                "b",
                false,
            ),
            (
                "canary",
                "AwaitingCluster",
                canary("Blocked", json!([left("LeftBeforeEnd")])),
                "b",
                false,
            ),
            (
                "rest",
                "Progressing",
                canary("Done", json!([a])),
                "b",
                false,
            ),
            (
                "rest",
                "Progressing",
                canary("Failed", json!([a])),
                "b",
                false,
            ),
            (
                "rest",
                "FailureBudgetExceeded",
                canary("Failed", json!([a])),
                "b",
                true,
            ),
            (
                "canary",
                "Progressing",
                canary("Soaking", json!([a])),
                "",
                false,
            ),
            ("", "Completed", canary("Soaking", json!([a])), "b", false),
        ] {
            let rest = json!({"name": "remaining", "phase": "Pending", "clusters": [b]});
            let status = json!({"state": state, "stage": stage, "targetRevision": "2", "stages": [canary, rest]});
            let status: RolloutStatus = serde_json::from_value(status).unwrap();
            let target = |name: char| TargetCluster {
                name: name.to_string(),
                ..TargetCluster::default()
            };
            let then: Vec<TargetCluster> = then.chars().map(target).collect();
            let sentences = lost_stages(&status, &then);
            assert_eq!(sentences.len(), usize::from(is_lost), "{status:?}");
            let begin =
                "stage canary of its rollout has not ended and would lose its last cluster (a)";
            assert!(
                sentences.iter().all(|text| text.starts_with(begin)),
                "{sentences:?}"
            );
        }
    }
}
