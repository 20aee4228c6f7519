//! Ends the staging of templates that no policy selects any more, and says which clusters get the target
//! at once.

use client::InvolvedObject;
use controller_context::Error;
use flotilla_runtime::{ReconcileAction, RestMapping, StatusWriter};
use karmada_api::Rollout;
use karmada_api::rollout::{ROLLOUTS, RolloutPhase, RolloutStatus, UNSTAGED};
use machinery::Object;
use serde_json::json;

use crate::cluster_names::cluster_names;
use crate::controller::RolloutController;

impl RolloutController {
    /// Ends the staging of a template, whose policy is gone: its revisions go with the Rollout, which
    /// is the last, so that an interrupted end is resumed. If clusters do not have the target yet, its
    /// status says so first, for the history of the template.
    pub(crate) async fn unstage(
        &self,
        binding: &Object,
        (mapping, template): (&RestMapping, &Object),
        rollout: &Object,
    ) -> Result<ReconcileAction, Error> {
        let view = rollout.decode::<Rollout>()?;
        if let Some(status) = view.status.as_ref().and_then(unstaged_status) {
            let text = status.message.clone();
            let writer = StatusWriter::new(&*self.api, "rollout");
            writer
                .update(&ROLLOUTS, rollout, Some(json!(status)))
                .await?;
            let about = InvolvedObject::new(&mapping.api_version, mapping.kind(), template);
            self.recorder.warning(&about, "StagesSkipped", text);
            return Ok(ReconcileAction::Done);
        }
        for revision in self.resolver.revisions_of(binding, template) {
            self.delete_revision(&revision).await?;
        }
        self.delete(rollout).await
    }
}

/// The last status of a rollout some of whose clusters do not have the whole target; `None` if all
/// have, or if it says so already.
fn unstaged_status(status: &RolloutStatus) -> Option<RolloutStatus> {
    let clusters = status.stages.iter().flat_map(|stage| &stage.clusters);
    let waiting = clusters.filter(|cluster| {
        let has_target = cluster.revision == status.target_revision && !cluster.is_divided();
        cluster.phase != RolloutPhase::Skipped && !has_target
    });
    let names: Vec<&str> = waiting.map(|cluster| &*cluster.name).collect();
    if names.is_empty() || status.state == UNSTAGED {
        return None;
    }
    let message = format!(
        "No RolloutPolicy selects the template any more: {} its present content at once, without their \
        stages: {}",
        counted_clusters(names.len()),
        cluster_names(&names)
    );
    Some(RolloutStatus {
        state: UNSTAGED.to_owned(),
        message,
        ..status.clone()
    })
}

fn counted_clusters(count: usize) -> String {
    match count {
        1 => "1 cluster gets".to_owned(),
        _ => format!("{count} clusters get"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    // proves: ROL-unstaged-running
    #[test]
    fn the_last_status_names_the_clusters_that_get_the_target_at_once() {
        let message = |state: &str, clusters: Value| {
            let status = json!({"state": state, "targetRevision": "2",
                "stages": [{"name": "s", "clusters": clusters}]});
            let status: RolloutStatus = serde_json::from_value(status).unwrap();
            let last = unstaged_status(&status)?;
            assert_eq!(last.state, UNSTAGED);
            Some(last.message)
        };
        let cluster = |name: &str, revision: &str, phase: &str| json!({"name": name, "revision": revision, "phase": phase});
        let done = cluster("a", "2", "Done");
        let mut divided = cluster("b", "2", "Soaking");
        divided["batchPercent"] = 50.into();
        let waiting = cluster("c", "1", "Pending");
        let left = cluster("d", "1", "Skipped");
        assert_eq!(message("Completed", json!([done, left])), None);
        assert_eq!(message(UNSTAGED, json!([waiting])), None);
        let text = message("Paused", json!([done, divided, waiting, left])).unwrap();
        let begin =
            "No RolloutPolicy selects the template any more: 2 clusters get its present content";
        assert!(
            text.starts_with(begin) && text.ends_with("stages: b, c"),
            "{text}"
        );
        let many: Vec<Value> = (0..7)
            .map(|n| cluster(&format!("m{n}"), "1", "Pending"))
            .collect();
        let text = message("Paused", json!(many)).unwrap();
        assert!(text.ends_with("m4 and 2 more"), "{text}");
    }
}
