//! Visits the objects under some keys of an informer index on a separate task, so that
//! event handlers, which delay every later event, only name the keys.

use std::convert::Infallible;

use client::{Informer, Tasks};
use machinery::Object;

use crate::figures::Name;
use crate::queue::Queue;
use crate::workers::{Action, run_workers};

/// Objects visited before the task yields to others.
const CHUNK: usize = 256;

/// Visits the objects of one index in several informers. Clones share one queue.
#[derive(Clone)]
pub struct IndexSweep {
    informers: Vec<Informer>,
    index: &'static str,
    queue: Queue<String>,
}

impl IndexSweep {
    /// Starts the worker that calls `visit` for each object under the added keys. It ends with `tasks`.
    pub fn start(
        tasks: &Tasks,
        name: impl Into<Name>,
        informers: &[&Informer],
        index: &'static str,
        visit: impl Fn(&Object) + Clone + Send + Sync + 'static,
    ) -> Self {
        let it = Self {
            informers: informers.iter().map(|&informer| informer.clone()).collect(),
            index,
            queue: Queue::new(),
        };
        let (informers, queue) = (it.informers.clone(), it.queue.clone());
        run_workers(tasks, name, &queue, 1, move |key: String| {
            let (informers, visit) = (informers.clone(), visit.clone());
            async move {
                for informer in informers {
                    for chunk in informer.by_index(index, &key).chunks(CHUNK) {
                        chunk.iter().for_each(&visit);
                        tokio::task::yield_now().await;
                    }
                }
                Ok::<_, Infallible>(Action::Done)
            }
        });
        it
    }

    /// Enqueues the keys of the index for which `matches` returns true.
    pub fn add(&self, matches: impl Fn(&str) -> bool) {
        for informer in &self.informers {
            for key in informer.index_keys(self.index, &matches) {
                self.queue.add_low(key);
            }
        }
    }
}
