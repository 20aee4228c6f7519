//! Requests a retry or an abort of the revision that is rolled out.

use anyhow::{bail, ensure};
use karmada_api::Rollout;
use karmada_api::rollout::{RolloutRequest, RolloutStatus, StageJobState};
use serde_json::json;

use super::template_rollout::TemplateRollout;
use crate::output;

impl TemplateRollout {
    pub(super) async fn retry(&self) -> anyhow::Result<()> {
        let view = self.object.decode::<Rollout>()?;
        let status = self.staged().current_status(&view)?;
        if let Some(reason) = unneeded_retry(&self.text, status) {
            bail!(reason);
        }
        let request = next_request(&view, status);
        self.patch_request(json!({"retry": request})).await?;
        output::print_line(format!("{} retried", self.text));
        Ok(())
    }

    pub(super) async fn abort(&self) -> anyhow::Result<()> {
        let view = self.object.decode::<Rollout>()?;
        let status = self.staged().current_status(&view)?;
        if status.rejected_revision == status.target_revision {
            bail!("{} is already rolled back", self.text);
        }
        ensure!(
            status.stable_revision != status.target_revision,
            "the rollout of {} has ended; undo it with flotilla rollout undo",
            self.text
        );
        let request = next_request(&view, status);
        self.patch_request(json!({"abort": request})).await?;
        output::print_line(format!("{} aborted", self.text));
        Ok(())
    }
}

/// Why a retry would change nothing.
fn unneeded_retry(template: &str, status: &RolloutStatus) -> Option<String> {
    let clusters = status.stages.iter().flat_map(|stage| &stage.clusters);
    let failed = clusters.filter(|cluster| cluster.counts_as_failed());
    let (restartable, unreachable): (Vec<_>, Vec<_>) =
        failed.partition(|cluster| cluster.failed || cluster.has_failed_itself());
    let mut jobs = status.stages.iter().filter_map(|stage| stage.job.as_ref());
    if status.rejected_revision == status.target_revision
        || !restartable.is_empty()
        || jobs.any(|job| job.state == StageJobState::Failed)
    {
        return None;
    }
    let names: Vec<&str> = unreachable.iter().map(|cluster| &*cluster.name).collect();
    Some(match names.is_empty() {
        true => {
            format!("no cluster and no Job of {template} has failed, and it was not rolled back")
        }
        false => format!(
            "a retry changes nothing: the clusters of {template} that have failed are not Ready, and go on by themselves once they are: {}",
            names.join(", ")
        ),
    })
}

/// A request about the target with a number that was not used before.
fn next_request(view: &Rollout, status: &RolloutStatus) -> RolloutRequest {
    let requests = [&view.spec.retry, &view.spec.abort].into_iter().flatten();
    let numbers = requests.map(|request| request.number);
    let last = numbers.fold(status.handled_request, i64::max);
    RolloutRequest {
        revision: status.target_revision.clone(),
        number: last.saturating_add(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: CLI-rollout-retry
    #[test]
    fn a_retry_that_changes_nothing_is_refused() {
        let cluster = |name: &str, phase: &str, reason: &str| json!({"name": name, "phase": phase, "reason": reason});
        let unreachable = cluster("a", "Failed", "ClusterUnreachable");
        let late = cluster("b", "Failed", "ProgressDeadlineExceeded");
        let done = cluster("c", "Done", "");
        let job = json!({"name": "smoke", "state": "Failed"});
        for (clusters, job, rejected, expected) in [
            (
                vec![&done],
                None,
                "",
                "no cluster and no Job of web has failed",
            ),
            (vec![&done, &unreachable], None, "", "once they are: a"),
            (vec![&unreachable, &late], None, "", ""),
            (vec![&unreachable], Some(&job), "", ""),
            (vec![&unreachable], None, "2", ""),
        ] {
            let status = json!({"targetRevision": "2", "rejectedRevision": rejected,
                "stages": [{"name": "s", "job": job, "clusters": clusters}]});
            let status: RolloutStatus = serde_json::from_value(status).unwrap();
            let reason = unneeded_retry("web", &status).unwrap_or_default();
            assert_eq!(reason.is_empty(), expected.is_empty(), "{reason}");
            assert!(reason.contains(expected), "{reason}");
        }
    }
}
