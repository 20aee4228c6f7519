//! Reads the keys below the prefix at one revision, page by page, for backups. The expiry of
//! a key is that of its lease.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::proto::PbKeyValue;
use machinery::time::{Clock, SystemClock};

use super::client::EtcdClient;
use super::delta_value::BaseName;
use super::endpoints::RetryPolicy;
use super::etcd_keys::{ROOT_PREFIX, to_revision};
use super::format::FORMAT_KEY;
use super::{EtcdStore, format};
use crate::backup::{BackupRecord, BackupSource, SnapshotPage};
use crate::format::without_deltas;
use crate::store::{RangeRequest, StoreResult, prefix_end};

/// The bytes and keys after which a page ends.
const PAGE_BYTES: usize = 4 << 20;
const PAGE_KEYS: usize = 512;
/// The keys of the first request of a page. Later ones ask for at most twice as many as the
/// one before, by the size of its values, so that no response is much larger than a page.
const FIRST_REQUEST_KEYS: usize = 8;

#[async_trait]
impl BackupSource for EtcdStore {
    fn engine_name(&self) -> &'static str {
        "etcd"
    }

    fn key_prefix(&self) -> String {
        String::from_utf8_lossy(&self.client.keys.encode_key(ROOT_PREFIX)).into_owned()
    }

    async fn storage_format(&self) -> StoreResult<u32> {
        let (version, _) = format::read(&self.client).await?;
        Ok(without_deltas(version))
    }

    async fn snapshot_page(&self, after: &str, revision: u64) -> StoreResult<SnapshotPage> {
        self.client.check_open()?;
        self.client.snapshot_page(after, revision).await
    }
}

impl EtcdClient {
    /// See [`BackupSource::snapshot_page`].
    pub(super) async fn snapshot_page(
        &self,
        after: &str,
        revision: u64,
    ) -> StoreResult<SnapshotPage> {
        let mut page = SnapshotPage::default();
        let mut leases = LeaseExpiries::default();
        let (mut bytes, mut limit) = (0, FIRST_REQUEST_KEYS);
        let mut after = after.to_owned();
        // The next page begins after the last record, so that bases alone do not end a page.
        while !page.is_last
            && (page.records.is_empty() || (bytes < PAGE_BYTES && page.records.len() < PAGE_KEYS))
        {
            let (kvs, has_more) = self.keys_after(&after, revision, limit).await?;
            page.is_last = !has_more;
            let before = bytes;
            let lease_ids: Vec<i64> = kvs.iter().map(|kv| kv.lease).collect();
            let entries = self.decode_key_values(kvs, revision).await?;
            for (lease, entry) in lease_ids.into_iter().zip(entries) {
                let expires_at_ms = leases.expiry(self, lease).await?;
                bytes += entry.key.len() + entry.value.len();
                after.clear();
                after.push_str(&entry.key);
                // The header of the backup has the format, and values in a backup are whole.
                if &*entry.key == FORMAT_KEY || BaseName::from_key(&entry.key).is_some() {
                    continue;
                }
                page.records.push(BackupRecord {
                    key: entry.key,
                    value: entry.value,
                    mod_revision: entry.mod_revision,
                    expires_at_ms,
                });
            }
            let average = ((bytes - before) / limit).max(1);
            limit = (PAGE_BYTES / average).clamp(1, 2 * limit).min(PAGE_KEYS);
        }
        Ok(page)
    }

    /// At most `limit` keys after `after`, and whether there are more. The first page begins
    /// after the empty key.
    async fn keys_after(
        &self,
        after: &str,
        revision: u64,
        limit: usize,
    ) -> StoreResult<(Vec<PbKeyValue>, bool)> {
        let root = format!("{ROOT_PREFIX}/");
        let range = RangeRequest {
            end: prefix_end(&root),
            start: match after {
                "" => root,
                after => format!("{after}\0"),
            },
            limit,
            revision,
        };
        let response = self.read_range(&range, false).await?;
        Ok((response.kvs, response.more))
    }
}

/// When the leases of a page expire.
#[derive(Default)]
struct LeaseExpiries(HashMap<i64, i64>);

impl LeaseExpiries {
    /// Milliseconds since 1970; `None` without a lease.
    async fn expiry(&mut self, client: &EtcdClient, lease: i64) -> StoreResult<Option<i64>> {
        if lease == 0 {
            return Ok(None);
        }
        if let Some(cached_expiry) = self.0.get(&lease) {
            return Ok(Some(*cached_expiry));
        }
        let response = client
            .endpoints
            .call(RetryPolicy::Repeatable, 0, move |endpoint| async move {
                endpoint.lease.clone().time_to_live(lease, None).await
            })
            .await?;
        // A lease that has expired meanwhile has -1 seconds left.
        let remaining = Duration::from_secs(to_revision(response.ttl()));
        let remaining = i64::try_from(remaining.as_millis()).unwrap_or(i64::MAX);
        let expires = SystemClock.now().as_millisecond().saturating_add(remaining);
        self.0.insert(lease, expires);
        Ok(Some(expires))
    }
}
