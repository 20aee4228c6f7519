//! The control plane as one more server beside the members: the resources that it serves.

use std::sync::Arc;
use std::time::Duration;

use client::Api;
use flotilla_runtime::RestMapper;
use machinery::{Gvr, Status};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// A resource that the control plane begins or ceases to serve is noticed so much later.
const DISCOVERY_TTL: Duration = Duration::from_secs(10);
/// Without these verbs nothing can be cached.
const CACHED_VERBS: [&str; 2] = ["list", "watch"];

/// The resources of the control plane.
pub(crate) struct ControlPlaneResources {
    mapper: RestMapper,
    /// Time of the last discovery; locked during it.
    discovered_at: Mutex<Option<Instant>>,
}

impl ControlPlaneResources {
    pub(crate) fn new(api: &Arc<dyn Api>) -> Self {
        Self {
            mapper: RestMapper::new(Arc::clone(api)),
            discovered_at: Mutex::default(),
        }
    }

    /// Whether the objects of a resource can be cached. 503 if that was never known; later the last
    /// discovery holds while another one fails.
    pub(crate) async fn can_be_cached(&self, resource: &Gvr) -> Result<bool, Status> {
        let mut discovered_at = self.discovered_at.lock().await;
        if discovered_at.is_none_or(|at| at.elapsed() >= DISCOVERY_TTL) {
            let discovery = self.mapper.refresh().await;
            if let Err(error) = discovery
                && discovered_at.is_none()
            {
                let text = format!("the control plane does not say what it serves: {error}");
                return Err(Status::unavailable(text));
            }
            *discovered_at = Some(Instant::now());
        }
        Ok(self.mapper.allows(resource, &CACHED_VERBS))
    }
}
