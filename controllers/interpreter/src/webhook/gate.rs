//! How many questions a webhook is asked at once.
//!
//! A webhook that answers is asked as fast as it can be; who comes too early waits. One
//! that hangs must not have everybody wait: when the oldest question has no answer for
//! long, or the last one that ended had none, who finds no place is refused at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Questions under way at most.
pub(super) const PLACES: usize = 32;
/// How long a question may be without an answer until nobody waits for a place.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Gate {
    free: Semaphore,
    /// When the questions under way were asked, in their order.
    asked: Mutex<BTreeMap<u64, Instant>>,
    next: AtomicU64,
    /// The last question that ended had no answer.
    silent: AtomicBool,
}

/// A question under way.
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
            if let Ok(place) = self.free.try_acquire() {
                return Ok(self.turn(place));
            }
            let oldest = self.asked.lock().values().next().copied();
            let until = oldest.unwrap_or_else(Instant::now) + PATIENCE;
            if self.silent.load(Ordering::Relaxed) || until <= Instant::now() {
                return Err(format!(
                    "it does not answer, and {PLACES} calls of it are under way"
                ));
            }
            // Too late, or a place: both are found out above.
            if let Ok(Ok(place)) = tokio::time::timeout_at(until, self.free.acquire()).await {
                return Ok(self.turn(place));
            }
        }
    }

    fn turn<'a>(&'a self, place: SemaphorePermit<'a>) -> Turn<'a> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.asked.lock().insert(number, Instant::now());
        Turn {
            gate: self,
            number,
            _place: place,
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
    async fn nobody_waits_for_one_that_hangs() {
        let gate = Gate::default();
        let mut turns = Vec::new();
        for _ in 0..PLACES {
            turns.push(gate.enter().await.unwrap());
        }
        // It may just be busy: who comes early gets the next place.
        let free_soon = async {
            tokio::time::sleep(PATIENCE / 2).await;
            turns.remove(0).ended(true);
        };
        let (turn, ()) = tokio::join!(gate.enter(), free_soon);
        let began = Instant::now();
        assert!(gate.enter().await.is_err());
        assert!(began.elapsed() <= PATIENCE / 2, "{:?}", began.elapsed());
        // Once it hangs nobody waits, until it answers.
        drop(turns);
        turn.unwrap().ended(false);
        let mut turns = Vec::new();
        for _ in 0..PLACES {
            turns.push(gate.enter().await.unwrap());
        }
        let began = Instant::now();
        assert!(gate.enter().await.is_err());
        assert_eq!(began.elapsed(), Duration::ZERO);
        turns.remove(0).ended(true);
        assert!(gate.enter().await.is_ok());
    }
}
