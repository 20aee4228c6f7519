//! Limits the concurrent calls of one webhook.
//!
//! While the webhook responds, a call above the limit waits for a permit. While it hangs, waiting would
//! block every caller: when the oldest call in flight is older than a second, or the last call timed
//! out, a call that finds no permit fails immediately.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Maximum number of calls in flight per webhook.
pub(super) const MAX_CALLS_IN_FLIGHT: usize = 32;
/// When the oldest call in flight is older than this, other calls do not wait for a permit.
pub(super) const HANG_THRESHOLD: Duration = Duration::from_secs(1);

/// The permits and the calls in flight of one webhook.
#[derive(Debug)]
pub(crate) struct WebhookConcurrencyLimit {
    permits: Semaphore,
    /// Start times of the calls in flight, by sequence number.
    started: Mutex<BTreeMap<u64, Instant>>,
    next_number: AtomicU64,
    /// Whether the last call that ended timed out.
    last_call_timed_out: AtomicBool,
}

/// A call in flight; holds its permit.
pub(super) struct InFlightWebhookCall<'a> {
    limit: &'a WebhookConcurrencyLimit,
    number: u64,
    _permit: SemaphorePermit<'a>,
}

impl Default for WebhookConcurrencyLimit {
    fn default() -> Self {
        Self {
            permits: Semaphore::new(MAX_CALLS_IN_FLIGHT),
            started: Mutex::default(),
            next_number: AtomicU64::default(),
            last_call_timed_out: AtomicBool::default(),
        }
    }
}

impl WebhookConcurrencyLimit {
    pub(super) async fn acquire(&self) -> Result<InFlightWebhookCall<'_>, String> {
        loop {
            if let Ok(permit) = self.permits.try_acquire() {
                return Ok(self.start_call(permit));
            }
            let oldest = self.started.lock().values().next().copied();
            let until = oldest.unwrap_or_else(Instant::now) + HANG_THRESHOLD;
            if self.last_call_timed_out.load(Ordering::Relaxed) || until <= Instant::now() {
                return Err(format!(
                    "the webhook does not respond and {MAX_CALLS_IN_FLIGHT} calls are in flight"
                ));
            }
            // After the timeout the loop checks again whether the webhook hangs.
            if let Ok(Ok(permit)) = tokio::time::timeout_at(until, self.permits.acquire()).await {
                return Ok(self.start_call(permit));
            }
        }
    }

    fn start_call<'a>(&'a self, permit: SemaphorePermit<'a>) -> InFlightWebhookCall<'a> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        self.started.lock().insert(number, Instant::now());
        InFlightWebhookCall {
            limit: self,
            number,
            _permit: permit,
        }
    }
}

impl InFlightWebhookCall<'_> {
    pub(super) fn finish(self, answered: bool) {
        self.limit
            .last_call_timed_out
            .store(!answered, Ordering::Relaxed);
    }
}

impl Drop for InFlightWebhookCall<'_> {
    fn drop(&mut self) {
        self.limit.started.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: WEB-bounded
    #[tokio::test(start_paused = true)]
    async fn no_call_waits_for_a_webhook_that_hangs() {
        let limit = WebhookConcurrencyLimit::default();
        let mut calls = Vec::new();
        for _ in 0..MAX_CALLS_IN_FLIGHT {
            calls.push(limit.acquire().await.unwrap());
        }
        // The webhook may only be busy: a waiting call gets the next permit.
        let free_soon = async {
            tokio::time::sleep(HANG_THRESHOLD / 2).await;
            calls.remove(0).finish(true);
        };
        let (call, ()) = tokio::join!(limit.acquire(), free_soon);
        let began = Instant::now();
        assert!(limit.acquire().await.is_err());
        assert!(
            began.elapsed() <= HANG_THRESHOLD / 2,
            "{:?}",
            began.elapsed()
        );
        // After a timeout no call waits until the webhook responds again.
        drop(calls);
        call.unwrap().finish(false);
        let mut calls = Vec::new();
        for _ in 0..MAX_CALLS_IN_FLIGHT {
            calls.push(limit.acquire().await.unwrap());
        }
        let began = Instant::now();
        assert!(limit.acquire().await.is_err());
        assert_eq!(began.elapsed(), Duration::ZERO);
        calls.remove(0).finish(true);
        assert!(limit.acquire().await.is_ok());
    }
}
