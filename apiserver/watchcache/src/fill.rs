//! The reflector of one cache: a task that lists the prefix, watches from that revision,
//! and starts over when the watch breaks.

use std::sync::Arc;
use std::time::Duration;

use machinery::FailureLog;
use storage::{Error, Feed, Range};
use tokio::sync::watch;

use crate::event::decode;
use crate::shared::Shared;
use crate::snapshot::{Map, Snapshot};

/// Keys per range request while listing.
const PAGE: usize = 2000;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// After this time without events the reflector requests the progress of the watch.
const QUIET: Duration = Duration::from_secs(15);

/// Runs until `stop` becomes true.
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    tokio::select! {
        // An error means that the cache was dropped.
        _ = stop.wait_for(|stop| *stop) => {}
        () = keep_filled(&shared) => {}
    }
}

async fn keep_filled(shared: &Shared) {
    let (mut pause, failures) = (FIRST_PAUSE, FailureLog::new());
    loop {
        match fill(shared).await {
            Ok(mut feed) => {
                pause = FIRST_PAUSE;
                if failures.record_success("fill") {
                    tracing::info!(prefix = %shared.prefix, "cache is filled again");
                }
                let why = follow(shared, &mut *feed).await;
                tracing::warn!(prefix = %shared.prefix, %why, "watch broke, listing again");
                shared.invalidate();
            }
            Err(why) => {
                if failures.record_failure("fill", &why.to_string()) {
                    tracing::warn!(prefix = %shared.prefix, %why, "cache is not filled, trying again");
                }
                // Jitter, so that the caches of one store do not list at the same time.
                tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

async fn fill(shared: &Shared) -> storage::Result<Box<dyn Feed>> {
    let mut range = Range {
        limit: PAGE,
        ..Range::prefix(&shared.prefix)
    };
    let mut map = Map::new_sync();
    loop {
        let page = shared.store.range(&range).await?;
        range.at = page.revision;
        let last = page.entries.last().map(|e| format!("{}\0", e.key));
        for entry in page.entries {
            let slot = decode(&entry.key, &entry.value, entry.revision);
            map.insert_mut(entry.key, slot);
        }
        match last {
            Some(next) if page.remaining > 0 => range.start = next,
            _ => break,
        }
    }
    let revision = range.at;
    let feed = shared.store.watch(&shared.prefix, revision).await?;
    shared.install(Snapshot { map, revision });
    Ok(feed)
}

async fn follow(shared: &Shared, feed: &mut dyn Feed) -> Error {
    loop {
        match tokio::time::timeout(QUIET, feed.next()).await {
            Ok(Ok(batch)) => shared.apply(batch),
            Ok(Err(why)) => return why,
            // A read of the revision makes every watch report its progress. Without it the
            // bookmarks of unchanged resources would fall behind compaction.
            Err(_) => {
                if let Err(why) = shared.store.revision().await {
                    tracing::debug!(prefix = %shared.prefix, %why, "no progress");
                }
            }
        }
    }
}
