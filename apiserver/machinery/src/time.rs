//! RFC 3339 text of the API with whole seconds (`metav1.Time`) or microseconds
//! (`metav1.MicroTime`), and the clock that components take as an argument.
//!
//! Only [`SystemClock`] reads the system's time.

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};

/// `2026-01-02T03:04:05Z`
pub fn rfc3339_seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `2026-01-02T03:04:05.000006Z`
pub fn rfc3339_micros(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Parses RFC 3339 with any offset and up to nine fractional digits.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    text.parse::<Timestamp>()
        .map_err(|e| format!("{text:?} is not an RFC 3339 time: {e}"))
}

/// A source of the current time.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

/// The system clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock for tests that moves only when it is set or advanced; microsecond resolution.
#[derive(Debug)]
pub struct FakeClock(AtomicI64);

impl FakeClock {
    pub fn new(at: Timestamp) -> Self {
        Self(AtomicI64::new(at.as_microsecond()))
    }

    pub fn set(&self, at: Timestamp) {
        self.0.store(at.as_microsecond(), Ordering::SeqCst);
    }

    pub fn advance(&self, duration: SignedDuration) {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(self.0.load(Ordering::SeqCst)).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_seconds_or_six_digits() {
        let at = parse("2026-01-02T04:04:05.1234567+01:00").unwrap();
        assert_eq!(rfc3339_seconds(at), "2026-01-02T03:04:05Z");
        assert_eq!(rfc3339_micros(at), "2026-01-02T03:04:05.123456Z");
        assert_eq!(
            parse(&rfc3339_seconds(at)).unwrap().as_second(),
            at.as_second()
        );
        assert!(parse("yesterday").is_err() && parse("2026-01-02").is_err());
    }

    #[test]
    fn a_fake_clock_moves_when_advanced_or_set() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        clock.advance(SignedDuration::from_secs(90));
        assert_eq!(clock.now().as_second(), 90);
        clock.set(Timestamp::UNIX_EPOCH);
        assert_eq!(clock.now(), Timestamp::UNIX_EPOCH);
    }
}
