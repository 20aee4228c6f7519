//! A client that asks for the served resources at most once a minute, since every page about a
//! workload needs them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use client::{Api, ApiCall, ApiReply, Result, ServerResources};
use parking_lot::Mutex;
use tokio::time::Instant;

const MAX_AGE: Duration = Duration::from_secs(60);

pub(crate) struct DiscoveryCache {
    api: Arc<dyn Api>,
    resources: Mutex<Option<(Instant, ServerResources)>>,
}

impl DiscoveryCache {
    pub(crate) fn new(api: Arc<dyn Api>) -> Self {
        Self {
            api,
            resources: Mutex::new(None),
        }
    }

    fn cached(&self) -> Option<ServerResources> {
        let cached = self.resources.lock();
        let (read, resources) = cached.as_ref()?;
        (read.elapsed() < MAX_AGE).then(|| resources.clone())
    }
}

#[async_trait]
impl Api for DiscoveryCache {
    async fn call(&self, call: ApiCall<'_>) -> Result<ApiReply> {
        let ApiCall::Discover(filter) = call else {
            return self.api.call(call).await;
        };
        let resources = match self.cached() {
            Some(resources) => resources,
            None => {
                let resources = self.api.discover().await?;
                // An incomplete answer is not kept: a group may be back in a second.
                if resources.failed_group_versions.is_empty() {
                    *self.resources.lock() = Some((Instant::now(), resources.clone()));
                }
                resources
            }
        };
        Ok(resources.retain_groups(filter).into())
    }
}
