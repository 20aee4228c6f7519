//! Workers that take keys from a workqueue, reconcile them and requeue them.

use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use client::TaskGroup;
use flotilla_tracing::{InSpanExt, KeyValue, Span, start_root_span};
use futures_util::FutureExt;
use machinery::FailureLogLimiter;
use parking_lot::Mutex;
use rand::Rng;
use tokio::time::Instant;

use crate::blocking_section::{BlockingSectionHandler, CurrentWorkerHandle};
use crate::metrics::{ControllerName, ReconcileOutcome, WorkerMetrics};
use crate::reconcile_error::ReconcileError;
use crate::workqueue::Workqueue;

/// The next step for a key after a successful reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileAction {
    /// Wait for the next change.
    Done,
    /// Reconcile the same key again after this delay.
    RequeueAfter(Duration),
}

impl ReconcileAction {
    /// After a write conflict: the informer is about to deliver the newer object.
    pub const AFTER_CONFLICT: Self = Self::RequeueAfter(Duration::from_millis(5));

    /// Reconciles again only if a write met a conflict.
    pub fn after_writes(conflict: bool) -> Self {
        match conflict {
            true => Self::AFTER_CONFLICT,
            false => Self::Done,
        }
    }

    /// What follows a write: a conflict is about to be resolved by a newer object, and an object
    /// that is gone needs no write.
    pub fn after_write<T>(written: client::Result<T>, next: Self) -> client::Result<Self> {
        match written {
            Err(error) if error.is_conflict() => Ok(Self::AFTER_CONFLICT),
            Err(error) if error.is_not_found() => Ok(Self::Done),
            written => written.map(|_| next),
        }
    }
}

/// The longest backoff of a key whose reconciliation got no answer. On a network that breaks again
/// and again a longer one keeps a key waiting while others pass, and an equal one for all retries
/// may always meet the break.
const MAX_UNANSWERED_SECONDS: Range<f64> = 5.0..10.0;
/// Error text recorded for a key whose reconciliation panicked.
const PANIC_REASON: &str = "panicked";
/// Most substitute workers per queue. Beyond that, a worker in a blocking section is not
/// replaced.
const MAX_SUBSTITUTE_WORKERS: usize = 2048;

/// Starts `n` workers on a queue. An error requeues the key with backoff; a panic counts
/// as an error. On shutdown the running reconciliations finish and the queue is closed.
/// A worker inside a [`blocking_section`](crate::blocking_section) does not count
/// towards `n`.
pub fn run_workers<K, E, F, Fut>(
    tasks: &TaskGroup,
    name: impl Into<ControllerName>,
    queue: &Workqueue<K>,
    n: usize,
    reconcile: F,
) where
    K: Clone + Debug + Eq + Hash + Send + Sync + 'static,
    E: ReconcileError + Send + 'static,
    F: Fn(K) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ReconcileAction, E>> + Send + 'static,
{
    let (name, n) = (name.into(), n.max(1));
    queue.enable_metrics(name);
    let crew = Arc::new(WorkqueueWorkers {
        tasks: tasks.clone(),
        name: name.controller,
        metrics: WorkerMetrics::new(name),
        queue: queue.clone(),
        reconcile,
        concurrency: n,
        count: Mutex::new(WorkerCounts {
            total: n,
            unblocked: n,
        }),
        failures: FailureLogLimiter::new(),
        _result: PhantomData,
    });
    for _ in 0..n {
        tasks.spawn(Arc::clone(&crew).run_worker());
    }
}

/// Starts workers by [`run_workers`] once `synced` has completed, and none if `tasks` end
/// before that.
pub fn run_workers_after<K, E, F, Fut>(
    tasks: &TaskGroup,
    synced: impl Future<Output = ()> + Send + 'static,
    name: impl Into<ControllerName>,
    queue: &Workqueue<K>,
    n: usize,
    reconcile: F,
) where
    K: Clone + Debug + Eq + Hash + Send + Sync + 'static,
    E: ReconcileError + Send + 'static,
    F: Fn(K) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ReconcileAction, E>> + Send + 'static,
{
    let (workers, name, queue) = (tasks.clone(), name.into(), queue.clone());
    tasks.spawn(async move {
        let synced = workers.shutdown().run_until_triggered(synced).await;
        if synced.is_some() {
            run_workers(&workers, name, &queue, n, reconcile);
        }
    });
}

/// How many workers exist, and how many of them are outside blocking sections.
struct WorkerCounts {
    total: usize,
    unblocked: usize,
}

struct WorkqueueWorkers<K, E, F, Fut> {
    tasks: TaskGroup,
    name: &'static str,
    metrics: Arc<WorkerMetrics>,
    queue: Workqueue<K>,
    reconcile: F,
    concurrency: usize,
    count: Mutex<WorkerCounts>,
    failures: FailureLogLimiter,
    _result: PhantomData<fn() -> (E, Fut)>,
}

impl<K, E, F, Fut> BlockingSectionHandler for WorkqueueWorkers<K, E, F, Fut>
where
    K: Clone + Debug + Eq + Hash + Send + Sync + 'static,
    E: ReconcileError + Send + 'static,
    F: Fn(K) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ReconcileAction, E>> + Send + 'static,
{
    fn begin_blocking(self: Arc<Self>) {
        let mut hands = self.count.lock();
        hands.unblocked -= 1;
        if hands.unblocked < self.concurrency
            && hands.total < self.concurrency + MAX_SUBSTITUTE_WORKERS
        {
            hands.unblocked += 1;
            hands.total += 1;
            drop(hands);
            self.tasks.spawn(Arc::clone(&self).run_worker());
        }
    }

    fn end_blocking(&self) {
        self.count.lock().unblocked += 1;
    }
}

