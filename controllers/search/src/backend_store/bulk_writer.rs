//! Writes the pending documents of a backend store, one request at a time.
//!
//! A request that fails is sent again after a backoff, with what is the newest then. Of a request
//! that succeeds each document has its own result: it is written, tried again, or refused for good.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::bulk::{ItemResult, action_lines, parse_results};
use super::client::{OpenSearchClient, OpenSearchError};
use super::document::encode_document;
use super::document_queue::{DocumentQueue, PendingDocument};
use super::health::{Availability, Failure, HealthReporter};
use super::indexed_resource::CachedObject;
use super::limits::BackendStoreLimits;
use super::metrics::BackendStoreMetrics;

/// A store counts as unavailable after so many failures in a row; before its first success after
/// one.
const FAILURES_UNTIL_UNAVAILABLE: u32 = 3;
/// After so many conflicts in a row a document is replaced, whatever its version: the member
/// was restored from a backup, and its resourceVersions are lower than before.
const MAX_CONFLICTS: u32 = 3;

/// A document in a request.
struct SentDocument {
    pending: PendingDocument,
    is_deleted: bool,
}

#[derive(Default)]
struct Batch {
    documents: Vec<SentDocument>,
    body: Vec<u8>,
}

/// The writer of one backend store.
pub(crate) struct BulkWriter {
    pub(crate) client: Arc<OpenSearchClient>,
    pub(crate) queue: Arc<DocumentQueue>,
    pub(crate) health: Arc<HealthReporter>,
    pub(crate) metrics: Arc<BackendStoreMetrics>,
    pub(crate) limits: BackendStoreLimits,
    failures: u32,
    failing_since: Option<Instant>,
    /// The most documents of the next request: fewer after one that was refused as a whole.
    documents: usize,
}

impl BulkWriter {
    pub(crate) fn new(
        client: Arc<OpenSearchClient>,
        queue: Arc<DocumentQueue>,
        health: Arc<HealthReporter>,
        metrics: Arc<BackendStoreMetrics>,
        limits: BackendStoreLimits,
    ) -> Self {
        Self {
            client,
            queue,
            health,
            metrics,
            documents: limits.bulk_documents,
            limits,
            failures: 0,
            failing_since: None,
        }
    }

    /// Runs until it is dropped.
    pub(crate) async fn run(mut self) {
        while let Err(error) = self.client.ping().await {
            self.record_failure(&error).await;
        }
        self.record_success();
        loop {
            self.queue.wait_until_ready().await;
            self.write_batch().await;
        }
    }

    async fn write_batch(&mut self) {
        let batch = self.next_batch().await;
        if batch.documents.is_empty() {
            return;
        }
        let began = Instant::now();
        let body = Bytes::from(batch.body);
        let results = match self.client.bulk(body).await {
            Ok(response) => {
                parse_results(&response, batch.documents.len()).map_err(OpenSearchError::Malformed)
            }
            Err(error) => Err(error),
        };
        let took = began.elapsed().as_secs_f64();
        match results {
            Ok(results) => {
                self.metrics.succeeded.observe(took);
                self.handle_results(&batch.documents, results).await;
            }
            Err(error) => {
                self.metrics.failed.observe(took);
                self.handle_failed_request(&batch.documents, &error).await;
            }
        }
    }

    /// The next documents as the cache has their objects now.
    async fn next_batch(&self) -> Batch {
        let mut batch = Batch::default();
        let mut pending = self.queue.take(self.documents).into_iter();
        while let Some(next) = pending.next() {
            let resource = &next.resource;
            let (version, body) = match resource.read(&next.key, &next.id.uid).await {
                CachedObject::Unknown => {
                    self.queue.finish(&next.id);
                    continue;
                }
                CachedObject::Absent => (next.resource_version, None),
                CachedObject::Present(object) => {
                    match encode_document(&object, &resource.selection) {
                        Ok(body) => (object.revision(), Some(body)),
                        Err(_) => {
                            self.reject(&next, "its metadata is malformed");
                            continue;
                        }
                    }
                }
            };
            let version = resource.document_version(version);
            let lines = action_lines(&next.id, version, body.as_deref());
            let is_full = batch.body.len() + lines.len() > self.limits.bulk_bytes;
            if is_full && !batch.documents.is_empty() {
                let rest: Vec<PendingDocument> = std::iter::once(next).chain(pending).collect();
                self.queue
                    .put_back(rest.iter().map(|document| &document.id));
                break;
            }
            batch.body.extend_from_slice(&lines);
            batch.documents.push(SentDocument {
                pending: next,
                is_deleted: body.is_none(),
            });
        }
        batch
    }

