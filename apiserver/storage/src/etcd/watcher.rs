//! A watch of the etcd engine, which survives broken connections: a task buffers events
//! for the reader, and opens a new watch at the revision at which the last one broke.
//!
//! server ──messages──► pump (a task) ──► buffer ──► [`StoreWatch::next`]
//!
//! The pump always reads, since an unread watch would block the others of its
//! connection. When the buffer is full, the pump closes the watch until the reader has
//! caught up; the new watch then starts in etcd's history.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use machinery::ExponentialBackoff;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::client::EtcdClient;
use super::error::RetrySafety;
use super::watch_stream::{EtcdWatchMessage, EtcdWatchStream};
use crate::store::{Error, StoreEvent, StoreResult, StoreWatch, WatchResponse};

/// Bytes that the buffer of one watch may hold.
const BUFFER_BYTES: usize = 4 << 20;
const BACKOFF: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(50), Duration::from_secs(2));
/// The interval between two progress requests.
const PROGRESS_REQUEST_INTERVAL: Duration = Duration::from_millis(100);
/// After this time without a message the pump sends a progress request.
const IDLE_BEFORE_PROGRESS_REQUEST: Duration = Duration::from_secs(10);
/// A server that does not answer progress requests for this time is abandoned.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(5);

/// The events, revisions and final error of a watch that its reader has not consumed yet.
#[derive(Default)]
struct EtcdWatchBufferInner {
    events: Vec<StoreEvent>,
    bytes: usize,
    /// Everything up to this revision was buffered.
    buffered_revision: u64,
    /// Everything up to this revision was delivered.
    delivered_revision: u64,
    error: Option<Error>,
}

/// The buffer between the pump and the reader.
#[derive(Default)]
struct EtcdWatchBuffer {
    buffered: Mutex<EtcdWatchBufferInner>,
    filled: Notify,
    drained: Notify,
}

impl EtcdWatchBuffer {
    fn revision(&self) -> u64 {
        self.buffered.lock().buffered_revision
    }

    /// Buffers events and progress; returns whether the buffer has space for more.
    fn push(&self, events: Vec<StoreEvent>, progress: u64) -> bool {
        let mut inner = self.buffered.lock();
        let before = inner.buffered_revision;
        for event in events {
            let old_length = event.previous.as_ref().map_or(0, |p| p.value.len());
            let new_length = event.value.as_ref().map_or(0, bytes::Bytes::len);
            inner.bytes += 256 + event.key.len() + old_length + new_length;
            inner.buffered_revision = event.revision;
            inner.events.push(event);
        }
        inner.buffered_revision = inner.buffered_revision.max(progress);
        if inner.buffered_revision > before {
            self.filled.notify_one();
        }
        inner.bytes < BUFFER_BYTES
    }

    fn close(&self, error: Error) {
        self.buffered.lock().error = Some(error);
        self.filled.notify_one();
    }

    async fn wait_until_empty(&self) {
        loop {
            let drained = self.drained.notified();
            if self.buffered.lock().events.is_empty() {
                return;
            }
            drained.await;
        }
    }
}

/// A watch of one prefix: the reading end of the buffer that its pump task fills.
pub(super) struct EtcdWatch {
    buffer: Arc<EtcdWatchBuffer>,
    /// Aborted when the reader is dropped.
    _pump: JoinSet<()>,
}

impl EtcdWatch {
    /// Continues an open watch that starts after `after`.
    pub(super) fn new(
        inner: Arc<EtcdClient>,
        prefix: &str,
        after: u64,
        stream: EtcdWatchStream,
    ) -> Self {
        let buffer = Arc::new(EtcdWatchBuffer::default());
        {
            let mut state = buffer.buffered.lock();
            state.buffered_revision = after;
            state.delivered_revision = after;
        }
        let prefix: Arc<str> = prefix.into();
        let pump = EtcdWatchPump {
            requested_progress: inner.progress_requests.subscribe(&prefix),
            stop: inner.stop.subscribe(),
            client: inner,
            prefix,
            buffer: Arc::clone(&buffer),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(pump.run(stream));
        Self {
            buffer,
            _pump: tasks,
        }
    }
}

#[async_trait]
impl StoreWatch for EtcdWatch {
    async fn next(&mut self) -> StoreResult<WatchResponse> {
        loop {
            let filled = self.buffer.filled.notified();
            {
                let mut inner = self.buffer.buffered.lock();
                if inner.buffered_revision > inner.delivered_revision {
                    inner.delivered_revision = inner.buffered_revision;
                    inner.bytes = 0;
                    let batch = WatchResponse {
                        events: std::mem::take(&mut inner.events),
                        revision: inner.buffered_revision,
                    };
                    self.buffer.drained.notify_one();
                    return Ok(batch);
                }
                if let Some(error) = &inner.error {
                    return Err(error.clone());
                }
            }
            filled.await;
        }
    }
}

/// Why a watch stream ended.
enum EtcdWatchStreamEnd {
    /// The buffer is full: the reader is too slow.
    Full,
    Broken(String),
    Failed(Error),
}

/// The task that reads the etcd watch stream into the buffer and reopens a broken stream.
struct EtcdWatchPump {
    client: Arc<EtcdClient>,
    prefix: Arc<str>,
    buffer: Arc<EtcdWatchBuffer>,
    requested_progress: watch::Receiver<u64>,
    stop: watch::Receiver<bool>,
}

impl EtcdWatchPump {
    async fn run(mut self, first: EtcdWatchStream) {
        let mut stop = self.stop.clone();
        let error = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => Error::Unavailable("the store is closed".into()),
            error = self.pump(first) => error,
        };
        self.buffer.close(error);
    }

