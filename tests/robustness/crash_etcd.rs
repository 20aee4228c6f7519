//! Kills with SIGKILL, at random moments, a process that writes to etcd, and etcd itself.
//!
//! Every acknowledged write must be in etcd's history, and a watch that was open all the
//! time must have delivered exactly that history. The child is this binary, selected by an
//! environment variable. A normal run has a few rounds, a slow one many, on etcd 3.4 and 3.5.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::etcdctl::EtcdWatchEvent;
use parking_lot::Mutex;
use storage::etcd::{EtcdOptions, EtcdStore};
use storage::{Error, Store, StoreEvent, StoreWatch};
use tokio::time::{Instant, sleep, timeout};

use crate::robustness::record::{
    KEYS_PER_WRITER, WRITERS, WriteHistory, key_write, run_and_kill, variable_from_parent, write,
    write_once,
};

const SERVER_VARIABLE: &str = "FLOTILLA_CRASH_ETCD";
const KEY_PREFIX: &str = "/crash/";
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// The kills of a normal run.
const QUICK_ROUNDS: usize = 4;

/// The test that is the writer when its parent sets [`SERVER_VARIABLE`].
const WRITER_TEST: &str = "robustness::crash_etcd::writer_is_killed_35";

async fn open_store(server: &str) -> Arc<EtcdStore> {
    let options = EtcdOptions {
        servers: vec![server.to_owned()],
        history_retention: None,
        ..EtcdOptions::default()
    };
    Arc::new(EtcdStore::open(options).await.unwrap())
}

/// Reads events up to the last one, which [`write_end`] writes.
async fn read_until_end(feed: &mut Box<dyn StoreWatch>) -> Vec<StoreEvent> {
    let mut events = Vec::new();
    loop {
        let batch = timeout(WAIT_TIMEOUT, feed.next()).await;
        events.extend(batch.unwrap().unwrap().events);
        if events.last().is_some_and(|e| &*e.key == "/crash/end") {
            return events;
        }
    }
}

async fn write_end(store: &dyn Store) {
    assert!(write(store, "/crash/end", 0).await.unwrap().is_some());
}

/// Checks that revisions ascend without gaps and that each event has the right previous
/// revision.
fn check_history(events: &[StoreEvent], after: u64) {
    let mut last = after;
    let mut present = std::collections::BTreeMap::new();
    for event in events {
        // This etcd has no other writers, so revisions are consecutive.
        assert_eq!(event.revision, last + 1, "a gap, or a revision used twice");
        last = event.revision;
        let before = match &event.value {
            Some(_) => present.insert(event.key.clone(), event.revision),
            None => present.remove(&event.key),
        };
        let previous = event.previous.as_ref().map(|p| p.mod_revision);
        // The revision before the first event of a key is unknown here.
        if before.is_some() || previous.is_none_or(|r| r > after) {
            assert_eq!(
                previous, before,
                "before {} of {}",
                event.revision, event.key
            );
        }
    }
}

/// Checks that the feed delivered the history that etcdctl reads.
fn check_feed(server: &harness::EtcdCluster, events: &[StoreEvent], after: u64) {
    let history = server.history(KEY_PREFIX, after, "/crash/end");
    let events: Vec<EtcdWatchEvent> = events.iter().map(etcd_change).collect();
    // Only etcdctl reports revisions before the base.
    let without_leases = |c: EtcdWatchEvent| EtcdWatchEvent {
        previous_revision: if c.previous_revision > after {
            c.previous_revision
        } else {
            0
        },
        ..c
    };
    let plain = |all: Vec<EtcdWatchEvent>| all.into_iter().map(without_leases).collect::<Vec<_>>();
    assert_eq!(plain(events), plain(history));
}

fn etcd_change(event: &StoreEvent) -> EtcdWatchEvent {
    EtcdWatchEvent {
        revision: event.revision,
        key: event.key.to_string(),
        value: event.value.as_ref().map(|value| value.to_vec()),
        previous_revision: event.previous.as_ref().map_or(0, |p| p.mod_revision),
    }
}

fn check_acknowledged(history: &WriteHistory, acknowledged: &WriteHistory) {
    for (at, write) in acknowledged {
        assert_eq!(history.get(at), Some(write), "acknowledged at {at}");
    }
}

