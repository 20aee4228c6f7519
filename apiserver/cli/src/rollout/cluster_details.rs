//! Says how far a cluster of a rollout, or the Job of a stage, is. Pure.

use karmada_api::rollout::{ClusterRolloutStatus, StageJobStatus};

const PERCENT_OF_ALL: i64 = 100;
/// The meaning of the deletion of a Rollout.
pub(crate) const BEING_DELETED: &str =
    "the Rollout is being deleted: it stays until it has ended, and is made again then";

/// The batch that a cluster has, empty without one. `target`: the revision that is rolled out; the
/// last batch of an earlier one says nothing about it.
pub(crate) fn batch_text(cluster: &ClusterRolloutStatus, target: &str) -> String {
    let is_earlier = cluster.revision != target && cluster.batch_percent >= PERCENT_OF_ALL;
    match cluster.batch {
        0 if cluster.is_divided() => format!("{}% of the replicas", cluster.batch_percent),
        0 => String::new(),
        _ if is_earlier => String::new(),
        number => format!("batch {number} ({}%)", cluster.batch_percent),
    }
}

/// The batch of a cluster, and why the cluster is in its phase.
pub fn cluster_details(cluster: &ClusterRolloutStatus, target: &str) -> String {
    join_parts(&[&batch_text(cluster, target), &reason_text(cluster)])
}

/// Why a cluster is in its phase.
pub(crate) fn reason_text(cluster: &ClusterRolloutStatus) -> String {
    let failed = match cluster.failed {
        true => "it had failed with this revision",
        false => "",
    };
    join_parts(&[&cluster.reason, failed, &cluster.message])
}

fn join_parts(parts: &[&str]) -> String {
    let parts = parts.iter().copied().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(": ")
}

/// The Job of a stage, and why it has failed.
pub fn job_details(job: &StageJobStatus) -> String {
    match &*job.message {
        "" => format!("job/{}", job.name),
        message => format!("job/{}: {message}", job.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: CLI-rollout-batch
    #[test]
    fn the_batch_is_that_of_the_revision_that_is_rolled_out() {
        for (revision, percent, expected) in [
            ("2", 50, "batch 1 (50%): Paused"),
            ("2", 100, "batch 1 (100%): Paused"),
            ("1", 50, "batch 1 (50%): Paused"),
            ("1", 100, "Paused"),
        ] {
            let cluster = json!({"name": "a", "phase": "Soaking", "revision": revision,
                "batch": 1, "batchPercent": percent, "reason": "Paused"});
            let mut cluster: ClusterRolloutStatus = serde_json::from_value(cluster).unwrap();
            assert_eq!(cluster_details(&cluster, "2"), expected);
            cluster.batch = 0;
            let expected = match percent {
                50 => "50% of the replicas: Paused",
                _ => "Paused",
            };
            assert_eq!(cluster_details(&cluster, "2"), expected);
        }
        let left =
            json!({"name": "a", "phase": "Skipped", "reason": "LeftBeforeEnd", "failed": true});
        let left: ClusterRolloutStatus = serde_json::from_value(left).unwrap();
        let expected = "LeftBeforeEnd: it had failed with this revision";
        assert_eq!(cluster_details(&left, "2"), expected);
    }
}
