//! A backend store while it runs: its writer, and a source for each resource of each member.

use std::sync::Arc;

use client::TaskGroup;
use client::remote::{RestConfig, RestConfigError};
use tokio::sync::{Notify, Semaphore};

use super::bulk_writer::BulkWriter;
use super::client::OpenSearchClient;
use super::document_queue::DocumentQueue;
use super::document_source::DocumentSource;
use super::health::{BackendStoreHealth, HealthReporter};
use super::indexed_resource::{IndexedResource, IndexedSelection};
use super::limits::BackendStoreLimits;
use super::metrics::BackendStoreMetrics;

/// The most sources of a store that compare an index with a cache at a time.
const MAX_COMPARISONS: usize = 2;

struct RunningSource {
    resource: Arc<IndexedResource>,
    tasks: TaskGroup,
}

/// The writer and the sources of one OpenSearch cluster.
pub(crate) struct OpenSearchBackendStore {
    client: Arc<OpenSearchClient>,
    queue: Arc<DocumentQueue>,
    health: Arc<HealthReporter>,
    comparisons: Arc<Semaphore>,
    limits: BackendStoreLimits,
    sources: Vec<RunningSource>,
    tasks: TaskGroup,
}

impl OpenSearchBackendStore {
    /// Starts the writer. `changed` is notified when the health changes.
    pub(crate) fn start(
        name: String,
        nodes: Vec<RestConfig>,
        limits: BackendStoreLimits,
        changed: Arc<Notify>,
        tasks: &TaskGroup,
    ) -> Result<Self, RestConfigError> {
        let tasks = tasks.child();
        let client = Arc::new(OpenSearchClient::new(nodes, &limits, &tasks)?);
        let metrics = Arc::new(BackendStoreMetrics::new(name));
        let queue = Arc::new(DocumentQueue::new(&limits, metrics.pending.clone()));
        let health = Arc::new(HealthReporter::new(changed));
        let writer = BulkWriter::new(
            Arc::clone(&client),
            Arc::clone(&queue),
            Arc::clone(&health),
            metrics,
            limits.clone(),
        );
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move {
            shutdown.run_until_triggered(writer.run()).await;
        });
        Ok(Self {
            client,
            queue,
            health,
            comparisons: Arc::new(Semaphore::new(MAX_COMPARISONS)),
            limits,
            sources: Vec::new(),
            tasks,
        })
    }

    pub(crate) fn health(&self) -> BackendStoreHealth {
        self.health.current()
    }

    /// Starts the sources that are missing, and ends those that are not selected any more. The
    /// documents of these stay.
    pub(crate) async fn update(&mut self, mut selected: Vec<IndexedSelection>) {
        let mut kept = Vec::new();
        for source in std::mem::take(&mut self.sources) {
            let former = &source.resource.selection;
            match selected.iter().position(|new| new.is_same(former)) {
                Some(at) => {
                    selected.swap_remove(at);
                    kept.push(source);
                }
                None => {
                    source.tasks.stop().await;
                    self.queue.forget(&source.resource);
                    let name = source.resource.name();
                    self.health.update(|health| {
                        health.sync_failures.remove(&name);
                    });
                }
            }
        }
        self.sources = kept;
        for selection in selected {
            self.start_source(selection);
        }
    }

    fn start_source(&mut self, selection: IndexedSelection) {
        let tasks = self.tasks.child();
        let kind = selection.kind.clone();
        let resource = IndexedResource::new(selection, tasks.shutdown().clone());
        let Some(resource) = resource.map(Arc::new) else {
            tracing::warn!(?kind, "no index can have the name of this kind");
            return;
        };
        let source = DocumentSource {
            resource: Arc::clone(&resource),
            client: Arc::clone(&self.client),
            queue: Arc::clone(&self.queue),
            health: Arc::clone(&self.health),
            comparisons: Arc::clone(&self.comparisons),
            limits: self.limits.clone(),
        };
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move {
            shutdown.run_until_triggered(source.run()).await;
        });
        self.sources.push(RunningSource { resource, tasks });
    }

    /// Ends all tasks. What is not written yet is found by the next comparison.
    pub(crate) async fn stop(self) {
        self.tasks.stop().await;
    }
}
