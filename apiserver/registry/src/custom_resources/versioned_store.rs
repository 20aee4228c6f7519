//! A [`Store`] whose values are the custom resources of a definition in one version,
//! whatever version they are stored in.
//!
//! cacher of V ──► [`VersionedStore`] of V ──► store: reads: prune and default in the stored version, convert to V
//! registry's writes in V ──┘                         writes: convert to the storage version
//!
//! Above it nothing converts: lists, watches and their frames are made once from the cache of
//! their version, as in kube-apiserver (`crdConversionRESTOptionsGetter` in
//! `customresource_handler.go`). A value that has its form already is passed on as it is.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use machinery::Gvk;
use serde_json::Value;
use storage::{
    ConsistentReadSupport, KeyValue, RangeRequest, RangeResponse, SingleKeyTxn, SingleKeyTxnOp,
    Store, StoreResult, StoreWatch, TxnResponse, WatchResponse,
};

use super::converter::CustomResourceConverter;

/// After how many decoded values a conversion yields to other tasks.
const VALUES_PER_SLICE: usize = 128;

/// How values are converted from and to their stored form.
struct ValueConverter {
    converter: Arc<CustomResourceConverter>,
    /// The version above this store.
    version: Gvk,
    storage_version: Gvk,
    /// The bytes with which an encoded object of `version` begins.
    prefix: String,
    /// Values written later than this revision were pruned and defaulted by the present
    /// schema.
    schema_revision: u64,
}

/// A value to convert, with its revision.
struct StoredValue<'a> {
    value: &'a mut Bytes,
    revision: u64,
}

/// The custom resources of a definition in one version.
pub(crate) struct VersionedStore {
    store: Arc<dyn Store>,
    values: Arc<ValueConverter>,
}

impl VersionedStore {
    /// `schema_revision` is the revision at which the definition has changed last.
    pub(super) fn new(
        store: Arc<dyn Store>,
        converter: Arc<CustomResourceConverter>,
        version: Gvk,
        storage_version: Gvk,
        schema_revision: u64,
    ) -> Self {
        let prefix = format!("{{\"apiVersion\":\"{}\",", version.api_version());
        Self {
            store,
            values: Arc::new(ValueConverter {
                converter,
                version,
                storage_version,
                prefix,
                schema_revision,
            }),
        }
    }

    /// Commits a transaction. Also returns the value of a put as it will be read, unless it
    /// is the given one.
    pub(crate) async fn commit_and_convert(
        &self,
        mut txn: SingleKeyTxn,
    ) -> StoreResult<(TxnResponse, Option<Bytes>)> {
        let mut stored = None;
        if let SingleKeyTxnOp::Put { value, .. } = &mut txn.op
            && let Some(converted) = self.values.to_storage_version(value).await?
        {
            *value = converted.clone();
            stored = Some(converted);
        }
        let mut response = self.store.commit(txn).await?;
        match &mut response {
            TxnResponse::Conflict {
                current: Some(entry),
            } => {
                self.values.convert_entry(entry).await?;
                Ok((response, None))
            }
            TxnResponse::Conflict { current: None } => Ok((response, None)),
            TxnResponse::Committed { revision } => {
                if let Some(value) = &mut stored {
                    let revision = *revision;
                    self.values
                        .convert(vec![StoredValue { value, revision }])
                        .await?;
                }
                Ok((response, stored))
            }
        }
    }
}

impl ValueConverter {
    fn is_current(&self, value: &[u8], revision: u64) -> bool {
        revision > self.schema_revision && value.starts_with(self.prefix.as_bytes())
    }

    /// Prunes and defaults an object by the schema of the version that it is stored in; one
    /// whose defaults would be too large stays as it is stored. Returns whether it changed.
    fn apply_stored_schema(&self, object: &mut Value) -> bool {
        let api_version = object["apiVersion"].as_str().unwrap_or("");
        let Some(schema) = self.converter.schema(api_version) else {
            return false;
        };
        let before = object.clone();
        schema.prune(object);
        if schema.apply_defaults(object).is_err() {
            *object = before;
            return false;
        }
        *object != before
    }

    /// Converts stored values in place. What is not an object is left for its reader to
    /// report.
    async fn convert(&self, values: Vec<StoredValue<'_>>) -> StoreResult<()> {
        let desired = self.version.api_version();
        let (mut targets, mut objects) = (Vec::new(), Vec::new());
        for (i, stored) in values.into_iter().enumerate() {
            if i % VALUES_PER_SLICE == VALUES_PER_SLICE - 1 {
                tokio::task::yield_now().await;
            }
            if self.is_current(stored.value, stored.revision) {
                continue;
            }
            let Ok(mut object) = machinery::json::from_slice::<Value>(stored.value) else {
                continue;
            };
            let changed = self.apply_stored_schema(&mut object);
            if object["apiVersion"] != *desired {
                targets.push(stored.value);
                objects.push(object);
            } else if changed {
                *stored.value = encode(&object)?;
            }
        }
        if objects.is_empty() {
            return Ok(());
        }
        let converted = self.converter.convert(objects, &self.version).await?;
        for (i, (target, object)) in targets.into_iter().zip(converted).enumerate() {
            if i % VALUES_PER_SLICE == VALUES_PER_SLICE - 1 {
                tokio::task::yield_now().await;
            }
            *target = encode(&object)?;
        }
        Ok(())
    }

