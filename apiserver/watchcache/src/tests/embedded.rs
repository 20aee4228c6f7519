//! Tests of the cache on the embedded engine, with its real timing.

use storage::{EmbeddedStore, EmbeddedStoreOptions, SingleKeyTxnOp};

use super::*;
use crate::{CacherListRequest, ListRevision, ReadFreshness};

async fn put(store: &dyn Store, suffix: &str, app: &str, expected: u64) -> u64 {
    let txn = SingleKeyTxn {
        key: format!("{PREFIX}{suffix}").into(),
        expected,
        op: SingleKeyTxnOp::Put {
            value: thing_json(suffix, app).into(),
            ttl: None,
        },
    };
    match store.commit(txn).await.unwrap() {
        TxnResponse::Committed { revision } => revision,
        TxnResponse::Conflict { current } => panic!("conflict with {current:?}"),
    }
}

/// The next `count` items.
async fn take(watcher: &mut CacheWatcher, count: usize) -> Vec<String> {
    let mut items = Vec::new();
    for _ in 0..count {
        let next = tokio::time::timeout(Duration::from_secs(20), watcher.next()).await;
        items.push(show(&next.unwrap().unwrap().unwrap()));
    }
    items
}

async fn check(ring_bytes: usize, uncached: bool) {
    let store = Arc::new(EmbeddedStore::in_memory(EmbeddedStoreOptions::default()).unwrap());
    let config = WatchCacheConfig {
        ring_bytes,
        ..WatchCacheConfig::default()
    };
    let watch_caches = WatchCaches::new(Arc::clone(&store) as Arc<dyn Store>, config);
    let cache = if uncached {
        watch_caches.uncached(PREFIX)
    } else {
        watch_caches.cacher(PREFIX)
    };
    let watch = |start| {
        cache.watch(CacherWatchRequest {
            filter: SelectionPredicate::default(),
            start,
            bookmarks: true,
            deadline: None,
        })
    };
    let mut last = put(&*store, "a/x", "0", 0).await;
    let first = last;
    let mut initial = watch(WatchStart::Initial(ReadFreshness::Newest))
        .await
        .unwrap();
    for n in 1..=50 {
        last = put(&*store, "a/x", &n.to_string(), last).await;
        let written = cache
            .get("a/x", ReadFreshness::Newest)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(written.revision(), last, "a client reads its own write");
    }
    let mut expected = vec![
        format!("ADDED a/x@{first} 0"),
        format!("BOOKMARK {first} end"),
    ];
    let changes = (1..=50).map(|n| format!("MODIFIED a/x@{} {n}", first + n));
    let changes: Vec<String> = changes.collect();
    expected.extend(changes.iter().cloned());
    assert_eq!(take(&mut initial, 52).await, expected);
    let mut resumed = watch(WatchStart::After(first)).await.unwrap();
    assert_eq!(take(&mut resumed, 50).await, changes);

    let exact = |revision| {
        cache.list(CacherListRequest {
            filter: SelectionPredicate::default(),
            revision: ListRevision::Exact(revision),
            limit: 0,
        })
    };
    let past = exact(first + 7).await.unwrap();
    assert_eq!(past.items[0].meta().label("app"), Some("7"));
    store.compact(first + 20).await.unwrap();
    if ring_bytes == 0 {
        assert_eq!(exact(first + 7).await.err().unwrap().status().code, 410);
    } else {
        assert_eq!(exact(first + 7).await.unwrap().revision, first + 7);
    }
    watch_caches.shutdown().await;
    assert!(initial.next().await.is_none() && resumed.next().await.is_none());
    store.close().await;
}

#[tokio::test]
async fn the_cache_works_on_the_embedded_engine() {
    for (ring_bytes, uncached) in [(32 << 20, false), (0, false), (0, true)] {
        check(ring_bytes, uncached).await;
    }
}
