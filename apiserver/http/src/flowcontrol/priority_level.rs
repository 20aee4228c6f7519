//! One priority level: its seats, and the requests that wait for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::borrowing::{ConcurrencyLimits, DemandIntegrator, DemandStatistics, LevelDemand};
use super::flow_control_metrics::PriorityLevelMetrics;
use super::flow_schema::{ConfigMetadata, PriorityLevelConfiguration};
use super::queue_set::{FairQueueSet, QueuedRequest, QueuingConfig, RejectReason};

/// A priority level of the present configuration, or one that was replaced and whose
/// requests have not ended.
pub(super) struct PriorityLevel {
    pub(super) metadata: ConfigMetadata,
    pub(super) is_exempt: bool,
    queuing: Option<QueuingConfig>,
    metrics: PriorityLevelMetrics,
    epoch: Instant,
    state: Mutex<PriorityLevelState>,
}

struct PriorityLevelState {
    queue_set: FairQueueSet,
    waiting: HashMap<u64, oneshot::Sender<()>>,
    limits: ConcurrencyLimits,
    demand: DemandIntegrator,
    statistics: DemandStatistics,
}

/// The permit of a request that does not have to be rejected.
pub(super) enum Acquisition {
    Executing(ConcurrencyPermit),
    Waiting(WaitingTicket),
}

impl PriorityLevel {
    pub(super) fn new(
        config: &PriorityLevelConfiguration,
        metrics: PriorityLevelMetrics,
        epoch: Instant,
    ) -> Arc<Self> {
        let queuing = config.queuing();
        let limits = ConcurrencyLimits {
            nominal: 0,
            min: 0,
            max: 0,
        };
        Arc::new(Self {
            metadata: config.metadata.clone(),
            is_exempt: config.shares().is_exempt,
            queuing,
            metrics,
            epoch,
            state: Mutex::new(PriorityLevelState {
                queue_set: FairQueueSet::new(queuing, 0),
                waiting: HashMap::new(),
                limits,
                demand: DemandIntegrator::default(),
                statistics: DemandStatistics::default(),
            }),
        })
    }

    /// Whether this level serves a configuration; its limits may still differ.
    pub(super) fn fits(&self, config: &PriorityLevelConfiguration) -> bool {
        self.metadata == config.metadata
            && self.queuing == config.queuing()
            && self.is_exempt == config.shares().is_exempt
    }

    fn seconds(&self, at: Instant) -> f64 {
        at.duration_since(self.epoch).as_secs_f64()
    }

    pub(super) fn nominal_limit(&self) -> usize {
        self.state.lock().limits.nominal
    }

    pub(super) fn set_limits(&self, limits: ConcurrencyLimits) {
        self.state.lock().limits = limits;
        self.metrics.nominal_limit.set(limits.nominal as i64);
        self.metrics.lower_limit.set(limits.min as i64);
        self.metrics.upper_limit.set(limits.max as i64);
    }

    /// The demand of the period that ends now.
    pub(super) fn take_demand(&self, now: Instant) -> LevelDemand {
        let now = self.seconds(now);
        let state = &mut *self.state.lock();
        state.demand.reset(now, &mut state.statistics);
        LevelDemand {
            limits: state.limits,
            statistics: state.statistics,
            is_exempt: self.is_exempt,
        }
    }

    pub(super) fn set_current_limit(&self, now: Instant, limit: usize) {
        let now = self.seconds(now);
        let mut state = self.state.lock();
        // Requests of an exempt level never wait.
        let limit_of_queues = if self.is_exempt { usize::MAX } else { limit };
        state.queue_set.set_concurrency_limit(now, limit_of_queues);
        self.metrics.current_limit.set(limit as i64);
        self.dispatch(&mut state, now);
    }

    /// Takes seats for a request of the flow with a hash, or a place in a queue.
    pub(super) fn acquire(
        self: &Arc<Self>,
        hash: u64,
        seats: usize,
    ) -> Result<Acquisition, RejectReason> {
        let now = self.seconds(Instant::now());
        let mut state = self.state.lock();
        let request = state.queue_set.enqueue(now, hash, seats)?;
        let (sender, receiver) = oneshot::channel();
        state.waiting.insert(request.id, sender);
        self.dispatch(&mut state, now);
        let is_waiting = state.waiting.contains_key(&request.id);
        drop(state);
        let ticket = WaitingTicket {
            level: Arc::clone(self),
            request,
            dispatched: receiver,
            is_over: false,
        };
        Ok(match is_waiting {
            true => Acquisition::Waiting(ticket),
            false => Acquisition::Executing(ticket.into_permit()),
        })
    }

    /// Begins as many requests as there are seats for.
    fn dispatch(&self, state: &mut PriorityLevelState, now: f64) {
        while let Some(request) = state.queue_set.dispatch(now) {
            if let Some(sender) = state.waiting.remove(&request.id) {
                // A request that was dropped meanwhile returns its seats when its ticket is
                // dropped.
                let _ = sender.send(());
            }
        }
        state.demand.set(now, state.queue_set.demanded_seats());
        let seats = state.queue_set.seats_in_use();
        self.metrics.executing_seats.set(seats as i64);
    }

