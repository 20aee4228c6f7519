//! Records an event when the embedded store cannot write, and when it has recovered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use client::{Api, CoreEvent, InvolvedObject};
use machinery::time::{Clock, rfc3339_seconds};
use storage::{StoreFaultKind, StoreHealth};
use tokio::sync::watch;

/// The interval between attempts to write an event, which a full store rejects.
const RETRY_PERIOD: Duration = Duration::from_secs(1);
/// The most events that wait to be written; beyond it the oldest are dropped.
const MAX_PENDING: usize = 16;

/// The involved object of the events. The store has no object of its own, so it is the
/// namespace kube-system.
fn involved_object() -> InvolvedObject {
    InvolvedObject {
        api_version: "v1".into(),
        kind: "Namespace".into(),
        name: "kube-system".into(),
        ..InvolvedObject::default()
    }
}

pub(crate) struct StoreFaultEventRecorder {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    health: watch::Receiver<StoreHealth>,
    pending: VecDeque<CoreEvent>,
    /// The number of faults for which events were created.
    recorded_faults: u64,
    faulty: bool,
}

impl StoreFaultEventRecorder {
    pub(crate) fn new(
        api: Arc<dyn Api>,
        clock: Arc<dyn Clock>,
        health: watch::Receiver<StoreHealth>,
    ) -> Self {
        Self {
            api,
            clock,
            health,
            pending: VecDeque::new(),
            recorded_faults: 0,
            faulty: false,
        }
    }

    /// Runs until the store is closed.
    pub(crate) async fn run(mut self) {
        loop {
            self.observe();
            if self.write_pending().await {
                if self.health.changed().await.is_err() {
                    return;
                }
            } else {
                tokio::time::sleep(RETRY_PERIOD).await;
            }
        }
    }

    /// Creates events for changes of the health. A short fault may have ended already.
    fn observe(&mut self) {
        let health = self.health.borrow_and_update().clone();
        let count = health.total_faults();
        if let Some(fault) = health.last_fault
            && count > self.recorded_faults
        {
            self.recorded_faults = count;
            self.faulty = true;
            let reason = match fault.kind {
                StoreFaultKind::Space => "StoreFull",
                StoreFaultKind::Disk => "StoreDiskFailed",
                StoreFaultKind::Writer => "StoreWriterPanicked",
            };
            let message = format!("The store cannot write: {}", fault.message);
            self.push(true, reason, message);
        }
        if self.faulty && health.fault.is_none() {
            self.faulty = false;
            self.push(false, "StoreRecovered", "The store writes again".into());
        }
    }

    fn push(&mut self, warning: bool, reason: &str, message: String) {
        let now = self.clock.now();
        let mut event = CoreEvent::new(
            &"flotilla".into(),
            involved_object(),
            warning,
            &rfc3339_seconds(now),
        );
        event.metadata.name = format!("kube-system.{:x}", now.as_nanosecond());
        (event.reason, event.message) = (reason.into(), message);
        if self.pending.len() == MAX_PENDING {
            self.pending.pop_front();
        }
        self.pending.push_back(event);
    }

    /// Writes the pending events; returns whether all were written.
    async fn write_pending(&mut self) -> bool {
        while let Some(event) = self.pending.front() {
            let written = self.api.create_events(vec![event.clone()]).await;
            if let Some(Err(error)) = written.into_iter().next() {
                tracing::debug!(%error, "the event of a fault of the store is not written yet");
                return false;
            }
            self.pending.pop_front();
        }
        true
    }
}
