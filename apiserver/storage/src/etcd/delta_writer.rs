//! Stores similar values as differences from a base: chooses the base of a value, and adds bases.
//!
//! ```text
//! if mod_revision(key) = expected and version(base) = 1 then put key delta
//! if mod_revision(key) = expected and version(base) = 0 then put base value, put key delta
//! ```
//! The compare of the base makes the choice safe: another process may have retired it (see
//! [`super::base_collection`]). Processes need not agree on the bases of a group; each learns those of
//! others from the values that it reads.

use bytes::Bytes;
use etcd_client::{Compare, CompareOp, TxnOp};
use machinery::base_group::{BaseGroup, ShortestDelta, checked_delta};

use super::base_collection::OPEN_VERSION;
use super::client::{EtcdClient, EtcdTxnResult};
use super::delta_bases::LockedBaseGroup;
use super::delta_value::{BaseName, encode_delta};
use super::error::EtcdError;
use super::etcd_keys::to_revision;
use crate::store::{SingleKeyTxn, StoreResult, TxnResponse};

/// How often a value whose base was retired meanwhile is encoded again, before it is stored whole.
const MAX_ATTEMPTS: usize = 3;

impl EtcdClient {
    /// Commits a put, as a delta where that is shorter.
    pub(super) async fn commit_put(
        &self,
        txn: &SingleKeyTxn,
        value: &Bytes,
    ) -> Result<TxnResponse, EtcdError> {
        if let Some((prefix, group)) = self.deltas.writable_group(&txn.key, value) {
            for _ in 0..MAX_ATTEMPTS {
                let result = self.commit_delta(txn, value, prefix, &group).await?;
                if let Some(result) = result {
                    return self.txn_response(result).await;
                }
            }
        }
        self.commit_txn(txn, None).await
    }

    /// `None` when the base cannot be used any more.
    async fn commit_delta(
        &self,
        txn: &SingleKeyTxn,
        value: &Bytes,
        prefix: &str,
        locked_group: &LockedBaseGroup,
    ) -> Result<Option<EtcdTxnResult>, EtcdError> {
        let mut group = locked_group.lock().await;
        let shortest = self.shortest_delta(&mut group, value).await;
        let shortest = shortest.map_err(EtcdError::not_retryable)?;
        if let Some((base, delta)) = shortest
            && group.accept(delta.len(), value.len())
        {
            group.record_use(base.clone());
            drop(group);
            let compares = [self.has_version(&base, OPEN_VERSION)];
            let put = self.put_delta(txn, &base, &delta);
            let result = self.send_txn(txn, &compares, &[put]).await?;
            if is_base_unusable(txn, &result) {
                self.deltas.retire(&mut *locked_group.lock().await, &base);
                return Ok(None);
            }
            return Ok(Some(result));
        }
        let new_base = BaseName::new_random(prefix).zip(checked_delta(value, value));
        let Some((base, delta)) = new_base else {
            return Ok(None);
        };
        let base_key = self.keys.encode_key(&base.key());
        let puts = [
            TxnOp::put(base_key, value.to_vec(), None),
            self.put_delta(txn, &base, &delta),
        ];
        let compares = [self.has_version(&base, 0)];
        let result = self.send_txn(txn, &compares, &puts).await?;
        if result.succeeded {
            self.deltas.insert_content(&base, value);
            group.record_use(base);
        }
        Ok((!is_base_unusable(txn, &result)).then_some(result))
    }

    async fn shortest_delta(
        &self,
        group: &mut BaseGroup<BaseName>,
        value: &[u8],
    ) -> StoreResult<Option<(BaseName, Vec<u8>)>> {
        let mut shortest = ShortestDelta::new(value);
        for base in group.bases().to_vec() {
            let Some(content) = self.read_base(&base, 0).await? else {
                self.deltas.retire(group, &base);
                continue;
            };
            if shortest.try_base(base, &content) {
                break;
            }
        }
        Ok(shortest.finish())
    }

    fn put_delta(&self, txn: &SingleKeyTxn, base: &BaseName, delta: &[u8]) -> TxnOp {
        TxnOp::put(
            self.keys.encode_key(&txn.key),
            encode_delta(base, delta),
            None,
        )
    }

    fn has_version(&self, base: &BaseName, version: i64) -> Compare {
        Compare::version(self.keys.encode_key(&base.key()), CompareOp::Equal, version)
    }
}

/// Whether a transaction failed though its key is unchanged.
fn is_base_unusable(txn: &SingleKeyTxn, result: &EtcdTxnResult) -> bool {
    let current = result.current.as_ref();
    !result.succeeded && current.map_or(0, |kv| to_revision(kv.mod_revision)) == txn.expected
}
