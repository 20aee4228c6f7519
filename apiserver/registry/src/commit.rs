//! Commits single-key transactions, and converts errors of the store to a `Status`. Only
//! this module and `service_address_claims` write to the store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use machinery::managed_fields_text::encode_with_managed_fields;
use machinery::{Gvr, Object, Status, json};
use serde_json::Value;
use storage::{KeyValue, SingleKeyTxn, SingleKeyTxnOp, Store, TxnResponse};
use tokio::time::Instant;

use crate::metrics::StoreOperation;
use crate::read::key_suffix;
use crate::registry::Registry;
use crate::request::RequestContext;
use crate::resource_table::ResourceInfo;

/// The timeout of a write whose request has no deadline.
const DEFAULT_WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The result of a transaction.
pub(crate) enum CommitResult {
    Committed(Object),
    /// The key has another object, or none.
    Conflict(Option<Object>),
}

/// An object as it is stored.
pub(crate) struct EncodedObject {
    pub(crate) bytes: Bytes,
    /// Whether it is rather refused than stored without its managers, if it is too large.
    pub(crate) keeps_managers: bool,
}

impl EncodedObject {
    /// Encodes a tree (without `resourceVersion`) with the text of its managers.
    pub(crate) fn new(value: &Value, managers: Option<&str>) -> Result<Self, Status> {
        let bytes = encode_with_managed_fields(value, managers).map_err(Status::internal)?;
        Self::from_bytes(bytes.into())
    }

    /// Fails with 400 for an object that could not be read as part of a list or a review.
    pub(crate) fn from_bytes(bytes: Bytes) -> Result<Self, Status> {
        if json::text_exceeds_depth(&bytes, json::MAX_OBJECT_DEPTH) {
            return Err(depth_rejection());
        }
        Ok(Self {
            bytes,
            keeps_managers: false,
        })
    }

    /// The object without managers, if that is smaller and allowed.
    fn without_managers(&self) -> Option<Bytes> {
        let trimmed = Object::from_json_trimmed(&self.bytes).ok()?;
        let is_smaller = trimmed.encoded_len() < self.bytes.len();
        (is_smaller && !self.keeps_managers).then(|| trimmed.bytes())
    }
}

/// Fails as [`EncodedObject::new`] does, without encoding the tree.
pub(crate) fn check_object_depth(value: &Value, managers: Option<&str>) -> Result<(), Status> {
    // The list of managers is encoded within `metadata`.
    let limit = json::MAX_OBJECT_DEPTH - 2;
    let managers_exceed = |text: &str| json::text_exceeds_depth(text.as_bytes(), limit);
    match json::depth(value) > json::MAX_OBJECT_DEPTH || managers.is_some_and(managers_exceed) {
        true => Err(depth_rejection()),
        false => Ok(()),
    }
}

fn depth_rejection() -> Status {
    let message = json::depth_error(json::MAX_OBJECT_DEPTH);
    Status::bad_request(format!("the object {message}"))
}

/// When a write gives up.
pub(crate) fn write_deadline(ctx: &RequestContext) -> Instant {
    ctx.deadline
        .unwrap_or_else(|| Instant::now() + DEFAULT_WRITE_TIMEOUT)
}

/// 504 after the deadline.
pub(crate) fn check_deadline(deadline: Instant) -> Result<(), Status> {
    if Instant::now() < deadline {
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
        storage::Error::Conversion(message) => Status::failure(500, "", message),
        // Clients match on the texts.
        storage::Error::TooLarge => Status::request_entity_too_large(error.to_string()),
        storage::Error::NoSpace(_) => Status::failure(500, "InternalError", error.to_string()),
        storage::Error::Disk(_) => {
            Status::failure(500, "InternalError", error.to_string()).with_retry_after(1)
        }
        other => Status::internal(other),
    }
}

