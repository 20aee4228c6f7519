//! An adaptive limit of concurrent calls to a member: additive increase, multiplicative
//! decrease, driven by its latency and refusals.
//!
//! Calls above the limit wait. Watches, discovery and health probes are not limited: they
//! are few, and a probe must not measure our own queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use client::{Api, ApiCall, ApiReply, Error, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::MemberRequestMetrics;

const INITIAL_LIMIT: f64 = 32.0;
const MIN_LIMIT: f64 = 1.0;
const MAX_LIMIT: f64 = 256.0;
/// A latency above this multiple of the baseline is a sign of load ...
const SLOW_FACTOR: u32 = 5;
/// ... unless it is below this.
const MIN_SLOW_LATENCY: Duration = Duration::from_millis(50);
/// At most one decrease per interval, because calls in flight together fail together.
const DECREASE_INTERVAL: Duration = Duration::from_secs(1);

struct AdaptiveLimit {
    limit: f64,
    in_flight: usize,
    /// The baseline latency: the minimum observed, which slowly rises again.
    baseline_latency: Option<Duration>,
    last_decrease: Option<Instant>,
}

impl AdaptiveLimit {
    fn observe(&mut self, latency: Duration, is_refused: bool, now: Instant) {
        if is_refused {
            self.decrease(0.5, now);
            return;
        }
        let usual = self
            .baseline_latency
            .map_or(latency, |u| latency.min(u.mul_f64(1.01)));
        self.baseline_latency = Some(usual);
        if latency > (usual * SLOW_FACTOR).max(MIN_SLOW_LATENCY) {
            self.decrease(0.8, now);
        } else if self.in_flight as f64 * 2.0 >= self.limit {
            self.limit = (self.limit + 1.0 / self.limit).min(MAX_LIMIT);
        }
    }

    fn decrease(&mut self, share: f64, now: Instant) {
        if self
            .last_decrease
            .is_none_or(|at| now.duration_since(at) >= DECREASE_INTERVAL)
        {
            self.limit = (self.limit * share).max(MIN_LIMIT);
            self.last_decrease = Some(now);
        }
    }
}

/// An [`Api`] with an adaptive concurrency limit.
pub struct ConcurrencyLimitedApi {
    api: Arc<dyn Api>,
    state: Mutex<AdaptiveLimit>,
    permit_freed: Notify,
    /// Whether the last call did not reach the member.
    unreachable: AtomicBool,
    reachable_again: Notify,
    metrics: MemberRequestMetrics,
}

/// The permit of one call; released on drop, also when the call is canceled.
struct CallPermit<'a>(&'a ConcurrencyLimitedApi);

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        self.0.state.lock().in_flight -= 1;
        self.0.metrics.in_flight.dec();
        self.0.permit_freed.notify_one();
    }
}

impl ConcurrencyLimitedApi {
    /// `member` is the label of the metrics.
    pub fn new(member: &str, api: Arc<dyn Api>) -> Self {
        let metrics = MemberRequestMetrics::new(member);
        metrics.limit.set(INITIAL_LIMIT as i64);
        Self {
            api,
            metrics,
            state: Mutex::new(AdaptiveLimit {
                limit: INITIAL_LIMIT,
                in_flight: 0,
                baseline_latency: None,
                last_decrease: None,
            }),
            permit_freed: Notify::new(),
            unreachable: AtomicBool::new(false),
            reachable_again: Notify::new(),
        }
    }

    fn observe_reachability<T>(&self, outcome: Result<T>) -> Result<T> {
        let unreachable = matches!(outcome, Err(Error::Transport { .. }));
        if self.unreachable.swap(unreachable, Ordering::Relaxed) && !unreachable {
            self.reachable_again.notify_waiters();
        }
        outcome
    }

    /// The current limit of concurrent calls.
    pub fn limit(&self) -> usize {
        self.state.lock().limit as usize
    }

    async fn acquire(&self) -> CallPermit<'_> {
        loop {
            let freed = self.permit_freed.notified();
            {
                let mut state = self.state.lock();
                if (state.in_flight as f64) < state.limit.floor() {
                    state.in_flight += 1;
                    self.metrics.in_flight.inc();
                    if (state.in_flight as f64) < state.limit.floor() {
                        // More than one permit may be free, since the limit grows too.
                        self.permit_freed.notify_one();
                    }
                    return CallPermit(self);
                }
            }
            freed.await;
        }
    }

    async fn call_with_permit<T>(
        &self,
        verb: &'static str,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let permit = self.acquire().await;
        let start = Instant::now();
        let outcome = self.observe_reachability(work.await);
        self.metrics
            .observe_call(verb, start.elapsed(), outcome.as_ref().err());
        let is_refused = match &outcome {
            Err(Error::Status(status)) => matches!(status.code, 429 | 503 | 504),
            // The member was not reached: fewer calls would not help, and this says
            // nothing about load.
            Err(Error::Transport { .. }) => return outcome,
            _ => false,
        };
        let now = Instant::now();
        let limit = {
            let mut state = self.state.lock();
            state.observe(now - start, is_refused, now);
            state.limit
        };
        self.metrics.limit.set(limit as i64);
        drop(permit);
        outcome
    }
}

