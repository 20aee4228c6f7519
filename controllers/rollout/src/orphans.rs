//! Rollouts and revisions that a deleted template has left, and Rollouts whose binding was deleted.

use std::time::Duration;

use client::{Patch, ResourcePath, WriteOptions, ignore_not_found};
use controller_context::Error;
use flotilla_runtime::ReconcileAction;
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use crate::controller::{PolicedTemplate, RolloutController};
use crate::revision::CONTROLLER_REVISIONS;

/// How often a Rollout that waits for a new binding looks whether its template was deleted, which no
/// event of its own says.
const TEMPLATE_POLL_INTERVAL: Duration = Duration::from_secs(5);

impl RolloutController {
    /// Makes the template the owner of the revisions that have none; returns whether any was
    /// written.
    pub(crate) async fn adopt_revisions(
        &self,
        staged: &PolicedTemplate<'_>,
        revisions: &[Object],
    ) -> Result<bool, Error> {
        let mut written = false;
        for revision in revisions {
            written |= self.adopt(&CONTROLLER_REVISIONS, revision, staged).await?;
        }
        Ok(written)
    }

    /// Makes the template the owner of an object that has none; returns whether it was written. The
    /// Rollout comes last, once its status is about the template: until then no Work is made from it.
    pub(crate) async fn adopt(
        &self,
        resource: &Gvr,
        object: &Object,
        staged: &PolicedTemplate<'_>,
    ) -> Result<bool, Error> {
        if object.meta().controller().is_some() || !self.is_alive(staged).await? {
            return Ok(false);
        }
        let mut owners = match object.value()?["metadata"]["ownerReferences"].take() {
            Value::Array(owners) => owners,
            _ => Vec::new(),
        };
        owners.push(staged.owner_reference());
        let version = object.revision().to_string();
        let patch = json!({"metadata": {"resourceVersion": version, "ownerReferences": owners}});
        let at = ResourcePath::of_object(resource, object);
        let options = WriteOptions::default();
        let written = self.api.patch(at, Patch::Merge(patch), &options).await;
        ignore_not_found(written)?;
        Ok(true)
    }

    /// Whether the template is not being deleted: then the garbage collector is taking it from what it
    /// owns. That is not read from a cache, which may be older than that.
    async fn is_alive(&self, staged: &PolicedTemplate<'_>) -> Result<bool, Error> {
        let at = ResourcePath::of_object(&staged.mapping.gvr, staged.template);
        let current = ignore_not_found(self.api.get(at).await)?;
        Ok(current.is_some_and(|current| {
            current.uid() == staged.template.uid() && !current.meta().deleting
        }))
    }

    /// Deletes what a deleted template has left, since nothing of it runs without a binding. A
    /// Rollout that was deleted is held while its template may get another binding.
    pub(crate) async fn reconcile_without_binding(
        &self,
        rollout: Option<Object>,
    ) -> Result<ReconcileAction, Error> {
        let Some(rollout) = rollout else {
            return Ok(ReconcileAction::Done);
        };
        if rollout.meta().controller().is_none() {
            for revision in self.resolver.orphaned_revisions(&rollout) {
                self.delete_revision(&revision).await?;
            }
            return self.delete(&rollout).await;
        }
        if !rollout.meta().deleting {
            return Ok(ReconcileAction::Done);
        }
        match self.has_staged_template(&rollout).await? {
            true => Ok(ReconcileAction::RequeueAfter(TEMPLATE_POLL_INTERVAL)),
            false => self.release(&rollout).await,
        }
    }

    /// Whether the template of a Rollout exists, and a policy stages its changes.
    async fn has_staged_template(&self, rollout: &Object) -> Result<bool, Error> {
        let Some(owner) = rollout.meta().controller() else {
            return Ok(false);
        };
        let mapping = self
            .templates
            .rest_mapper
            .find(&owner.api_version, &owner.kind);
        let Some(mapping) = mapping else {
            return Ok(false);
        };
        let template = self
            .templates
            .get_at_least(&mapping, rollout.namespace(), &owner.name, 0)
            .await?;
        Ok(template.is_some_and(|template| {
            let meta = template.meta();
            let policy = self.resolver.policies.select(&mapping.gvk, meta);
            *owner.uid == *meta.uid && !meta.deleting && policy.is_some()
        }))
    }
}
