//! Two processes store values in one etcd as deltas, and one of them is killed with SIGKILL at random
//! moments, while bases are retired and deleted and history is compacted.
//!
//! A watch of a third one must deliver every acknowledged write with its value and the value before,
//! and a new process must read the final values. The child is this binary, selected by an environment
//! variable.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::etcd::VERSION_3_5;
use parking_lot::Mutex;
use storage::etcd::{EtcdDeltaOptions, EtcdOptions, EtcdStore};
use storage::{DeltaOptions, RangeRequest, Store, StoreEvent, StoreWatch, format};
use tokio::time::{sleep, timeout};

use crate::robustness::record::{
    KEYS_PER_WRITER, WRITERS, WriteHistory, digest, key_write, run_and_kill, variable_from_parent,
    write, write_once,
};

const SERVER_VARIABLE: &str = "FLOTILLA_CRASH_ETCD_DELTAS";
const KEY_PREFIX: &str = "/crash/";
const LAST_KEY: &str = "/crash/end";
const BASE_PREFIX: &str = "/registry/flotilla/bases/crash/";
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const ROUNDS: usize = 6;
const SLOW_ROUNDS: usize = 60;

/// The test that is the writer when its parent sets [`SERVER_VARIABLE`].
const WRITER_TEST: &str = "robustness::crash_etcd_deltas::writer_of_deltas_is_killed";

async fn open_store(server: &str) -> Arc<EtcdStore> {
    let options = EtcdOptions {
        servers: vec![server.to_owned()],
        history_retention: Some(Duration::from_secs(2)),
        deltas: EtcdDeltaOptions {
            // The writers share the last segments of their keys, and so their bases.
            keys: DeltaOptions {
                prefixes: vec![KEY_PREFIX.into()],
                minimum_bytes: 64,
            },
            write_delay: Duration::ZERO,
            collection_interval: Duration::from_millis(200),
        },
        ..EtcdOptions::default()
    };
    let store = EtcdStore::open(options).await.unwrap();
    store.raise_format(format::DELTAS).await.unwrap();
    Arc::new(store)
}

/// Writes with all writers until `done`.
async fn write_until(
    store: &Arc<EtcdStore>,
    done: &Arc<AtomicBool>,
    acknowledged: &Arc<Mutex<WriteHistory>>,
) {
    let writers = (0..WRITERS).map(|writer| {
        let (store, done) = (Arc::clone(store), Arc::clone(done));
        let acknowledged = Arc::clone(acknowledged);
        tokio::spawn(async move {
            for turn in 0_u64.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let key = format!("{KEY_PREFIX}{writer}/{}", turn % KEYS_PER_WRITER);
                if let Some((revision, write)) = write(&*store, &key, turn).await.unwrap() {
                    acknowledged.lock().insert(revision, write);
                }
                // The killed process gets its turns too.
                sleep(Duration::from_millis(5)).await;
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

async fn write_until_killed(server: &str) {
    let store = open_store(server).await;
    let writers = (0..WRITERS).map(|writer| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for turn in 0_u64.. {
                let key = format!("{KEY_PREFIX}{writer}/{}", turn % KEYS_PER_WRITER);
                write_once(&*store, &key, turn).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

async fn read_until_end(feed: &mut Box<dyn StoreWatch>) -> Vec<StoreEvent> {
    let mut events: Vec<StoreEvent> = Vec::new();
    while events.last().is_none_or(|event| &*event.key != LAST_KEY) {
        let batch = timeout(WAIT_TIMEOUT, feed.next()).await;
        events.extend(batch.unwrap().unwrap().events);
    }
    events
}

/// Checks the order, and that each event has the value before; returns the final values.
fn check_history(events: &[StoreEvent]) -> BTreeMap<String, (u64, String)> {
    let mut present = BTreeMap::new();
    let mut last_revision = 0;
    for event in events {
        assert!(event.revision > last_revision);
        last_revision = event.revision;
        let previous = event.previous.as_ref();
        let previous = previous.map(|p| (p.mod_revision, digest(&p.value)));
        let before = match &event.value {
            Some(value) => present.insert(event.key.to_string(), (event.revision, digest(value))),
            None => present.remove(&*event.key),
        };
        assert_eq!(
            previous, before,
            "before {} of {}",
            event.revision, event.key
        );
    }
    present
}

async fn check_kills(rounds: usize) {
    let Some(server) = harness::EtcdCluster::start(VERSION_3_5, 1) else {
        return;
    };
    let url = server.endpoints();
    let reader = open_store(&url).await;
    let start = reader.revision().await.unwrap();
    let mut feed = reader.watch(KEY_PREFIX, start).await.unwrap();
    let following = tokio::spawn(async move { read_until_end(&mut feed).await });
    let (done, acknowledged) = (Arc::default(), Arc::<Mutex<WriteHistory>>::default());
    let store = open_store(&url).await;
    let writing = {
        let (store, done, acknowledged) = (store.clone(), Arc::clone(&done), acknowledged.clone());
        tokio::spawn(async move { write_until(&store, &done, &acknowledged).await })
    };
    for _ in 0..rounds {
        let killed = run_and_kill(WRITER_TEST, SERVER_VARIABLE, OsStr::new(&url)).await;
        acknowledged.lock().extend(killed);
    }
    done.store(true, Ordering::Relaxed);
    writing.await.unwrap();
    assert!(write(&*store, LAST_KEY, 0).await.unwrap().is_some());
    let events = timeout(WAIT_TIMEOUT, following).await.unwrap().unwrap();
    let present = check_history(&events);
    let history: WriteHistory = events.iter().map(key_write).collect();
    for (revision, write) in acknowledged.lock().iter() {
        assert_eq!(
            history.get(revision),
            Some(write),
            "acknowledged at {revision}"
        );
    }
    let newcomer = open_store(&url).await;
    let page = newcomer
        .range(&RangeRequest::prefix(KEY_PREFIX))
        .await
        .unwrap();
    let entries = page.kvs.iter();
    let entries = entries.map(|e| (e.key.to_string(), (e.mod_revision, digest(&e.value))));
    assert_eq!(entries.collect::<BTreeMap<_, _>>(), present);
    // Every base that is left is that of a value, however the processes ended.
    let check = async {
        loop {
            let values = server.list_prefix(KEY_PREFIX);
            let is_used = |base: &str| {
                let name = base.strip_prefix("/registry/flotilla/bases").unwrap();
                let header = format!("flotilla:delta:v1:{name}:");
                values
                    .iter()
                    .any(|v| v.value.starts_with(header.as_bytes()))
            };
            if server
                .list_prefix(BASE_PREFIX)
                .iter()
                .all(|base| is_used(&base.key))
            {
                return values
                    .iter()
                    .any(|v| v.value.starts_with(b"flotilla:delta:"));
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(
        timeout(WAIT_TIMEOUT, check).await.unwrap(),
        "no value is a delta"
    );
    for store in [reader, store, newcomer] {
        store.close().await;
    }
}

// proves: WRK-stored-once-kills
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_of_deltas_is_killed() {
    if let Some(server) = variable_from_parent(SERVER_VARIABLE) {
        write_until_killed(server.to_str().unwrap()).await;
        return;
    }
    check_kills(ROUNDS).await;
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_of_deltas_is_killed_sixty_times() {
    check_kills(SLOW_ROUNDS).await;
}
