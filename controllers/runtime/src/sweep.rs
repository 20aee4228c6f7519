//! Walks the objects under some keys of an index on a task of its own, so that event
//! handlers, which hold up all that follows, only name the keys.

use std::convert::Infallible;

use client::{Informer, Tasks};
use machinery::Object;

use crate::figures::Name;
use crate::queue::Queue;
use crate::workers::{Action, run_workers};

/// Objects between two points where other tasks may go on.
const CHUNK: usize = 256;

/// Walks an index that several informers have. Clones walk together.
#[derive(Clone)]
pub struct IndexSweep {
    informers: Vec<Informer>,
    index: &'static str,
    queue: Queue<String>,
}

impl IndexSweep {
    /// Calls `visit` for each object under the keys that are added; it ends with `tasks`.
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

    /// Adds the keys of the index that `wanted` holds for.
    pub fn add(&self, wanted: impl Fn(&str) -> bool) {
        for informer in &self.informers {
            for key in informer.index_keys(self.index, &wanted) {
                self.queue.add_low(key);
            }
        }
    }
}
