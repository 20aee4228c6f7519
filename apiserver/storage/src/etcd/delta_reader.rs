//! Turns deltas that were read from etcd into values, with bases from memory or from etcd.
//!
//! Every live delta has its base at each revision, so a base that is no longer there is read at the
//! revision of its delta. A delta that cannot be read is replaced by a placeholder with the reason,
//! like a value that cannot be decrypted, so that only its own key is lost.

use std::collections::HashMap;

use bytes::Bytes;
use etcd_client::GetOptions;
use etcd_client::proto::PbKeyValue;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::client::EtcdClient;
use super::delta_value::{BaseName, DeltaValue};
use super::endpoints::RetryPolicy;
use super::error::newest_read_error;
use super::etcd_keys::to_etcd_revision;
use crate::encryption::unreadable_placeholder;
use crate::store::{Error, KeyValue, StoreEvent, StoreResult};

/// Bases that are read at once.
const CONCURRENT_READS: usize = 16;

/// The content of bases; `None`: the base does not exist.
type BaseContents = HashMap<BaseName, Option<Bytes>>;

impl EtcdClient {
    /// The keys with their values, as they were at `revision`.
    pub(super) async fn decode_key_values(
        &self,
        kvs: Vec<PbKeyValue>,
        revision: u64,
    ) -> StoreResult<Vec<KeyValue>> {
        let entries = kvs.into_iter().map(|kv| self.keys.decode_key_value(kv));
        let mut entries: Vec<KeyValue> = entries.collect();
        let stored = entries.iter().map(|e| (&*e.key, &e.value, revision));
        let bases = self.load_bases(stored.collect()).await?;
        for entry in &mut entries {
            decode_value(&mut entry.value, &bases);
        }
        Ok(entries)
    }

    /// One key with its value, as it is at `revision`, the newest one.
    pub(super) async fn decode_newest(
        &self,
        kv: Option<PbKeyValue>,
        revision: u64,
    ) -> StoreResult<Option<KeyValue>> {
        let entries = self.decode_key_values(kv.into_iter().collect(), revision);
        let entries = entries.await.map_err(newest_read_error)?;
        Ok(entries.into_iter().next())
    }

    /// Replaces the deltas of events by values.
    pub(super) async fn decode_events(&self, events: &mut [StoreEvent]) -> StoreResult<()> {
        let stored = events.iter().flat_map(|event| {
            let previous = event.previous.as_ref();
            let previous = previous.map(|p| (&*p.key, &p.value, event.revision - 1));
            let value = event.value.as_ref();
            let value = value.map(|value| (&*event.key, value, event.revision));
            previous.into_iter().chain(value)
        });
        let bases = self.load_bases(stored.collect()).await?;
        for event in events {
            if let Some(value) = &mut event.value {
                decode_value(value, &bases);
            }
            if let Some(previous) = &mut event.previous {
                decode_value(&mut previous.value, &bases);
            }
        }
        Ok(())
    }

    /// The bases of stored values, which are given with their keys and revisions.
    async fn load_bases(&self, stored: Vec<(&str, &Bytes, u64)>) -> StoreResult<BaseContents> {
        let mut bases = BaseContents::new();
        let mut missing = HashMap::new();
        for (key, value, revision) in stored {
            let Ok(Some(DeltaValue {
                base: Some(base), ..
            })) = DeltaValue::parse(value)
            else {
                continue;
            };
            if bases.contains_key(&base) || missing.contains_key(&base) {
                continue;
            }
            self.deltas.observe(key, &base);
            match self.deltas.content(&base) {
                Some(content) => drop(bases.insert(base, Some(content))),
                None => drop(missing.insert(base, revision)),
            }
        }
        let reads = missing.into_iter().map(|(base, revision)| async move {
            let content = self.read_base(&base, revision).await?;
            Ok::<_, Error>((base, content))
        });
        let mut reads = stream::iter(reads).buffer_unordered(CONCURRENT_READS);
        while let Some((base, content)) = reads.try_next().await? {
            bases.insert(base, content);
        }
        Ok(bases)
    }

    /// The content of a base that was there at `revision`; 0: at the newest one. `None` when it
    /// certainly was not.
    pub(super) async fn read_base(
        &self,
        base: &BaseName,
        revision: u64,
    ) -> StoreResult<Option<Bytes>> {
        if let Some(content) = self.deltas.content(base) {
            return Ok(Some(content));
        }
        let mut content = self.read_raw(&base.key(), 0).await?;
        if content.is_none() && revision > 0 {
            content = self.read_raw(&base.key(), revision).await?;
        }
        if let Some(content) = &content {
            self.deltas.insert_content(base, content);
        }
        Ok(content)
    }

    /// The stored value of a key.
    async fn read_raw(&self, key: &str, revision: u64) -> StoreResult<Option<Bytes>> {
        let key = self.keys.encode_key(key);
        let response = self
            .endpoints
            .call(RetryPolicy::Repeatable, revision, |endpoint| {
                let options = GetOptions::new().with_revision(to_etcd_revision(revision));
                let (mut kv, key) = (endpoint.kv.clone(), key.clone());
                async move { kv.get(key, Some(options)).await }
            })
            .await;
        match response {
            Ok(response) => Ok(response.0.kvs.into_iter().next().map(|kv| kv.value.into())),
            Err(error) => Err(self.complete_error(error).await),
        }
    }
}

fn decode_value(stored: &mut Bytes, bases: &BaseContents) {
    let decoded = DeltaValue::parse(stored).and_then(|delta| match delta {
        None => Ok(stored.clone()),
        Some(delta) => match &delta.base {
            None => delta.decode(&[]),
            Some(base) => match bases.get(base) {
                Some(Some(content)) => delta.decode(content),
                _ => Err(format!("its base {} is missing", base.key())),
            },
        },
    });
    *stored = decoded.unwrap_or_else(|reason| unreadable_placeholder(&reason));
}
