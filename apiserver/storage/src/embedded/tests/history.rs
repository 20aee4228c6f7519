//! Tests that several clients observe one history, also while the writer pauses in the
//! middle of publishing a batch.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::{commit, manual_compaction_options, put};
use crate::Store;
use crate::embedded::EmbeddedStore;

const ROUNDS: usize = 20;
/// How long the writer pauses in each publication.
const PAUSE: Duration = Duration::from_millis(20);

/// The revision that the watch of `/a/` delivered, and the revision that a consistent LIST
/// of `/b/` required of its cache afterwards.
#[derive(Debug)]
struct ObservedRevisions {
    watched: u64,
    list: u64,
}

/// Observes until the writers are done. The LIST of a third kind wakes the watch, as the
/// LIST of any client does.
async fn observe(
    store: Arc<EmbeddedStore>,
    mut done: oneshot::Receiver<()>,
) -> Vec<ObservedRevisions> {
    let mut watch = store.watch("/a/", 0).await.unwrap();
    let mut observations = Vec::new();
    loop {
        tokio::select! {
            biased;
            batch = watch.next() => {
                let watched = batch.unwrap().events.last().map(|event| event.revision);
                let list = store.prefix_revision("/b/").await.unwrap();
                observations.extend(watched.map(|watched| ObservedRevisions { watched, list }));
            }
            _ = &mut done => return observations,
            () = tokio::time::sleep(Duration::from_millis(1)) => {
                store.revision().await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn list_is_as_new_as_a_watch_of_another_kind() {
    let store = Arc::new(EmbeddedStore::in_memory(manual_compaction_options()).unwrap());
    // A watch of the second kind; without one, `prefix_revision` is the newest revision.
    let _cache = store.watch("/b/", 0).await.unwrap();
    let (done, stop) = oneshot::channel();
    let observer = tokio::spawn(observe(Arc::clone(&store), stop));
    let pause = Arc::new((Mutex::new(()), Condvar::new()));
    store
        .engine
        .between_publications
        .set(Some(Arc::new(move || {
            let (mutex, condvar) = &*pause;
            condvar.wait_for(&mut mutex.lock(), PAUSE);
        })));

    let mut written = Vec::new();
    for round in 0..ROUNDS {
        let [a, b, c] = ["a", "b", "c"].map(|kind| format!("/{kind}/{round}"));
        // While the writer pauses in the first batch, the other two writes form the next.
        let (_, b, a) = tokio::join!(
            commit(&store, &c, 0, put("c")),
            commit(&store, &b, 0, put("b")),
            commit(&store, &a, 0, put("a")),
        );
        a.unwrap();
        written.push(b.unwrap());
    }
    done.send(()).unwrap();
    let observations = observer.await.unwrap();
    assert!(!observations.is_empty());
    for ObservedRevisions { watched, list } in observations {
        let newest = written.iter().filter(|b| **b <= watched).max();
        assert!(
            newest.is_none_or(|newest| *newest <= list),
            "the watch delivered {watched}; a later LIST accepts {list} and misses {newest:?}"
        );
    }
    store.close().await;
}
