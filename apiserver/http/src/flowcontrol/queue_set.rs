//! Fair queuing of the requests of one priority level (Kubernetes' KEP-1040, `queueset`).
//!
//! A request occupies seats while it is executed. The queues share the seats equally in
//! virtual time: the next request is that with the least virtual finish time. No I/O and
//! no clock; times are seconds.

use std::collections::VecDeque;

use super::shuffle_sharding::deal_queues;

/// The time that a request takes, as long as it is not known (kube-apiserver's initial
/// estimate).
const ESTIMATED_SERVICE_SECONDS: f64 = 0.003;

/// The queues of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueuingConfig {
    pub(super) queues: usize,
    pub(super) hand_size: usize,
    pub(super) queue_length_limit: usize,
}

/// Why a request is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectReason {
    QueueFull,
    ConcurrencyLimit,
    TimeOut,
}

impl RejectReason {
    pub(super) const ALL: [Self; 3] = [Self::QueueFull, Self::ConcurrencyLimit, Self::TimeOut];

    /// The label of the metric.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::TimeOut => "time-out",
        }
    }
}

/// A request that waits or is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueuedRequest {
    pub(super) id: u64,
    pub(super) seats: usize,
    queue: usize,
}

struct WaitingRequest {
    request: QueuedRequest,
    /// The virtual time of its arrival.
    arrival: f64,
}

#[derive(Default)]
struct FairQueue {
    waiting: VecDeque<WaitingRequest>,
    executing: usize,
    seats_in_use: usize,
    /// The virtual time at which its next request begins.
    next_dispatch: f64,
}

impl FairQueue {
    fn waiting_seats(&self) -> usize {
        self.waiting.iter().map(|w| w.request.seats).sum()
    }

    fn is_active(&self) -> bool {
        self.executing > 0 || !self.waiting.is_empty()
    }
}

/// The requests of one priority level.
pub(super) struct FairQueueSet {
    /// `None`: requests above the limit are rejected at once.
    config: Option<QueuingConfig>,
    concurrency_limit: usize,
    queues: Vec<FairQueue>,
    virtual_time: f64,
    updated_at: f64,
    seats_in_use: usize,
    waiting_seats: usize,
    last_dispatched_queue: usize,
    last_id: u64,
}

impl FairQueueSet {
    pub(super) fn new(config: Option<QueuingConfig>, concurrency_limit: usize) -> Self {
        let count = config.map_or(1, |config| config.queues.max(1));
        Self {
            config,
            concurrency_limit,
            queues: std::iter::repeat_with(FairQueue::default)
                .take(count)
                .collect(),
            virtual_time: 0.0,
            updated_at: 0.0,
            seats_in_use: 0,
            waiting_seats: 0,
            last_dispatched_queue: 0,
            last_id: 0,
        }
    }

    /// The seats of all requests that are executed or wait.
    pub(super) fn demanded_seats(&self) -> usize {
        self.seats_in_use + self.waiting_seats
    }

    pub(super) fn seats_in_use(&self) -> usize {
        self.seats_in_use
    }

    /// The caller dispatches afterwards.
    pub(super) fn set_concurrency_limit(&mut self, now: f64, limit: usize) {
        self.advance(now);
        self.concurrency_limit = limit;
    }

    /// Enqueues a request of the flow with a hash. The caller dispatches afterwards.
    pub(super) fn enqueue(
        &mut self,
        now: f64,
        hash: u64,
        seats: usize,
    ) -> Result<QueuedRequest, RejectReason> {
        self.advance(now);
        let queue = match self.config {
            None if !self.can_accommodate(seats) => return Err(RejectReason::ConcurrencyLimit),
            None => 0,
            Some(config) => self.shortest_queue(hash, config.hand_size),
        };
        let limit = self.config.map_or(usize::MAX, |c| c.queue_length_limit);
        let is_saturated = self.seats_in_use >= self.concurrency_limit;
        if is_saturated && self.queues[queue].waiting.len() >= limit {
            return Err(RejectReason::QueueFull);
        }
        self.last_id += 1;
        let request = QueuedRequest {
            id: self.last_id,
            seats,
            queue,
        };
        let arrival = self.virtual_time;
        let target = &mut self.queues[queue];
        if !target.is_active() {
            target.next_dispatch = arrival;
        }
        target
            .waiting
            .push_back(WaitingRequest { request, arrival });
        self.waiting_seats += seats;
        Ok(request)
    }

    /// Begins the next request, if there are enough seats for it.
    pub(super) fn dispatch(&mut self, now: f64) -> Option<QueuedRequest> {
        self.advance(now);
        let queue = self.next_queue()?;
        let seats = self.queues[queue].waiting.front()?.request.seats;
        if !self.can_accommodate(seats) {
            return None;
        }
        let target = &mut self.queues[queue];
        let request = target.waiting.pop_front()?.request;
        target.executing += 1;
        target.seats_in_use += seats;
        target.next_dispatch += estimated_work(seats);
        self.seats_in_use += seats;
        self.waiting_seats -= seats;
        self.last_dispatched_queue = queue;
        Some(request)
    }

