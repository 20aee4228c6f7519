//! Operations on a store that must succeed, and the values that they take and return.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use storage::{KeyValue, SingleKeyTxn, SingleKeyTxnOp, Store, StoreEvent, StoreWatch, TxnResponse};

pub(crate) type ArcDynStore = Arc<dyn Store>;

pub(crate) async fn commit(
    store: &ArcDynStore,
    key: &str,
    expected: u64,
    op: SingleKeyTxnOp,
) -> TxnResponse {
    let key = key.into();
    store
        .commit(SingleKeyTxn { key, expected, op })
        .await
        .unwrap()
}

pub(crate) async fn write(
    store: &ArcDynStore,
    key: &str,
    expected: u64,
    op: SingleKeyTxnOp,
) -> u64 {
    match commit(store, key, expected, op).await {
        TxnResponse::Committed { revision } => revision,
        TxnResponse::Conflict { current } => {
            panic!("{key}: expected {expected}, found {current:?}")
        }
    }
}

pub(crate) async fn expect_conflict(
    store: &ArcDynStore,
    key: &str,
    expected: u64,
    op: SingleKeyTxnOp,
) -> Option<KeyValue> {
    match commit(store, key, expected, op).await {
        TxnResponse::Committed { revision } => panic!("{key}: written at {revision}"),
        TxnResponse::Conflict { current } => current,
    }
}

pub(crate) async fn create(store: &ArcDynStore, key: &str, value: &str) -> u64 {
    write(store, key, 0, put(value)).await
}

pub(crate) fn put(value: &str) -> SingleKeyTxnOp {
    SingleKeyTxnOp::Put {
        value: Bytes::copy_from_slice(value.as_bytes()),
        ttl: None,
    }
}

pub(crate) fn key_value(key: &str, value: &str, revision: u64) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: Bytes::copy_from_slice(value.as_bytes()),
        mod_revision: revision,
    }
}

/// Waits for the next `count` events.
pub(crate) async fn next_events(watch: &mut Box<dyn StoreWatch>, count: usize) -> Vec<StoreEvent> {
    let mut events = Vec::new();
    while events.len() < count {
        events.extend(next_response(watch).await.events);
    }
    assert_eq!(events.len(), count, "{events:?}");
    events
}

pub(crate) async fn next_response(watch: &mut Box<dyn StoreWatch>) -> storage::WatchResponse {
    within_timeout(watch.next()).await.unwrap()
}

pub(crate) async fn within_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("timed out")
}

/// Formats each event as `key=value@revision<previous@revision`.
pub(crate) fn format_events(events: &[StoreEvent]) -> Vec<String> {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let show = |event: &StoreEvent| {
        let value = event.value.as_ref().map_or("-".into(), text);
        let previous = event.previous.as_ref();
        let previous = previous.map(|e| format!("<{}@{}", text(&e.value), e.mod_revision));
        format!(
            "{}={value}@{}{}",
            event.key,
            event.revision,
            previous.unwrap_or_default()
        )
    };
    events.iter().map(show).collect()
}
