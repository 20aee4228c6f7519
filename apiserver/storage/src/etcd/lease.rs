//! Leases for keys with a time to live. Keys that are written at about the same time
//! share a lease. Source: `storage/etcd3/lease_manager.go`.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::endpoints::{EtcdEndpoints, RetryPolicy};
use crate::store::StoreResult;

/// How long a lease is reused for further keys, at most.
const MAX_LEASE_REUSE: Duration = Duration::from_secs(60);
/// The most keys on one lease, since etcd deletes them all in one transaction.
const MAX_KEYS_PER_LEASE: u32 = 1000;

struct EtcdLease {
    id: i64,
    key_count: u32,
    /// The lease is reused for further keys until then.
    reuse_until: Instant,
}

/// The lease in use for each time to live, in seconds.
#[derive(Default)]
pub(super) struct LeaseManager(Mutex<HashMap<u64, EtcdLease>>);

/// How long a lease is reused: 5% of the time to live, a minute at most. A key may outlive
/// its time by that.
fn reuse_duration(ttl: Duration) -> Duration {
    (ttl / 20).min(MAX_LEASE_REUSE)
}

impl LeaseManager {
    /// A lease with at least `ttl` left.
    pub(super) async fn get(&self, endpoints: &EtcdEndpoints, ttl: Duration) -> StoreResult<i64> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let mut leases = self.0.lock().await;
        let now = Instant::now();
        leases.retain(|_, lease| lease.reuse_until >= now);
        if let Some(lease) = leases.get_mut(&seconds)
            && lease.key_count < MAX_KEYS_PER_LEASE
        {
            lease.key_count += 1;
            return Ok(lease.id);
        }
        let granted = Duration::from_secs(seconds) + reuse_duration(ttl);
        let granted = i64::try_from(granted.as_secs()).unwrap_or(i64::MAX).max(1);
        // A lease whose response was lost expires by itself, so the request is repeatable.
        let reply = endpoints
            .call(RetryPolicy::Repeatable, 0, move |endpoint| async move {
                endpoint.lease.clone().grant(granted, None).await
            })
            .await?;
        let lease = EtcdLease {
            id: reply.id(),
            key_count: 1,
            reuse_until: now + reuse_duration(ttl),
        };
        let id = lease.id;
        leases.insert(seconds, lease);
        Ok(id)
    }

    /// Stops reusing a lease that has expired early.
    pub(super) async fn forget(&self, id: i64) {
        self.0.lock().await.retain(|_, lease| lease.id != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reuse_is_bounded() {
        for (ttl, expected) in [(3600, 60_000), (600, 30_000), (10, 500), (86_400, 60_000)] {
            let window = reuse_duration(Duration::from_secs(ttl));
            assert_eq!(window, Duration::from_millis(expected), "{ttl}");
        }
    }
}
