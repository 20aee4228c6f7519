//! Accepts the names of a CustomResourceDefinition in the write that creates it: it is
//! established, and its custom resources are served, when the client has the answer.
//!
//! Kubernetes leaves this to a controller, and clients that wait for the condition at once fail
//! with a status that has no conditions yet.

use machinery::{Gvr, Status};
use openapi::{ResourceNames, desired_definition_status};
use serde_json::Value;

use crate::custom_resources::built_in_names;
use crate::registry::{CrdSyncLock, Registry};
use crate::resource_table::ResourceInfo;

static DEFINITIONS: Gvr =
    Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");

/// A definition that is being created. No other one gets names meanwhile.
pub(crate) struct DefinitionCreation<'a> {
    registry: &'a Registry,
    lock: CrdSyncLock<'a>,
}

impl Registry {
    /// Sets the status of a new definition; `None` for an object of another kind.
    pub(crate) async fn begin_definition(
        &self,
        resource: &ResourceInfo,
        new: &mut Value,
    ) -> Result<Option<DefinitionCreation<'_>>, Status> {
        if resource.kind.gvr != DEFINITIONS {
            return Ok(None);
        }
        let lock = self.lock_crd_sync().await;
        self.sync_crds_locked(&lock).await?;
        let group = new["spec"]["group"].as_str().unwrap_or_default();
        let taken_names: Vec<ResourceNames> = {
            let served = self.served_crds.lock();
            let summaries = served.values().map(|crd| &crd.summary);
            let same_group = summaries.filter(|other| other.group == group);
            same_group.map(|other| other.accepted.clone()).collect()
        };
        let built_in = built_in_names(&self.builtin, group);
        new["status"] = desired_definition_status(new, &taken_names, &built_in, &self.now());
        let registry = self;
        Ok(Some(DefinitionCreation { registry, lock }))
    }
}

impl DefinitionCreation<'_> {
    /// Serves the custom resources of the definition, which has been stored.
    pub(crate) async fn finish(self) {
        if let Err(e) = self.registry.sync_crds_locked(&self.lock).await {
            // The watch of definitions makes up for it.
            tracing::debug!(why = %e, "failed to serve a new CustomResourceDefinition at once");
        }
    }
}
