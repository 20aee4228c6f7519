//! Kills with SIGKILL, at random moments, a process that writes to etcd, and etcd itself
//! while it is written to: every acknowledged write is in etcd's history as it was
//! acknowledged, and a feed that was open all the time has told exactly that history.
//!
//! The child is this binary, told by the environment. A few rounds normally, many with
//! FLOTILLA_SLOW=1; on etcd 3.4 and 3.5.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use storage::etcd::{Etcd, Options};
use storage::{Error, Event, Feed, Store};
use tokio::time::{Instant, sleep, timeout};

#[path = "record.rs"]
mod record;

use record::{History, KEYS, WRITERS, run_and_kill, seen, write, write_once};

const SERVER: &str = "FLOTILLA_CRASH_ETCD";
const PREFIX: &str = "/crash/";
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

fn rounds(few: usize, many: usize) -> usize {
    let slow = std::env::var_os("FLOTILLA_SLOW").is_some_and(|v| v == "1");
    if slow { many } else { few }
}

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

async fn writer_is_killed(version: &str, test: &str) {
    if let Some(server) = std::env::var_os(SERVER) {
        write_until_killed(server.to_str().unwrap()).await;
        return;
    }
    let Some(server) = harness::Etcd::start(version, 1) else {
        return;
    };
    let store = open(&server.endpoints()).await;
    let base = store.revision().await.unwrap();
    let mut feed = store.watch(PREFIX, base).await.unwrap();
    let mut acknowledged = History::new();
    let rounds = rounds(4, 60);
    for _ in 0..rounds {
        let url = server.endpoints();
        let round = run_and_kill(test, SERVER, OsStr::new(&url)).await;
        let before = acknowledged.keys().last().copied().unwrap_or(base);
        assert!(round.keys().all(|at| *at > before));
        let now = store.revision().await.unwrap();
        assert!(round.keys().all(|at| *at <= now));
        acknowledged.extend(round);
    }
    end(&*store).await;
    let events = until_end(&mut feed).await;
    check_history(&events, base);
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

async fn etcd_is_killed(version: &str) {
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
    for round in 0..rounds(4, 40) {
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
    let mut again = store.watch(PREFIX, base).await.unwrap();
    let remembered = until_end(&mut again).await;
    assert_eq!(format!("{told:?}"), format!("{remembered:?}"));
    let history: History = told.iter().map(seen).collect();
    check_acknowledged(&history, &acknowledged.lock());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_is_killed_34() {
    writer_is_killed(harness::etcd::OLD, "writer_is_killed_34").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_is_killed_35() {
    writer_is_killed(harness::etcd::NEW, "writer_is_killed_35").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_is_killed_34() {
    etcd_is_killed(harness::etcd::OLD).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_is_killed_35() {
    etcd_is_killed(harness::etcd::NEW).await;
}
