//! Commits single-key transactions, and converts errors of the store to a `Status`. Only
//! this module and `service_address_claims` write to the store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use machinery::{Gvr, Object, Status};
use serde_json::Value;
use storage::{Entry, Op, Outcome, Txn};
use tokio::time::Instant;
use watchcache::Freshness;

use crate::figures::Operation;
use crate::read::suffix;
use crate::registry::Registry;
use crate::request::Ctx;
use crate::table::Row;

/// The timeout of a write whose request has no deadline.
const PATIENCE: Duration = Duration::from_secs(30);

/// The result of a transaction.
pub(crate) enum Committed {
    Done(Object),
    /// The key has another object, or none.
    Lost(Option<Object>),
}

/// When a write gives up.
pub(crate) fn deadline(ctx: &Ctx) -> Instant {
    ctx.deadline.unwrap_or_else(|| Instant::now() + PATIENCE)
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
pub(crate) fn store_failed(error: &storage::Error, gvr: &Gvr, operation: &str) -> Status {
    match error {
        storage::Error::Unavailable(_) => Status::server_timeout(gvr, operation),
        // Clients match on the text.
        storage::Error::TooLarge | storage::Error::NoSpace(_) => {
            Status::failure(500, "InternalError", error.to_string())
        }
        storage::Error::Disk(_) => {
            Status::failure(500, "InternalError", error.to_string()).retry_after(1)
        }
        other => Status::internal(other),
    }
}

fn decode(entry: &Entry) -> Result<Object, Status> {
    if let Some(why) = storage::encryption::unreadable(&entry.value) {
        let text = format!("unable to read the object stored at {:?}: {why}", entry.key);
        return Err(Status::failure(500, "StoreReadError", text));
    }
    Object::from_stored(&entry.value, entry.revision)
        .map_err(|why| Status::internal(format!("StoreReadError: {}: {why}", entry.key)))
}

impl Registry {
    pub(crate) fn key(&self, resource: &Row, namespace: &str, name: &str) -> Arc<str> {
        let prefix = resource.stored.cache.prefix();
        format!("{prefix}{}", suffix(resource, namespace, name)).into()
    }

    /// The object in the cache, which may be outdated.
    pub(crate) async fn cached(
        &self,
        resource: &Row,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, Status> {
        let suffix = suffix(resource, namespace, name);
        let found = resource.stored.cache.get(&suffix, Freshness::Any).await;
        found.map_err(|e| e.status())
    }

    /// The newest object in the store.
    pub(crate) async fn newest(&self, resource: &Row, key: &str) -> Result<Option<Object>, Status> {
        let began = Instant::now();
        let entry = self.store.get(key).await;
        self.timed(resource, Operation::Get, began, entry.is_ok());
        let entry = entry.map_err(|e| store_failed(&e, &resource.kind.gvr, "get"))?;
        entry.as_ref().map(decode).transpose()
    }

    fn timed(&self, resource: &Row, operation: Operation, began: Instant, success: bool) {
        let (of, timings) = (&resource.stored.kind.gvr, &resource.stored.timings);
        timings.observe(&self.figures, of, operation, began.elapsed(), success);
    }

    /// Writes a tree (without `resourceVersion`) if the key is still at revision `expected`.
    pub(crate) async fn put(
        &self,
        resource: &Row,
        key: &Arc<str>,
        value: &Value,
        expected: u64,
    ) -> Result<Committed, Status> {
        let bytes = Bytes::from(serde_json::to_vec(value).map_err(Status::internal)?);
        self.put_encoded(resource, key, bytes, expected).await
    }

    /// As [`Self::put`], for an encoded object.
    pub(crate) async fn put_encoded(
        &self,
        resource: &Row,
        key: &Arc<str>,
        bytes: Bytes,
        expected: u64,
    ) -> Result<Committed, Status> {
        let op = Op::Put {
            value: bytes.clone(),
            ttl: resource.stored.strategy.ttl,
        };
        let operation = if expected == 0 {
            Operation::Create
        } else {
            Operation::Update
        };
        self.commit(resource, key, op, expected, &bytes, operation)
            .await
    }

    /// Writes the same object again if its stored form is outdated, such as encrypted with an
    /// old key, and it is still at revision `expected`. `None`: the stored form is current.
    pub(crate) async fn rewrite(
        &self,
        resource: &Row,
        key: &Arc<str>,
        expected: u64,
    ) -> Result<Option<Committed>, Status> {
        let stale = self.store.stale(key).await;
        let stale = stale.map_err(|e| store_failed(&e, &resource.kind.gvr, "update"))?;
        let Some(entry) = stale else {
            return Ok(None);
        };
        if entry.revision != expected {
            return Ok(Some(Committed::Lost(Some(decode(&entry)?))));
        }
        let put = self.put_encoded(resource, key, entry.value, expected);
        Ok(Some(put.await?))
    }

    /// Deletes the key if it is still at revision `expected`. `last` is the final state of
    /// the object, returned with the revision of the deletion.
    pub(crate) async fn remove(
        &self,
        resource: &Row,
        key: &Arc<str>,
        last: &Value,
        expected: u64,
    ) -> Result<Committed, Status> {
        let bytes = Bytes::from(serde_json::to_vec(last).map_err(Status::internal)?);
        self.commit(
            resource,
            key,
            Op::Delete,
            expected,
            &bytes,
            Operation::Delete,
        )
        .await
    }

    /// Writes a new object without decoding it; returns its revision, or `None` if the key
    /// exists.
    pub(crate) async fn put_unseen(
        &self,
        resource: &Row,
        key: Arc<str>,
        value: Bytes,
    ) -> Result<Option<u64>, Status> {
        let ttl = resource.stored.strategy.ttl;
        let op = Op::Put { value, ttl };
        let outcome = self
            .transact(resource, key, op, 0, Operation::Create)
            .await?;
        Ok(match outcome {
            Outcome::Committed { revision } => Some(revision),
            Outcome::Conflict { .. } => None,
        })
    }

    async fn commit(
        &self,
        resource: &Row,
        key: &Arc<str>,
        op: Op,
        expected: u64,
        bytes: &Bytes,
        operation: Operation,
    ) -> Result<Committed, Status> {
        let outcome = self.transact(resource, Arc::clone(key), op, expected, operation);
        match outcome.await? {
            Outcome::Committed { revision } => {
                let decoded = resource.stored.cache.written(key, bytes, revision);
                Ok(Committed::Done(decoded.map_err(|e| e.status())?))
            }
            Outcome::Conflict { current } => {
                Ok(Committed::Lost(current.as_ref().map(decode).transpose()?))
            }
        }
    }

    /// Commits one transaction and records its metrics.
    async fn transact(
        &self,
        resource: &Row,
        key: Arc<str>,
        op: Op,
        expected: u64,
        operation: Operation,
    ) -> Result<Outcome, Status> {
        let txn = Txn { key, expected, op };
        let began = Instant::now();
        let outcome = self.store.commit(txn).await;
        self.timed(resource, operation, began, outcome.is_ok());
        outcome.map_err(|e| store_failed(&e, &resource.kind.gvr, operation.as_str()))
    }
}