    /// Removes a request that waits. Returns whether it waited.
    pub(super) fn cancel(&mut self, now: f64, request: &QueuedRequest) -> bool {
        self.advance(now);
        let waiting = &mut self.queues[request.queue].waiting;
        let Some(position) = waiting.iter().position(|w| w.request.id == request.id) else {
            return false;
        };
        waiting.remove(position);
        self.waiting_seats -= request.seats;
        true
    }

    /// Ends a request that was executed for `duration_seconds`. The caller dispatches
    /// afterwards.
    pub(super) fn finish(&mut self, now: f64, request: &QueuedRequest, duration_seconds: f64) {
        self.advance(now);
        self.seats_in_use -= request.seats;
        let queue = &mut self.queues[request.queue];
        queue.executing -= 1;
        queue.seats_in_use -= request.seats;
        // The estimate is replaced by what the request has used.
        queue.next_dispatch +=
            request.seats as f64 * duration_seconds - estimated_work(request.seats);
        if let Some(oldest) = queue.waiting.front() {
            queue.next_dispatch = queue.next_dispatch.max(oldest.arrival);
        }
    }

    /// A request that is wider than the limit is executed alone.
    fn can_accommodate(&self, seats: usize) -> bool {
        self.concurrency_limit > 0
            && (self.seats_in_use == 0 || self.seats_in_use + seats <= self.concurrency_limit)
    }

    /// The queue of a hand with the least work, in progress or waiting.
    fn shortest_queue(&self, hash: u64, hand_size: usize) -> usize {
        let work = |queue: &usize| {
            let queue = &self.queues[*queue];
            queue.waiting_seats() + queue.seats_in_use
        };
        deal_queues(hash, self.queues.len(), hand_size)
            .min_by_key(work)
            .unwrap_or_default()
    }

    /// The queue whose oldest request has the least virtual finish time; among equal ones
    /// the first after the queue of the last request.
    fn next_queue(&self) -> Option<usize> {
        let count = self.queues.len();
        let mut best: Option<(usize, f64)> = None;
        for n in 1..=count {
            let index = (self.last_dispatched_queue + n) % count;
            let queue = &self.queues[index];
            let Some(oldest) = queue.waiting.front() else {
                continue;
            };
            let finish = queue.next_dispatch + estimated_work(oldest.request.seats);
            if best.is_none_or(|(_, least)| finish < least) {
                best = Some((index, finish));
            }
        }
        best.map(|(index, _)| index)
    }

    /// Virtual time advances by the seats in use, or wanted, per active queue.
    fn advance(&mut self, now: f64) {
        let elapsed = (now - self.updated_at).max(0.0);
        self.updated_at = now;
        let active = self.queues.iter().filter(|queue| queue.is_active()).count();
        if active > 0 {
            let seats = self.demanded_seats().min(self.concurrency_limit);
            self.virtual_time += elapsed * seats as f64 / active as f64;
        }
    }
}

