//! A compaction that runs while a watch or a range reads.

use bytes::Bytes;

use crate::embedded::watcher::{EmbeddedWatch, NextEventsSource};
use crate::embedded::{EmbeddedStore, EmbeddedStoreOptions};
use crate::store::{Error, RangeRequest, SingleKeyTxn, SingleKeyTxnOp, Store};

// The compaction runs between the lookup in the index and the read of the rows.

/// A store with more events than the ring holds, and its last revision.
async fn store_with_full_ring() -> (EmbeddedStore, u64) {
    let options = EmbeddedStoreOptions {
        history_retention: None,
        ..EmbeddedStoreOptions::default()
    };
    let store = EmbeddedStore::in_memory(options).unwrap();
    for expected in 0..12 {
        let key = "/a/1".into();
        let value = Bytes::from(vec![7; 1 << 20]);
        let op = SingleKeyTxnOp::Put { value, ttl: None };
        store
            .commit(SingleKeyTxn { key, expected, op })
            .await
            .unwrap();
    }
    (store, 12)
}

#[tokio::test]
async fn compaction_within_a_step_is_noticed() {
    let (store, last) = store_with_full_ring().await;
    let wake = store.engine.notifier.subscribe("/a/", || last);
    let position = EmbeddedWatch::new(store.engine.clone(), "/a/", 1, wake);
    let Ok(NextEventsSource::History { upto }) = position.next_events() else {
        panic!("the position is older than the ring");
    };
    store.compact(last).await.unwrap();
    let result = position.read_history(upto).await;
    assert!(matches!(result, Err(Error::Compacted { at }) if at == last));
}

#[tokio::test]
async fn compaction_within_a_range_is_noticed() {
    let (store, last) = store_with_full_ring().await;
    let mut ask = RangeRequest::prefix("/a/");
    ask.revision = 1;
    let keys = store.engine.index.read().range(&ask).unwrap();
    store.compact(last).await.unwrap();
    assert_eq!(
        store.engine.read_pool.read_values(keys.entries).unwrap(),
        None
    );
    store.engine.check_missing_row(1).unwrap();
    assert!(matches!(
        store.engine.range(&ask),
        Err(Error::Compacted { .. })
    ));
    ask.revision = 0;
    assert_eq!(store.engine.range(&ask).unwrap().kvs[0].mod_revision, last);
}