    /// Acts on the results of the documents of a request.
    async fn handle_results(&mut self, sent: &[SentDocument], results: Vec<ItemResult>) {
        let mut written = 0;
        let mut failure = None;
        for (document, result) in sent.iter().zip(results) {
            let pending = &document.pending;
            match result {
                ItemResult::Written => {
                    written += 1;
                    match document.is_deleted {
                        true => self.metrics.deleted.inc(),
                        false => self.metrics.indexed.inc(),
                    }
                    self.queue.finish(&pending.id);
                }
                ItemResult::Rejected(error) => {
                    written += 1;
                    self.reject(pending, &error);
                }
                ItemResult::Conflict => {
                    if pending.conflicts + 1 >= MAX_CONFLICTS {
                        pending.resource.set_restored();
                    }
                    written += 1;
                    self.retry(pending, true);
                }
                ItemResult::IndexMissing => {
                    if let Err(error) = self.client.ensure_index(&pending.id.index).await {
                        failure.get_or_insert(Failure::from(&error));
                    }
                    self.retry(pending, false);
                }
                ItemResult::Failed(error) => {
                    failure.get_or_insert_with(|| Failure {
                        reason: "WritesFail",
                        message: format!("OpenSearch cannot write documents ({error})"),
                    });
                    self.retry(pending, false);
                }
            }
        }
        // A store that takes nothing is not asked more often than one that does not respond.
        match failure.filter(|_| written == 0) {
            Some(failure) => {
                self.set_failing(failure);
                let delay = self.limits.retry_delay(self.failures.saturating_sub(1));
                tokio::time::sleep(delay).await;
            }
            None => self.record_success(),
        }
    }

    fn retry(&self, document: &PendingDocument, is_conflict: bool) {
        self.metrics.retried.inc();
        let delay = self.limits.retry_delay(document.failures);
        self.queue.retry(&document.id, delay, is_conflict);
    }

    /// Drops a document until its object changes.
    fn reject(&self, document: &PendingDocument, why: &str) {
        let object = format!("{} {}", document.resource.name(), document.key);
        tracing::warn!(%object, index = %document.id.index, %why, "OpenSearch refuses an object");
        self.metrics.rejected.inc();
        self.health.update(|health| {
            let rejected = || format!("{object} ({why})");
            health.rejected.get_or_insert_with(rejected);
        });
        self.queue.finish(&document.id);
    }

    /// A request has failed as a whole. One that was refused is divided, since a document of it
    /// may be the reason.
    async fn handle_failed_request(&mut self, sent: &[SentDocument], error: &OpenSearchError) {
        if error.is_request_refused() {
            match sent {
                [only] => self.reject(&only.pending, &error.to_string()),
                _ => self.queue.put_back(sent.iter().map(|d| &d.pending.id)),
            }
            self.documents = (sent.len() / 2).max(1);
            return;
        }
        self.metrics.retried.inc_by(sent.len() as u64);
        self.queue.put_back(sent.iter().map(|d| &d.pending.id));
        self.record_failure(error).await;
    }

    /// Waits until the next attempt.
    async fn record_failure(&mut self, error: &OpenSearchError) {
        tracing::debug!(%error, "a backend store fails");
        self.set_failing(error.into());
        let delay = self.limits.retry_delay(self.failures.saturating_sub(1));
        tokio::time::sleep(error.retry_after().unwrap_or(delay)).await;
    }

    fn set_failing(&mut self, failure: Failure) {
        self.failures = self.failures.saturating_add(1);
        self.failing_since.get_or_insert_with(Instant::now);
        let enough = self.failures >= FAILURES_UNTIL_UNAVAILABLE;
        self.health.update(|health| {
            if enough || health.availability != Availability::Available {
                health.availability = Availability::Unavailable(failure);
            }
        });
        if !self.health.is_available() {
            self.metrics.available.set(0);
        }
    }

    fn record_success(&mut self) {
        self.failures = 0;
        let outage = self.failing_since.take().map(|since| since.elapsed());
        let is_long = outage.is_some_and(|outage| outage >= self.limits.long_outage);
        self.documents = (self.documents * 2).min(self.limits.bulk_documents);
        self.metrics.available.set(1);
        self.health.update(|health| {
            health.availability = Availability::Available;
            health.outages += u64::from(is_long);
        });
    }
}
