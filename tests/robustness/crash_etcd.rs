//! Kills with SIGKILL, at random moments, a process that writes to etcd, and etcd itself
//! while it is written to: every acknowledged write is in etcd's history as it was
//! acknowledged, and a feed that was open all the time has told exactly that history.
//!
//! The child is this binary, told by the environment. A few rounds in every run, many in the
//! slow one; on etcd 3.4 and 3.5.

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

/// Deaths in every run.
const FEW: usize = 4;

/// The test that is the writer when its parent says so.
const WRITER: &str = "writer_is_killed_34";

async fn open(server: &str) -> Arc<Etcd> {
    let options = Options {
        servers: vec![server.to_owned()],
        history: None,
        ..Options::default()
    };
    Arc::new(Etcd::open(options).await.unwrap())
}

/// Events up to the one that is the last, which is written here.
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

/// Ascending, whole, each with what was there before it.
fn check_history(events: &[Event], after: u64) {
    let mut last = after;
    let mut present = std::collections::BTreeMap::new();
    for event in events {
        // Nobody else writes there, so there is no other revision.
        assert_eq!(event.revision, last + 1, "a gap, or a revision used twice");
        last = event.revision;
        let before = match &event.value {
            Some(_) => present.insert(event.key.clone(), event.revision),
            None => present.remove(&event.key),
        };
        let told = event.previous.as_ref().map(|p| p.revision);
        // What was there before the first event of a key is not known here.
        if before.is_some() || told.is_none_or(|r| r > after) {
            assert_eq!(told, before, "before {} of {}", event.revision, event.key);
        }
    }
}

/// The feed told what etcdctl tells.
fn check_told(server: &harness::Etcd, told: &[Event], after: u64) {
    let history = server.history(PREFIX, after, "/crash/end");
    let told: Vec<Change> = told.iter().map(change).collect();
    // What was there before the base is told by etcd alone.
    let known = |c: Change| Change {
        before: if c.before > after { c.before } else { 0 },
        ..c
    };
    let plain = |all: Vec<Change>| all.into_iter().map(known).collect::<Vec<_>>();
    assert_eq!(plain(told), plain(history));
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
                // What the one before had under way may still arrive.
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
    // What was under way when a writer died, and the end.
    let unheard = history.len() - acknowledged.len();
    assert!(
        unheard <= rounds * WRITERS as usize + 1,
        "{unheard} unheard of"
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
        let wanted = acknowledged.lock().len() + 100 + round * 17 % 50;
        let end = Instant::now() + PATIENCE;
        while acknowledged.lock().len() < wanted {
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
    let told = timeout(PATIENCE, following).await.unwrap().unwrap();
    check_history(&told, base);
    check_told(&server, &told, base);
    let history: History = told.iter().map(seen).collect();
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
