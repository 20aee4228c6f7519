//! Workers: take a key, reconcile it, say what comes next.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::hash::Hash;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use client::Tasks;
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::aside::{Crew, Place};
use crate::figures::{Ended, Name, OfWorkers};
use crate::queue::Queue;

/// What comes after a reconciliation that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing until the next change.
    Done,
    /// The same key again after a while.
    After(Duration),
}

impl Action {
    /// After a conflict: the newer object is about to arrive.
    pub const AFTER_CONFLICT: Self = Self::After(Duration::from_millis(5));
}

/// Substitutes of a queue at most: beyond that who waits outside holds its worker.
const SUBSTITUTES: usize = 2048;

/// Starts `n` workers on a queue. An error brings the key back with backoff; a
/// panic counts as an error. On shutdown running reconciliations finish, and the
/// queue is closed. Who steps [`aside`](crate::aside) is not counted.
pub fn run_workers<K, E, F, Fut>(
    tasks: &Tasks,
    name: impl Into<Name>,
    queue: &Queue<K>,
    n: usize,
    reconcile: F,
) where
    K: Clone + Debug + Eq + Hash + Send + Sync + 'static,
    E: Display + Send + 'static,
    F: Fn(K) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, E>> + Send + 'static,
{
    let (name, n) = (name.into(), n.max(1));
    queue.measure(name);
    let crew = Arc::new(Workers {
        tasks: tasks.clone(),
        name: name.controller,
        figures: OfWorkers::new(name),
        queue: queue.clone(),
        reconcile,
        n,
        hands: Mutex::new(Hands { all: n, ready: n }),
        _ends: PhantomData,
    });
    for _ in 0..n {
        tasks.spawn(Arc::clone(&crew).work());
    }
}

/// How many workers there are, and how many of them do not wait outside.
struct Hands {
    all: usize,
    ready: usize,
}

struct Workers<K, E, F, Fut> {
    tasks: Tasks,
    name: &'static str,
    figures: Arc<OfWorkers>,
    queue: Queue<K>,
    reconcile: F,
    n: usize,
    hands: Mutex<Hands>,
    _ends: PhantomData<fn() -> (E, Fut)>,
}

impl<K, E, F, Fut> Crew for Workers<K, E, F, Fut>
where
    K: Clone + Debug + Eq + Hash + Send + Sync + 'static,
    E: Display + Send + 'static,
    F: Fn(K) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, E>> + Send + 'static,
{
    fn leave(self: Arc<Self>) {
        let mut hands = self.hands.lock();
        hands.ready -= 1;
        if hands.ready < self.n && hands.all < self.n + SUBSTITUTES {
            hands.ready += 1;
            hands.all += 1;
            drop(hands);
            self.tasks.spawn(Arc::clone(&self).work());
        }
    }

    fn back(&self) {
        self.hands.lock().ready += 1;
    }
}