    async fn pump(&mut self, first: EtcdWatchStream) -> Error {
        let mut open = Some(first);
        let mut backoff = BACKOFF;
        loop {
            let stream = match open.take() {
                Some(stream) => Ok(stream),
                None => {
                    let after = self.buffer.revision();
                    self.client.open_watch(&self.prefix, after).await
                }
            };
            let message = match stream {
                Ok(stream) => match self.read_stream(stream).await {
                    EtcdWatchStreamEnd::Failed(error) => return error,
                    EtcdWatchStreamEnd::Full => {
                        self.buffer.wait_until_empty().await;
                        continue;
                    }
                    EtcdWatchStreamEnd::Broken(message) => {
                        backoff.reset();
                        message
                    }
                },
                Err(failure) if failure.retry_safety == RetrySafety::NotRetryable => {
                    return failure.error;
                }
                Err(failure) => failure.error.to_string(),
            };
            tracing::info!(prefix = %self.prefix, message = message, "watch broke, opening it again");
            sleep(backoff.next_delay()).await;
        }
    }

    async fn read_stream(&mut self, mut stream: EtcdWatchStream) -> EtcdWatchStreamEnd {
        let start = Instant::now();
        let mut last_message = start;
        // When a progress request was sent that has no response yet.
        let mut requested: Option<Instant> = None;
        let mut next_request = start;
        loop {
            let is_behind = *self.requested_progress.borrow_and_update() > self.buffer.revision();
            let request_time = if is_behind {
                next_request
            } else {
                last_message + IDLE_BEFORE_PROGRESS_REQUEST
            };
            let trusted = self.client.supports_progress();
            tokio::select! {
                step = stream.next() => {
                    last_message = Instant::now();
                    requested = None;
                    match step {
                        Ok(step) => if let Some(end) = self.handle_message(step).await {
                            return end;
                        },
                        Err(e) => return EtcdWatchStreamEnd::Broken(format!("{}: {e}", stream.url)),
                    }
                }
                _ = self.requested_progress.changed() => {}
                () = sleep_until(request_time), if trusted => {
                    let now = Instant::now();
                    if requested.is_some_and(|at| now - at >= PROGRESS_TIMEOUT) {
                        return EtcdWatchStreamEnd::Broken(format!("{} does not answer", stream.url));
                    }
                    requested = requested.or(Some(now));
                    next_request = now + PROGRESS_REQUEST_INTERVAL;
                    if !is_behind {
                        // The next request follows after the response timeout.
                        last_message = now + PROGRESS_TIMEOUT - IDLE_BEFORE_PROGRESS_REQUEST;
                    }
                    if let Err(e) = stream.request_progress().await {
                        return EtcdWatchStreamEnd::Broken(e);
                    }
                }
            }
        }
    }

    async fn handle_message(&self, step: EtcdWatchMessage) -> Option<EtcdWatchStreamEnd> {
        let room = match step {
            EtcdWatchMessage::Events(mut events) => {
                match self.client.decode_events(&mut events).await {
                    Ok(()) => self.buffer.push(events, 0),
                    Err(Error::Unavailable(message)) => {
                        return Some(EtcdWatchStreamEnd::Broken(message));
                    }
                    Err(error) => return Some(EtcdWatchStreamEnd::Failed(error)),
                }
            }
            EtcdWatchMessage::Progress(0) => {
                self.client.disable_progress();
                true
            }
            EtcdWatchMessage::Progress(revision) => self.buffer.push(Vec::new(), revision),
            EtcdWatchMessage::Nothing => true,
            EtcdWatchMessage::PreviousCompacted(at_least) => {
                let compact_revision = self.client.compact_revision(at_least).await;
                return Some(EtcdWatchStreamEnd::Failed(Error::Compacted {
                    at: compact_revision,
                }));
            }
            EtcdWatchMessage::Compacted(compact_revision) => {
                return Some(EtcdWatchStreamEnd::Failed(Error::Compacted {
                    at: compact_revision,
                }));
            }
            EtcdWatchMessage::Canceled(message) => {
                return Some(EtcdWatchStreamEnd::Broken(message));
            }
        };
        (!room).then_some(EtcdWatchStreamEnd::Full)
    }
}