impl<K, E, F, Fut> WorkqueueWorkers<K, E, F, Fut>
where
    K: Clone + Debug + Eq + Hash + Send + Sync + 'static,
    E: ReconcileError + Send + 'static,
    F: Fn(K) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ReconcileAction, E>> + Send + 'static,
{
    /// Runs one worker until shutdown or until there are more workers than needed.
    async fn run_worker(self: Arc<Self>) {
        let _worker = self.metrics.track_worker();
        let shutdown = self.tasks.shutdown().clone();
        while let Some(Some(key)) = shutdown.run_until_triggered(self.queue.get()).await {
            // On the heap for its duration: workers of which most wait are small.
            Box::pin(self.process(key)).await;
            // A reconciliation whose write meets a conflict may await nothing. Without a pause, workers
            // that retry would keep the threads from the informers, which have the newer objects.
            tokio::task::yield_now().await;
            if self.retire_if_surplus() {
                return;
            }
        }
        self.queue.close();
    }

    fn retire_if_surplus(&self) -> bool {
        let mut hands = self.count.lock();
        let surplus = hands.unblocked > self.concurrency;
        if surplus {
            hands.unblocked -= 1;
            hands.total -= 1;
        }
        surplus
    }

    /// Reconciles a key, in a span of its own if spans are exported.
    async fn reconcile_in_span(
        self: &Arc<Self>,
        key: &K,
    ) -> std::thread::Result<Result<ReconcileAction, E>> {
        let span = start_root_span(
            || format!("reconcile {}", self.name),
            || {
                let key = format!("{key:?}");
                vec![
                    KeyValue::new("controller", self.name),
                    KeyValue::new("key", key),
                ]
            },
        );
        let work = async { (self.reconcile)(key.clone()).await };
        let slot = CurrentWorkerHandle::new(Arc::clone(self) as Arc<dyn BlockingSectionHandler>);
        let reconciled = AssertUnwindSafe(slot.scope(work)).catch_unwind();
        let outcome = reconciled.in_span(span.as_ref()).await;
        if let Some(span) = span.filter(Span::is_recording) {
            record_outcome(&span, &outcome);
        }
        outcome
    }

    async fn process(self: &Arc<Self>, key: K) {
        let (queue, figures) = (&self.queue, &self.metrics);
        let began = Instant::now();
        let busy = figures.track_active();
        let outcome = self.reconcile_in_span(&key).await;
        drop(busy);
        let ended = Instant::now();
        let took = ended - began;
        let failure = match outcome {
            Ok(Ok(action)) => {
                if self.failures.record_success(&key) {
                    tracing::info!(
                        controller = self.name,
                        ?key,
                        "reconciliation succeeds again"
                    );
                }
                let lag = queue.lag(&key, ended);
                queue.forget(&key);
                match action {
                    ReconcileAction::Done => {
                        figures.record_reconcile(took, ReconcileOutcome::Success, lag)
                    }
                    ReconcileAction::RequeueAfter(delay) => {
                        figures.record_reconcile(took, ReconcileOutcome::RequeueAfter, None);
                        if figures.is_stage() {
                            queue.set_pending_since(&key, lag.map(|lag| ended - lag));
                        }
                        queue.add_after(key.clone(), delay);
                    }
                }
                None
            }
            Ok(Err(error)) => Some((error.to_string(), error.is_unanswered())),
            Err(_) => {
                if self.failures.record_failure(&key, PANIC_REASON) {
                    tracing::error!(controller = self.name, ?key, "reconciliation panicked");
                }
                Some((PANIC_REASON.to_owned(), false))
            }
        };
        if let Some((error, unanswered)) = failure {
            figures.record_reconcile(took, ReconcileOutcome::Error, None);
            self.requeue_failed(&key, &error, unanswered);
        }
        queue.done(&key);
    }

    fn requeue_failed(&self, key: &K, error: &str, unanswered: bool) {
        let (queue, controller) = (&self.queue, self.name);
        let backoff = match unanswered {
            true => {
                let seconds = rand::rng().random_range(MAX_UNANSWERED_SECONDS);
                let max = Duration::from_secs_f64(seconds);
                queue.add_rate_limited_within(key.clone(), max)
            }
            false => queue.add_rate_limited(key.clone()),
        };
        let lasts = is_persistent(queue.num_requeues(key));
        if lasts && self.failures.record_failure(key, error) {
            tracing::warn!(controller, ?key, %error, ?backoff, "reconciliation failed");
        } else {
            tracing::debug!(controller, ?key, %error, ?backoff, "reconciliation failed");
        }
    }
}

/// Records the result in the span of a reconciliation, as metrics name it.
fn record_outcome<E: ReconcileError>(
    span: &Span,
    outcome: &std::thread::Result<Result<ReconcileAction, E>>,
) {
    let result = match outcome {
        Ok(Ok(ReconcileAction::Done)) => "success",
        Ok(Ok(ReconcileAction::RequeueAfter(_))) => "requeue_after",
        Ok(Err(error)) => {
            span.record_error(&error.to_string());
            "error"
        }
        Err(_) => {
            span.record_error(PANIC_REASON);
            "error"
        }
    };
    span.set_attribute(KeyValue::new("result", result));
}

/// Whether a key has failed often enough in a row to log a warning. Conflicts with
/// another writer and namespaces that are still being created pass within two retries.
fn is_persistent(failures: u32) -> bool {
    failures > 2
}

#[cfg(test)]
mod tests;
