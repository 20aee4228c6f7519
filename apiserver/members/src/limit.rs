//! An adaptive limit of concurrent calls to a member: additive increase, multiplicative
//! decrease, driven by its latency and refusals.
//!
//! Calls above the limit wait. Watches, discovery and health probes are not limited: they
//! are few, and a probe must not measure our own queue.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client::{
    Api, At, DeleteOptions, Discovered, EncodedBody, Error, List, ListOptions, Patch, Result,
    WatchOptions, WatchStream, WriteOptions,
};
use machinery::Object;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::figures::{Figures, Verb};

const START: f64 = 32.0;
const LEAST: f64 = 1.0;
const MOST: f64 = 256.0;
/// A latency above this multiple of the baseline is a sign of load ...
const SLOW: u32 = 5;
/// ... unless it is below this.
const FAST_ENOUGH: Duration = Duration::from_millis(50);
/// At most one decrease per interval, because calls in flight together fail together.
const CALM: Duration = Duration::from_secs(1);

struct State {
    limit: f64,
    in_flight: usize,
    /// The baseline latency: the minimum observed, which slowly rises again.
    usual: Option<Duration>,
    cut: Option<Instant>,
}

impl State {
    fn learn(&mut self, took: Duration, refused: bool, now: Instant) {
        if refused {
            self.cut_to(0.5, now);
            return;
        }
        let usual = self.usual.map_or(took, |u| took.min(u.mul_f64(1.01)));
        self.usual = Some(usual);
        if took > (usual * SLOW).max(FAST_ENOUGH) {
            self.cut_to(0.8, now);
        } else if self.in_flight as f64 * 2.0 >= self.limit {
            self.limit = (self.limit + 1.0 / self.limit).min(MOST);
        }
    }

    fn cut_to(&mut self, share: f64, now: Instant) {
        if self.cut.is_none_or(|at| now.duration_since(at) >= CALM) {
            self.limit = (self.limit * share).max(LEAST);
            self.cut = Some(now);
        }
    }
}

/// An [`Api`] with an adaptive concurrency limit.
pub struct Limited {
    api: Arc<dyn Api>,
    state: Mutex<State>,
    freed: Notify,
    figures: Figures,
}

/// The permit of one call; released on drop, also when the call is canceled.
struct Place<'a>(&'a Limited);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.state.lock().in_flight -= 1;
        self.0.figures.in_flight.dec();
        self.0.freed.notify_one();
    }
}

impl Limited {
    /// `member` is the label of the metrics.
    pub fn new(member: &str, api: Arc<dyn Api>) -> Self {
        let figures = Figures::new(member);
        figures.limit.set(START as i64);
        Self {
            api,
            figures,
            state: Mutex::new(State {
                limit: START,
                in_flight: 0,
                usual: None,
                cut: None,
            }),
            freed: Notify::new(),
        }
    }

    /// The current limit of concurrent calls.
    pub fn limit(&self) -> usize {
        self.state.lock().limit as usize
    }

    async fn place(&self) -> Place<'_> {
        loop {
            let freed = self.freed.notified();
            {
                let mut state = self.state.lock();
                if (state.in_flight as f64) < state.limit.floor() {
                    state.in_flight += 1;
                    self.figures.in_flight.inc();
                    if (state.in_flight as f64) < state.limit.floor() {
                        // More than one permit may be free, since the limit grows too.
                        self.freed.notify_one();
                    }
                    return Place(self);
                }
            }
            freed.await;
        }
    }

    async fn call<T>(&self, verb: Verb, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let place = self.place().await;
        let began = Instant::now();
        let outcome = work.await;
        self.figures
            .called(verb, began.elapsed(), outcome.as_ref().err());
        let refused = match &outcome {
            Err(Error::Status(status)) => matches!(status.code, 429 | 503 | 504),
            // The member was not reached: fewer calls would not help, and this says
            // nothing about load.
            Err(Error::Transport { .. }) => return outcome,
            _ => false,
        };
        let now = Instant::now();
        let limit = {
            let mut state = self.state.lock();
            state.learn(now - began, refused, now);
            state.limit
        };
        self.figures.limit.set(limit as i64);
        drop(place);
        outcome
    }
}

