//! A circuit breaker per script, so that a script that does not terminate is not called for every object.
//!
//! closed ──several consecutive calls exceed the deadline──► open ──after a pause──► one probe call
//! ──it terminates──► closed

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// This many consecutive calls that exceed their deadline open the breaker. Fewer may be caused by
/// a single object.
const OVERRUNS: u32 = 4;

/// Whether a script may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Call,
    /// It is called to find out whether it terminates again.
    Probe,
    Refused,
}

/// The circuit breaker of one script.
#[derive(Debug, Default)]
pub(super) struct CircuitBreaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Consecutive calls that exceeded the deadline.
    overruns: u32,
    /// Whether the last call terminated before its deadline.
    ends: bool,
    /// Set while the breaker is open: when the next probe is allowed.
    open_until: Option<Instant>,
}

impl CircuitBreaker {
    /// Decides about a call. While the breaker is open, it allows one probe per `pause`.
    pub(super) fn admit(&self, now: Instant, pause: Duration) -> Admission {
        let mut state = self.0.lock();
        match state.open_until {
            None => Admission::Call,
            Some(until) if now < until => Admission::Refused,
            Some(_) => {
                state.open_until = now.checked_add(pause);
                Admission::Probe
            }
        }
    }

    /// Whether the breaker is open. Calls that wait for a thread are then refused.
    pub(super) fn is_open(&self) -> bool {
        self.0.lock().open_until.is_some()
    }

    /// Whether the last call of the script terminated.
    pub(super) fn ends(&self) -> bool {
        self.0.lock().ends
    }

    /// Records that a call terminated or exceeded its deadline.
    pub(super) fn called(&self, overran: bool, now: Instant, pause: Duration) {
        let mut state = self.0.lock();
        state.ends = !overran;
        if !overran {
            (state.overruns, state.open_until) = (0, None);
            return;
        }
        state.overruns = state.overruns.saturating_add(1);
        if state.overruns >= OVERRUNS {
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
        for _ in 1..OVERRUNS {
            breaker.called(true, began, pause);
            assert_eq!(breaker.admit(began, pause), Admission::Call);
        }
        // A call in between that terminates resets the counter.
        breaker.called(false, began, pause);
        assert!(breaker.ends());
        for _ in 0..OVERRUNS {
            assert!(!breaker.is_open());
            breaker.called(true, began, pause);
        }
        assert!(breaker.is_open() && !breaker.ends());
        assert_eq!(breaker.admit(began, pause), Admission::Refused);
        for second in 1..4 {
            let now = began + second * pause;
            assert_eq!(breaker.admit(now, pause), Admission::Probe);
            assert_eq!(breaker.admit(now, pause), Admission::Refused);
        }
        breaker.called(false, began, pause);
        assert_eq!(breaker.admit(began, pause), Admission::Call);
    }
}
