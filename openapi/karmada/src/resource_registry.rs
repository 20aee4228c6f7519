//! Typed view of ResourceRegistry (`search.karmada.io/v1alpha1`).

use serde::Deserialize;

use super::affinity::ClusterAffinity;
use super::cluster::LocalSecretReference;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceRegistry {
    pub spec: ResourceRegistrySpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRegistrySpec {
    pub target_cluster: ClusterAffinity,
    pub resource_selectors: Vec<CachedResourceSelector>,
    /// Absent: the cache of the process only.
    pub backend_store: Option<BackendStoreConfig>,
}

/// `ResourceSelector` of `search.karmada.io/v1alpha1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CachedResourceSelector {
    pub api_version: String,
    pub kind: String,
    /// Empty: all namespaces.
    pub namespace: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendStoreConfig {
    pub open_search: Option<OpenSearchConfig>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenSearchConfig {
    pub addresses: Vec<String>,
    /// Without a name: no credentials.
    pub secret_ref: LocalSecretReference,
}

impl ResourceRegistrySpec {
    /// The OpenSearch cluster to which the resources are sent, if there is one.
    pub fn open_search(&self) -> Option<&OpenSearchConfig> {
        self.backend_store.as_ref()?.open_search.as_ref()
    }
}
