//! Identifies the managers of an object and the sets of fields that they own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::field_set::FieldSet;

/// How a manager came to own its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ManagerOperation {
    /// Server-side apply.
    Apply,
    /// Any other write.
    Update,
}

/// The identity of an entry of `metadata.managedFields` (`BuildManagerIdentifier`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ManagerId {
    pub manager: Box<str>,
    pub operation: ManagerOperation,
    /// Empty for an applier, which has one entry whatever version it applies.
    pub api_version: Box<str>,
    pub subresource: Box<str>,
}

impl ManagerId {
    /// The identity of a manager that writes in a version.
    pub fn new(
        manager: &str,
        operation: ManagerOperation,
        api_version: &str,
        subresource: &str,
    ) -> Self {
        let api_version = match operation {
            ManagerOperation::Apply => "",
            ManagerOperation::Update => api_version,
        };
        Self {
            manager: manager.into(),
            operation,
            api_version: api_version.into(),
            subresource: subresource.into(),
        }
    }
}

/// The fields of one manager, in the version in which it wrote them
/// (`fieldpath.VersionedSet`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedFieldSet {
    pub set: FieldSet,
    pub api_version: Box<str>,
}

/// The fields of all managers of an object (`fieldpath.ManagedFields`).
pub type ManagerSets = BTreeMap<ManagerId, ManagedFieldSet>;
