//! The compactor of etcd. Of several replicas only the one compacts that finds the
//! compaction key unchanged since its last round; it compacts to the revision of that
//! round. Source: `storage/etcd3/compact.go`, with the same key, so that other API
//! servers on the same etcd do not compact as well.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use machinery::FailureLog;

use super::Inner;
use super::endpoints::Repeat;
use super::keys::unsigned;
use crate::store::Result;

const KEY: &str = "compact_rev_key";

/// The state that one round leaves for the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Turn {
    /// The version of the compaction key.
    version: i64,
    /// The newest revision at that time; 0 before the first round.
    revision: u64,
}

/// Runs a round every `every`; never returns.
pub(super) async fn run(inner: &Inner, every: Duration) {
    let (mut last, failures) = (Turn::default(), FailureLog::new());
    loop {
        tokio::time::sleep(every).await;
        match turn(inner, last).await {
            Ok(next) => {
                last = next;
                if failures.record_success("compaction") {
                    tracing::info!("etcd is compacted again");
                }
            }
            Err(why) if failures.record_failure("compaction", &why.to_string()) => {
                tracing::warn!(%why, "etcd is not compacted");
            }
            Err(_) => {}
        }
    }
}

async fn turn(inner: &Inner, last: Turn) -> Result<Turn> {
    let txn = Txn::new()
        .when([Compare::version(KEY, CompareOp::Equal, last.version)])
        .and_then([TxnOp::put(KEY, last.revision.to_string(), None)])
        .or_else([TxnOp::get(KEY, None)]);
    let answer = inner
        .endpoints
        .call(Repeat::Never, 0, |endpoint| {
            let (mut kv, txn) = (endpoint.kv.clone(), txn.clone());
            async move { kv.txn(txn).await }
        })
        .await?;
    let answer = answer.0;
    let revision = answer.header.map_or(0, |h| unsigned(h.revision));
    if !answer.succeeded {
        // Another replica has changed the key.
        let version = super::found(answer.responses).map_or(0, |kv| kv.version);
        return Ok(Turn { version, revision });
    }
    if last.revision > 0 {
        inner.compact(last.revision).await?;
        tracing::debug!(revision = last.revision, "etcd compacted");
    }
    Ok(Turn {
        version: last.version + 1,
        revision,
    })
}