    async fn convert_entry(&self, entry: &mut KeyValue) -> StoreResult<()> {
        self.convert(vec![StoredValue {
            value: &mut entry.value,
            revision: entry.mod_revision,
        }])
        .await
    }

    async fn convert_entries(&self, entries: &mut [KeyValue]) -> StoreResult<()> {
        let values = entries.iter_mut().map(|entry| StoredValue {
            value: &mut entry.value,
            revision: entry.mod_revision,
        });
        self.convert(values.collect()).await
    }

    async fn convert_response(&self, mut batch: WatchResponse) -> StoreResult<WatchResponse> {
        let mut values = Vec::new();
        for event in &mut batch.events {
            let revision = event.revision;
            values.extend(
                event
                    .value
                    .as_mut()
                    .map(|value| StoredValue { value, revision }),
            );
            values.extend(event.previous.as_mut().map(|entry| StoredValue {
                value: &mut entry.value,
                revision: entry.mod_revision,
            }));
        }
        self.convert(values).await?;
        Ok(batch)
    }

    /// Whether each value of a response has its form already.
    fn is_response_current(&self, batch: &WatchResponse) -> bool {
        batch.events.iter().all(|event| {
            let value = event.value.as_ref();
            let previous = event.previous.as_ref();
            value.is_none_or(|value| self.is_current(value, event.revision))
                && previous.is_none_or(|e| self.is_current(&e.value, e.mod_revision))
        })
    }

    /// The stored form of a value of this version; `None` if it is the same.
    async fn to_storage_version(&self, value: &[u8]) -> StoreResult<Option<Bytes>> {
        if self.version == self.storage_version {
            return Ok(None);
        }
        let object = machinery::json::from_slice(value).map_err(|e| conversion_failure(&e))?;
        let converted = self.converter.convert(vec![object], &self.storage_version);
        match converted.await?.into_iter().next() {
            Some(object) => Ok(Some(encode(&object)?)),
            None => Ok(None),
        }
    }

    /// Whether a write of the same object would store another value: in another version, or
    /// pruned and defaulted by a newer schema.
    fn is_stale(&self, entry: &KeyValue) -> bool {
        let Ok(mut object) = machinery::json::from_slice::<Value>(&entry.value) else {
            return false;
        };
        object["apiVersion"] != *self.storage_version.api_version()
            || entry.mod_revision <= self.schema_revision && self.apply_stored_schema(&mut object)
    }
}

fn encode(object: &Value) -> StoreResult<Bytes> {
    let encoded = serde_json::to_vec(object).map_err(|e| conversion_failure(&e))?;
    Ok(encoded.into())
}

fn conversion_failure(error: &serde_json::Error) -> storage::Error {
    storage::Error::Conversion(error.to_string())
}

#[async_trait]
impl Store for VersionedStore {
    fn consistent_read_support(&self) -> ConsistentReadSupport {
        self.store.consistent_read_support()
    }

    async fn revision(&self) -> StoreResult<u64> {
        self.store.revision().await
    }

    async fn prefix_revision(&self, prefix: &str) -> StoreResult<u64> {
        self.store.prefix_revision(prefix).await
    }

    async fn get(&self, key: &str) -> StoreResult<Option<KeyValue>> {
        let mut entry = self.store.get(key).await?;
        if let Some(entry) = &mut entry {
            self.values.convert_entry(entry).await?;
        }
        Ok(entry)
    }

    async fn get_stale(&self, key: &str) -> StoreResult<Option<KeyValue>> {
        let stale = match self.store.get_stale(key).await? {
            Some(entry) => Some(entry),
            None => {
                let entry = self.store.get(key).await?;
                entry.filter(|entry| self.values.is_stale(entry))
            }
        };
        let Some(mut entry) = stale else {
            return Ok(None);
        };
        self.values.convert_entry(&mut entry).await?;
        Ok(Some(entry))
    }

    async fn range(&self, range: &RangeRequest) -> StoreResult<RangeResponse> {
        let mut page = self.store.range(range).await?;
        self.values.convert_entries(&mut page.kvs).await?;
        Ok(page)
    }

    async fn commit(&self, txn: SingleKeyTxn) -> StoreResult<TxnResponse> {
        Ok(self.commit_and_convert(txn).await?.0)
    }

    async fn watch(&self, prefix: &str, after: u64) -> StoreResult<Box<dyn StoreWatch>> {
        Ok(Box::new(VersionedWatch {
            watch: self.store.watch(prefix, after).await?,
            values: Arc::clone(&self.values),
            pending: None,
        }))
    }

    async fn compact(&self, revision: u64) -> StoreResult<()> {
        self.store.compact(revision).await
    }
}

struct VersionedWatch {
    watch: Box<dyn StoreWatch>,
    values: Arc<ValueConverter>,
    /// The response that is being converted. A caller that gives up waiting leaves it here.
    pending: Option<BoxFuture<'static, StoreResult<WatchResponse>>>,
}

#[async_trait]
impl StoreWatch for VersionedWatch {
    async fn next(&mut self) -> StoreResult<WatchResponse> {
        if self.pending.is_none() {
            let batch = self.watch.next().await?;
            if self.values.is_response_current(&batch) {
                return Ok(batch);
            }
            let values = Arc::clone(&self.values);
            self.pending = Some(Box::pin(
                async move { values.convert_response(batch).await },
            ));
        }
        let Some(conversion) = &mut self.pending else {
            return Ok(WatchResponse::default());
        };
        let converted = conversion.await;
        self.pending = None;
        converted
    }
}
