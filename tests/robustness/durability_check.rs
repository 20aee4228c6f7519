//! Checks the store of a process that was killed or lost its power: it must hold every
//! acknowledged write once, and a history without gaps. The check returns a defect instead
//! of asserting, so that it can be tested itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use storage::{EmbeddedStore, EmbeddedStoreOptions, RangeRequest, Store, StoreEvent};

use crate::robustness::record::{
    KEYS_PER_WRITER, KeyWrite, WRITERS, WriteHistory, digest, key_write, write_once,
};

/// The pause between a failed write and the next one.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// A lost write, or a change that was not written.
pub(crate) type StoreDefectMessage = String;

fn ensure(holds: bool, defect: impl FnOnce() -> String) -> Result<(), StoreDefectMessage> {
    if holds { Ok(()) } else { Err(defect()) }
}

/// The main function of the child. After an error it prints a line and goes on.
#[expect(clippy::print_stdout, reason = "the parent listens")]
pub(crate) async fn write_until_killed(
    directory: &Path,
    options: EmbeddedStoreOptions,
    writers: u64,
) {
    let store = Arc::new(EmbeddedStore::open(directory, options).unwrap());
    let writers = (0..writers).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            // A failed write may still happen while the same key is written again.
            let mut has_failed = false;
            for turn in 0_u64.. {
                let key = format!("/crash/{writer}/{}", turn % KEYS_PER_WRITER);
                match write_once(&*store, &key, turn).await {
                    Ok(written) => assert!(written || has_failed, "{key} has another writer"),
                    Err(error) => {
                        has_failed = true;
                        println!("\nrefused {error}");
                        tokio::time::sleep(RETRY_INTERVAL).await;
                    }
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

/// Opens and checks the store of the child. `history` has the history of earlier rounds.
pub(crate) async fn check(
    directory: &Path,
    acknowledged: &WriteHistory,
    history: &mut WriteHistory,
) -> Result<(), StoreDefectMessage> {
    check_after_failures(directory, acknowledged, history, 0).await
}

/// The same when `refused_writes` writes failed, which may have happened.
pub(crate) async fn check_after_failures(
    directory: &Path,
    acknowledged: &WriteHistory,
    known_writes: &mut WriteHistory,
    refused_writes: u64,
) -> Result<(), StoreDefectMessage> {
    let options = EmbeddedStoreOptions {
        history_retention: None,
        ..EmbeddedStoreOptions::default()
    };
    let store = EmbeddedStore::open(directory, options).map_err(|e| e.to_string())?;
    let history = check_history(&store, acknowledged, known_writes, WRITERS + refused_writes).await;
    store.close().await;
    known_writes.extend(acknowledged.clone());
    known_writes.extend(history?);
    Ok(())
}

async fn check_history(
    store: &EmbeddedStore,
    acknowledged: &WriteHistory,
    known_writes: &WriteHistory,
    under_way: u64,
) -> Result<WriteHistory, StoreDefectMessage> {
    let revision = store.revision().await.map_err(|e| e.to_string())?;
    let compacted = store.stats().compact_revision;
    let before = known_writes.keys().last().copied().unwrap_or_default();
    let last = acknowledged.keys().last().copied().unwrap_or(before);
    ensure(revision >= last, || {
        format!("acknowledged {last}, found {revision}")
    })?;
    ensure(acknowledged.keys().all(|r| *r > before), || {
        format!("a revision before {before} was used twice")
    })?;

    let events = watch(store, compacted, revision).await?;
    let history: WriteHistory = events.iter().map(key_write).collect();
    for (at, write) in acknowledged.iter().chain(known_writes) {
        ensure(*at <= compacted || history.get(at) == Some(write), || {
            format!("{at} {write:?} is not in the history")
        })?;
    }
    let rest = watch(store, last.max(compacted), revision).await?;
    let written = history.range(last.max(compacted) + 1..);
    ensure(
        rest.iter().map(key_write).collect::<WriteHistory>() == written.map(clone_write).collect(),
        || format!("a watch from {last} differs from one from {compacted}"),
    )?;
    let unacknowledged = history
        .keys()
        .filter(|at| **at > before && !acknowledged.contains_key(at))
        .count();
    ensure(unacknowledged as u64 <= under_way, || {
        format!("{unacknowledged} writes were not acknowledged, more than were in flight")
    })?;
    check_state(store, &events, acknowledged).await?;
    Ok(history)
}

/// Checks that the state at the compaction plus the events since then equals the current
/// state, and that it lacks no acknowledged write.
async fn check_state(
    store: &EmbeddedStore,
    events: &[StoreEvent],
    acknowledged: &WriteHistory,
) -> Result<(), StoreDefectMessage> {
    let compacted = store.stats().compact_revision;
    // Revision 0 would mean the newest revision.
    let mut state = if compacted == 0 {
        BTreeMap::new()
    } else {
        range(store, compacted).await?
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
            .map(|e| (e.mod_revision, digest(&e.value)));
        ensure(claimed == previous, || {
            format!("before {} of {}: {claimed:?}", event.revision, event.key)
        })?;
    }
    ensure(state == range(store, 0).await?, || {
        "the events do not give the state".into()
    })?;
    let touched: BTreeMap<_, _> = events.iter().map(|e| (&*e.key, e.revision)).collect();
    for (at, write) in acknowledged {
        let stored_revision = state.get(&write.key).map_or(0, |(revision, _)| *revision);
        let later = stored_revision.max(touched.get(&*write.key).copied().unwrap_or_default());
        let gone = write.value.is_none() && stored_revision == 0;
        let superseded = acknowledged
            .range(at + 1..)
            .any(|(_, w)| w.key == write.key);
        ensure(later >= *at || gone || superseded, || {
            format!("{at} {write:?} is lost")
        })?;
    }
    Ok(())
}

async fn range(
    store: &EmbeddedStore,
    at: u64,
) -> Result<BTreeMap<String, (u64, String)>, StoreDefectMessage> {
    let range = RangeRequest {
        revision: at,
        ..RangeRequest::prefix("/crash/")
    };
    let page = store.range(&range).await.map_err(|e| e.to_string())?;
    let entries = page.kvs.into_iter();
    Ok(entries
        .map(|e| (e.key.to_string(), (e.mod_revision, digest(&e.value))))
        .collect())
}

/// Reads all events in `(after, upto]`, each exactly once and in order.
async fn watch(
    store: &EmbeddedStore,
    after: u64,
    upto: u64,
) -> Result<Vec<StoreEvent>, StoreDefectMessage> {
    let feed = store.watch("/crash/", after).await;
    let mut feed = feed.map_err(|e| e.to_string())?;
    let mut events: Vec<StoreEvent> = Vec::new();
    let mut reached = after;
    while reached < upto {
        let batch = tokio::time::timeout(Duration::from_secs(20), feed.next()).await;
        let batch = batch.map_err(|_| "the watch stalls")?;
        let batch = batch.map_err(|e| e.to_string())?;
        reached = batch.revision;
        events.extend(batch.events);
    }
    ensure(
        events.iter().map(|e| e.revision).eq(after + 1..=upto),
        || format!("the events after {after} to {upto} have gaps"),
    )?;
    Ok(events)
}

fn clone_write((at, write): (&u64, &KeyWrite)) -> (u64, KeyWrite) {
    (*at, write.clone())
}
