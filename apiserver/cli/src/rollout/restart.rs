//! Restarts the pods of a template in the stages of its rollout.

use anyhow::ensure;
use client::{Patch, ResourcePath, WriteOptions};
use machinery::time::{Clock, SystemClock, rfc3339_seconds};
use serde_json::json;

use super::template_rollout::TemplateRollout;
use crate::output;

/// The annotation of the pod template that kubectl rollout restart writes.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

impl TemplateRollout {
    pub(super) async fn restart(&self) -> anyhow::Result<()> {
        let tree = self.template.value()?;
        ensure!(
            tree["spec"]["template"]["spec"].is_object(),
            "{} has no pod template, so it cannot be restarted",
            self.text
        );
        ensure!(
            tree["spec"]["paused"] != true,
            "can't restart paused {} (set spec.paused to false first)",
            self.text
        );
        let now = rfc3339_seconds(SystemClock.now());
        let annotations = json!({RESTARTED_AT: now});
        let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
        let at = ResourcePath::of_object(&self.resource.resource, &self.template);
        let options = WriteOptions::default();
        self.api.patch(at, Patch::Merge(patch), &options).await?;
        output::print_line(format!("{} restarted", self.text));
        Ok(())
    }
}
