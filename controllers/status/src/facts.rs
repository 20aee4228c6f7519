//! The few fields of a Work that the status controllers read, decoded from its bytes
//! without the manifests' content, which the shared decoded Work has.

use machinery::{Object, object};
use openapi::karmada::binding::Condition;
use openapi::karmada::work::{Held, ManifestHead, WorkStatus};
use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Facts {
    #[serde(default)]
    spec: Held,
    #[serde(default)]
    pub(crate) status: WorkStatus,
}

impl Facts {
    pub(crate) fn of(work: &Object) -> Result<Self, object::Malformed> {
        Ok(serde_json::from_slice(work.bytes())?)
    }

    pub(crate) fn manifests(&self) -> &[ManifestHead] {
        self.spec.manifests()
    }

    fn verdict(&self) -> Option<&Condition> {
        let mut all = self.status.conditions.iter();
        all.find(|c| c.kind == "Applied")
    }

    /// Whether the execution controller has tried to apply the Work.
    pub(crate) fn is_tried(&self) -> bool {
        self.verdict().is_some()
    }

    /// Whether the Work is applied; the error is the condition's message.
    pub(crate) fn applied(&self) -> Result<(), &str> {
        match self.verdict() {
            Some(c) if c.status == "True" => Ok(()),
            Some(c) => Err(&c.message),
            None => Err(""),
        }
    }
}
