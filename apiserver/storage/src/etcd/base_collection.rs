//! Deletes bases that no value needs any more.
//!
//! ```text
//! written, version 1 ──no value refers──► retired, version 2 ──no value refers──► deleted
//! ```
//! A round lists the bases, and then reads the values that may refer to them, at the same revision. A
//! base of version 1 to which none refers is put again with its own value, so that its version
//! becomes 2: a write that would refer to it compares the version and fails. A base that had that
//! version already when it was listed, and to which no value referred then, gets no reference any
//! more, and is deleted. So at every revision the base of every live value exists, whatever the
//! processes do at the same time; values in the history find theirs at their own revision. Every
//! replica runs rounds, and two at once do no harm.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use machinery::FailureLogLimiter;

use super::client::EtcdClient;
use super::delta_value::{BASE_KEY_PREFIX, BaseName, DeltaValue};
use super::endpoints::RetryPolicy;
use super::etcd_keys::to_revision;
use crate::store::{RangeRequest, StoreResult, prefix_end};

/// The version of a base to which further values may refer.
pub(super) const OPEN_VERSION: i64 = 1;
/// Keys of bases in one response, each of some 100 bytes.
const LISTED_KEYS: usize = 10_000;
/// Values in one response, each of up to 1.5 MiB.
const READ_VALUES: usize = 200;

/// A base as a round lists it.
struct ListedBase {
    name: BaseName,
    version: i64,
}

/// Runs a round every `interval`; never returns.
pub(super) async fn run(client: &EtcdClient, interval: Duration) {
    let failures = FailureLogLimiter::new();
    loop {
        tokio::time::sleep(interval).await;
        match collect(client).await {
            Ok(()) => drop(failures.record_success("collection")),
            Err(e) if failures.record_failure("collection", &e.to_string()) => {
                tracing::warn!(why = %e, "unused bases of values in etcd are not deleted");
            }
            Err(_) => {}
        }
    }
}

/// One round.
pub(super) async fn collect(client: &EtcdClient) -> StoreResult<()> {
    let (bases, revision) = list_bases(client).await?;
    for (prefix, bases) in bases {
        let referenced = referenced_bases(client, &prefix, revision).await?;
        for base in bases {
            if !referenced.contains(&base.name) {
                retire_or_delete(client, &base).await?;
            }
        }
    }
    Ok(())
}

/// The bases by the prefix of the keys that may refer to them, and the revision at which they were
/// listed.
async fn list_bases(client: &EtcdClient) -> StoreResult<(BTreeMap<String, Vec<ListedBase>>, u64)> {
    let mut bases: BTreeMap<String, Vec<ListedBase>> = BTreeMap::new();
    let mut range = RangeRequest {
        limit: LISTED_KEYS,
        ..RangeRequest::prefix(&format!("{BASE_KEY_PREFIX}/"))
    };
    loop {
        let page = client.read_range(&range, true).await?;
        if range.revision == 0 {
            range.revision = page.header.map_or(0, |h| to_revision(h.revision));
        }
        for kv in &page.kvs {
            let key = client.keys.decode_key(&kv.key);
            range.start = format!("{key}\0");
            if let Some(name) = BaseName::from_key(&key) {
                let group = bases.entry(name.prefix().to_owned()).or_default();
                group.push(ListedBase {
                    name,
                    version: kv.version,
                });
            }
        }
        if !page.more || page.kvs.is_empty() {
            return Ok((bases, range.revision));
        }
    }
}

/// The bases to which the values of keys with `prefix` referred at `revision`.
async fn referenced_bases(
    client: &EtcdClient,
    prefix: &str,
    revision: u64,
) -> StoreResult<HashSet<BaseName>> {
    let mut referenced = HashSet::new();
    let mut range = RangeRequest {
        start: prefix.to_owned(),
        end: prefix_end(prefix),
        limit: READ_VALUES,
        revision,
    };
    loop {
        let page = client.read_range(&range, false).await?;
        if let Some(last) = page.kvs.last() {
            range.start = format!("{}\0", client.keys.decode_key(&last.key));
        }
        let is_last = !page.more || page.kvs.is_empty();
        for kv in page.kvs {
            if let Ok(Some(delta)) = DeltaValue::parse(&kv.value.into()) {
                referenced.extend(delta.base);
            }
        }
        if is_last {
            return Ok(referenced);
        }
    }
}

async fn retire_or_delete(client: &EtcdClient, base: &ListedBase) -> StoreResult<()> {
    let key = client.keys.encode_key(&base.name.key());
    let write = match base.version {
        OPEN_VERSION => TxnOp::put(&*key, "", Some(PutOptions::new().with_ignore_value())),
        _ => TxnOp::delete(&*key, None),
    };
    let txn = Txn::new()
        .when([Compare::version(key, CompareOp::Equal, base.version)])
        .and_then([write]);
    // The version is compared, so that a repetition does nothing.
    let sent = client
        .endpoints
        .call(RetryPolicy::Repeatable, 0, |endpoint| {
            let (mut kv, txn) = (endpoint.kv.clone(), txn.clone());
            async move { kv.txn(txn).await }
        })
        .await;
    sent.map(drop)
}
