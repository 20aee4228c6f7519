//! Exponential backoff between the attempts of something that fails (client-go's
//! `wait.Backoff`).

use std::time::Duration;

/// A delay that doubles after each failure, up to a maximum.
#[derive(Clone, Copy, Debug)]
pub struct ExponentialBackoff {
    initial: Duration,
    max: Duration,
    failures: u32,
}

impl ExponentialBackoff {
    pub const fn new(initial: Duration, max: Duration) -> Self {
        Self {
            initial,
            max,
            failures: 0,
        }
    }

    /// The delay after one more failure.
    pub fn next_delay(&mut self) -> Duration {
        let delay = exponential_delay(self.initial, self.max, self.failures);
        self.failures = self.failures.saturating_add(1);
        delay
    }

    /// An attempt has succeeded.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// The delay after a failure that `failures` others preceded.
pub fn exponential_delay(initial: Duration, max: Duration, failures: u32) -> Duration {
    let factor = 2_u32.saturating_pow(failures);
    initial.saturating_mul(factor).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum_and_start_again() {
        let mut backoff =
            ExponentialBackoff::new(Duration::from_millis(800), Duration::from_secs(5));
        let mut next = || backoff.next_delay().as_millis();
        assert_eq!([next(), next(), next()], [800, 1600, 3200]);
        assert_eq!([next(), next()], [5000, 5000]);
        backoff.reset();
        assert_eq!(backoff.next_delay().as_millis(), 800);
        let (initial, max) = (Duration::from_secs(1), Duration::MAX);
        assert_eq!(
            exponential_delay(initial, max, u32::MAX).as_secs(),
            u64::from(u32::MAX)
        );
    }
}
