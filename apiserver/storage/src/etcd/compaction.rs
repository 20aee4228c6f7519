//! The compactor of etcd. Of several replicas only the one compacts that finds the
//! compaction key unchanged since its last round; it compacts to the revision of that
//! round. Source: `storage/etcd3/compact.go`, with the same key, so that other API
//! servers on the same etcd do not compact as well.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use machinery::FailureLogLimiter;

use super::client::EtcdClient;
use super::endpoints::RetryPolicy;
use super::etcd_keys::to_revision;
use crate::store::StoreResult;

const COMPACT_REV_KEY: &str = "compact_rev_key";

/// The state that one round leaves for the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CompactionRound {
    /// The version of the compaction key.
    version: i64,
    /// The newest revision at that time; 0 before the first round.
    revision: u64,
}

/// Runs a round every `every`; never returns.
pub(super) async fn run(inner: &EtcdClient, every: Duration) {
    let (mut last, failures) = (CompactionRound::default(), FailureLogLimiter::new());
    loop {
        tokio::time::sleep(every).await;
        match compact_once(inner, last).await {
            Ok(next) => {
                last = next;
                if failures.record_success("compaction") {
                    tracing::info!("etcd is compacted again");
                }
            }
            Err(e) if failures.record_failure("compaction", &e.to_string()) => {
                tracing::warn!(why = %e, "etcd is not compacted");
            }
            Err(_) => {}
        }
    }
}

async fn compact_once(inner: &EtcdClient, last: CompactionRound) -> StoreResult<CompactionRound> {
    let txn = Txn::new()
        .when([Compare::version(
            COMPACT_REV_KEY,
            CompareOp::Equal,
            last.version,
        )])
        .and_then([TxnOp::put(COMPACT_REV_KEY, last.revision.to_string(), None)])
        .or_else([TxnOp::get(COMPACT_REV_KEY, None)]);
    let response = inner
        .endpoints
        .call(RetryPolicy::NonRepeatable, 0, |endpoint| {
            let (mut kv, txn) = (endpoint.kv.clone(), txn.clone());
            async move { kv.txn(txn).await }
        })
        .await?;
    let response = response.0;
    let revision = response.header.map_or(0, |h| to_revision(h.revision));
    if !response.succeeded {
        // Another replica has changed the key.
        let version = super::client::first_key_value(response.responses).map_or(0, |kv| kv.version);
        return Ok(CompactionRound { version, revision });
    }
    if last.revision > 0 {
        inner.compact(last.revision).await?;
        tracing::debug!(revision = last.revision, "etcd compacted");
    }
    Ok(CompactionRound {
        version: last.version + 1,
        revision,
    })
}
