//! A circuit breaker: a script that does not end is not called for every object.
//!
//! closed ──several calls in a row overrun the deadline──► open ──after a pause──► one call
//! tries ──it ends──► closed

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// So many calls in a row that overrun their deadline open the circuit. Fewer may be the
/// fault of one object.
const OVERRUNS: u32 = 4;

/// Whether a script is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Call,
    /// It is called to find out whether it ends now.
    Probe,
    Refused,
}

/// That of one script.
#[derive(Debug, Default)]
pub(super) struct CircuitBreaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// In a row.
    overruns: u32,
    /// The last call ended before its deadline.
    ends: bool,
    /// When it is open: until then.
    open_until: Option<Instant>,
}

impl CircuitBreaker {
    /// While it is open, one call in each `pause` tries.
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

    /// Whether calls that were admitted before, and wait for a thread, are refused now.
    pub(super) fn is_open(&self) -> bool {
        self.0.lock().open_until.is_some()
    }

    /// Whether the script is known to end.
    pub(super) fn ends(&self) -> bool {
        self.0.lock().ends
    }

    /// A call of the script has come to its end, or to its deadline.
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
    fn what_never_ends_is_tried_now_and_then_and_what_ends_again_is_called_again() {
        let (breaker, pause) = (CircuitBreaker::default(), Duration::from_secs(1));
        let began = Instant::now();
        for _ in 1..OVERRUNS {
            breaker.called(true, began, pause);
            assert_eq!(breaker.admit(began, pause), Admission::Call);
        }
        // One that ends between them: it was the fault of single objects.
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
