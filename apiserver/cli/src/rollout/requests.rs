//! Requests a retry or an abort of the revision that is rolled out.

use anyhow::{bail, ensure};
use karmada_api::Rollout;
use karmada_api::rollout::{RolloutPhase, RolloutRequest, RolloutStatus, StageJobState};
use serde_json::json;

use super::template_rollout::TemplateRollout;
use crate::output;

impl TemplateRollout {
    pub(super) async fn retry(&self) -> anyhow::Result<()> {
        let view = self.object.decode::<Rollout>()?;
        let status = self.staged().current_status(&view)?;
        let mut clusters = status.stages.iter().flat_map(|stage| &stage.clusters);
        let mut jobs = status.stages.iter().filter_map(|stage| stage.job.as_ref());
        ensure!(
            status.rejected_revision == status.target_revision
                || clusters.any(|cluster| cluster.phase == RolloutPhase::Failed)
                || jobs.any(|job| job.state == StageJobState::Failed),
            "no cluster and no Job of {} has failed, and it was not rolled back",
            self.text
        );
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
