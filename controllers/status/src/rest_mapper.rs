//! Maps kinds to resources: by the catalog of built-in kinds, else by the control plane's
//! discovery, which is repeated at a limited rate when a kind is missing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use client::{Api, Error};
use machinery::{Gvk, Gvr};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Minimum time between two discovery calls.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) struct ControlPlaneRestMapper {
    api: Arc<dyn Api>,
    resources: ArcSwap<HashMap<Gvk, Gvr>>,
    /// Time of the last discovery call; locked during the call.
    last_discovery: Mutex<Option<Instant>>,
}

impl ControlPlaneRestMapper {
    pub(crate) fn new(api: Arc<dyn Api>) -> Self {
        Self {
            api,
            resources: ArcSwap::default(),
            last_discovery: Mutex::new(None),
        }
    }

    fn lookup(&self, kind: &Gvk) -> Option<Gvr> {
        if let Some(built_in) = openapi::catalog().kind(kind) {
            return Some(built_in.gvr.clone());
        }
        self.resources.load().get(kind).cloned()
    }

    /// The resource of a kind; an error if discovery does not have the kind.
    pub(crate) async fn resource_for(&self, kind: &Gvk) -> Result<Gvr, Error> {
        if let Some(found) = self.lookup(kind) {
            return Ok(found);
        }
        let mut last_discovery = self.last_discovery.lock().await;
        // Another task may have discovered it while it held the lock.
        if let Some(found) = self.lookup(kind) {
            return Ok(found);
        }
        if last_discovery.is_none_or(|at| at.elapsed() >= DISCOVERY_INTERVAL) {
            *last_discovery = Some(Instant::now());
            let found = self.api.discover().await?;
            let mappings = found
                .resources
                .into_iter()
                .map(|r| (r.resource.with_kind(r.kind), r.resource));
            // Resources that could not be discovered this time keep their mapping.
            let mut known = HashMap::clone(&self.resources.load());
            known.extend(mappings);
            self.resources.store(Arc::new(known));
        }
        let missing = || Error::Protocol(format!("no matches for kind {kind}"));
        self.lookup(kind).ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::ApiResource;
    use client::fake::FakeApi;

    #[tokio::test(start_paused = true)]
    async fn a_missing_kind_is_discovered_at_a_limited_rate() {
        let fake = FakeApi::new();
        let mapper = ControlPlaneRestMapper::new(fake.clone());
        let find = async |group: &str, kind: &str| {
            let found = mapper.resource_for(&Gvk::new(group, "v1", kind)).await;
            found.map(|r| r.to_string()).ok()
        };
        let deployments = Gvr::from_static("apps", "v1", "deployments");
        assert_eq!(
            find("apps", "Deployment").await,
            Some(deployments.to_string())
        );
        assert_eq!(find("example.io", "Thing").await, None);
        let things = Gvr::from_static("example.io", "v1", "things");
        fake.add_resource(ApiResource {
            resource: things.clone(),
            kind: "Thing".into(),
            namespaced: true,
            verbs: vec![],
            subresources: vec![],
            categories: vec![],
            short_names: vec![],
        });
        assert_eq!(find("example.io", "Thing").await, None);
        tokio::time::advance(DISCOVERY_INTERVAL).await;
        assert_eq!(find("example.io", "Thing").await, Some(things.to_string()));
    }
}
