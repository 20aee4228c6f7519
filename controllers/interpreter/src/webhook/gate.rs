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
pub(super) const PLACES: usize = 32;
/// When the oldest call in flight is older than this, other calls do not wait for a permit.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// The permits and the calls in flight of one webhook.
#[derive(Debug)]
pub(crate) struct Gate {
    free: Semaphore,
    /// Start times of the calls in flight, by sequence number.
    asked: Mutex<BTreeMap<u64, Instant>>,
    next: AtomicU64,
    /// Whether the last call that ended timed out.
    silent: AtomicBool,
}

/// A call in flight; holds its permit.
pub(super) struct Turn<'a> {
    gate: &'a Gate,
    number: u64,
    _place: SemaphorePermit<'a>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            free: Semaphore::new(PLACES),
            asked: Mutex::default(),
            next: AtomicU64::default(),
            silent: AtomicBool::default(),
        }
    }
}

impl Gate {
    pub(super) async fn enter(&self) -> Result<Turn<'_>, String> {
        loop {
            if let Ok(permit) = self.free.try_acquire() {
                return Ok(self.turn(permit));
            }
            let oldest = self.asked.lock().values().next().copied();
            let until = oldest.unwrap_or_else(Instant::now) + PATIENCE;
            if self.silent.load(Ordering::Relaxed) || until <= Instant::now() {
                return Err(format!(
                    "the webhook does not respond and {PLACES} calls are in flight"
                ));
            }
            // After the timeout the loop checks again whether the webhook hangs.
            if let Ok(Ok(permit)) = tokio::time::timeout_at(until, self.free.acquire()).await {
                return Ok(self.turn(permit));
            }
        }
    }

    fn turn<'a>(&'a self, permit: SemaphorePermit<'a>) -> Turn<'a> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.asked.lock().insert(number, Instant::now());
        Turn {
            gate: self,
            number,
            _place: permit,
        }
    }
}

impl Turn<'_> {
    pub(super) fn ended(self, answered: bool) {
        self.gate.silent.store(!answered, Ordering::Relaxed);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.gate.asked.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: WEB-bounded
    #[tokio::test(start_paused = true)]
    async fn no_call_waits_for_a_webhook_that_hangs() {
        let limit = Gate::default();
        let mut calls = Vec::new();
        for _ in 0..PLACES {
            calls.push(limit.enter().await.unwrap());
        }
        // The webhook may only be busy: a waiting call gets the next permit.
        let free_soon = async {
            tokio::time::sleep(PATIENCE / 2).await;
            calls.remove(0).ended(true);
        };
        let (call, ()) = tokio::join!(limit.enter(), free_soon);
        let began = Instant::now();
        assert!(limit.enter().await.is_err());
        assert!(began.elapsed() <= PATIENCE / 2, "{:?}", began.elapsed());
        // After a timeout no call waits until the webhook responds again.
        drop(calls);
        call.unwrap().ended(false);
        let mut calls = Vec::new();
        for _ in 0..PLACES {
            calls.push(limit.enter().await.unwrap());
        }
        let began = Instant::now();
        assert!(limit.enter().await.is_err());
        assert_eq!(began.elapsed(), Duration::ZERO);
        calls.remove(0).ended(true);
        assert!(limit.enter().await.is_ok());
    }
}