#[async_trait]
impl Api for ConcurrencyLimitedApi {
    async fn call(&self, call: ApiCall<'_>) -> Result<ApiReply> {
        let verb = call.verb();
        match call {
            ApiCall::Watch(..) | ApiCall::Discover(_) | ApiCall::GetRaw(..) => {
                self.observe_reachability(self.api.call(call).await)
            }
            _ => self.call_with_permit(verb, self.api.call(call)).await,
        }
    }

    async fn wait_until_reachable_again(&self) {
        self.reachable_again.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::{InformerFactory, ListWatchSelector, ResourcePath, ShutdownToken, TaskGroup};
    use client_fake::FakeApi;
    use machinery::{Gvr, Status};

    static MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");

    #[test]
    fn the_limit_follows_latency_and_refusals() {
        let start = Instant::now();
        let mut state = AdaptiveLimit {
            limit: 8.0,
            in_flight: 8,
            baseline_latency: None,
            last_decrease: None,
        };
        let at = |ms: u64| start + Duration::from_millis(ms);
        let duration = Duration::from_millis;
        // (ms, took, refused, limit afterwards in tenths)
        let table = [
            (0, 20, false, 81),
            (0, 20, true, 40),
            (500, 20, true, 40),
            (1500, 20, true, 20),
            (1600, 60, false, 25),
            (3000, 500, false, 20),
            (9000, 20, true, 10),
            (19000, 20, true, 10),
        ];
        for (ms, latency_ms, is_refused, expected) in table {
            state.observe(duration(latency_ms), is_refused, at(ms));
            assert_eq!((state.limit * 10.0) as usize, expected, "at {ms}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_wait_for_a_permit_and_canceled_ones_release_it() {
        let limited = ConcurrencyLimitedApi::new("slow", FakeApi::new());
        limited.state.lock().limit = 2.0;
        let work = || async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(())
        };
        let start = Instant::now();
        futures_util::future::join_all((0..6).map(|_| limited.call_with_permit("get", work())))
            .await;
        assert!(
            start.elapsed() >= Duration::from_millis(20),
            "{:?}",
            start.elapsed()
        );
        let cancelled = tokio::time::timeout(
            Duration::from_millis(1),
            limited.call_with_permit("get", work()),
        )
        .await;
        assert!(cancelled.is_err());
        assert_eq!(limited.state.lock().in_flight, 0);
    }

    /// The reflectors of a member list as soon as a probe reaches it, not at the end of their backoff.
    #[tokio::test(start_paused = true)]
    async fn reflectors_list_when_a_probe_reaches_the_member_again() {
        let fake = FakeApi::new();
        let reachable = Arc::new(AtomicBool::new(false));
        let state = Arc::clone(&reachable);
        fake.on_call(move |_| {
            let broken = Error::Transport {
                host: "member".into(),
                message: "connection refused".into(),
            };
            (!state.load(Ordering::Relaxed)).then_some(broken)
        });
        fake.set_raw_body("/readyz", "ok");
        let api: Arc<dyn Api> = Arc::new(ConcurrencyLimitedApi::new("back", fake));
        let tasks = TaskGroup::new(ShutdownToken::new());
        let informers = InformerFactory::new(&tasks);
        let informer = informers.get(&api, &ListWatchSelector::all(&MAPS));
        // The backoff is long by now.
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(!informer.has_synced());
        reachable.store(true, Ordering::Relaxed);
        assert!(api.get_raw("/readyz").await.is_ok());
        tokio::time::timeout(Duration::from_millis(100), informer.wait_for_cache_sync())
            .await
            .unwrap();
        tasks.stop().await;
    }

    #[tokio::test]
    async fn refusals_of_the_server_cut_it() {
        let fake = FakeApi::new();
        fake.on_call(|_| Some(Status::too_many_requests("later", 1).into()));
        let limited = ConcurrencyLimitedApi::new("refusing", fake);
        assert!(
            limited
                .get(ResourcePath::object(&MAPS, "ns", "a"))
                .await
                .is_err()
        );
        assert_eq!(limited.limit(), 16);
    }
}
