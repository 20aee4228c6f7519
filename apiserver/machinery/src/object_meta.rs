//! The fields of `metadata` that are parsed for every object.

use std::sync::Arc;

use serde::Deserialize;

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    #[serde(default)]
    pub api_version: Box<str>,
    #[serde(default)]
    pub kind: Box<str>,
    #[serde(default)]
    pub name: Box<str>,
    #[serde(default)]
    pub uid: Box<str>,
    #[serde(default)]
    pub controller: bool,
    #[serde(default)]
    pub block_owner_deletion: bool,
}

/// Key and value of a label.
pub type Label = (Box<str>, Box<str>);

/// The fields of `metadata` that are parsed for every object.
#[derive(Clone, Debug, Default)]
pub struct ObjectMeta {
    /// Empty for cluster-scoped objects.
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
    /// Sorted by key.
    pub labels: Arc<[Label]>,
    /// `metadata.resourceVersion`; 0 when absent or not decimal.
    pub revision: u64,
    pub generation: i64,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    pub owner_references: Box<[OwnerReference]>,
}

impl ObjectMeta {
    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let index = self.labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.labels[index].1)
    }

    /// `namespace/name`, or `name` for a cluster-scoped object (`MetaNamespaceKeyFunc`).
    pub fn key(&self) -> String {
        if self.namespace.is_empty() {
            self.name.to_string()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }

    /// The owner that is the controller of this object, if any (`GetControllerOf`).
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|o| o.controller)
    }
}
