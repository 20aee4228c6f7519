//! Follows the cache of a resource of a member and marks the documents that have to be written.
//!
//! It begins with a comparison of the index and the cache, so that after a restart only what has
//! changed is sent, and what has vanished meanwhile is deleted. It begins anew when the cache was
//! filled again, when it has fallen behind the events of the cache because the queue was full,
//! and after a long outage of the store.

use std::collections::HashMap;
use std::sync::Arc;

use machinery::Object;
use tokio::sync::{Semaphore, watch};
use watchcache::{
    CacheWatcher, CacheWatcherItem, CacherWatchRequest, Error, ObjectEvent, ReadFreshness,
    SelectionPredicate, WatchStart,
};

use super::client::{OpenSearchClient, OpenSearchError};
use super::document_queue::{DocumentId, DocumentQueue, PendingDocument};
use super::health::{BackendStoreHealth, HealthReporter};
use super::indexed_resource::IndexedResource;
use super::limits::BackendStoreLimits;

/// The longest id of a document.
const MAX_UID_BYTES: usize = 512;

/// Why a source begins anew.
enum SourceEnd {
    /// The cache is not filled, has lost its member, or is ahead of what it remembers.
    Cache,
    /// The store was away for a long time.
    Outage,
    Store(OpenSearchError),
}

impl From<Error> for SourceEnd {
    fn from(_: Error) -> Self {
        Self::Cache
    }
}

impl From<OpenSearchError> for SourceEnd {
    fn from(error: OpenSearchError) -> Self {
        Self::Store(error)
    }
}

/// The documents of one resource of one member.
pub(crate) struct DocumentSource {
    pub(crate) resource: Arc<IndexedResource>,
    pub(crate) client: Arc<OpenSearchClient>,
    pub(crate) queue: Arc<DocumentQueue>,
    pub(crate) health: Arc<HealthReporter>,
    /// How many sources of the store may compare at a time.
    pub(crate) comparisons: Arc<Semaphore>,
    pub(crate) limits: BackendStoreLimits,
}

impl DocumentSource {
    /// Runs until it is dropped.
    pub(crate) async fn run(self) {
        let mut health = self.health.subscribe();
        let mut failures = 0;
        loop {
            if health
                .wait_for(BackendStoreHealth::is_available)
                .await
                .is_err()
            {
                return;
            }
            let mut outages = health.clone();
            let end = self.compare_and_follow(&mut outages, &mut failures).await;
            match end {
                SourceEnd::Outage => {}
                SourceEnd::Cache => tokio::time::sleep(self.limits.retry_delay(0)).await,
                SourceEnd::Store(error) => {
                    let name = self.resource.name();
                    tracing::debug!(%name, %error, "an index is not compared with the cache");
                    let failure = (&error).into();
                    self.health.update(|health| {
                        health.sync_failures.insert(name, failure);
                    });
                    tokio::time::sleep(self.limits.retry_delay(failures)).await;
                    failures += 1;
                }
            }
        }
    }

    async fn compare_and_follow(
        &self,
        health: &mut watch::Receiver<BackendStoreHealth>,
        failures: &mut u32,
    ) -> SourceEnd {
        let outages = health.borrow_and_update().outages;
        let compared = tokio::select! {
            compared = self.compare() => compared,
            () = self.lasting_outage() => return SourceEnd::Outage,
        };
        let mut watcher = match compared {
            Ok(watcher) => watcher,
            Err(end) => return end,
        };
        *failures = 0;
        let name = self.resource.name();
        self.health.update(|health| {
            health.sync_failures.remove(&name);
        });
        tokio::select! {
            end = self.follow(&mut watcher) => end,
            _ = health.wait_for(|health| health.outages != outages) => SourceEnd::Outage,
        }
    }

    /// Completes when the store has been unavailable for a long time. The objects of the cache
    /// that are being compared are not kept in memory longer than that.
    async fn lasting_outage(&self) {
        let mut health = self.health.subscribe();
        loop {
            if health.wait_for(|h| !h.is_available()).await.is_err() {
                return std::future::pending().await;
            }
            let recovered = health.wait_for(BackendStoreHealth::is_available);
            let waited = tokio::time::timeout(self.limits.long_outage, recovered).await;
            if waited.is_err() {
                return;
            }
        }
    }

    /// Marks the documents that differ from the cache. Returns the watch of what follows.
    async fn compare(&self) -> Result<CacheWatcher, SourceEnd> {
        let cacher = &self.resource.selection.member.cacher;
        // Waits until the cache is filled.
        cacher.get("", ReadFreshness::Any).await?;
        let Ok(_permit) = self.comparisons.acquire().await else {
            return std::future::pending().await;
        };
        let mut stored: HashMap<String, u64> = HashMap::new();
        self.client.ensure_index(&self.resource.index).await?;
        let scan = self.client.scan(&self.resource, |uid, version| {
            stored.insert(uid, version);
        });
        scan.await?;
        let watch = cacher.watch(CacherWatchRequest {
            filter: SelectionPredicate::default(),
            start: WatchStart::Initial(ReadFreshness::Any),
            bookmarks: true,
            deadline: None,
        });
        let mut watcher = watch.await?;
        loop {
            match watcher.next().await.transpose()? {
                Some(CacheWatcherItem::Event(event)) => {
                    let version = stored.remove(event.object().uid());
                    let is_selected = self.selects(event.object());
                    if is_selected && version != Some(event.revision()) {
                        self.push_event(&event).await;
                    }
                }
                Some(CacheWatcherItem::Bookmark { initial_end, .. }) if initial_end => break,
                Some(CacheWatcherItem::Bookmark { .. }) => {}
                None => return Err(SourceEnd::Cache),
            }
        }
        for (uid, version) in stored {
            // No object has this key, so the document is deleted.
            self.push(&uid, "", version).await;
        }
        Ok(watcher)
    }

    /// Marks what changes.
    async fn follow(&self, watcher: &mut CacheWatcher) -> SourceEnd {
        loop {
            match watcher.next().await {
                Some(Ok(CacheWatcherItem::Event(event))) => {
                    if self.selects(event.object()) {
                        self.push_event(&event).await;
                    }
                }
                Some(Ok(CacheWatcherItem::Bookmark { .. })) => {}
                Some(Err(error)) => return error.into(),
                None => return SourceEnd::Cache,
            }
        }
    }

    fn selects(&self, object: &Object) -> bool {
        self.resource.selection.scope.contains(object)
    }

    async fn push_event(&self, event: &ObjectEvent) {
        let object = event.object();
        let key = object.meta().key();
        self.push(object.uid(), &key, event.revision()).await;
    }

    async fn push(&self, uid: &str, key: &str, resource_version: u64) {
        if uid.is_empty() || uid.len() > MAX_UID_BYTES {
            let name = self.resource.name();
            tracing::warn!(%name, %key, "an object has no UID that can be the id of a document");
            return;
        }
        let document = PendingDocument {
            id: DocumentId {
                index: Arc::clone(&self.resource.index),
                uid: uid.into(),
            },
            resource: Arc::clone(&self.resource),
            key: key.into(),
            resource_version,
            failures: 0,
            conflicts: 0,
        };
        self.queue.push(document).await;
    }
}
