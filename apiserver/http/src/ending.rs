//! Ends open watches when the server stops: cleanly and spread over time, because every
//! client reconnects at once to the remaining replicas.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rand::Rng;
use tokio_util::sync::CancellationToken;

/// Reconnecting watches per second that the remaining replicas can take.
const PER_SECOND: u32 = 500;

#[derive(Default)]
struct Inner {
    begun: CancellationToken,
    open: AtomicU32,
    spread: OnceLock<Duration>,
}

/// Clones share one drain.
#[derive(Clone, Default)]
pub(crate) struct Ending(Arc<Inner>);

impl Ending {
    /// Starts to end watches, evenly spread; the last one ends within `longest`.
    pub(crate) fn begin(&self, longest: Duration) {
        let open = self.0.open.load(Ordering::Relaxed);
        let spread = Duration::from_secs(open.into()) / PER_SECOND;
        let _ = self.0.spread.set(spread.min(longest));
        self.0.begun.cancel();
    }

    /// Cancelled when the drain starts, for streams that end at once.
    pub(crate) fn begun(&self) -> CancellationToken {
        self.0.begun.clone()
    }

    /// Registers one more open watch.
    pub(crate) fn join(&self) -> Leaving {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        let inner = Arc::clone(&self.0);
        let moment = async move {
            inner.begun.cancelled().await;
            let spread = inner.spread.get().copied().unwrap_or_default();
            let part = rand::rng().random_range(0.0..1.0);
            tokio::time::sleep(spread.mul_f64(part)).await;
        };
        Leaving {
            ending: self.clone(),
            moment: Box::pin(moment),
        }
    }
}

/// An open watch; it counts as open until it is dropped.
pub(crate) struct Leaving {
    ending: Ending,
    moment: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Leaving {
    /// Waits until it is this watch's turn to end. May be awaited to completion once.
    pub(crate) async fn turn(&mut self) {
        self.moment.as_mut().await;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.ending.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn many_watches_leave_over_time_and_few_at_once() {
        for (count, longest, least, most) in
            [(2, 5, 0, 4), (2000, 5, 3000, 4000), (2000, 1, 600, 1000)]
        {
            let ending = Ending::default();
            let mut open: Vec<Leaving> = (0..count).map(|_| ending.join()).collect();
            let began = Instant::now();
            ending.begin(Duration::from_secs(longest));
            futures_util::future::join_all(open.iter_mut().map(Leaving::turn)).await;
            let took = began.elapsed().as_millis();
            assert!((least..=most + 5).contains(&took), "{count}: {took} ms");
            drop(open);
            assert_eq!(ending.0.open.load(Ordering::Relaxed), 0);
        }
    }
}
