//! Fences off writes that only the leader may make.
//!
//! controller ──► [`LeaderFence::wrap`]: may this call start? ──► client ──► [`LeaderFence::network`]: may these bytes leave? ──► server
//!
//! [`LeaderFence`] knows until when the lease is certainly held, and is checked twice, because the
//! process may be suspended at any point and resume after another one has taken the lead. The
//! first check refuses a call by its verb, so that reads pass, and gives the caller an error that
//! says why. A call that passed may still wait for its connection; the second check reads the clock
//! right before the system call. It does not know requests, so it ends the connection, and reads
//! end with it. In this process, where no connection is between, the first check is enough. Writes
//! that pass are guarded by the observed revision.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use client::remote::NetworkSendFence;
use client::{Api, ApiCall, ApiReply, Error, Result};
use machinery::UserInfo;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Open while this process certainly leads. Clones share one deadline.
#[derive(Clone, Debug)]
pub struct LeaderFence(Arc<Mutex<Instant>>);

impl LeaderFence {
    /// A fence that is open until `end`.
    pub(crate) fn open_until(end: Instant) -> Self {
        Self(Arc::new(Mutex::new(end)))
    }

    pub(crate) fn extend(&self, end: Instant) {
        *self.0.lock() = end;
    }

    pub(crate) fn close(&self) {
        self.extend(Instant::now());
    }

    /// How long the fence stays open; zero when it is closed.
    pub fn remaining(&self) -> Duration {
        self.0.lock().saturating_duration_since(Instant::now())
    }

    /// The check of a connection before each write to the network.
    pub fn network(&self) -> NetworkSendFence {
        let fence = self.clone();
        NetworkSendFence::new(move || !fence.remaining().is_zero())
    }

    /// Wraps `api` so that writes fail once the fence is closed.
    pub fn wrap(&self, api: Arc<dyn Api>) -> Arc<dyn Api> {
        Arc::new(FencedApi {
            api,
            fence: self.clone(),
        })
    }
}

struct FencedApi {
    api: Arc<dyn Api>,
    fence: LeaderFence,
}

#[async_trait]
impl Api for FencedApi {
    async fn call(&self, call: ApiCall<'_>) -> Result<ApiReply> {
        if call.is_write() && self.fence.remaining().is_zero() {
            return Err(Error::Transport {
                host: "this process".into(),
                message: "no longer the leader; write refused".into(),
            });
        }
        self.api.call(call).await
    }

    async fn wait_until_reachable_again(&self) {
        self.api.wait_until_reachable_again().await;
    }

    fn with_user(&self, user: &UserInfo) -> Option<Arc<dyn Api>> {
        Some(self.fence.wrap(self.api.with_user(user)?))
    }

    fn server_identity(&self) -> Option<usize> {
        self.api.server_identity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::{
        CoreEvent, DeleteOptions, InvolvedObject, ListOptions, ResourcePath, WriteOptions,
    };
    use client_fake::FakeApi;
    use machinery::Gvr;
    use serde_json::json;

    static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");

    #[tokio::test(start_paused = true)]
    async fn writes_end_with_the_time_and_reads_do_not() {
        let fake = FakeApi::new();
        let fence = LeaderFence::open_until(Instant::now() + Duration::from_secs(3));
        let api = fence.wrap(fake.clone());
        let create = async |name: &str| {
            let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}});
            let at = ResourcePath::collection(&CONFIG_MAPS, "n");
            api.create(at, body.into(), &WriteOptions::default()).await
        };
        create("a").await.unwrap();
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(matches!(create("b").await, Err(Error::Transport { .. })));
        let at = ResourcePath::object(&CONFIG_MAPS, "n", "a");
        let result = api.delete(at, &DeleteOptions::default()).await;
        assert!(result.is_err() && api.get(at).await.is_ok());
        fence.extend(Instant::now() + Duration::from_secs(3));
        create("b").await.unwrap();
        fence.close();
        assert!(create("c").await.is_err());
        let event = CoreEvent::new(&"me".into(), InvolvedObject::default(), false, "");
        assert!(api.create_events(vec![event]).await[0].is_err());
        let options = ListOptions::default();
        let all = api
            .list(ResourcePath::collection(&CONFIG_MAPS, "n"), &options)
            .await
            .unwrap();
        assert_eq!(all.items.len(), 2);
    }
}