fn decode_entry(entry: &KeyValue) -> Result<Object, Status> {
    if let Some(message) = storage::encryption::unreadable_reason(&entry.value) {
        let text = format!(
            "unable to read the object stored at {:?}: {message}",
            entry.key
        );
        return Err(Status::failure(500, "StoreReadError", text));
    }
    Object::from_stored(&entry.value, entry.mod_revision)
        .map_err(|message| Status::internal(format!("StoreReadError: {}: {message}", entry.key)))
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

    /// The object in the cache, which may be outdated. `None` also while the cache is not filled:
    /// a write needs only the store.
    pub(crate) fn get_cached(
        &self,
        resource: &ResourceInfo,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, Status> {
        let suffix = key_suffix(resource, namespace, name);
        let cached = resource.storage.cache.get_if_filled(&suffix);
        cached.map_err(|e| e.status())
    }

    /// The newest object in the store.
    pub(crate) async fn get_newest(
        &self,
        resource: &ResourceInfo,
        key: &str,
    ) -> Result<Option<Object>, Status> {
        let start = Instant::now();
        let entry = self.store_of(resource).get(key).await;
        self.observe_store_call(resource, StoreOperation::Get, start, entry.is_ok());
        let entry = entry.map_err(|e| store_error_status(&e, &resource.kind.gvr, "get"))?;
        entry.as_ref().map(decode_entry).transpose()
    }

    fn observe_store_call(
        &self,
        resource: &ResourceInfo,
        operation: StoreOperation,
        start: Instant,
        success: bool,
    ) {
        let (gvr, timings) = (&resource.storage.kind.gvr, &resource.storage.metrics);
        timings.observe(
            &self.store_metrics,
            gvr,
            operation,
            start.elapsed(),
            success,
        );
    }

    /// Writes an object if the key is still at revision `expected`. If it is too large only
    /// because of its managers, it is stored without them (B6.12).
    pub(crate) async fn put(
        &self,
        resource: &ResourceInfo,
        key: &Arc<str>,
        object: EncodedObject,
        expected: u64,
    ) -> Result<CommitResult, Status> {
        let operation = if expected == 0 {
            StoreOperation::Create
        } else {
            StoreOperation::Update
        };
        let put = |value: &Bytes| SingleKeyTxnOp::Put {
            value: value.clone(),
            ttl: resource.storage.strategy.ttl,
        };
        let transact = |bytes| self.transact(resource, key, put(bytes), expected, operation);
        let outcome = transact(&object.bytes).await;
        if matches!(outcome, Err(storage::Error::TooLarge))
            && let Some(smaller) = object.without_managers()
        {
            let outcome = transact(&smaller).await;
            return committed_object(resource, key, outcome, &smaller, operation);
        }
        committed_object(resource, key, outcome, &object.bytes, operation)
    }

    /// Writes the same object again if its stored form is outdated, such as encrypted with an
    /// old key, and it is still at revision `expected`. `None`: the stored form is current.
    pub(crate) async fn rewrite_stale(
        &self,
        resource: &ResourceInfo,
        key: &Arc<str>,
        expected: u64,
    ) -> Result<Option<CommitResult>, Status> {
        let stale = self.store_of(resource).get_stale(key).await;
        let stale = stale.map_err(|e| store_error_status(&e, &resource.kind.gvr, "update"))?;
        let Some(entry) = stale else {
            return Ok(None);
        };
        if entry.mod_revision != expected {
            return Ok(Some(CommitResult::Conflict(Some(decode_entry(&entry)?))));
        }
        let object = EncodedObject {
            bytes: entry.value,
            keeps_managers: true,
        };
        Ok(Some(self.put(resource, key, object, expected).await?))
    }

    /// Deletes the key if it is still at revision `expected`. `last` is the final state of
    /// the object, returned with the revision of the deletion.
    pub(crate) async fn remove(
        &self,
        resource: &ResourceInfo,
        key: &Arc<str>,
        last: &EncodedObject,
        expected: u64,
    ) -> Result<CommitResult, Status> {
        let operation = StoreOperation::Delete;
        let delete = SingleKeyTxnOp::Delete;
        let outcome = self.transact(resource, key, delete, expected, operation);
        committed_object(resource, key, outcome.await, &last.bytes, operation)
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
        let operation = StoreOperation::Create;
        let outcome = self.transact(resource, &key, op, 0, operation).await;
        let gvr = &resource.kind.gvr;
        match outcome.map_err(|e| store_error_status(&e, gvr, operation.as_str()))? {
            (TxnResponse::Committed { revision }, _) => Ok(Some(revision)),
            (TxnResponse::Conflict { .. }, _) => Ok(None),
        }
    }

    /// The store in which a resource is read and written in its version.
    fn store_of<'a>(&'a self, resource: &'a ResourceInfo) -> &'a dyn Store {
        match &resource.storage.versioned_store {
            Some(store) => &**store,
            None => &*self.store,
        }
    }

    /// Commits one transaction and records its metrics. Also returns the value of a put as
    /// it will be read, if the store has converted it.
    async fn transact(
        &self,
        resource: &ResourceInfo,
        key: &Arc<str>,
        op: SingleKeyTxnOp,
        expected: u64,
        operation: StoreOperation,
    ) -> Result<(TxnResponse, Option<Bytes>), storage::Error> {
        let key = Arc::clone(key);
        let txn = SingleKeyTxn { key, expected, op };
        let start = Instant::now();
        let outcome = match &resource.storage.versioned_store {
            Some(store) => store.commit_and_convert(txn).await,
            None => self.store.commit(txn).await.map(|outcome| (outcome, None)),
        };
        self.observe_store_call(resource, operation, start, outcome.is_ok());
        outcome
    }
}

/// The result of a transaction that wrote `bytes`, or deleted them, or that wrote what the
/// store converted them to.
fn committed_object(
    resource: &ResourceInfo,
    key: &Arc<str>,
    outcome: Result<(TxnResponse, Option<Bytes>), storage::Error>,
    bytes: &Bytes,
    operation: StoreOperation,
) -> Result<CommitResult, Status> {
    let gvr = &resource.kind.gvr;
    let (outcome, converted) =
        outcome.map_err(|e| store_error_status(&e, gvr, operation.as_str()))?;
    match outcome {
        TxnResponse::Committed { revision } => {
            let bytes = converted.as_ref().unwrap_or(bytes);
            let decoded = resource.storage.cache.decode_written(key, bytes, revision);
            Ok(CommitResult::Committed(decoded.map_err(|e| e.status())?))
        }
        TxnResponse::Conflict { current } => Ok(CommitResult::Conflict(
            current.as_ref().map(decode_entry).transpose()?,
        )),
    }
}
