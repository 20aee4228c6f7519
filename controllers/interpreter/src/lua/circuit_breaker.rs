//! A circuit breaker per script, so that a script that does not terminate is not called for every object.
//!
//! closed ──several consecutive calls exceed the deadline──► open ──after a pause──► one probe call
//! ──it terminates──► closed

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// This many consecutive calls that exceed their deadline open the breaker. Fewer may be caused by
/// a single object.
const OVERRUNS_TO_OPEN: u32 = 4;

/// Whether a script may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CircuitBreakerDecision {
    Call,
    /// It is called to find out whether it terminates again.
    Probe,
    Refused,
}

/// The circuit breaker of one script.
#[derive(Debug, Default)]
pub(super) struct CircuitBreaker(Mutex<CircuitBreakerInner>);

#[derive(Debug, Default)]
struct CircuitBreakerInner {
    /// Consecutive calls that exceeded the deadline.
    overruns: u32,
    /// Whether the last call terminated before its deadline.
    last_call_finished: bool,
    /// Set while the breaker is open: when the next probe is allowed.
    open_until: Option<Instant>,
}

impl CircuitBreaker {
    /// Decides about a call. While the breaker is open, it allows one probe per `pause`.
    pub(super) fn check(&self, now: Instant, pause: Duration) -> CircuitBreakerDecision {
        let mut state = self.0.lock();
        match state.open_until {
            None => CircuitBreakerDecision::Call,
            Some(until) if now < until => CircuitBreakerDecision::Refused,
            Some(_) => {
                state.open_until = now.checked_add(pause);
                CircuitBreakerDecision::Probe
            }
        }
    }

    /// Whether the breaker is open. Calls that wait for a thread are then refused.
    pub(super) fn is_open(&self) -> bool {
        self.0.lock().open_until.is_some()
    }

    /// Whether the last call of the script terminated.
    pub(super) fn last_call_finished(&self) -> bool {
        self.0.lock().last_call_finished
    }

    /// Records that a call terminated or exceeded its deadline.
    pub(super) fn record_call(&self, overran: bool, now: Instant, pause: Duration) {
        let mut state = self.0.lock();
        state.last_call_finished = !overran;
        if !overran {
            (state.overruns, state.open_until) = (0, None);
            return;
        }
        state.overruns = state.overruns.saturating_add(1);
        if state.overruns >= OVERRUNS_TO_OPEN {
            state.open_until = now.checked_add(pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_breaker_probes_and_closes_after_a_success() {
        let (breaker, pause) = (CircuitBreaker::default(), Duration::from_secs(1));
        let began = Instant::now();
        for _ in 1..OVERRUNS_TO_OPEN {
            breaker.record_call(true, began, pause);
            assert_eq!(breaker.check(began, pause), CircuitBreakerDecision::Call);
        }
        // A call in between that terminates resets the counter.
        breaker.record_call(false, began, pause);
        assert!(breaker.last_call_finished());
        for _ in 0..OVERRUNS_TO_OPEN {
            assert!(!breaker.is_open());
            breaker.record_call(true, began, pause);
        }
        assert!(breaker.is_open() && !breaker.last_call_finished());
        assert_eq!(breaker.check(began, pause), CircuitBreakerDecision::Refused);
        for second in 1..4 {
            let now = began + second * pause;
            assert_eq!(breaker.check(now, pause), CircuitBreakerDecision::Probe);
            assert_eq!(breaker.check(now, pause), CircuitBreakerDecision::Refused);
        }
        breaker.record_call(false, began, pause);
        assert_eq!(breaker.check(began, pause), CircuitBreakerDecision::Call);
    }
}
