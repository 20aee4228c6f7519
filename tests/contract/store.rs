//! The contract of `storage::Store`, tested on every engine.
//!
//! The cases follow Kubernetes' own suite (staging/src/k8s.io/apiserver/pkg/storage/testing). A
//! new engine needs a constructor in [`Engine`] and its name in the list at the end of this file.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use storage::etcd::{self, EtcdStore};
use storage::{
    ConsistentReadSupport, EmbeddedStore, EmbeddedStoreOptions, KeyValue, SingleKeyTxn,
    SingleKeyTxnOp, Store, StoreEvent, StoreWatch, TxnResponse,
};

#[path = "store/model.rs"]
mod model;
#[path = "store/reads.rs"]
mod reads;
#[path = "store/watches.rs"]
mod watches;
#[path = "store/writes.rs"]
mod writes;

/// A store with the handle that closes it.
struct StoreUnderTest {
    store: SharedStore,
    handle: StoreEngine,
}

enum StoreEngine {
    Embedded(
        Arc<EmbeddedStore>,
        #[expect(dead_code, reason = "held")] Option<tempfile::TempDir>,
    ),
    Etcd(
        Arc<EtcdStore>,
        #[expect(dead_code, reason = "held")] harness::Etcd,
    ),
}

impl StoreUnderTest {
    async fn memory() -> Option<Self> {
        let store = EmbeddedStore::in_memory(options()).unwrap();
        Some(Self::embedded(store, None))
    }

    async fn disk() -> Option<Self> {
        Some(Self::on_disk(options()))
    }

    async fn disk_without_sync() -> Option<Self> {
        Some(Self::on_disk(EmbeddedStoreOptions {
            sync: false,
            ..options()
        }))
    }

    fn on_disk(options: EmbeddedStoreOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(directory.path(), options).unwrap();
        Self::embedded(store, Some(directory))
    }

    fn embedded(store: EmbeddedStore, directory: Option<tempfile::TempDir>) -> Self {
        let store = Arc::new(store);
        Self {
            store: Arc::clone(&store) as SharedStore,
            handle: StoreEngine::Embedded(store, directory),
        }
    }

    /// etcd 3.4, whose progress notifications are not reliable.
    async fn etcd_34() -> Option<Self> {
        Self::etcd(
            harness::etcd::VERSION_3_4,
            ConsistentReadSupport::Unsupported,
        )
        .await
    }

    async fn etcd_35() -> Option<Self> {
        Self::etcd(
            harness::etcd::VERSION_3_5,
            ConsistentReadSupport::ProgressRequest,
        )
        .await
    }

    async fn etcd(version: &str, proof: ConsistentReadSupport) -> Option<Self> {
        let server = harness::Etcd::start(version, 1)?;
        let options = etcd::EtcdOptions {
            servers: vec![server.endpoints()],
            history_retention: None,
            ..etcd::EtcdOptions::default()
        };
        let store = Arc::new(EtcdStore::open(options).await.unwrap());
        assert_eq!(store.consistent_read_support(), proof);
        Some(Self {
            store: Arc::clone(&store) as SharedStore,
            handle: StoreEngine::Etcd(store, server),
        })
    }

    async fn close(self) {
        match self.handle {
            StoreEngine::Embedded(store, _) => store.close().await,
            StoreEngine::Etcd(store, _) => store.close().await,
        }
    }
}

fn options() -> EmbeddedStoreOptions {
    EmbeddedStoreOptions {
        history_retention: None,
        key_expiry_interval: Duration::from_millis(20),
        ..EmbeddedStoreOptions::default()
    }
}

type SharedStore = Arc<dyn Store>;

async fn commit(store: &SharedStore, key: &str, expected: u64, op: SingleKeyTxnOp) -> TxnResponse {
    let key = key.into();
    store
        .commit(SingleKeyTxn { key, expected, op })
        .await
        .unwrap()
}

