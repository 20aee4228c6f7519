//! Claims of service addresses that no Service uses.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use storage::KeyValue;
use tokio::time::Instant;

/// A claim without a Service expires after this time, twice the longest request.
const CLAIM_EXPIRY: Duration = Duration::from_secs(120);
/// Observed claims are forgotten after this time.
const UNUSED_CLAIM_RETENTION: Duration = Duration::from_secs(3600);

/// Claims of other processes on addresses that no Service had when this process observed
/// them: the revision of each, and when it was first observed.
#[derive(Default)]
pub(crate) struct UnusedAddressClaims(Mutex<HashMap<Arc<str>, (u64, Instant)>>);

impl UnusedAddressClaims {
    /// Whether a claim was unchanged for so long that no Service will follow.
    pub(crate) fn is_expired(&self, claim: &KeyValue) -> bool {
        let now = Instant::now();
        let mut observed = self.0.lock();
        match observed.get(&claim.key) {
            Some((revision, first)) if *revision == claim.mod_revision => {
                *first + CLAIM_EXPIRY <= now
            }
            _ => {
                observed.retain(|_, (_, first)| *first + UNUSED_CLAIM_RETENTION > now);
                observed.insert(Arc::clone(&claim.key), (claim.mod_revision, now));
                false
            }
        }
    }
}