fn estimated_work(seats: usize) -> f64 {
    seats as f64 * ESTIMATED_SERVICE_SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CONFIG: QueuingConfig = QueuingConfig {
        queues: 16,
        hand_size: 4,
        queue_length_limit: 50,
    };

    /// A hash whose bits are spread, as those of real flows are.
    fn flow_hash(flow: u64) -> u64 {
        flow.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// Executes requests of flows that always have `backlog` requests waiting; returns
    /// the seat seconds that each flow got.
    fn simulate(
        limit: usize,
        flows: &[(u64, usize, f64)],
        backlog: usize,
        seconds: f64,
    ) -> Vec<f64> {
        let config = QueuingConfig {
            queues: 512,
            ..CONFIG
        };
        let mut set = FairQueueSet::new(Some(config), limit);
        let mut flow_of = std::collections::HashMap::new();
        let mut executing: Vec<(f64, f64, QueuedRequest)> = Vec::new();
        let (mut now, mut used) = (0.0, vec![0.0; flows.len()]);
        let mut waiting = vec![0; flows.len()];
        while now < seconds {
            for (n, (hash, seats, _)) in flows.iter().enumerate() {
                while waiting[n] < backlog {
                    flow_of.insert(set.enqueue(now, flow_hash(*hash), *seats).unwrap().id, n);
                    waiting[n] += 1;
                }
            }
            while let Some(request) = set.dispatch(now) {
                let flow = flow_of[&request.id];
                waiting[flow] -= 1;
                executing.push((now + flows[flow].2, now, request));
            }
            executing.sort_by(|a, b| b.0.total_cmp(&a.0));
            let (end, start, request) = executing.pop().unwrap();
            now = end;
            set.finish(now, &request, end - start);
            used[flow_of[&request.id]] += request.seats as f64 * (end - start);
        }
        used
    }

    #[test]
    fn flows_share_the_seats_whatever_their_requests_are_like() {
        // One flow has many wide, slow requests, the other a few narrow, fast ones.
        let used = simulate(10, &[(1, 5, 0.5), (2, 1, 0.01)], 20, 60.0);
        let share = used[1] / (used[0] + used[1]);
        assert!((0.4..0.6).contains(&share), "{used:?}");
        let used = simulate(10, &[(1, 1, 0.1), (2, 1, 0.1), (3, 1, 0.1)], 20, 60.0);
        let total: f64 = used.iter().sum();
        for part in &used {
            assert!((0.3..0.37).contains(&(part / total)), "{used:?}");
        }
        // No seat is idle while requests wait.
        assert!(total > 0.98 * 600.0, "{total}");
    }

    #[test]
    fn a_new_flow_overtakes_a_backlog() {
        let mut set = FairQueueSet::new(Some(CONFIG), 1);
        for _ in 0..40 {
            set.enqueue(0.0, flow_hash(1), 1).unwrap();
        }
        let first = set.dispatch(0.0).unwrap();
        let other = set.enqueue(0.5, flow_hash(2), 1).unwrap();
        assert_eq!(set.dispatch(0.5), None);
        set.finish(1.0, &first, 1.0);
        // At most one request per queue of the first flow comes before.
        let mut order = Vec::new();
        let mut now = 1.0;
        while let Some(request) = set.dispatch(now) {
            order.push(request.id);
            now += 1.0;
            set.finish(now, &request, 1.0);
        }
        let position = order.iter().position(|id| *id == other.id).unwrap();
        assert!(position <= 4, "{position}");
        assert_eq!(order.len(), 40);
    }

    #[test]
    fn queues_are_bounded_and_levels_without_queues_reject() {
        let mut set = FairQueueSet::new(None, 2);
        for _ in 0..2 {
            set.enqueue(0.0, 0, 1).unwrap();
            set.dispatch(0.0).unwrap();
        }
        assert_eq!(set.enqueue(0.0, 0, 1), Err(RejectReason::ConcurrencyLimit));
        let config = QueuingConfig {
            queues: 4,
            hand_size: 1,
            queue_length_limit: 2,
        };
        let mut set = FairQueueSet::new(Some(config), 1);
        set.enqueue(0.0, 0, 3).unwrap();
        // It is wider than the limit and executed alone.
        set.dispatch(0.0).unwrap();
        let waiting = [(); 2].map(|()| set.enqueue(0.0, 0, 1).unwrap());
        assert_eq!(set.enqueue(0.0, 0, 1), Err(RejectReason::QueueFull));
        set.enqueue(0.0, 1, 1).unwrap();
        assert!(set.cancel(0.0, &waiting[0]) && !set.cancel(0.0, &waiting[0]));
        set.enqueue(0.0, 0, 1).unwrap();
        assert_eq!(set.dispatch(0.0), None);
        assert_eq!(set.demanded_seats(), 6);
    }

    proptest! {
        /// Whatever happens, the seats in use stay within the limit, no request is lost
        /// and none waits while there are seats.
        #[test]
        fn seats_are_bounded_and_used(
            steps in proptest::collection::vec((0u8..4, any::<u64>(), 1usize..4), 1..200),
            limit in 3usize..8,
        ) {
            let mut set = FairQueueSet::new(Some(CONFIG), limit);
            let (mut waiting, mut executing) = (Vec::new(), Vec::new());
            let mut now = 0.0;
            for (step, hash, seats) in steps {
                now += 0.01;
                match step {
                    0 | 1 => waiting.extend(set.enqueue(now, hash, seats)),
                    2 if !executing.is_empty() => {
                        let request = executing.swap_remove(hash as usize % executing.len());
                        set.finish(now, &request, 0.01);
                    }
                    3 if !waiting.is_empty() => {
                        let request = waiting.swap_remove(hash as usize % waiting.len());
                        prop_assert!(set.cancel(now, &request));
                    }
                    _ => {}
                }
                while let Some(request) = set.dispatch(now) {
                    waiting.retain(|w| w.id != request.id);
                    executing.push(request);
                }
                let in_use: usize = executing.iter().map(|r: &QueuedRequest| r.seats).sum();
                prop_assert_eq!(set.seats_in_use(), in_use);
                prop_assert!(in_use <= limit);
                let waiting_seats: usize = waiting.iter().map(|r| r.seats).sum();
                prop_assert_eq!(set.demanded_seats(), in_use + waiting_seats);
                // The widest request that may wait has three seats.
                prop_assert!(waiting.is_empty() || in_use + 3 > limit);
            }
        }
    }
}