    fn finish(&self, request: &QueuedRequest, duration: Duration) {
        let now = self.seconds(Instant::now());
        let mut state = self.state.lock();
        state.queue_set.finish(now, request, duration.as_secs_f64());
        self.dispatch(&mut state, now);
    }

    /// Gives up the place of a request, or its seats if it has just got them.
    fn cancel(&self, request: &QueuedRequest) {
        let now = self.seconds(Instant::now());
        let mut state = self.state.lock();
        if state.waiting.remove(&request.id).is_none() {
            state.queue_set.finish(now, request, 0.0);
        } else {
            state.queue_set.cancel(now, request);
        }
        self.dispatch(&mut state, now);
    }
}

/// The place of a request in a queue; dropping it gives it up.
pub(super) struct WaitingTicket {
    level: Arc<PriorityLevel>,
    request: QueuedRequest,
    dispatched: oneshot::Receiver<()>,
    is_over: bool,
}

impl WaitingTicket {
    /// Waits for the seats.
    pub(super) async fn wait(mut self, limit: Duration) -> Result<ConcurrencyPermit, RejectReason> {
        match tokio::time::timeout(limit, &mut self.dispatched).await {
            Ok(Ok(())) => Ok(self.into_permit()),
            _ => Err(RejectReason::TimeOut),
        }
    }

    fn into_permit(mut self) -> ConcurrencyPermit {
        self.is_over = true;
        ConcurrencyPermit {
            level: Arc::clone(&self.level),
            request: self.request,
            since: Instant::now(),
        }
    }
}

impl Drop for WaitingTicket {
    fn drop(&mut self) {
        if !self.is_over {
            self.level.cancel(&self.request);
        }
    }
}

/// The seats of a request, given back when it is dropped.
pub(crate) struct ConcurrencyPermit {
    level: Arc<PriorityLevel>,
    request: QueuedRequest,
    since: Instant,
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        self.level.finish(&self.request, self.since.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::super::flow_control_metrics::FlowControlMetrics;
    use super::*;
    use serde_json::json;

    const MAX_WAIT: Duration = Duration::from_secs(15);

    fn level(limit: usize) -> Arc<PriorityLevel> {
        let config = json!({"metadata": {"name": "l"}, "spec": {"type": "Limited", "limited": {
            "limitResponse": {"type": "Queue", "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 2}}}}});
        let config: PriorityLevelConfiguration = serde_json::from_value(config).unwrap();
        let metrics = FlowControlMetrics::new(&flotilla_metrics::MetricsRegistry::new());
        let level = PriorityLevel::new(&config, metrics.of_level("l"), Instant::now());
        level.set_current_limit(Instant::now(), limit);
        level
    }

    fn executing(level: &Arc<PriorityLevel>) -> ConcurrencyPermit {
        match level.acquire(0, 1) {
            Ok(Acquisition::Executing(permit)) => permit,
            _ => panic!("there is a seat"),
        }
    }

    fn waiting(level: &Arc<PriorityLevel>) -> WaitingTicket {
        match level.acquire(0, 1) {
            Ok(Acquisition::Waiting(ticket)) => ticket,
            _ => panic!("there is no seat"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_seats_and_not_for_ever() {
        let level = level(1);
        let first = executing(&level);
        let [second, third] = [(); 2].map(|()| waiting(&level));
        assert!(matches!(level.acquire(0, 1), Err(RejectReason::QueueFull)));
        drop(first);
        let second = second.wait(MAX_WAIT).await.unwrap();
        let start = Instant::now();
        let reject_reason = third.wait(MAX_WAIT).await.err();
        assert_eq!(reject_reason, Some(RejectReason::TimeOut));
        assert_eq!(start.elapsed(), MAX_WAIT);
        // The place of the one that gave up is free.
        let [fourth, fifth] = [(); 2].map(|()| waiting(&level));
        drop(fourth);
        drop(second);
        drop(fifth.wait(MAX_WAIT).await.unwrap());
        drop(executing(&level));
    }

    #[tokio::test(start_paused = true)]
    async fn seats_of_a_request_that_is_gone_are_given_to_the_next() {
        let level = level(1);
        let first = executing(&level);
        let [second, third] = [(); 2].map(|()| waiting(&level));
        // The second gets the seat and goes before it knows.
        drop(first);
        drop(second);
        drop(third.wait(MAX_WAIT).await.unwrap());
        assert_eq!(level.state.lock().queue_set.demanded_seats(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_higher_limit_dispatches_those_that_wait() {
        let level = level(1);
        let _first = executing(&level);
        let second = waiting(&level);
        level.set_current_limit(Instant::now(), 2);
        let _second = second.wait(Duration::from_millis(1)).await.unwrap();
    }
}
