//! Kills a process with SIGKILL while it writes, at random moments, and opens its
//! store again: every acknowledged write is present, the revision is not lower, and
//! a watch from the last acknowledged revision delivers the rest exactly once.
//!
//! The child is this binary, told by the environment. It prints one line for each
//! acknowledged write and for nothing else. Ten rounds in every run, 200 in the slow one.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use storage::{Embedded, Event, Options, Range, Store};

#[path = "record.rs"]
mod record;

use record::{History, KEYS, WRITERS, Write, digest, parent_gave, run_and_kill, seen, write_once};

const TEST: &str = "survives_sigkill_at_any_moment";
const DIRECTORY: &str = "FLOTILLA_CRASH_DIRECTORY";

#[test]
fn survives_sigkill_at_any_moment() {
    if let Some(directory) = parent_gave(DIRECTORY) {
        runtime().block_on(write_until_killed(Path::new(&directory)));
        return;
    }
    survives(10);
}

#[harness::slow]
#[test]
fn survives_sigkill_two_hundred_times() {
    survives(200);
}

fn survives(rounds: usize) {
    let directory = tempfile::tempdir().unwrap();
    let mut known = History::new();
    for _ in 0..rounds {
        runtime().block_on(async {
            let acknowledged = run_and_kill(TEST, DIRECTORY, directory.path().as_os_str()).await;
            check(directory.path(), &acknowledged, &mut known).await;
        });
    }
    assert!(known.len() > rounds, "only {} writes in all", known.len());
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

fn open(directory: &Path, history: Option<Duration>) -> Embedded {
    let options = Options {
        history,
        ..Options::default()
    };
    Embedded::open(directory, options).unwrap()
}

/// The child.
async fn write_until_killed(directory: &Path) {
    // Little history, so that compactions are among the moments of death.
    let store = Arc::new(open(directory, Some(Duration::from_millis(100))));
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for turn in 0_u64.. {
                let key = format!("/crash/{writer}/{}", turn % KEYS);
                let written = write_once(&*store, &key, turn).await.unwrap();
                assert!(written, "{key} has another writer");
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

/// Opens what the child left behind. `known` is what the rounds before have seen.
async fn check(directory: &Path, acknowledged: &History, known: &mut History) {
    let store = open(directory, None);
    let revision = store.revision().await.unwrap();
    let compacted = store.stats().compacted;
    let before = known.keys().last().copied().unwrap_or_default();
    let last = acknowledged.keys().last().copied().unwrap_or(before);
    assert!(revision >= last, "acknowledged {last}, found {revision}");
    assert!(
        acknowledged.keys().all(|r| *r > before),
        "a revision was used twice"
    );

    let events = watch(&store, compacted, revision).await;
    let history: History = events.iter().map(seen).collect();
    for (at, write) in acknowledged {
        assert!(
            *at <= compacted || history.get(at) == Some(write),
            "{at} {write:?}"
        );
    }
    for (at, write) in known.iter() {
        assert!(
            *at <= compacted || history.get(at) == Some(write),
            "{at} {write:?}"
        );
    }
    let rest = watch(&store, last.max(compacted), revision).await;
    let written = history.range(last.max(compacted) + 1..);
    assert_eq!(
        rest.iter().map(seen).collect::<History>(),
        written.map(clone).collect()
    );
    let unheard = history
        .keys()
        .filter(|at| **at > before && !acknowledged.contains_key(at));
    assert!(
        unheard.count() <= usize::try_from(WRITERS).unwrap(),
        "more than were under way"
    );

    check_state(&store, &events, acknowledged).await;
    known.extend(acknowledged.clone());
    known.extend(history);
    store.close().await;
}

/// The state at the compaction and the events since give the state of now, in which
/// no acknowledged write is missing.
async fn check_state(store: &Embedded, events: &[Event], acknowledged: &History) {
    let compacted = store.stats().compacted;
    // Revision 0 would mean the newest.
    let mut state = if compacted == 0 {
        BTreeMap::new()
    } else {
        range(store, compacted).await
    };
    for event in events {
        let entry = event
            .value
            .as_ref()
            .map(|value| (event.revision, digest(value)));
        let previous = match entry {
            Some(entry) => state.insert(event.key.to_string(), entry),
            None => state.remove(&*event.key),
        };
        let claimed = event
            .previous
            .as_ref()
            .map(|e| (e.revision, digest(&e.value)));
        assert_eq!(
            claimed, previous,
            "before {} of {}",
            event.revision, event.key
        );
    }
    assert_eq!(state, range(store, 0).await);
    let touched: BTreeMap<_, _> = events.iter().map(|e| (&*e.key, e.revision)).collect();
    for (at, write) in acknowledged {
        let found = state.get(&write.key).map_or(0, |(revision, _)| *revision);
        let later = found.max(touched.get(&*write.key).copied().unwrap_or_default());
        let gone = write.value.is_none() && found == 0;
        let superseded = acknowledged
            .range(at + 1..)
            .any(|(_, w)| w.key == write.key);
        assert!(later >= *at || gone || superseded, "{at} {write:?} is lost");
    }
}

async fn range(store: &Embedded, at: u64) -> BTreeMap<String, (u64, String)> {
    let range = Range {
        at,
        ..Range::prefix("/crash/")
    };
    let entries = store.range(&range).await.unwrap().entries.into_iter();
    entries
        .map(|e| (e.key.to_string(), (e.revision, digest(&e.value))))
        .collect()
}

/// All events in `(after, upto]`, each exactly once and in order.
async fn watch(store: &Embedded, after: u64, upto: u64) -> Vec<Event> {
    let mut feed = store.watch("/crash/", after).await.unwrap();
    let mut events: Vec<Event> = Vec::new();
    let mut reached = after;
    while reached < upto {
        let batch = tokio::time::timeout(Duration::from_secs(20), feed.next()).await;
        let batch = batch.unwrap().unwrap();
        reached = batch.revision;
        events.extend(batch.events);
    }
    assert!(
        events.iter().map(|e| e.revision).eq(after + 1..=upto),
        "after {after} to {upto}"
    );
    events
}

fn clone((at, write): (&u64, &Write)) -> (u64, Write) {
    (*at, write.clone())
}
