//! The reflector of one cache: a task that lists the prefix, watches from that revision,
//! and starts over when the watch breaks.

use std::sync::Arc;
use std::time::Duration;

use machinery::{ExponentialBackoff, FailureLogLimiter};
use storage::{Error, RangeRequest, StoreWatch};
use tokio::sync::watch;

use crate::snapshot::{CacheSnapshot, ObjectMap};
use crate::watch_cache::WatchCache;

/// Keys per range request while listing.
const LIST_PAGE_KEYS: usize = 2000;
const BACKOFF: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(50), Duration::from_secs(2));
/// After this time without events the reflector requests the progress of the watch.
const IDLE_BEFORE_PROGRESS_REQUEST: Duration = Duration::from_secs(15);

/// Runs until `stop` becomes true.
pub(crate) async fn run(shared: Arc<WatchCache>, mut stop: watch::Receiver<bool>) {
    tokio::select! {
        // An error means that the cache was dropped.
        _ = stop.wait_for(|stop| *stop) => {}
        () = list_and_watch(&shared) => {}
    }
}

async fn list_and_watch(shared: &WatchCache) {
    let (mut backoff, failures) = (BACKOFF, FailureLogLimiter::new());
    loop {
        match list(shared).await {
            Ok(mut watch) => {
                backoff.reset();
                if failures.record_success("fill") {
                    tracing::info!(prefix = %shared.prefix, "cache is filled again");
                }
                let message = watch_events(shared, &mut *watch).await;
                tracing::warn!(prefix = %shared.prefix, why = %message, "watch broke, listing again");
                shared.invalidate();
            }
            Err(message) => {
                if matches!(message, Error::Conversion(_)) {
                    shared.set_unconvertible();
                }
                shared.forget_similar_objects();
                if failures.record_failure("fill", &message.to_string()) {
                    tracing::warn!(prefix = %shared.prefix, why = %message, "cache is not filled, trying again");
                }
                // Jitter, so that the caches of one store do not list at the same time.
                let jitter = rand::random_range(0.5..1.0);
                tokio::time::sleep(backoff.next_delay().mul_f64(jitter)).await;
            }
        }
    }
}

async fn list(shared: &WatchCache) -> storage::StoreResult<Box<dyn StoreWatch>> {
    let mut range = RangeRequest {
        limit: LIST_PAGE_KEYS,
        ..RangeRequest::prefix(&shared.prefix)
    };
    // Declared first, so that it is dropped after the map.
    let mut size = shared.empty_size();
    let mut map = ObjectMap::new_sync();
    loop {
        let page = shared.store.range(&range).await?;
        range.revision = page.revision;
        let last = page.kvs.last().map(|e| format!("{}\0", e.key));
        for entry in page.kvs {
            let slot = shared.decode(&entry.key, &entry.value, entry.mod_revision);
            size.charge(&entry.key, map.get(&*entry.key), Some(&slot))?;
            map.insert_mut(entry.key, slot);
        }
        match last {
            Some(next) if page.remaining > 0 => range.start = next,
            _ => break,
        }
    }
    let revision = range.revision;
    let watch = shared.store.watch(&shared.prefix, revision).await?;
    shared.install(CacheSnapshot { map, revision }, size);
    Ok(watch)
}

async fn watch_events(shared: &WatchCache, watch: &mut dyn StoreWatch) -> Error {
    loop {
        match tokio::time::timeout(IDLE_BEFORE_PROGRESS_REQUEST, watch.next()).await {
            Ok(Ok(batch)) => {
                if let Err(e) = shared.apply(batch) {
                    return e;
                }
            }
            Ok(Err(e)) => return e,
            // A read of the revision makes every watch report its progress. Without it the
            // bookmarks of unchanged resources would fall behind compaction.
            Err(_) => {
                if let Err(e) = shared.store.revision().await {
                    tracing::debug!(prefix = %shared.prefix, why = %e, "no progress");
                }
            }
        }
    }
}
