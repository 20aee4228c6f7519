//! The few fields of a Work that the status controllers read, decoded from its bytes
//! without the manifests' content, which the shared decoded Work has.

use controller_context::{APPLIED, AVAILABLE, WorkHealth, set_derived_conditions};
use jiff::Timestamp;
use karmada_api::binding::Condition;
use karmada_api::work::{ManifestIdentity, ManifestStatus, WorkSpecManifestIdentities, WorkStatus};
use machinery::{Object, object};
use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct PartialWork {
    #[serde(default)]
    metadata: PartialMetadata,
    #[serde(default)]
    spec: WorkSpecManifestIdentities,
    #[serde(default)]
    pub(crate) status: WorkStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PartialMetadata {
    annotations: Option<PartialAnnotations>,
}

#[derive(Deserialize)]
struct PartialAnnotations {
    /// [`karmada_api::rollout::REVISION`].
    #[serde(rename = "rollout.flotilla.io/revision", default)]
    revision: String,
}

impl PartialWork {
    pub(crate) fn from_object(work: &Object) -> Result<Self, object::MalformedObject> {
        Ok(machinery::json::from_slice(&work.bytes())?)
    }

    pub(crate) fn manifests(&self) -> &[ManifestIdentity] {
        self.spec.manifests()
    }

    /// The revision of a staged template from which the Work was made, once the member has reported
    /// about it.
    pub(crate) fn reported_revision(&self) -> Option<&str> {
        let revision = &*self.metadata.annotations.as_ref()?.revision;
        let mut reports = self.status.manifest_statuses.iter();
        let is_reported = reports.any(|report| report.revision == revision);
        Some(revision).filter(|_| is_reported && !revision.is_empty())
    }

    /// Whether the aggregated status of a binding has an item for this Work: from the first write of
    /// its status on.
    pub(crate) fn has_status(&self) -> bool {
        !self.status.conditions.is_empty()
    }

    /// Whether the aggregated status of a binding takes the same from both versions of its Work.
    pub(crate) fn is_aggregated_like(&self, other: &Self) -> bool {
        let manifests = self.manifests().iter().map(identity);
        manifests.eq(other.manifests().iter().map(identity))
            && self.has_status() == other.has_status()
            && self.applied_result() == other.applied_result()
            && self.status.manifest_statuses == other.status.manifest_statuses
            && self.reported_revision() == other.reported_revision()
    }

    fn applied_condition(&self) -> Option<&Condition> {
        let mut all = self.status.conditions.iter();
        all.find(|c| c.condition_type == APPLIED)
    }

    /// The conditions after the objects have these statuses, and whether they differ.
    pub(crate) fn conditions_with(
        &self,
        statuses: &[ManifestStatus],
        now: Timestamp,
    ) -> (Vec<Condition>, bool) {
        let mut conditions = self.status.conditions.clone();
        let health = WorkHealth {
            manifests: self.manifests().len(),
            reported: statuses.iter().map(|s| s.health.as_str()).collect(),
        };
        let changed = set_derived_conditions(&mut conditions, &health, now);
        (conditions, changed)
    }

    /// Whether the conditions that follow from health were written before. A Work without them gets
    /// them with its next status, so that an upgrade does not write every Work.
    pub(crate) fn has_derived_conditions(&self) -> bool {
        let mut all = self.status.conditions.iter();
        all.any(|c| c.condition_type == AVAILABLE)
    }

    /// Whether the execution controller has tried to apply the Work.
    pub(crate) fn has_applied_condition(&self) -> bool {
        self.applied_condition().is_some()
    }

    /// Whether the Work is applied; the error is the condition's message.
    pub(crate) fn applied_result(&self) -> Result<(), &str> {
        match self.applied_condition() {
            Some(c) if c.status == "True" => Ok(()),
            Some(c) => Err(&c.message),
            None => Err(""),
        }
    }
}

fn identity(manifest: &ManifestIdentity) -> [&str; 4] {
    let (kind, name) = (&manifest.kind, &manifest.metadata);
    [&manifest.api_version, kind, &name.namespace, &name.name]
}
