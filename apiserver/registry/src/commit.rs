//! Commits single-key transactions, and converts errors of the store to a `Status`. Only
//! this module and `service_address_claims` write to the store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use machinery::{Gvr, Object, Status};
use serde_json::Value;
use storage::{KeyValue, SingleKeyTxn, SingleKeyTxnOp, TxnResponse};
use tokio::time::Instant;
use watchcache::ReadFreshness;

use crate::metrics::StoreOperation;
use crate::read::key_suffix;
use crate::registry::Registry;
use crate::request::RequestUserAndDeadline;
use crate::resource_table::ResourceInfo;

/// The timeout of a write whose request has no deadline.
const DEFAULT_WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The result of a transaction.
pub(crate) enum CommitResult {
    Committed(Object),
    /// The key has another object, or none.
    Conflict(Option<Object>),
}

/// When a write gives up.
pub(crate) fn write_deadline(ctx: &RequestUserAndDeadline) -> Instant {
    ctx.deadline
        .unwrap_or_else(|| Instant::now() + DEFAULT_WRITE_TIMEOUT)
}

/// 504 after the deadline.
pub(crate) fn check_deadline(until: Instant) -> Result<(), Status> {
    if Instant::now() < until {
        return Ok(());
    }
    Err(Status::timeout(
        "request did not complete within the allotted timeout",
    ))
}

/// The response to an error of the store.
pub(crate) fn store_error_status(error: &storage::Error, gvr: &Gvr, operation: &str) -> Status {
    match error {
        storage::Error::Unavailable(_) => Status::server_timeout(gvr, operation),
        // Clients match on the text.
        storage::Error::TooLarge | storage::Error::NoSpace(_) => {
            Status::failure(500, "InternalError", error.to_string())
        }
        storage::Error::Disk(_) => {
            Status::failure(500, "InternalError", error.to_string()).with_retry_after(1)
        }
        other => Status::internal(other),
    }
}

fn decode_entry(entry: &KeyValue) -> Result<Object, Status> {
    if let Some(why) = storage::encryption::unreadable_reason(&entry.value) {
        let text = format!("unable to read the object stored at {:?}: {why}", entry.key);
        return Err(Status::failure(500, "StoreReadError", text));
    }
    Object::from_stored(&entry.value, entry.mod_revision)
        .map_err(|why| Status::internal(format!("StoreReadError: {}: {why}", entry.key)))
}

impl Registry {
    pub(crate) fn storage_key(
        &self,
        resource: &ResourceInfo,
        namespace: &str,
        name: &str,
    ) -> Arc<str> {
        let prefix = resource.storage.cache.prefix();
        format!("{prefix}{}", key_suffix(resource, namespace, name)).into()
    }

