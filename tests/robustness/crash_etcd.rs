//! Kills with SIGKILL, at random moments, a process that writes to etcd, and etcd itself.
//!
//! Every acknowledged write must be in etcd's history, and a watch that was open all the
//! time must have delivered exactly that history. The child is this binary, selected by an
//! environment variable. A normal run has a few rounds, a slow one many, on etcd 3.4 and 3.5.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::etcdctl::Change;
use parking_lot::Mutex;
use storage::etcd::{Etcd, Options};
use storage::{Error, Event, Feed, Store};
use tokio::time::{Instant, sleep, timeout};

#[path = "record.rs"]
mod record;

use record::{History, KEYS, WRITERS, parent_gave, run_and_kill, seen, write, write_once};

const SERVER: &str = "FLOTILLA_CRASH_ETCD";
const PREFIX: &str = "/crash/";
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// The kills of a normal run.
const FEW: usize = 4;

/// The test that is the writer when its parent sets [`SERVER_VARIABLE`].
const WRITER: &str = "writer_is_killed_34";

async fn open(server: &str) -> Arc<Etcd> {
    let options = Options {
        servers: vec![server.to_owned()],
        history: None,
        ..Options::default()
    };
    Arc::new(Etcd::open(options).await.unwrap())
}

/// Reads events up to the last one, which [`write_end`] writes.
async fn until_end(feed: &mut Box<dyn Feed>) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        let batch = timeout(PATIENCE, feed.next()).await;
        events.extend(batch.unwrap().unwrap().events);
        if events.last().is_some_and(|e| &*e.key == "/crash/end") {
            return events;
        }
    }
}

async fn end(store: &dyn Store) {
    assert!(write(store, "/crash/end", 0).await.unwrap().is_some());
}

/// Checks that revisions ascend without gaps and that each event has the right previous
/// revision.
fn check_history(events: &[Event], after: u64) {
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
        let previous = event.previous.as_ref().map(|p| p.revision);
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
fn check_told(server: &harness::Etcd, events: &[Event], after: u64) {
    let history = server.history(PREFIX, after, "/crash/end");
    let events: Vec<Change> = events.iter().map(change).collect();
    // Only etcdctl reports revisions before the base.
    let known = |c: Change| Change {
        before: if c.before > after { c.before } else { 0 },
        ..c
    };
    let plain = |all: Vec<Change>| all.into_iter().map(known).collect::<Vec<_>>();
    assert_eq!(plain(events), plain(history));
}

fn change(event: &Event) -> Change {
    Change {
        revision: event.revision,
        key: event.key.to_string(),
        value: event.value.as_ref().map(|value| value.to_vec()),
        before: event.previous.as_ref().map_or(0, |p| p.revision),
    }
}

fn check_acknowledged(history: &History, acknowledged: &History) {
    for (at, write) in acknowledged {
        assert_eq!(history.get(at), Some(write), "acknowledged at {at}");
    }
}

async fn write_until_killed(server: &str) {
    let store = open(server).await;
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for turn in 0_u64.. {
                let key = format!("{PREFIX}{writer}/{}", turn % KEYS);
                // Writes in flight of the previous process may still arrive.
                write_once(&*store, &key, turn).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

async fn writer_is_killed(version: &str, rounds: usize) {
    let Some(server) = harness::Etcd::start(version, 1) else {
        return;
    };
    let store = open(&server.endpoints()).await;
    let base = store.revision().await.unwrap();
    let mut feed = store.watch(PREFIX, base).await.unwrap();
    let mut acknowledged = History::new();
    for _ in 0..rounds {
        let url = server.endpoints();
        let round = run_and_kill(WRITER, SERVER, OsStr::new(&url)).await;
        let before = acknowledged.keys().last().copied().unwrap_or(base);
        assert!(round.keys().all(|at| *at > before));
        let now = store.revision().await.unwrap();
        assert!(round.keys().all(|at| *at <= now));
        acknowledged.extend(round);
    }
    end(&*store).await;
    let events = until_end(&mut feed).await;
    check_history(&events, base);
    check_told(&server, &events, base);
    let history: History = events.iter().map(seen).collect();
    check_acknowledged(&history, &acknowledged);
    // The writes in flight when a process was killed, and the end.
    let unacknowledged = history.len() - acknowledged.len();
    assert!(
        unacknowledged <= rounds * WRITERS as usize + 1,
        "{unacknowledged} writes were not acknowledged"
    );
    store.close().await;
}

async fn etcd_is_killed(version: &str, rounds: usize) {
    let Some(mut server) = harness::Etcd::start(version, 1) else {
        return;
    };
    let store = open(&server.endpoints()).await;
    let base = store.revision().await.unwrap();
    let acknowledged: Arc<Mutex<History>> = Arc::default();
    let done = Arc::new(AtomicBool::new(false));
    let mut feed = store.watch(PREFIX, base).await.unwrap();
    let following = tokio::spawn(async move { until_end(&mut feed).await });
    let writers = (0..WRITERS).map(|writer| {
        let (store, done) = (store.clone(), done.clone());
        let acknowledged = acknowledged.clone();
        tokio::spawn(async move {
            for turn in 0_u64.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let key = format!("{PREFIX}{writer}/{}", turn % KEYS);
                match write(&*store, &key, turn).await {
                    Ok(Some((revision, write))) => {
                        let twice = acknowledged.lock().insert(revision, write);
                        assert_eq!(twice, None, "{revision} acknowledged twice");
                    }
                    Ok(None) => {}
                    Err(Error::Unavailable(_)) => sleep(PAUSE).await,
                    Err(other) => panic!("{other}"),
                }
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    for round in 0..rounds {
        let target = acknowledged.lock().len() + 100 + round * 17 % 50;
        let end = Instant::now() + PATIENCE;
        while acknowledged.lock().len() < target {
            assert!(Instant::now() < end, "no more writes after {round} rounds");
            sleep(PAUSE).await;
        }
        server.nodes[0].daemon.kill();
        sleep(Duration::from_millis(round as u64 % 3 * 200)).await;
        server.nodes[0].daemon.again();
    }
    server.wait();
    done.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    end(&*store).await;
    let events = timeout(PATIENCE, following).await.unwrap().unwrap();
    check_history(&events, base);
    check_told(&server, &events, base);
    let history: History = events.iter().map(seen).collect();
    check_acknowledged(&history, &acknowledged.lock());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_is_killed_34() {
    if let Some(server) = parent_gave(SERVER) {
        write_until_killed(server.to_str().unwrap()).await;
        return;
    }
    writer_is_killed(harness::etcd::OLD, FEW).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_is_killed_35() {
    writer_is_killed(harness::etcd::NEW, FEW).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_is_killed_34() {
    etcd_is_killed(harness::etcd::OLD, FEW).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_is_killed_35() {
    etcd_is_killed(harness::etcd::NEW, FEW).await;
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_is_killed_sixty_times_34() {
    writer_is_killed(harness::etcd::OLD, 60).await;
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_is_killed_sixty_times_35() {
    writer_is_killed(harness::etcd::NEW, 60).await;
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_is_killed_forty_times_34() {
    etcd_is_killed(harness::etcd::OLD, 40).await;
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_is_killed_forty_times_35() {
    etcd_is_killed(harness::etcd::NEW, 40).await;
}
