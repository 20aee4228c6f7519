//! The limits of a backend store.

use std::time::Duration;

use machinery::backoff::exponential_delay;
use rand::Rng;

/// The limits of one backend store.
#[derive(Clone, Debug)]
pub(crate) struct BackendStoreLimits {
    /// The most documents that wait to be written, and the most bytes of their ids and keys.
    pub(crate) pending_documents: usize,
    pub(crate) pending_bytes: usize,
    /// The most documents and bytes in one request; a larger document has a request of its own.
    pub(crate) bulk_documents: usize,
    pub(crate) bulk_bytes: usize,
    /// Documents in one page when an index is compared with a cache.
    pub(crate) scan_page: usize,
    pub(crate) request_timeout: Duration,
    /// The delay after a failure, at first and at most.
    pub(crate) min_retry_delay: Duration,
    pub(crate) max_retry_delay: Duration,
    /// After an outage of this length the indexes are compared with the caches, since a store
    /// that was restored or reinstalled has lost documents.
    pub(crate) long_outage: Duration,
}

impl Default for BackendStoreLimits {
    fn default() -> Self {
        Self {
            pending_documents: 50_000,
            pending_bytes: 16 << 20,
            bulk_documents: 1_000,
            bulk_bytes: 5 << 20,
            scan_page: 1_000,
            request_timeout: Duration::from_secs(60),
            min_retry_delay: Duration::from_secs(1),
            max_retry_delay: Duration::from_secs(60),
            long_outage: Duration::from_secs(30),
        }
    }
}

impl BackendStoreLimits {
    /// The delay after a failure that `failures` others preceded, with jitter.
    pub(crate) fn retry_delay(&self, failures: u32) -> Duration {
        let delay = exponential_delay(self.min_retry_delay, self.max_retry_delay, failures);
        delay.mul_f64(rand::rng().random_range(1.0..1.5))
    }
}
