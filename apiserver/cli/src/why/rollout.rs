//! Reports where the revisions of a template are whose changes are staged. Pure.

use karmada_api::Rollout;
use karmada_api::rollout::{
    ClusterReplicas, RolloutPhase, RolloutStatus, StageJobState, StageJobStatus,
};
use machinery::Object;
use serde::Serialize;

use crate::printers::format_table;
use crate::rollout::{BEING_DELETED, batch_text, job_details, reason_text};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutSummary {
    pub policy: String,
    pub state: String,
    /// The first stage that has not ended.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stage: String,
    /// The reason why it waits, as far as state and stages do not say it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Whether somebody has deleted the Rollout, which stays until it has ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_being_deleted: bool,
    /// How many of the clusters are done with the target revision.
    pub progress: String,
    pub target_revision: String,
    /// Whether the rollout has the last change of the template.
    pub is_current: bool,
    pub clusters: Vec<StagedCluster>,
    /// The Jobs that stages have started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<StageJob>,
    /// The clusters that keep more replicas than they should have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept_replicas: Vec<ClusterReplicas>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StageJob {
    pub stage: String,
    #[serde(flatten)]
    pub job: StageJobStatus,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StagedCluster {
    pub name: String,
    pub stage: String,
    pub phase: RolloutPhase,
    pub revision: String,
    /// The batch of its replicas that may have the revision; empty if all may.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub batch: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The summary of a Rollout; `None` until it has a status.
pub fn rollout_summary(rollout: &Object, template: &Object) -> Option<RolloutSummary> {
    let view = rollout.decode::<Rollout>().ok()?;
    let status = view.status.as_ref()?;
    Some(RolloutSummary {
        policy: policy_name(&status.policy).to_owned(),
        state: status.state.clone(),
        stage: status.stage.clone(),
        message: status.message.clone(),
        is_being_deleted: rollout.meta().deleting,
        progress: status.progress.clone(),
        target_revision: status.target_revision.clone(),
        is_current: status.observed_template_generation >= template.meta().generation,
        clusters: staged_clusters(status),
        jobs: stage_jobs(status),
        kept_replicas: kept_replicas(status),
    })
}

/// Kind and name of a policy; its uid and generation follow in the status.
fn policy_name(policy: &str) -> &str {
    policy.split_once(' ').map_or(policy, |(name, _)| name)
}

fn kept_replicas(status: &RolloutStatus) -> Vec<ClusterReplicas> {
    let keeping = status.replicas.iter().filter(|c| !c.since.is_empty());
    keeping.cloned().collect()
}

fn staged_clusters(status: &RolloutStatus) -> Vec<StagedCluster> {
    let stages = status.stages.iter();
    let clusters = stages.flat_map(|stage| stage.clusters.iter().map(|c| (&stage.name, c)));
    clusters
        .map(|(stage, cluster)| StagedCluster {
            name: cluster.name.clone(),
            stage: stage.clone(),
            phase: cluster.phase,
            revision: cluster.revision.clone(),
            batch: batch_text(cluster, &status.target_revision),
            reason: reason_text(cluster),
        })
        .collect()
}

fn stage_jobs(status: &RolloutStatus) -> Vec<StageJob> {
    let jobs = status.stages.iter().filter_map(|stage| {
        Some(StageJob {
            stage: stage.name.clone(),
            job: stage.job.clone()?,
        })
    });
    jobs.collect()
}

impl RolloutSummary {
    /// The line about the rollout as a whole.
    pub fn line(&self) -> String {
        let stage = match &*self.stage {
            "" => String::new(),
            stage => format!(" in stage {stage}"),
        };
        format!(
            "Rollout:    {}{stage}, {} clusters done with {}, by {}",
            self.state, self.progress, self.target_revision, self.policy
        )
    }

    /// The table of the clusters.
    pub fn table(&self) -> String {
        let row = |cluster: &StagedCluster| {
            let mut details = vec![&*cluster.batch, &*cluster.reason];
            details.retain(|text| !text.is_empty());
            vec![
                cluster.name.clone(),
                cluster.stage.clone(),
                cluster.phase.as_str().to_owned(),
                cluster.revision.clone(),
                details.join(": "),
            ]
        };
        let job_row = |job: &StageJob| {
            vec![
                String::new(),
                job.stage.clone(),
                job.job.state.as_str().to_owned(),
                String::new(),
                job_details(&job.job),
            ]
        };
        let rows = self.clusters.iter().map(row);
        let rows: Vec<Vec<String>> = rows.chain(self.jobs.iter().map(job_row)).collect();
        let titles = ["CLUSTER", "STAGE", "PHASE", "REVISION", "REASON"];
        format_table(&titles, &rows)
    }

    /// Whether a cluster keeps more replicas than it should have.
    pub fn keeps_replicas(&self, cluster: &str) -> bool {
        let mut keeping = self.kept_replicas.iter();
        keeping.any(|kept| kept.cluster == cluster)
    }

    /// Why clusters keep replicas, and do not have the last change of the template yet.
    pub fn pending(&self) -> Vec<String> {
        let keeps = self.kept_replicas.iter().map(|kept| {
            let ClusterReplicas {
                cluster,
                replicas,
                since,
                message,
                ..
            } = kept;
            format!(
                "{cluster} keeps {replicas} replicas since {since}, until enough others are available: {message}"
            )
        });
        let mut pending: Vec<String> = keeps.collect();
        if self.is_being_deleted {
            pending.push(BEING_DELETED.to_owned());
        }
        if !self.is_current {
            pending.push("the rollout does not have the last change of the template yet".into());
            return pending;
        }
        if !self.message.is_empty() {
            pending.push(format!("rollout {}: {}", self.state, self.message));
        }
        let waits = self.clusters.iter().filter(|cluster| {
            cluster.phase != RolloutPhase::Skipped && cluster.revision != self.target_revision
        });
        let text = |cluster: &StagedCluster| {
            format!(
                "{} keeps the revision {}: stage {}, {}{}",
                cluster.name,
                cluster.revision,
                cluster.stage,
                cluster.phase.as_str(),
                match &*cluster.reason {
                    "" => String::new(),
                    reason => format!(" ({reason})"),
                }
            )
        };
        let jobs = self.jobs.iter().filter(|job| {
            job.stage == self.stage
                && job.job.state != StageJobState::Succeeded
                && self.state != "RolledBack"
        });
        let job_text = |job: &StageJob| {
            let state = job.job.state.as_str();
            format!(
                "stage {} awaits {} ({state})",
                job.stage,
                job_details(&job.job)
            )
        };
        pending.extend(waits.map(text).chain(jobs.map(job_text)));
        pending
    }
}