async fn write_until_killed(server: &str) {
    let store = open_store(server).await;
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for turn in 0_u64.. {
                let key = format!("{KEY_PREFIX}{writer}/{}", turn % KEYS_PER_WRITER);
                // Writes in flight of the previous process may still arrive.
                write_once(&*store, &key, turn).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

async fn kill_writer(version: &str, rounds: usize) {
    let Some(server) = harness::EtcdCluster::start(version, 1) else {
        return;
    };
    let store = open_store(&server.endpoints()).await;
    let base = store.revision().await.unwrap();
    let mut feed = store.watch(KEY_PREFIX, base).await.unwrap();
    let mut acknowledged = WriteHistory::new();
    for _ in 0..rounds {
        let url = server.endpoints();
        let round = run_and_kill(WRITER_TEST, SERVER_VARIABLE, OsStr::new(&url)).await;
        let before = acknowledged.keys().last().copied().unwrap_or(base);
        assert!(round.keys().all(|at| *at > before));
        let now = store.revision().await.unwrap();
        assert!(round.keys().all(|at| *at <= now));
        acknowledged.extend(round);
    }
    write_end(&*store).await;
    let events = read_until_end(&mut feed).await;
    check_history(&events, base);
    check_feed(&server, &events, base);
    let history: WriteHistory = events.iter().map(key_write).collect();
    check_acknowledged(&history, &acknowledged);
    // The writes in flight when a process was killed, and the end.
    let unacknowledged = history.len() - acknowledged.len();
    assert!(
        unacknowledged <= rounds * WRITERS as usize + 1,
        "{unacknowledged} writes were not acknowledged"
    );
    store.close().await;
}

async fn kill_etcd(version: &str, rounds: usize) {
    let Some(mut server) = harness::EtcdCluster::start(version, 1) else {
        return;
    };
    let store = open_store(&server.endpoints()).await;
    let base = store.revision().await.unwrap();
    let acknowledged: Arc<Mutex<WriteHistory>> = Arc::default();
    let done = Arc::new(AtomicBool::new(false));
    let mut feed = store.watch(KEY_PREFIX, base).await.unwrap();
    let following = tokio::spawn(async move { read_until_end(&mut feed).await });
    let writers = (0..WRITERS).map(|writer| {
        let (store, done) = (store.clone(), done.clone());
        let acknowledged = acknowledged.clone();
        tokio::spawn(async move {
            for turn in 0_u64.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let key = format!("{KEY_PREFIX}{writer}/{}", turn % KEYS_PER_WRITER);
                match write(&*store, &key, turn).await {
                    Ok(Some((revision, write))) => {
                        let twice = acknowledged.lock().insert(revision, write);
                        assert_eq!(twice, None, "{revision} acknowledged twice");
                    }
                    Ok(None) => {}
                    Err(Error::Unavailable(_)) => sleep(RETRY_INTERVAL).await,
                    Err(other) => panic!("{other}"),
                }
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    for round in 0..rounds {
        let target = acknowledged.lock().len() + 100 + round * 17 % 50;
        let end = Instant::now() + WAIT_TIMEOUT;
        while acknowledged.lock().len() < target {
            assert!(Instant::now() < end, "no more writes after {round} rounds");
            sleep(RETRY_INTERVAL).await;
        }
        server.nodes[0].daemon.kill();
        sleep(Duration::from_millis(round as u64 % 3 * 200)).await;
        server.nodes[0].daemon.restart();
    }
    server.wait_ready();
    done.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    write_end(&*store).await;
    let events = timeout(WAIT_TIMEOUT, following).await.unwrap().unwrap();
    check_history(&events, base);
    check_feed(&server, &events, base);
    let history: WriteHistory = events.iter().map(key_write).collect();
    check_acknowledged(&history, &acknowledged.lock());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_is_killed_35() {
    if let Some(server) = variable_from_parent(SERVER_VARIABLE) {
        write_until_killed(server.to_str().unwrap()).await;
        return;
    }
    kill_writer(harness::etcd::VERSION_3_5, QUICK_ROUNDS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_is_killed_35() {
    kill_etcd(harness::etcd::VERSION_3_5, QUICK_ROUNDS).await;
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_is_killed_sixty_times_34() {
    kill_writer(harness::etcd::VERSION_3_4, 60).await;
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_is_killed_sixty_times_35() {
    kill_writer(harness::etcd::VERSION_3_5, 60).await;
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_is_killed_forty_times_34() {
    kill_etcd(harness::etcd::VERSION_3_4, 40).await;
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_is_killed_forty_times_35() {
    kill_etcd(harness::etcd::VERSION_3_5, 40).await;
}