impl<K, E, F, Fut> Workers<K, E, F, Fut>
where
    K: Clone + Debug + Eq + Hash + Send + Sync + 'static,
    E: Display + Send + 'static,
    F: Fn(K) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, E>> + Send + 'static,
{
    /// One worker, until shutdown or until it is one too many.
    async fn work(self: Arc<Self>) {
        let _worker = self.figures.worker();
        let shutdown = self.tasks.shutdown().clone();
        while let Some(Some(key)) = shutdown.unless(self.queue.get()).await {
            self.deal_with(key).await;
            if self.is_one_too_many() {
                return;
            }
        }
        self.queue.close();
    }

    fn is_one_too_many(&self) -> bool {
        let mut hands = self.hands.lock();
        let surplus = hands.ready > self.n;
        if surplus {
            hands.ready -= 1;
            hands.all -= 1;
        }
        surplus
    }

    async fn deal_with(self: &Arc<Self>, key: K) {
        let (queue, figures) = (&self.queue, &self.figures);
        let began = Instant::now();
        let busy = figures.busy();
        let work = async { (self.reconcile)(key.clone()).await };
        let place = Place::new(Arc::clone(self) as Arc<dyn Crew>);
        let outcome = AssertUnwindSafe(place.taken(work)).catch_unwind().await;
        drop(busy);
        let ended = Instant::now();
        let took = ended - began;
        let failure = match outcome {
            Ok(Ok(action)) => {
                let lag = queue.lag(&key, ended);
                queue.forget(&key);
                match action {
                    Action::Done => figures.ended(took, Ended::Success, lag),
                    Action::After(delay) => {
                        figures.ended(took, Ended::Later, None);
                        if figures.is_stage() {
                            queue.postpone(&key, lag.map(|lag| ended - lag));
                        }
                        queue.add_after(key.clone(), delay);
                    }
                }
                None
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => {
                tracing::error!(controller = self.name, ?key, "reconciliation panicked");
                Some("panicked".to_owned())
            }
        };
        if let Some(error) = failure {
            figures.ended(took, Ended::Error, None);
            let again = queue.add_backoff(key.clone());
            let controller = self.name;
            if lasting(queue.attempts(&key)) {
                tracing::warn!(controller, ?key, %error, ?again, "reconciliation failed");
            } else {
                tracing::debug!(controller, ?key, %error, ?again, "reconciliation failed");
            }
        }
        queue.done(&key);
    }
}

/// Whether a key that failed so many times in a row is worth a word: a conflict with
/// another writer, or a namespace that is about to be there, is not.
fn lasting(failures: u32) -> bool {
    failures > 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::Shutdown;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn told(series: &str) -> f64 {
        let text = String::from_utf8(metrics::text(&[metrics::process()])).unwrap();
        let value = text.lines().find_map(|l| l.strip_prefix(series));
        value.map_or(0.0, |v| v.trim().parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn lag_counts_from_the_change_to_the_answer_and_resyncs_have_none() {
        let tasks = Tasks::new(Shutdown::new());
        let queue = Queue::new();
        let (attempts, waited) = (queue.clone(), Arc::new(AtomicBool::new(false)));
        let name = Name::stage("lagging", "tested");
        run_workers(&tasks, name, &queue, 4, move |key: u32| {
            let (attempt, waited) = (attempts.attempts(&key), Arc::clone(&waited));
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                match (key, attempt) {
                    (1, 0..3) => Err("not yet"),
                    (2, _) if !waited.swap(true, Ordering::Relaxed) => {
                        Ok(Action::After(Duration::from_secs(20)))
                    }
                    _ => Ok(Action::Done),
                }
            }
        });
        for key in 0..3 {
            queue.add(key);
        }
        queue.add_low(3);
        tokio::time::sleep(Duration::from_secs(100)).await;
        let lags = "flotilla_propagation_lag_seconds";
        assert_eq!(told(&format!("{lags}_count{{stage=\"tested\"}}")), 3.0);
        // At once, after three failures and pauses of 35 ms, and after 20 s.
        let sum = told(&format!("{lags}_sum{{stage=\"tested\"}}"));
        assert!((27.035..27.1).contains(&sum), "{sum}");
        let reconciled = "controller_runtime_reconcile_total{controller=\"lagging\",result=";
        for (series, value) in [
            (format!("{reconciled}\"success\"}}"), 4.0),
            (format!("{reconciled}\"error\"}}"), 3.0),
            (format!("{reconciled}\"requeue_after\"}}"), 1.0),
            ("workqueue_adds_total{name=\"lagging\"}".into(), 8.0),
            ("workqueue_retries_total{name=\"lagging\"}".into(), 3.0),
            ("workqueue_depth{name=\"lagging\"}".into(), 0.0),
        ] {
            assert_eq!(told(&series), value, "{series}");
        }
        tasks.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn errors_and_panics_come_back_and_shutdown_waits_for_the_running() {
        let tasks = Tasks::new(Shutdown::new());
        let queue = Queue::new();
        let seen: Arc<Mutex<Vec<(u32, u32)>>> = Arc::default();
        let (log, again) = (Arc::clone(&seen), queue.clone());
        run_workers(&tasks, "test", &queue, 2, move |key: u32| {
            let (log, queue) = (Arc::clone(&log), again.clone());
            async move {
                let attempt = queue.attempts(&key);
                log.lock().push((key, attempt));
                match (key, attempt) {
                    (1, 0) => Err("no"),
                    (1, 1) => panic!("on purpose"),
                    (2, _) => {
                        tokio::time::sleep(Duration::from_secs(3600)).await;
                        log.lock().push((2, 99));
                        Ok(Action::Done)
                    }
                    (3, _) => Ok(Action::After(Duration::from_secs(10))),
                    _ => Ok(Action::Done),
                }
            }
        });
        queue.add(1);
        queue.add(3);
        tokio::time::sleep(Duration::from_secs(25)).await;
        assert_eq!(
            *seen.lock(),
            [(1, 0), (3, 0), (1, 1), (1, 2), (3, 0), (3, 0)]
        );
        assert_eq!(queue.attempts(&1), 0);
        queue.add(2);
        tokio::time::sleep(Duration::from_secs(1)).await;
        tasks.stop().await;
        assert_eq!(seen.lock().last(), Some(&(2, 99)));
        queue.add(4);
        assert!(queue.is_empty());
    }

    /// Two workers, five keys that wait outside for an hour, and one that does not.
    #[tokio::test(start_paused = true)]
    async fn who_waits_outside_holds_nobody_up() {
        let tasks = Tasks::new(Shutdown::new());
        let queue = Queue::new();
        let seen: Arc<Mutex<Vec<u32>>> = Arc::default();
        let log = Arc::clone(&seen);
        run_workers(&tasks, "outside", &queue, 2, move |key: u32| {
            let log = Arc::clone(&log);
            async move {
                let hour = || tokio::time::sleep(Duration::from_secs(3600));
                match key {
                    // Two at once are one who waits; what is dropped is no longer waited for.
                    0..5 => {
                        let both =
                            async { tokio::join!(crate::aside(hour()), crate::aside(hour())) };
                        tokio::time::timeout(Duration::from_secs(1800), both)
                            .await
                            .ok();
                    }
                    5..9 => tokio::time::sleep(Duration::from_secs(1)).await,
                    _ => {}
                }
                log.lock().push(key);
                Ok::<_, String>(Action::Done)
            }
        });
        for key in 0..10 {
            queue.add(key);
        }
        let began = Instant::now();
        let until = async |count: usize| {
            while seen.lock().len() < count {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let so_far = seen.lock().clone();
                assert!(began.elapsed() < Duration::from_secs(3600), "{so_far:?}");
            }
            let mut seen = std::mem::take(&mut *seen.lock());
            seen.sort_unstable();
            (seen, began.elapsed().as_secs())
        };
        // Two at a time, as ever.
        assert_eq!(until(5).await, (vec![5, 6, 7, 8, 9], 2));
        assert_eq!(until(5).await, (vec![0, 1, 2, 3, 4], 1800));
        // Substitutes have gone: again no more than two at a time.
        for key in 5..9 {
            queue.add(key);
        }
        assert_eq!(until(4).await, (vec![5, 6, 7, 8], 1802));
        tasks.stop().await;
    }
}