async fn write(store: &SharedStore, key: &str, expected: u64, op: SingleKeyTxnOp) -> u64 {
    match commit(store, key, expected, op).await {
        TxnResponse::Committed { revision } => revision,
        TxnResponse::Conflict { current } => {
            panic!("{key}: expected {expected}, found {current:?}")
        }
    }
}

async fn expect_conflict(
    store: &SharedStore,
    key: &str,
    expected: u64,
    op: SingleKeyTxnOp,
) -> Option<KeyValue> {
    match commit(store, key, expected, op).await {
        TxnResponse::Committed { revision } => panic!("{key}: written at {revision}"),
        TxnResponse::Conflict { current } => current,
    }
}

async fn create(store: &SharedStore, key: &str, value: &str) -> u64 {
    write(store, key, 0, put(value)).await
}

fn put(value: &str) -> SingleKeyTxnOp {
    SingleKeyTxnOp::Put {
        value: Bytes::copy_from_slice(value.as_bytes()),
        ttl: None,
    }
}

fn key_value(key: &str, value: &str, revision: u64) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: Bytes::copy_from_slice(value.as_bytes()),
        mod_revision: revision,
    }
}

/// Waits for the next `count` events.
async fn next_events(watch: &mut Box<dyn StoreWatch>, count: usize) -> Vec<StoreEvent> {
    let mut events = Vec::new();
    while events.len() < count {
        events.extend(next_response(watch).await.events);
    }
    assert_eq!(events.len(), count, "{events:?}");
    events
}

async fn next_response(watch: &mut Box<dyn StoreWatch>) -> storage::WatchResponse {
    within_timeout(watch.next()).await.unwrap()
}

async fn within_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("timed out")
}

/// Formats each event as `key=value@revision<previous@revision`.
fn format_events(events: &[StoreEvent]) -> Vec<String> {
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

macro_rules! cases {
    ($engine:ident: $($area:ident::$case:ident,)+) => {
        mod $engine {
            $(
                #[tokio::test]
                async fn $case() {
                    let Some(engine) = crate::StoreUnderTest::$engine().await else {
                        return;
                    };
                    let store = engine.store.clone();
                    crate::$area::$case(&store).await;
                    engine.close().await;
                }
            )+
        }
    };
}

macro_rules! contract {
    ($($engine:ident)+) => {
        $(cases! { $engine:
            writes::create_returns_the_next_revision,
            writes::create_of_an_existing_key_conflicts,
            writes::update_requires_the_current_revision,
            writes::delete_requires_the_current_revision,
            writes::delete_of_an_absent_key_conflicts,
            writes::recreated_key_has_new_revisions,
            writes::too_large_request_is_rejected,
            writes::conflicts_do_not_move_the_revision,
            writes::concurrent_creates_have_one_winner,
            writes::concurrent_updates_lose_nothing,
            writes::key_expires_after_its_time_to_live,
            writes::update_removes_the_time_to_live,
            reads::get_returns_the_newest,
            reads::prefix_does_not_match_longer_names,
            reads::pages_are_of_one_revision,
            reads::range_at_an_older_revision,
            reads::range_at_a_future_revision_is_rejected,
            reads::compaction_keeps_its_own_revision,
            reads::compaction_removes_deleted_keys,
            reads::compaction_twice_is_harmless,
            watches::watch_from_a_revision,
            watches::watch_delivers_previous_values,
            watches::watch_is_limited_to_its_prefix,
            watches::watch_of_an_idle_prefix_progresses,
            watches::revision_of_an_idle_prefix_is_reached,
            watches::watch_after_compaction_is_rejected,
            watches::watch_from_a_future_revision_is_rejected,
            watches::running_watch_survives_compaction,
            watches::slow_watch_reads_history,
            watches::compaction_overtakes_a_slow_watch,
            watches::cancelled_wait_loses_no_event,
            model::random_histories,
            model::compaction_races_with_watch_starts,
        })+
    };
}

contract! { memory disk disk_without_sync etcd_34 etcd_35 }