    /// The object in the cache, which may be outdated.
    pub(crate) async fn get_cached(
        &self,
        resource: &ResourceInfo,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, Status> {
        let suffix = key_suffix(resource, namespace, name);
        let found = resource
            .storage
            .cache
            .get(&suffix, ReadFreshness::Any)
            .await;
        found.map_err(|e| e.status())
    }

    /// The newest object in the store.
    pub(crate) async fn get_newest(
        &self,
        resource: &ResourceInfo,
        key: &str,
    ) -> Result<Option<Object>, Status> {
        let began = Instant::now();
        let entry = self.store.get(key).await;
        self.observe_store_call(resource, StoreOperation::Get, began, entry.is_ok());
        let entry = entry.map_err(|e| store_error_status(&e, &resource.kind.gvr, "get"))?;
        entry.as_ref().map(decode_entry).transpose()
    }

    fn observe_store_call(
        &self,
        resource: &ResourceInfo,
        operation: StoreOperation,
        began: Instant,
        success: bool,
    ) {
        let (of, timings) = (&resource.storage.kind.gvr, &resource.storage.metrics);
        timings.observe(&self.store_metrics, of, operation, began.elapsed(), success);
    }

    /// Writes a tree (without `resourceVersion`) if the key is still at revision `expected`.
    pub(crate) async fn put(
        &self,
        resource: &ResourceInfo,
        key: &Arc<str>,
        value: &Value,
        expected: u64,
    ) -> Result<CommitResult, Status> {
        let bytes = Bytes::from(serde_json::to_vec(value).map_err(Status::internal)?);
        self.put_encoded(resource, key, bytes, expected).await
    }

    /// As [`Self::put`], for an encoded object.
    pub(crate) async fn put_encoded(
        &self,
        resource: &ResourceInfo,
        key: &Arc<str>,
        bytes: Bytes,
        expected: u64,
    ) -> Result<CommitResult, Status> {
        let op = SingleKeyTxnOp::Put {
            value: bytes.clone(),
            ttl: resource.storage.strategy.ttl,
        };
        let operation = if expected == 0 {
            StoreOperation::Create
        } else {
            StoreOperation::Update
        };
        self.commit(resource, key, op, expected, &bytes, operation)
            .await
    }

    /// Writes the same object again if its stored form is outdated, such as encrypted with an
    /// old key, and it is still at revision `expected`. `None`: the stored form is current.
    pub(crate) async fn rewrite_stale(
        &self,
        resource: &ResourceInfo,
        key: &Arc<str>,
        expected: u64,
    ) -> Result<Option<CommitResult>, Status> {
        let stale = self.store.get_stale(key).await;
        let stale = stale.map_err(|e| store_error_status(&e, &resource.kind.gvr, "update"))?;
        let Some(entry) = stale else {
            return Ok(None);
        };
        if entry.mod_revision != expected {
            return Ok(Some(CommitResult::Conflict(Some(decode_entry(&entry)?))));
        }
        let put = self.put_encoded(resource, key, entry.value, expected);
        Ok(Some(put.await?))
    }

    /// Deletes the key if it is still at revision `expected`. `last` is the final state of
    /// the object, returned with the revision of the deletion.
    pub(crate) async fn remove(
        &self,
        resource: &ResourceInfo,
        key: &Arc<str>,
        last: &Value,
        expected: u64,
    ) -> Result<CommitResult, Status> {
        let bytes = Bytes::from(serde_json::to_vec(last).map_err(Status::internal)?);
        self.commit(
            resource,
            key,
            SingleKeyTxnOp::Delete,
            expected,
            &bytes,
            StoreOperation::Delete,
        )
        .await
    }

    /// Writes a new object without decoding it; returns its revision, or `None` if the key
    /// exists.
    pub(crate) async fn put_without_decoding(
        &self,
        resource: &ResourceInfo,
        key: Arc<str>,
        value: Bytes,
    ) -> Result<Option<u64>, Status> {
        let ttl = resource.storage.strategy.ttl;
        let op = SingleKeyTxnOp::Put { value, ttl };
        let outcome = self
            .transact(resource, key, op, 0, StoreOperation::Create)
            .await?;
        Ok(match outcome {
            TxnResponse::Committed { revision } => Some(revision),
            TxnResponse::Conflict { .. } => None,
        })
    }

    async fn commit(
        &self,
        resource: &ResourceInfo,
        key: &Arc<str>,
        op: SingleKeyTxnOp,
        expected: u64,
        bytes: &Bytes,
        operation: StoreOperation,
    ) -> Result<CommitResult, Status> {
        let outcome = self.transact(resource, Arc::clone(key), op, expected, operation);
        match outcome.await? {
            TxnResponse::Committed { revision } => {
                let decoded = resource.storage.cache.decode_written(key, bytes, revision);
                Ok(CommitResult::Committed(decoded.map_err(|e| e.status())?))
            }
            TxnResponse::Conflict { current } => Ok(CommitResult::Conflict(
                current.as_ref().map(decode_entry).transpose()?,
            )),
        }
    }

    /// Commits one transaction and records its metrics.
    async fn transact(
        &self,
        resource: &ResourceInfo,
        key: Arc<str>,
        op: SingleKeyTxnOp,
        expected: u64,
        operation: StoreOperation,
    ) -> Result<TxnResponse, Status> {
        let txn = SingleKeyTxn { key, expected, op };
        let began = Instant::now();
        let outcome = self.store.commit(txn).await;
        self.observe_store_call(resource, operation, began, outcome.is_ok());
        outcome.map_err(|e| store_error_status(&e, &resource.kind.gvr, operation.as_str()))
    }
}
