//! What several clients observe of one store is one history, also while the writer pauses
//! between the steps in which it publishes a batch.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::Embedded;
use super::tests::{commit, manual, put};
use crate::Store;

const ROUNDS: usize = 20;
/// How long the writer pauses in each publication.
const PAUSE: Duration = Duration::from_millis(20);

/// One observation: the watch of `/a/` told `told`, and after that a consistent LIST of
/// `/b/` asked how new its cache must be.
#[derive(Debug)]
struct Observation {
    told: u64,
    list: u64,
}

/// Observes until the writers are done: the LIST of a third kind wakes the watch, as any
/// client of a server does.
async fn observe(store: Arc<Embedded>, mut done: oneshot::Receiver<()>) -> Vec<Observation> {
    let mut watch = store.watch("/a/", 0).await.unwrap();
    let mut observations = Vec::new();
    loop {
        tokio::select! {
            biased;
            batch = watch.next() => {
                let told = batch.unwrap().events.last().map(|event| event.revision);
                let list = store.revision_of("/b/").await.unwrap();
                observations.extend(told.map(|told| Observation { told, list }));
            }
            _ = &mut done => return observations,
            () = tokio::time::sleep(Duration::from_millis(1)) => {
                store.revision().await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn list_covers_what_a_watch_of_another_kind_has_told() {
    let store = Arc::new(Embedded::memory(manual()).unwrap());
    // A cache of the second kind, without which every LIST asks the store.
    let _cache = store.watch("/b/", 0).await.unwrap();
    let (done, until) = oneshot::channel();
    let observer = tokio::spawn(observe(Arc::clone(&store), until));
    let pause = Arc::new((Mutex::new(()), Condvar::new()));
    store
        .shared
        .between_publications
        .set(Some(Arc::new(move || {
            let (mutex, condvar) = &*pause;
            condvar.wait_for(&mut mutex.lock(), PAUSE);
        })));

    let mut written = Vec::new();
    for round in 0..ROUNDS {
        let [a, b, c] = ["a", "b", "c"].map(|kind| format!("/{kind}/{round}"));
        // While the writer pauses in the first batch, the other two writes gather in one.
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
    for Observation { told, list } in observations {
        let newest = written.iter().filter(|b| **b <= told).max();
        assert!(
            newest.is_none_or(|newest| *newest <= list),
            "the watch told {told}; a LIST after that is content with {list} and misses {newest:?}"
        );
    }
    store.close().await;
}
