//! Finds the revisions that clusters should have and that are missing or were replaced.

use std::collections::{BTreeMap, BTreeSet};

use client::{InvolvedObject, ResourcePath, ignore_not_found};
use controller_context::Error;
use karmada_api::rollout::{RolloutPhase, RolloutStatus};
use machinery::Object;

use crate::controller::{PolicedTemplate, RolloutController};
use crate::decision::REVISION_UNUSABLE;
use crate::revision::{CONTROLLER_REVISIONS, read_revision};

impl RolloutController {
    /// Why revisions that clusters have by a status are not used, by name.
    pub(crate) async fn unusable_revisions(
        &self,
        staged: &PolicedTemplate<'_>,
        status: Option<&RolloutStatus>,
    ) -> Result<BTreeMap<String, String>, Error> {
        let (binding, current) = (staged.binding, (&staged.mapping.gvk, staged.template));
        let mut unusable = BTreeMap::new();
        for name in status.map(revisions_in_use).unwrap_or_default() {
            let mut revision = self.resolver.revisions.get(binding.namespace(), name);
            if revision.is_none() {
                // The cache may be older than the status.
                let at = ResourcePath::object(&CONTROLLER_REVISIONS, binding.namespace(), name);
                revision = ignore_not_found(self.api.get(at).await)?;
            }
            let result = match revision {
                None => Err(format!("controllerrevision {name} not found")),
                Some(revision) => read_revision(binding.name(), &revision, current, None).map(drop),
            };
            if let Err(reason) = result {
                unusable.insert(name.to_owned(), reason);
            }
        }
        Ok(unusable)
    }

    /// Records an event when other revisions of a Rollout than before are not used.
    pub(crate) fn report_unusable_revisions(
        &self,
        rollout: &Object,
        before: Option<&RolloutStatus>,
        after: &RolloutStatus,
    ) {
        let sentence = |status: &RolloutStatus| {
            let mut conditions = status.conditions.iter();
            let degraded = conditions.find(|condition| condition.reason == REVISION_UNUSABLE);
            degraded.map(|condition| condition.message.clone())
        };
        if let Some(text) = sentence(after)
            && before.and_then(sentence).as_ref() != Some(&text)
        {
            let about = InvolvedObject::from_object(rollout);
            self.recorder.warning(&about, REVISION_UNUSABLE, text);
        }
    }
}

fn revisions_in_use(status: &RolloutStatus) -> BTreeSet<&str> {
    let clusters = status.stages.iter().flat_map(|stage| &stage.clusters);
    let targets = clusters.filter(|cluster| cluster.phase != RolloutPhase::Skipped);
    let revisions = targets.map(|cluster| &*cluster.revision);
    revisions.filter(|revision| !revision.is_empty()).collect()
}
