//! Tests of a writer thread that panics: no acknowledged write is lost or delivered
//! twice, and the engine resumes writing by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use machinery::time::{Clock, SystemClock};

use super::{commit, manual_compaction_options, put, wait_until};
use crate::embedded::{EmbeddedStore, EmbeddedStoreOptions, StoreFaultKind};
use crate::{Error, Store, StoreWatch};

/// A clock whose next reading panics once after the flag is set.
#[derive(Default)]
struct PanickingClock(AtomicBool);

impl Clock for PanickingClock {
    fn now(&self) -> Timestamp {
        assert!(!self.0.swap(false, Ordering::AcqRel), "the clock is broken");
        SystemClock.now()
    }
}

async fn events(watch: &mut Box<dyn StoreWatch>, upto: u64) -> Vec<(u64, String)> {
    let mut events = Vec::new();
    let read = async {
        while events.last().is_none_or(|(revision, _)| *revision < upto) {
            let batch = watch.next().await.unwrap();
            events.extend(batch.events.iter().map(|e| (e.revision, e.key.to_string())));
        }
    };
    let read = tokio::time::timeout(std::time::Duration::from_secs(20), read).await;
    read.unwrap_or_else(|_| panic!("the feed does not reach {upto}"));
    events
}

async fn panicked_writer(open: impl FnOnce(EmbeddedStoreOptions) -> EmbeddedStore) {
    let clock = Arc::new(PanickingClock::default());
    let store = open(EmbeddedStoreOptions {
        clock: clock.clone(),
        ..manual_compaction_options()
    });
    let first = commit(&store, "/a/1", 0, put("one")).await.unwrap();
    let mut watch = store.watch("/a/", 0).await.unwrap();
    clock.0.store(true, Ordering::Release);
    let result = commit(&store, "/a/2", 0, put("two")).await;
    assert!(matches!(result, Err(Error::Unavailable(_))), "{result:?}");

    let health = store.health();
    wait_until(|| health.borrow().fault.is_none() && health.borrow().total_faults() > 0).await;
    let three = commit(&store, "/a/3", 0, put("three")).await.unwrap();
    assert_eq!(three, first + 1);
    let delivered = events(&mut watch, three).await;
    assert_eq!(delivered, [(first, "/a/1".into()), (three, "/a/3".into())]);
    assert_eq!(store.get("/a/1").await.unwrap().unwrap().value, "one");
    let health = store.health().borrow().clone();
    assert_eq!(health.fault_count(StoreFaultKind::Writer), 1);
    let last = health.last_fault.unwrap();
    assert!(last.message.contains("the clock is broken"), "{last:?}");
    store.close().await;
}

#[tokio::test]
async fn panicked_writer_on_disk_writes_again() {
    let directory = tempfile::tempdir().unwrap();
    panicked_writer(|options| EmbeddedStore::open(directory.path(), options).unwrap()).await;
}

#[tokio::test]
async fn panicked_writer_in_memory_writes_again() {
    panicked_writer(|options| EmbeddedStore::in_memory(options).unwrap()).await;
}

/// The writer panics after it committed the batch and updated the index, before it woke
/// any watch.
#[tokio::test]
async fn panic_within_a_publication_neither_loses_nor_repeats_events() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), manual_compaction_options()).unwrap();
    let mut watch = store.watch("/a/", 0).await.unwrap();
    let mut other = store.watch("/b/", 0).await.unwrap();
    let panics = AtomicBool::new(true);
    let panic = move || assert!(!panics.swap(false, Ordering::AcqRel), "between two steps");
    store.engine.between_publications.set(Some(Arc::new(panic)));
    let unknown = commit(&store, "/a/1", 0, put("one")).await;
    assert!(matches!(unknown, Err(Error::Unavailable(_))), "{unknown:?}");
    let health = store.health();
    wait_until(|| health.borrow().fault.is_none() && health.borrow().total_faults() > 0).await;

    // The write had been committed: reads and watches see it, once.
    let first = store.get("/a/1").await.unwrap().unwrap();
    assert_eq!((first.mod_revision, &*first.value), (1, &b"one"[..]));
    assert!(store.prefix_revision("/a/").await.unwrap() >= 1);
    let second = commit(&store, "/b/1", 0, put("two")).await.unwrap();
    let three = commit(&store, "/a/2", 0, put("three")).await.unwrap();
    let delivered = events(&mut watch, three).await;
    assert_eq!(delivered, [(1, "/a/1".into()), (three, "/a/2".into())]);
    assert_eq!(events(&mut other, second).await, [(second, "/b/1".into())]);
    store.close().await;
}
