//! A [`Store`] that encrypts values over any engine.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::transformer::{is_encrypted, no_transformer};
use super::{Encryption, substitute};
use crate::etcd::Keys;
use crate::store::{
    Batch, Entry, Error, Feed, Op, Outcome, Page, Proof, Range, Result, Store, Txn,
};

/// A store that encrypts values by [`ResourceTransformers`].
pub struct EncryptedStore {
    engine: Arc<dyn Store>,
    cipher: Arc<KeyedCipher>,
}

/// The transformers and the key mapping that the store and its watches share.
struct KeyedCipher {
    encryption: Encryption,
    keys: Keys,
}

impl EncryptedStore {
    /// `prefix` is `--etcd-prefix`: kube-apiserver authenticates the keys of etcd.
    pub fn new(engine: Arc<dyn Store>, encryption: Encryption, prefix: &str) -> Self {
        Self {
            engine,
            cipher: Arc::new(KeyedCipher {
                encryption,
                keys: Keys::new(prefix),
            }),
        }
    }
}

impl KeyedCipher {
    fn encrypt(&self, key: &str, plain: Bytes) -> Result<Bytes> {
        let Some(transformer) = self.encryption.transformer(key) else {
            return Ok(plain);
        };
        transformer
            .encrypt(&self.keys.outer(key), &plain)
            .map_err(|why| Error::Unavailable(format!("{key} cannot be encrypted: {why}")))
    }

    /// The plaintext, or the placeholder of a value that cannot be decrypted; and whether
    /// the stored value is stale.
    fn decrypt(&self, key: &str, stored: Bytes) -> (Bytes, bool) {
        let decrypted = match self.encryption.transformer(key) {
            Some(transformer) => transformer.decrypt(&self.keys.outer(key), &stored),
            None if is_encrypted(&stored) => Err(no_transformer(&stored)),
            None => return (stored, false),
        };
        match decrypted {
            Ok(decrypted) => (decrypted.value, decrypted.stale),
            Err(why) => (substitute(&why), false),
        }
    }

    fn entry(&self, mut entry: Entry) -> Entry {
        entry.value = self.decrypt(&entry.key, entry.value).0;
        entry
    }
}

#[async_trait]
impl Store for EncryptedStore {
    fn proof(&self) -> Proof {
        self.engine.proof()
    }

    async fn revision(&self) -> Result<u64> {
        self.engine.revision().await
    }

    async fn revision_of(&self, prefix: &str) -> Result<u64> {
        self.engine.revision_of(prefix).await
    }

    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        let found = self.engine.get(key).await?;
        Ok(found.map(|entry| self.cipher.entry(entry)))
    }

    async fn stale(&self, key: &str) -> Result<Option<Entry>> {
        if self.cipher.encryption.transformer(key).is_none() {
            return Ok(None);
        }
        let found = self.engine.get(key).await?;
        Ok(found.and_then(|mut entry| {
            let (value, stale) = self.cipher.decrypt(key, entry.value);
            entry.value = value;
            stale.then_some(entry)
        }))
    }

    async fn range(&self, range: &Range) -> Result<Page> {
        let mut page = self.engine.range(range).await?;
        let entries = page.entries.into_iter();
        page.entries = entries.map(|entry| self.cipher.entry(entry)).collect();
        Ok(page)
    }

    async fn commit(&self, mut txn: Txn) -> Result<Outcome> {
        if let Op::Put { value, .. } = &mut txn.op {
            *value = self.cipher.encrypt(&txn.key, std::mem::take(value))?;
        }
        Ok(match self.engine.commit(txn).await? {
            Outcome::Conflict { current } => Outcome::Conflict {
                current: current.map(|entry| self.cipher.entry(entry)),
            },
            committed @ Outcome::Committed { .. } => committed,
        })
    }

    async fn watch(&self, prefix: &str, after: u64) -> Result<Box<dyn Feed>> {
        Ok(Box::new(DecryptingFeed {
            feed: self.engine.watch(prefix, after).await?,
            cipher: Arc::clone(&self.cipher),
        }))
    }

    async fn compact(&self, revision: u64) -> Result<()> {
        self.engine.compact(revision).await
    }
}

struct DecryptingFeed {
    feed: Box<dyn Feed>,
    cipher: Arc<KeyedCipher>,
}

#[async_trait]
impl Feed for DecryptingFeed {
    async fn next(&mut self) -> Result<Batch> {
        let mut batch = self.feed.next().await?;
        for event in &mut batch.events {
            if let Some(stored) = event.value.take() {
                event.value = Some(self.cipher.decrypt(&event.key, stored).0);
            }
            event.previous = event.previous.take().map(|e| self.cipher.entry(e));
        }
        Ok(batch)
    }
}
