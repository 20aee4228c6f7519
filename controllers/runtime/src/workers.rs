//! Workers: take a key, reconcile it, say what comes next.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use client::Tasks;
use futures_util::FutureExt;

use crate::queue::Queue;

/// What comes after a reconciliation that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing until the next change.
    Done,
    /// The same key again after a while.
    After(Duration),
}

/// Starts `n` workers on a queue. An error brings the key back with backoff; a
/// panic counts as an error. On shutdown running reconciliations finish, and the
/// queue is closed.
pub fn run_workers<K, E, F, Fut>(
    tasks: &Tasks,
    name: &'static str,
    queue: &Queue<K>,
    n: usize,
    reconcile: F,
) where
    K: Clone + Debug + Eq + Hash + Send + Sync + 'static,
    E: Display + Send,
    F: Fn(K) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, E>> + Send,
{
    let reconcile = Arc::new(reconcile);
    for _ in 0..n.max(1) {
        let (queue, reconcile) = (queue.clone(), Arc::clone(&reconcile));
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move {
            while let Some(Some(key)) = shutdown.unless(queue.get()).await {
                let work = async { reconcile(key.clone()).await };
                let outcome = AssertUnwindSafe(work).catch_unwind().await;
                let failure = match outcome {
                    Ok(Ok(action)) => {
                        queue.forget(&key);
                        if let Action::After(delay) = action {
                            queue.add_after(key.clone(), delay);
                        }
                        None
                    }
                    Ok(Err(error)) => Some(error.to_string()),
                    Err(_) => Some("panicked".to_owned()),
                };
                if let Some(error) = failure {
                    let again = queue.add_backoff(key.clone());
                    tracing::warn!(controller = name, ?key, %error, ?again, "reconciliation failed");
                }
                queue.done(&key);
            }
            queue.close();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::Shutdown;
    use parking_lot::Mutex;

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
}
