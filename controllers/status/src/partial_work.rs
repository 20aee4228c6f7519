//! The few fields of a Work that the status controllers read, decoded from its bytes
//! without the manifests' content, which the shared decoded Work has.

use karmada_api::binding::Condition;
use karmada_api::work::{ManifestIdentity, WorkSpecManifestIdentities, WorkStatus};
use machinery::{Object, object};
use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct PartialWork {
    #[serde(default)]
    spec: WorkSpecManifestIdentities,
    #[serde(default)]
    pub(crate) status: WorkStatus,
}

impl PartialWork {
    pub(crate) fn from_object(work: &Object) -> Result<Self, object::MalformedObject> {
        Ok(machinery::json::from_slice(work.bytes())?)
    }

    pub(crate) fn manifests(&self) -> &[ManifestIdentity] {
        self.spec.manifests()
    }

    fn applied_condition(&self) -> Option<&Condition> {
        let mut all = self.status.conditions.iter();
        all.find(|c| c.condition_type == "Applied")
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
