//! A pod spec as its rules see it.

use serde_json::Value;

use crate::unstructured::get;

/// A pod spec and what its rules depend on.
#[derive(Clone, Copy)]
pub(super) struct ValidatedPodSpec<'a> {
    /// Its dotted path.
    pub(super) field: &'a str,
    pub(super) spec: &'a Value,
    /// The spec before the update; null for a new one.
    pub(super) old: &'a Value,
    /// The pod; none if the spec is that of a template.
    pub(super) pod: Option<&'a Value>,
}

impl ValidatedPodSpec<'_> {
    /// The dotted path of a field of the spec.
    pub(super) fn at(&self, name: &str) -> String {
        format!("{}.{name}", self.field)
    }

    /// Whether the pod shares the user namespace of its host.
    pub(super) fn has_host_users(&self) -> bool {
        get(self.spec, "/hostUsers") != false
    }
}
