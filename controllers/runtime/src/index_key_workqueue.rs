//! Visits the objects under some keys of an informer index on a separate task, so that
//! event handlers, which delay every later event, only name the keys.

use std::convert::Infallible;

use client::{Informer, TaskGroup};
use machinery::Object;

use crate::metrics::ControllerName;
use crate::workers::{ReconcileAction, run_workers};
use crate::workqueue::Workqueue;

/// Objects visited before the task yields to others.
const VISIT_CHUNK_OBJECTS: usize = 256;

/// Visits the objects of one index in several informers. Clones share one queue.
#[derive(Clone)]
pub struct IndexKeyWorkqueue {
    informers: Vec<Informer>,
    index: &'static str,
    queue: Workqueue<String>,
}

impl IndexKeyWorkqueue {
    /// Starts the worker that calls `visit` for each object under the added keys. It ends with `tasks`.
    pub fn start(
        tasks: &TaskGroup,
        name: impl Into<ControllerName>,
        informers: &[&Informer],
        index: &'static str,
        visit: impl Fn(&Object) + Clone + Send + Sync + 'static,
    ) -> Self {
        let workqueue = Self {
            informers: informers.iter().map(|&informer| informer.clone()).collect(),
            index,
            queue: Workqueue::new(),
        };
        let (informers, queue) = (workqueue.informers.clone(), workqueue.queue.clone());
        run_workers(tasks, name, &queue, 1, move |key: String| {
            let (informers, visit) = (informers.clone(), visit.clone());
            async move {
                for informer in informers {
                    for chunk in informer.by_index(index, &key).chunks(VISIT_CHUNK_OBJECTS) {
                        chunk.iter().for_each(&visit);
                        tokio::task::yield_now().await;
                    }
                }
                Ok::<_, Infallible>(ReconcileAction::Done)
            }
        });
        workqueue
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
