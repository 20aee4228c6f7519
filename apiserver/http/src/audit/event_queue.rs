//! The bounded queue between requests and one backend of the audit log.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use flotilla_metrics::{Counter, MetricsRegistry};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

/// Bounds on the events that wait for a backend.
#[derive(Clone, Copy, Debug)]
pub(super) struct AuditQueueLimits {
    pub(super) events: usize,
    pub(super) bytes: usize,
}

impl Default for AuditQueueLimits {
    /// As many events as kube-apiserver's batching backends buffer.
    fn default() -> Self {
        Self {
            events: 10_000,
            bytes: 64 << 20,
        }
    }
}

/// The sending half.
pub struct AuditEventQueue {
    sender: mpsc::Sender<Bytes>,
    queued_bytes: Arc<AtomicUsize>,
    max_bytes: usize,
    dropped: Counter,
}

/// The half of the backend.
pub(super) struct AuditEventReceiver {
    receiver: mpsc::Receiver<Bytes>,
    /// The events received for the next batch.
    batch: Vec<Bytes>,
    queued_bytes: Arc<AtomicUsize>,
    pub(super) errors: Counter,
}

impl AuditEventQueue {
    /// A queue whose losses are counted under the name of a backend, `log` or `webhook`.
    pub(super) fn new(
        limits: AuditQueueLimits,
        errors: &AuditErrorCounters,
        plugin: &str,
    ) -> (Self, AuditEventReceiver) {
        let (sender, receiver) = mpsc::channel(limits.events.max(1));
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        let errors = errors.0.with_label_values([plugin]);
        let receiver = AuditEventReceiver {
            receiver,
            batch: Vec::new(),
            queued_bytes: Arc::clone(&queued_bytes),
            errors: errors.clone(),
        };
        let sender = Self {
            sender,
            queued_bytes,
            max_bytes: limits.bytes,
            dropped: errors,
        };
        (sender, receiver)
    }

    /// Enqueues an event, or drops and counts it when the queue is full.
    pub(super) fn send(&self, event: Bytes) {
        let size = event.len();
        let queued = self.queued_bytes.fetch_add(size, Ordering::Relaxed);
        let has_room = queued == 0 || queued.saturating_add(size) <= self.max_bytes;
        if !has_room || self.sender.try_send(event).is_err() {
            self.queued_bytes.fetch_sub(size, Ordering::Relaxed);
            self.dropped.inc();
        }
    }
}

impl AuditEventReceiver {
    /// Waits for an event, then until `max` have arrived or `wait` has passed. Empty
    /// once the queue is closed. Dropping this future loses no event.
    pub(super) async fn next_batch(&mut self, max: usize, wait: Duration) -> Vec<Bytes> {
        if self.batch.is_empty() {
            self.receiver.recv_many(&mut self.batch, max).await;
        }
        let deadline = Instant::now() + wait;
        while !self.batch.is_empty() && self.batch.len() < max {
            let missing = max - self.batch.len();
            let received = self.receiver.recv_many(&mut self.batch, missing);
            match timeout_at(deadline, received).await {
                Ok(count) if count > 0 => {}
                _ => break,
            }
        }
        let batch = std::mem::take(&mut self.batch);
        let size = batch.iter().map(Bytes::len).sum();
        self.queued_bytes.fetch_sub(size, Ordering::Relaxed);
        batch
    }

    /// Accepts no more events; those in the queue are still received.
    pub(super) fn close(&mut self) {
        self.receiver.close();
    }
}

/// Counts the events that a backend lost.
pub struct AuditErrorCounters(flotilla_metrics::MetricVec<Counter, 1>);

impl AuditErrorCounters {
    pub fn new(metrics: &MetricsRegistry) -> Self {
        Self(metrics.counters(
            "apiserver_audit_error_total",
            "Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.",
            ["plugin"],
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn queues_are_bounded_and_batches_wait() {
        let errors = AuditErrorCounters::new(&MetricsRegistry::new());
        let limits = AuditQueueLimits {
            events: 3,
            bytes: 10,
        };
        let (queue, mut receiver) = AuditEventQueue::new(limits, &errors, "log");
        let lost_events = || errors.0.with_label_values(["log"]).get();
        queue.send("1234567".into());
        queue.send("1234".into());
        assert_eq!(lost_events(), 1);
        for _ in 0..3 {
            queue.send("1".into());
        }
        assert_eq!(lost_events(), 2);
        let start = Instant::now();
        assert_eq!(
            receiver.next_batch(2, Duration::from_secs(5)).await.len(),
            2
        );
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert_eq!(
            receiver.next_batch(2, Duration::from_secs(5)).await.len(),
            1
        );
        assert_eq!(start.elapsed(), Duration::from_secs(5));
        // An event larger than the queue may hold passes through an empty one.
        queue.send("12345678901".into());
        assert_eq!(lost_events(), 2);
        receiver.close();
        assert_eq!(receiver.next_batch(2, Duration::ZERO).await.len(), 1);
        assert!(receiver.next_batch(2, Duration::ZERO).await.is_empty());
    }
}
