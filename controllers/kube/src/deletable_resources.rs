//! The resources whose objects can be collected and deleted, as discovery reports them.

use std::sync::Arc;

use client::{Api, ApiResource, Error};
use machinery::Gvr;
use parking_lot::RwLock;

/// Resources that are never collected: events expire by themselves.
fn is_ignored(resource: &Gvr) -> bool {
    &*resource.resource == "events"
}

/// The result of the last discovery.
#[derive(Default)]
pub(crate) struct DeletableResources {
    resources: RwLock<Arc<[ApiResource]>>,
}

impl DeletableResources {
    /// Discovers the server's resources.
    pub(crate) async fn refresh(&self, api: &dyn Api) -> Result<(), Error> {
        let found = api.discover().await?;
        let mut now: Vec<ApiResource> = Vec::new();
        for resource in found.resources {
            let listed = ["list", "watch", "delete"]
                .iter()
                .all(|v| resource.allows(v));
            // One version of a resource is enough: all versions share one store.
            let same = |r: &ApiResource| {
                r.resource.group == resource.resource.group
                    && r.resource.resource == resource.resource.resource
            };
            if listed && !is_ignored(&resource.resource) && !now.iter().any(same) {
                now.push(resource);
            }
        }
        *self.resources.write() = now.into();
        Ok(())
    }

    pub(crate) fn all(&self) -> Arc<[ApiResource]> {
        Arc::clone(&self.resources.read())
    }

    /// The resource of a kind in an owner reference, in any version.
    pub(crate) fn for_kind(&self, api_version: &str, kind: &str) -> Option<ApiResource> {
        let (group, _) = machinery::names::split_api_version(api_version);
        self.resources
            .read()
            .iter()
            .find(|r| r.resource.group == group && r.kind == kind)
            .cloned()
    }
}