#[async_trait]
impl Api for Limited {
    async fn get(&self, at: At<'_>) -> Result<Object> {
        self.call(Verb::Get, self.api.get(at)).await
    }

    async fn list(&self, at: At<'_>, options: &ListOptions) -> Result<List> {
        self.call(Verb::List, self.api.list(at, options)).await
    }

    async fn watch(&self, at: At<'_>, options: &WatchOptions) -> Result<WatchStream> {
        self.api.watch(at, options).await
    }

    async fn create(&self, at: At<'_>, body: Value, options: &WriteOptions) -> Result<Object> {
        self.call(Verb::Create, self.api.create(at, body, options))
            .await
    }

    async fn create_encoded(
        &self,
        at: At<'_>,
        body: EncodedBody,
        options: &WriteOptions,
    ) -> Result<Object> {
        self.call(Verb::Create, self.api.create_encoded(at, body, options))
            .await
    }

    async fn update(&self, at: At<'_>, body: Value, options: &WriteOptions) -> Result<Object> {
        self.call(Verb::Update, self.api.update(at, body, options))
            .await
    }

    async fn update_encoded(
        &self,
        at: At<'_>,
        body: EncodedBody,
        options: &WriteOptions,
    ) -> Result<Object> {
        self.call(Verb::Update, self.api.update_encoded(at, body, options))
            .await
    }

    async fn patch(&self, at: At<'_>, patch: Patch, options: &WriteOptions) -> Result<Object> {
        self.call(Verb::Patch, self.api.patch(at, patch, options))
            .await
    }

    async fn delete(&self, at: At<'_>, options: &DeleteOptions) -> Result<Option<Object>> {
        self.call(Verb::Delete, self.api.delete(at, options)).await
    }

    async fn delete_collection(
        &self,
        at: At<'_>,
        options: &DeleteOptions,
        select: &ListOptions,
    ) -> Result<()> {
        let deleted = self.api.delete_collection(at, options, select);
        self.call(Verb::DeleteCollection, deleted).await
    }

    async fn resources(&self) -> Result<Discovered> {
        self.api.resources().await
    }

    async fn raw(&self, path: &str) -> Result<Bytes> {
        self.api.raw(path).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::fake::FakeApi;
    use machinery::{Gvr, Status};
    use std::sync::atomic::{AtomicUsize, Ordering};

    static MAPS: Gvr = Gvr::constant("", "v1", "configmaps");

    #[test]
    fn the_limit_follows_latency_and_refusals() {
        let start = Instant::now();
        let mut state = State {
            limit: 8.0,
            in_flight: 8,
            usual: None,
            cut: None,
        };
        let at = |ms: u64| start + Duration::from_millis(ms);
        let took = Duration::from_millis;
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
        for (ms, ran, refused, expected) in table {
            state.learn(took(ran), refused, at(ms));
            assert_eq!((state.limit * 10.0) as usize, expected, "at {ms}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_wait_for_a_permit_and_canceled_ones_release_it() {
        struct CallCounter(AtomicUsize);
        let calls = Arc::new(CallCounter(AtomicUsize::new(0)));
        let limited = Limited::new("slow", FakeApi::new());
        limited.state.lock().limit = 2.0;
        let work = || async {
            calls.0.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(())
        };
        let began = Instant::now();
        futures_util::future::join_all((0..6).map(|_| limited.call(Verb::Get, work()))).await;
        assert!(
            began.elapsed() >= Duration::from_millis(20),
            "{:?}",
            began.elapsed()
        );
        let cancelled =
            tokio::time::timeout(Duration::from_millis(1), limited.call(Verb::Get, work())).await;
        assert!(cancelled.is_err());
        assert_eq!(limited.state.lock().in_flight, 0);
    }

    #[tokio::test]
    async fn refusals_of_the_server_cut_it() {
        let fake = FakeApi::new();
        fake.on_call(|_| Some(Status::too_many_requests("later", 1).into()));
        let limited = Limited::new("refusing", fake);
        assert!(limited.get(At::one(&MAPS, "ns", "a")).await.is_err());
        assert_eq!(limited.limit(), 16);
    }
}
