//! Makes the Works of a staged template: that of each cluster from the revision that its stage has
//! reached.

use std::collections::BTreeMap;

use controller_context::{Error, set_metadata_entry};
use flotilla_runtime::RestMapping;
use karmada_api::rollout::REVISION;
use karmada_api::{ResourceBinding, TargetCluster};
use machinery::{Gvk, Object};
use rollout::{StagedRevisions, TemplateRevision};
use serde_json::Value;

use crate::controller::BindingController;
use crate::manifest::{StagedRevision, WorkSource};
use crate::work_builder::WorkBuilder;

impl BindingController {
    /// Creates or updates the Works of the clusters that have a revision; returns whether any was
    /// written. The Works of others stay as they are until the Rollout has them.
    pub(crate) async fn ensure_staged_works(
        &self,
        binding: &Object,
        view: &ResourceBinding,
        (served, template): (&RestMapping, &Object),
        staged: &StagedRevisions,
    ) -> Result<bool, Error> {
        let mut by_revision: BTreeMap<&str, Vec<&TargetCluster>> = BTreeMap::new();
        for target in view.spec.targets() {
            if let Some(revision) = staged.revision_of(&target.name) {
                by_revision.entry(revision).or_default().push(target);
            }
        }
        let (mut written, mut failed) = (false, Vec::new());
        for (revision, targets) in by_revision {
            let current = (&served.gvk, template);
            let content = match self.revisions.read(binding, revision, current, staged) {
                Ok(content) => content,
                Err(error) => {
                    failed.push(Error::Blocked(error));
                    continue;
                }
            };
            let TemplateRevision {
                template,
                overrides,
            } = content;
            let source = WorkSource {
                template: &template,
                overrides,
                revision: Some(StagedRevision {
                    name: revision,
                    staged,
                }),
                targets,
            };
            match Box::pin(self.ensure_works(binding, view, served, source)).await {
                Ok(wrote) => written |= wrote,
                Err(error) => failed.push(error),
            }
        }
        Error::aggregate(failed).map(|()| written)
    }
}

impl WorkBuilder {
    /// Puts the revision of a cluster on its manifest, and the partition of its batch, which wins
    /// over overrides.
    pub(crate) fn stage_manifest(
        &self,
        kind: &Gvk,
        manifest: &mut Value,
        revision: StagedRevision<'_>,
        cluster: &str,
    ) -> Result<(), String> {
        if let Some(percent) = revision.staged.batch_percent_of(cluster) {
            let divided = self.interpreter.set_partition(kind, manifest, percent);
            divided.map_err(|error| error.to_string())?;
        }
        set_metadata_entry(manifest, "annotations", REVISION, revision.name);
        Ok(())
    }
}
