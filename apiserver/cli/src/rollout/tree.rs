//! Formats the stages and clusters of a rollout as a tree. Pure.

use karmada_api::rollout::{ClusterRolloutStatus, RolloutPhase, RolloutStatus};

use super::cluster_details::{cluster_details, job_details};
use crate::printers::single_line;

/// The summary, and below it the stages that have clusters, with their clusters.
pub(super) fn format_tree(summary: &str, status: &RolloutStatus) -> String {
    let stages = status.stages.iter();
    let stages: Vec<_> = stages.filter(|stage| !stage.clusters.is_empty()).collect();
    let clusters = stages.iter().flat_map(|stage| &stage.clusters);
    // A cluster stands three characters further to the right than its stage.
    let names = clusters.map(|cluster| cluster.name.chars().count() + 3);
    let names = names.chain(stages.iter().map(|stage| stage.name.chars().count()));
    let width = names.max().unwrap_or(0);
    let mut lines = vec![summary.to_owned()];
    for (i, stage) in stages.iter().enumerate() {
        let is_last = i + 1 == stages.len();
        let (branch, below) = if is_last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        let phase = stage.phase.as_str();
        let job = stage.job.as_ref().map(|job| {
            let text = format!(
                "; {} since {}: {}",
                job.state.as_str(),
                job.since,
                job_details(job)
            );
            single_line(&text)
        });
        let job = job.unwrap_or_default();
        lines.push(format!("{branch}{:width$}   {phase}{job}", stage.name));
        for (j, cluster) in stage.clusters.iter().enumerate() {
            let is_last = j + 1 == stage.clusters.len();
            let branch = if is_last { "└─ " } else { "├─ " };
            let name_width = width - 3;
            let text = cluster_text(cluster, &status.target_revision);
            lines.push(format!(
                "{below}{branch}{:name_width$}   {text}",
                cluster.name
            ));
        }
    }
    lines.join("\n")
}

fn cluster_text(cluster: &ClusterRolloutStatus, target: &str) -> String {
    let phase = cluster.phase.as_str();
    let since = match cluster.phase {
        RolloutPhase::Pending | RolloutPhase::Skipped => String::new(),
        _ => format!(" since {}", cluster.since),
    };
    let text = match &*cluster_details(cluster, target) {
        "" => format!("{phase}{since}"),
        details => format!("{phase}{since}: {details}"),
    };
    single_line(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: ROL-tree, CLI-rollout-job
    #[test]
    fn clusters_stand_below_their_stages() {
        let cluster = |name: &str, phase: &str, reason: &str, message: &str| json!({"name": name, "phase": phase, "since": "T", "reason": reason, "message": message});
        let status = json!({"stages": [
            {"name": "canary", "phase": "Failed", "job": {"name": "smoke-1", "state": "Failed", "since": "T", "message": "no\nlimit"}, "clusters": [cluster("m1", "Failed", "ProgressDeadlineExceeded", "no\nimage")]},
            {"name": "nobody", "phase": "Skipped"},
            {"name": "everywhere-else", "phase": "Pending", "clusters": [
                cluster("member-2", "Updating", "", ""), cluster("m3", "Pending", "WaitingForOthers", "")]},
        ]});
        let status: RolloutStatus = serde_json::from_value(status).unwrap();
        let expected = "\
web: Progressing
├─ canary            Failed; Failed since T: job/smoke-1: no limit
│  └─ m1             Failed since T: ProgressDeadlineExceeded: no image
└─ everywhere-else   Pending
   ├─ member-2       Updating since T
   └─ m3             Pending: WaitingForOthers";
        assert_eq!(format_tree("web: Progressing", &status), expected);
    }
}
