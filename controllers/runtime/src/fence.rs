//! Fences off writes that only the leader may make.
//!
//! [`LeaderFence`] knows until when the lease is certainly held; it wraps an [`Api`] so
//! that writes fail once that time has passed. A process that was suspended and resumes
//! later may hold calls it prepared while it led; the fence reads the clock right before
//! each write and stops them. Writes that pass are guarded by the observed revision.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client::{
    Api, At, DeleteOptions, Discovered, EncodedBody, Error, Event, List, ListOptions, Patch,
    Result, WatchOptions, WatchStream, WriteOptions,
};
use machinery::Object;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

/// Open while this process certainly leads. Clones share one deadline.
#[derive(Clone, Debug)]
pub struct Fence(Arc<Mutex<Instant>>);

impl Fence {
    /// A fence that is open until `end`.
    pub(crate) fn until(end: Instant) -> Self {
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

    /// Wraps `api` so that writes fail once the fence is closed.
    pub fn around(&self, api: Arc<dyn Api>) -> Arc<dyn Api> {
        Arc::new(Fenced {
            api,
            fence: self.clone(),
        })
    }

    fn pass(&self) -> Result<()> {
        if self.remaining().is_zero() {
            return Err(closed());
        }
        Ok(())
    }
}

fn closed() -> Error {
    Error::Transport {
        host: "this process".into(),
        message: "no longer the leader; write refused".into(),
    }
}

struct Fenced {
    api: Arc<dyn Api>,
    fence: Fence,
}

#[async_trait]
impl Api for Fenced {
    async fn get(&self, at: At<'_>) -> Result<Object> {
        self.api.get(at).await
    }

    async fn list(&self, at: At<'_>, options: &ListOptions) -> Result<List> {
        self.api.list(at, options).await
    }

    async fn watch(&self, at: At<'_>, options: &WatchOptions) -> Result<WatchStream> {
        self.api.watch(at, options).await
    }

    async fn create(&self, at: At<'_>, body: Value, options: &WriteOptions) -> Result<Object> {
        self.fence.pass()?;
        self.api.create(at, body, options).await
    }

    async fn create_encoded(
        &self,
        at: At<'_>,
        body: EncodedBody,
        options: &WriteOptions,
    ) -> Result<Object> {
        self.fence.pass()?;
        self.api.create_encoded(at, body, options).await
    }

    async fn record(&self, events: Vec<Event>) -> Vec<Result<()>> {
        if self.fence.pass().is_ok() {
            return self.api.record(events).await;
        }
        events.iter().map(|_| Err(closed())).collect()
    }

    async fn update(&self, at: At<'_>, body: Value, options: &WriteOptions) -> Result<Object> {
        self.fence.pass()?;
        self.api.update(at, body, options).await
    }

    async fn update_encoded(
        &self,
        at: At<'_>,
        body: EncodedBody,
        options: &WriteOptions,
    ) -> Result<Object> {
        self.fence.pass()?;
        self.api.update_encoded(at, body, options).await
    }

    async fn patch(&self, at: At<'_>, patch: Patch, options: &WriteOptions) -> Result<Object> {
        self.fence.pass()?;
        self.api.patch(at, patch, options).await
    }

    async fn delete(&self, at: At<'_>, options: &DeleteOptions) -> Result<Option<Object>> {
        self.fence.pass()?;
        self.api.delete(at, options).await
    }

    async fn delete_collection(
        &self,
        at: At<'_>,
        options: &DeleteOptions,
        select: &ListOptions,
    ) -> Result<()> {
        self.fence.pass()?;
        self.api.delete_collection(at, options, select).await
    }

    async fn resources(&self) -> Result<Discovered> {
        self.api.resources().await
    }

    async fn raw(&self, path: &str) -> Result<Bytes> {
        self.api.raw(path).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::ObjectRef;
    use client::fake::FakeApi;
    use machinery::Gvr;
    use serde_json::json;

    static MAPS: Gvr = Gvr::constant("", "v1", "configmaps");

    #[tokio::test(start_paused = true)]
    async fn writes_end_with_the_time_and_reads_do_not() {
        let fake = FakeApi::new();
        let fence = Fence::until(Instant::now() + Duration::from_secs(3));
        let api = fence.around(fake.clone());
        let create = async |name: &str| {
            let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}});
            let at = At::all(&MAPS, "n");
            api.create(at, body, &WriteOptions::default()).await
        };
        create("a").await.unwrap();
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(matches!(create("b").await, Err(Error::Transport { .. })));
        let at = At::one(&MAPS, "n", "a");
        let refused = api.delete(at, &DeleteOptions::default()).await;
        assert!(refused.is_err() && api.get(at).await.is_ok());
        fence.extend(Instant::now() + Duration::from_secs(3));
        create("b").await.unwrap();
        fence.close();
        assert!(create("c").await.is_err());
        let event = Event::new(&"me".into(), ObjectRef::default(), false, "");
        assert!(api.record(vec![event]).await[0].is_err());
        let options = ListOptions::default();
        let all = api.list(At::all(&MAPS, "n"), &options).await.unwrap();
        assert_eq!(all.items.len(), 2);
    }
}
