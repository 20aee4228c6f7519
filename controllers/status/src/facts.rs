//! The few fields of a Work that the way back reads, straight from its bytes. The
//! shared view is left to those who need whole manifests.

use machinery::{Gvk, Object, object};
use openapi::karmada::binding::Condition;
use openapi::karmada::work::WorkStatus;
use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Facts {
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    pub(crate) status: WorkStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    workload: Workload,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Workload {
    manifests: Vec<Manifest>,
}

/// Which object a manifest is.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Manifest {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) metadata: Name,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Name {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Manifest {
    pub(crate) fn gvk(&self) -> Gvk {
        Gvk::from_api_version(&self.api_version, &self.kind)
    }
}

impl Facts {
    pub(crate) fn of(work: &Object) -> Result<Self, object::Malformed> {
        Ok(serde_json::from_slice(work.bytes())?)
    }

    pub(crate) fn manifests(&self) -> &[Manifest] {
        &self.spec.workload.manifests
    }

    fn verdict(&self) -> Option<&Condition> {
        let mut all = self.status.conditions.iter();
        all.find(|c| c.kind == "Applied")
    }

    /// Whether anybody has tried to apply it.
    pub(crate) fn is_tried(&self) -> bool {
        self.verdict().is_some()
    }

    /// Whether the object is in the member, and otherwise why not.
    pub(crate) fn applied(&self) -> Result<(), &str> {
        match self.verdict() {
            Some(c) if c.status == "True" => Ok(()),
            Some(c) => Err(&c.message),
            None => Err(""),
        }
    }
}
