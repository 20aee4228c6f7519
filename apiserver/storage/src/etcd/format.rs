//! Reads and raises the format version that is stored below the prefix.
//!
//! A running replica keeps reading the version: when a newer program raises it, the
//! replica stops serving, since it would misread what the newer one writes.

use crate::format::{self, BASE};
use crate::store::{
    Error, KeyValue, RangeRequest, SingleKeyTxn, SingleKeyTxnOp, StoreResult, TxnResponse,
};

use super::client::EtcdClient;

pub(super) const FORMAT_KEY: &str = "/registry/flotilla/format";
/// The value of the key while a restore is not complete. Programs that do not know it refuse
/// it as well.
const RESTORING: &[u8] = b"{\"restoring\":true}";
/// Only other replicas write the key, each one once.
const MAX_ATTEMPTS: usize = 10;

impl EtcdClient {
    /// Fails the store when a newer program has raised the version.
    pub(super) async fn check_format(&self) {
        if let Err(error @ Error::Fatal(_)) = read(self).await {
            self.failure.send_replace(Some(error));
        }
    }
}

/// The stored version and the revision of its key; [`BASE`] and 0 where there is none.
/// Fails on a version that this program does not know.
pub(super) async fn read(inner: &EtcdClient) -> StoreResult<(u32, u64)> {
    let page = inner.range(&RangeRequest::key(FORMAT_KEY)).await?;
    let Some(entry) = page.kvs.into_iter().next() else {
        return Ok((BASE, 0));
    };
    let version = parse(inner, &entry)?;
    format::check(&key_description(inner), version, format::NEWEST_ETCD)?;
    Ok((version, entry.mod_revision))
}

/// Stores the version where there is none, and raises it to include what the data needs. Returns
/// whether there was none.
pub(super) async fn raise(inner: &EtcdClient, needed: u32) -> StoreResult<bool> {
    for _ in 0..MAX_ATTEMPTS {
        let (current, revision) = read(inner).await?;
        let version = format::union(current, needed);
        if revision > 0 && current == version {
            return Ok(false);
        }
        let txn = SingleKeyTxn {
            key: FORMAT_KEY.into(),
            expected: revision,
            op: SingleKeyTxnOp::Put {
                value: format!("{{\"format\":{version}}}").into(),
                ttl: None,
            },
        };
        let written = inner.commit_txn(&txn, None).await.map_err(|f| f.error)?;
        if let TxnResponse::Committed { .. } = written {
            return Ok(revision == 0);
        }
    }
    Err(Error::Unavailable(format!(
        "{} was changed by other replicas at every attempt",
        key_description(inner)
    )))
}

/// Keeps servers from starting until [`finish_restoring`], and ends running ones.
pub(super) async fn mark_restoring(inner: &EtcdClient) -> StoreResult<()> {
    let current = inner.range(&RangeRequest::key(FORMAT_KEY)).await?;
    let expected = current.kvs.first().map_or(0, |entry| entry.mod_revision);
    put_restore_state(inner, expected, RESTORING.to_vec()).await
}

/// Stores the version of the restored data, so that servers can start.
pub(super) async fn finish_restoring(inner: &EtcdClient, version: u32) -> StoreResult<()> {
    let current = inner.range(&RangeRequest::key(FORMAT_KEY)).await?;
    let restoring = current.kvs.iter().find(|entry| entry.value == RESTORING);
    let expected = restoring.map_or(0, |entry| entry.mod_revision);
    put_restore_state(inner, expected, format!("{{\"format\":{version}}}").into()).await
}

async fn put_restore_state(inner: &EtcdClient, expected: u64, value: Vec<u8>) -> StoreResult<()> {
    let txn = SingleKeyTxn {
        key: FORMAT_KEY.into(),
        expected,
        op: SingleKeyTxnOp::Put {
            value: value.into(),
            ttl: None,
        },
    };
    match inner.commit_txn(&txn, None).await.map_err(|f| f.error)? {
        TxnResponse::Committed { .. } => Ok(()),
        TxnResponse::Conflict { .. } => Err(Error::Fatal(format!(
            "{} was changed by another program during the restore; stop all servers that use the \
             prefix, and restore again",
            key_description(inner)
        ))),
    }
}

fn parse(inner: &EtcdClient, entry: &KeyValue) -> StoreResult<u32> {
    if entry.value == RESTORING {
        return Err(Error::Fatal(format!(
            "a restore into etcd was not completed, as {} says; run `flotilla restore` again with \
             --force",
            key_description(inner)
        )));
    }
    let text = std::str::from_utf8(&entry.value).ok();
    let number = text
        .and_then(|t| t.strip_prefix("{\"format\":")?.strip_suffix('}'))
        .and_then(|number| number.parse().ok());
    number.ok_or_else(|| {
        Error::Fatal(format!(
            "{} does not hold a format version; restore it from a backup",
            key_description(inner)
        ))
    })
}

/// The key in etcd, for errors.
fn key_description(inner: &EtcdClient) -> String {
    let key = inner.keys.encode_key(FORMAT_KEY);
    format!("the etcd key {}", String::from_utf8_lossy(&key))
}
