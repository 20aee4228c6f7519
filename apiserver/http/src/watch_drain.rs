//! Ends open watches when the server stops: cleanly and spread over time, because every
//! client reconnects at once to the remaining replicas.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::Rng;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Reconnecting watches per second that the remaining replicas can take.
const WATCHES_DRAINED_PER_SECOND: u32 = 500;

#[derive(Default)]
struct WatchDrainInner {
    started: CancellationToken,
    open_watches: AtomicU32,
    duration: OnceLock<Duration>,
    /// The watches that left their HTTP connection (WebSocket).
    upgraded: Mutex<JoinSet<()>>,
}

/// Clones share one drain.
#[derive(Clone, Default)]
pub(crate) struct WatchDrain(Arc<WatchDrainInner>);

impl WatchDrain {
    /// Starts to end watches, evenly spread; the last one ends within `longest`.
    pub(crate) fn start(&self, longest: Duration) {
        let open = self.0.open_watches.load(Ordering::Relaxed);
        let spread = Duration::from_secs(open.into()) / WATCHES_DRAINED_PER_SECOND;
        let _ = self.0.duration.set(spread.min(longest));
        self.0.started.cancel();
    }

    /// Cancelled when the drain starts, for streams that end at once.
    pub(crate) fn started(&self) -> CancellationToken {
        self.0.started.clone()
    }

    /// Runs a registered watch whose HTTP connection was upgraded.
    pub(crate) fn spawn_upgraded(&self, watch: impl Future<Output = ()> + Send + 'static) {
        let mut upgraded = self.0.upgraded.lock();
        while upgraded.try_join_next().is_some() {}
        upgraded.spawn(watch);
    }

    /// Waits for the upgraded watches to end.
    pub(crate) async fn join_upgraded(&self) {
        let mut upgraded = std::mem::take(&mut *self.0.upgraded.lock());
        while upgraded.join_next().await.is_some() {}
    }

    /// Registers one more open watch.
    pub(crate) fn register(&self) -> OpenWatch {
        self.0.open_watches.fetch_add(1, Ordering::Relaxed);
        let inner = Arc::clone(&self.0);
        let moment = async move {
            inner.started.cancelled().await;
            let spread = inner.duration.get().copied().unwrap_or_default();
            let part = rand::rng().random_range(0.0..1.0);
            tokio::time::sleep(spread.mul_f64(part)).await;
        };
        OpenWatch {
            drain: self.clone(),
            end: Box::pin(moment),
        }
    }
}

/// An open watch; it counts as open until it is dropped.
pub(crate) struct OpenWatch {
    drain: WatchDrain,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl OpenWatch {
    /// Waits until it is this watch's turn to end. May be awaited to completion once.
    pub(crate) async fn wait_for_turn(&mut self) {
        self.end.as_mut().await;
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.drain.0.open_watches.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn watch_drain_spreads_many_watches() {
        for (count, longest, min, max) in
            [(2, 5, 0, 4), (2000, 5, 3000, 4000), (2000, 1, 600, 1000)]
        {
            let ending = WatchDrain::default();
            let mut open: Vec<OpenWatch> = (0..count).map(|_| ending.register()).collect();
            let start = Instant::now();
            ending.start(Duration::from_secs(longest));
            futures_util::future::join_all(open.iter_mut().map(OpenWatch::wait_for_turn)).await;
            let elapsed = start.elapsed().as_millis();
            assert!((min..=max + 5).contains(&elapsed), "{count}: {elapsed} ms");
            drop(open);
            assert_eq!(ending.0.open_watches.load(Ordering::Relaxed), 0);
        }
    }
}
