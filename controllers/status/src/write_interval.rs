//! How often a status is written.

use std::time::Duration;

/// Minimum time between two writes of one status; the first is never delayed. Several
/// clusters often report within a few milliseconds.
pub(crate) const MIN_WRITE_INTERVAL: Duration = Duration::from_millis(20);
