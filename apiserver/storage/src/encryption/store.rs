//! A [`Store`] that encrypts values over any engine.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::transformer::{is_encrypted, missing_transformer_error};
use super::{ResourceTransformers, unreadable_placeholder};
use crate::etcd::EtcdKeyCodec;
use crate::store::{
    ConsistentReadSupport, Error, KeyValue, RangeRequest, RangeResponse, SingleKeyTxn,
    SingleKeyTxnOp, Store, StoreResult, StoreWatch, TxnResponse, WatchResponse,
};

/// A store that encrypts values by [`ResourceTransformers`].
pub struct EncryptedStore {
    engine: Arc<dyn Store>,
    transformer: Arc<StoreValueTransformer>,
}

/// The transformers and the key mapping that the store and its watches share.
struct StoreValueTransformer {
    transformers: ResourceTransformers,
    keys: EtcdKeyCodec,
}

impl EncryptedStore {
    /// `prefix` is `--etcd-prefix`: kube-apiserver authenticates the keys of etcd.
    pub fn new(engine: Arc<dyn Store>, encryption: ResourceTransformers, prefix: &str) -> Self {
        Self {
            engine,
            transformer: Arc::new(StoreValueTransformer {
                transformers: encryption,
                keys: EtcdKeyCodec::new(prefix),
            }),
        }
    }
}

impl StoreValueTransformer {
    fn encrypt(&self, key: &str, plaintext: Bytes) -> StoreResult<Bytes> {
        let Some(transformer) = self.transformers.transformer(key) else {
            return Ok(plaintext);
        };
        transformer
            .encrypt(&self.keys.encode_key(key), &plaintext)
            .map_err(|message| Error::Unavailable(format!("{key} cannot be encrypted: {message}")))
    }

    /// The plaintext, or the placeholder of a value that cannot be decrypted; and whether
    /// the stored value is stale.
    fn decrypt(&self, key: &str, stored: Bytes) -> (Bytes, bool) {
        let decrypted = match self.transformers.transformer(key) {
            Some(transformer) => transformer.decrypt(&self.keys.encode_key(key), &stored),
            None if is_encrypted(&stored) => Err(missing_transformer_error(&stored)),
            None => return (stored, false),
        };
        match decrypted {
            Ok(decrypted) => (decrypted.value, decrypted.stale),
            Err(message) => (unreadable_placeholder(&message), false),
        }
    }

    fn decrypt_entry(&self, mut entry: KeyValue) -> KeyValue {
        entry.value = self.decrypt(&entry.key, entry.value).0;
        entry
    }
}

#[async_trait]
impl Store for EncryptedStore {
    fn consistent_read_support(&self) -> ConsistentReadSupport {
        self.engine.consistent_read_support()
    }

    async fn revision(&self) -> StoreResult<u64> {
        self.engine.revision().await
    }

    async fn prefix_revision(&self, prefix: &str) -> StoreResult<u64> {
        self.engine.prefix_revision(prefix).await
    }

    async fn get(&self, key: &str) -> StoreResult<Option<KeyValue>> {
        let encrypted = self.engine.get(key).await?;
        Ok(encrypted.map(|entry| self.transformer.decrypt_entry(entry)))
    }

    async fn get_stale(&self, key: &str) -> StoreResult<Option<KeyValue>> {
        if self.transformer.transformers.transformer(key).is_none() {
            return Ok(None);
        }
        let encrypted = self.engine.get(key).await?;
        Ok(encrypted.and_then(|mut entry| {
            let (value, stale) = self.transformer.decrypt(key, entry.value);
            entry.value = value;
            stale.then_some(entry)
        }))
    }

    async fn range(&self, range: &RangeRequest) -> StoreResult<RangeResponse> {
        let mut page = self.engine.range(range).await?;
        let entries = page.kvs.into_iter();
        page.kvs = entries
            .map(|entry| self.transformer.decrypt_entry(entry))
            .collect();
        Ok(page)
    }

    async fn commit(&self, mut txn: SingleKeyTxn) -> StoreResult<TxnResponse> {
        if let SingleKeyTxnOp::Put { value, .. } = &mut txn.op {
            *value = self.transformer.encrypt(&txn.key, std::mem::take(value))?;
        }
        Ok(match self.engine.commit(txn).await? {
            TxnResponse::Conflict { current } => TxnResponse::Conflict {
                current: current.map(|entry| self.transformer.decrypt_entry(entry)),
            },
            committed @ TxnResponse::Committed { .. } => committed,
        })
    }

    async fn watch(&self, prefix: &str, after: u64) -> StoreResult<Box<dyn StoreWatch>> {
        Ok(Box::new(DecryptingWatch {
            watch: self.engine.watch(prefix, after).await?,
            transformer: Arc::clone(&self.transformer),
        }))
    }

    async fn compact(&self, revision: u64) -> StoreResult<()> {
        self.engine.compact(revision).await
    }
}

struct DecryptingWatch {
    watch: Box<dyn StoreWatch>,
    transformer: Arc<StoreValueTransformer>,
}

#[async_trait]
impl StoreWatch for DecryptingWatch {
    async fn next(&mut self) -> StoreResult<WatchResponse> {
        let mut batch = self.watch.next().await?;
        for event in &mut batch.events {
            if let Some(stored) = event.value.take() {
                event.value = Some(self.transformer.decrypt(&event.key, stored).0);
            }
            event.previous = event
                .previous
                .take()
                .map(|e| self.transformer.decrypt_entry(e));
        }
        Ok(batch)
    }
}
