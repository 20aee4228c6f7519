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
const PAUSE: Duration = Duration::from_secs(5);

pub(crate) struct Mapper {
    api: Arc<dyn Api>,
    known: ArcSwap<HashMap<Gvk, Gvr>>,
    /// Time of the last discovery call; locked during the call.
    asked: Mutex<Option<Instant>>,
}

impl Mapper {
    pub(crate) fn new(api: Arc<dyn Api>) -> Self {
        Self {
            api,
            known: ArcSwap::default(),
            asked: Mutex::new(None),
        }
    }

    fn look(&self, kind: &Gvk) -> Option<Gvr> {
        if let Some(built_in) = openapi::catalog().kind(kind) {
            return Some(built_in.gvr.clone());
        }
        self.known.load().get(kind).cloned()
    }

    /// The resource of a kind; an error if discovery does not have the kind.
    pub(crate) async fn find(&self, kind: &Gvk) -> Result<Gvr, Error> {
        if let Some(found) = self.look(kind) {
            return Ok(found);
        }
        let mut last_discovery = self.asked.lock().await;
        // Another task may have discovered it while it held the lock.
        if let Some(found) = self.look(kind) {
            return Ok(found);
        }
        if last_discovery.is_none_or(|at| at.elapsed() >= PAUSE) {
            *last_discovery = Some(Instant::now());
            let found = self.api.resources().await?;
            let mappings = found
                .resources
                .into_iter()
                .map(|r| (r.resource.with_kind(r.kind), r.resource));
            // Resources that could not be discovered this time keep their mapping.
            let mut known = HashMap::clone(&self.known.load());
            known.extend(mappings);
            self.known.store(Arc::new(known));
        }
        let missing = || Error::Protocol(format!("no matches for kind {kind}"));
        self.look(kind).ok_or_else(missing)
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
        let mapper = Mapper::new(fake.clone());
        let find = async |group: &str, kind: &str| {
            let found = mapper.find(&Gvk::new(group, "v1", kind)).await;
            found.map(|r| r.to_string()).ok()
        };
        let deployments = Gvr::constant("apps", "v1", "deployments");
        assert_eq!(
            find("apps", "Deployment").await,
            Some(deployments.to_string())
        );
        assert_eq!(find("example.io", "Thing").await, None);
        let things = Gvr::constant("example.io", "v1", "things");
        fake.serve(ApiResource {
            resource: things.clone(),
            kind: "Thing".into(),
            namespaced: true,
            verbs: vec![],
            subresources: vec![],
            categories: vec![],
            short_names: vec![],
        });
        assert_eq!(find("example.io", "Thing").await, None);
        tokio::time::advance(PAUSE).await;
        assert_eq!(find("example.io", "Thing").await, Some(things.to_string()));
    }
}
