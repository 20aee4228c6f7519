//! Restores a backup below the prefix of an etcd, while no server uses it.
//!
//! The format key says for the duration that a restore is not complete; no server starts on
//! such a prefix, and a running one stops. etcd assigns new revisions. It must not be behind
//! the backup, so that no client sees a revision twice.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::DeleteOptions;
use machinery::time::{Clock, SystemClock};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::EtcdOptions;
use super::client::EtcdClient;
use super::endpoints::{EtcdEndpoints, RetryPolicy};
use super::etcd_keys::{EtcdKeyCodec, ROOT_PREFIX};
use super::format::{self, FORMAT_KEY};
use crate::backup::{self, BackupReader, BackupRecord, BackupSummary, SnapshotPage};
use crate::format::{ENCRYPTED, NEWEST_BACKUP, check};
use crate::store::{
    Error, RangeRequest, SingleKeyTxn, SingleKeyTxnOp, StoreResult, TxnResponse, prefix_end,
};

/// Transactions in flight; each writes one key, as servers do.
const CONCURRENT_WRITES: usize = 16;
/// Records that are read ahead of the writes.
const READ_AHEAD: usize = 16;
/// Keys that one request deletes.
const DELETED_KEYS: usize = 512;
/// Times to live are rounded up to a multiple of it, so that keys share leases.
const TTL_STEP: Duration = Duration::from_secs(60);
/// The attempts of a write that etcd does not answer, and the pause between them.
const WRITE_ATTEMPTS: usize = 10;
const WRITE_PAUSE: Duration = Duration::from_millis(500);

/// Restores a backup. Returns what it holds, and the revision from which servers continue.
///
/// # Errors
/// When the backup cannot be used, etcd is behind it, keys lie below the prefix and
/// `replace` is false, or a request fails. Only the last leaves anything written, and no
/// server starts on that.
pub async fn restore(
    options: EtcdOptions,
    file: &Path,
    replace: bool,
) -> StoreResult<(BackupSummary, u64)> {
    let path = file.to_owned();
    let verified = tokio::task::spawn_blocking(move || backup::verify(&path)).await;
    let unusable =
        |message: String| Error::Fatal(format!("cannot restore {}: {message}", file.display()));
    let verified = verified.map_err(|message| unusable(message.to_string()))?;
    let backup = verified.map_err(|message| unusable(message.to_string()))?;
    check_restorable(&backup, &options.prefix).map_err(unusable)?;
    let endpoints = EtcdEndpoints::new(&options.servers, options.tls.as_ref())
        .await
        .map_err(Error::Fatal)?;
    let client = Arc::new(EtcdClient::new(
        endpoints,
        &options.prefix,
        options.deltas.keys,
    ));
    client.wait_until_ready(options.open_timeout).await?;
    check_revision(&client, &backup).await?;
    check_empty(&client, &options.prefix, replace).await?;
    format::mark_restoring(&client).await?;
    delete_all(&client).await?;
    write_records(&client, file).await?;
    compare_records(&client, file).await?;
    // Before servers can start, so that whoever knows an older revision lists again.
    let revision = client.current_revision().await.map_err(|f| f.error)?;
    client.compact(revision).await?;
    format::finish_restoring(&client, backup.header.storage_format).await?;
    Ok((backup, revision))
}

fn check_restorable(backup: &BackupSummary, prefix: &str) -> Result<(), String> {
    let header = &backup.header;
    check("the backup", header.storage_format, NEWEST_BACKUP).map_err(|e| e.to_string())?;
    let is_same_prefix =
        EtcdKeyCodec::new(prefix).encode_key(ROOT_PREFIX) == header.prefix.as_bytes();
    if header.storage_format >= ENCRYPTED && !is_same_prefix {
        return Err(format!(
            "its values may be encrypted, and are then bound to the prefix {}; give it with \
             --etcd-prefix",
            header.prefix
        ));
    }
    Ok(())
}

/// Fails when etcd would assign revisions that clients have seen already.
async fn check_revision(client: &EtcdClient, backup: &BackupSummary) -> StoreResult<()> {
    let current = client.current_revision().await.map_err(|f| f.error)?;
    let needed = backup.header.revision;
    if current >= needed {
        return Ok(());
    }
    Err(Error::Fatal(format!(
        "etcd is at revision {current} and the backup at {needed}; clients have seen the revisions \
         between, and etcd would use them again; nothing was written; raise etcd's revision first: \
         take a snapshot with `etcdctl snapshot save`, and restore it with `etcdutl snapshot \
         restore --bump-revision 1000000000 --mark-compacted` (etcd 3.5.10 or newer)"
    )))
}

async fn check_empty(client: &EtcdClient, prefix: &str, replace: bool) -> StoreResult<()> {
    let range = RangeRequest {
        limit: 1,
        ..RangeRequest::prefix(&format!("{ROOT_PREFIX}/"))
    };
    let existing = client.range(&range).await?;
    let count = existing.kvs.len() as u64 + existing.remaining;
    if count == 0 || replace {
        return Ok(());
    }
    Err(Error::Fatal(format!(
        "{count} keys lie below the etcd prefix {prefix}; choose another with --etcd-prefix, or \
         stop all servers that use it and replace them with --force"
    )))
}

/// Deletes all keys below the prefix except the format key.
async fn delete_all(client: &EtcdClient) -> StoreResult<()> {
    let root = format!("{ROOT_PREFIX}/");
    let end = prefix_end(&root);
    for (start, end) in [
        (root, FORMAT_KEY.to_owned()),
        (format!("{FORMAT_KEY}\0"), end),
    ] {
        loop {
            let range = RangeRequest {
                start: start.clone(),
                end: end.clone(),
                limit: DELETED_KEYS,
                revision: 0,
            };
            let page = client.read_range(&range, true).await?;
            let Some(last) = page.kvs.last() else {
                break;
            };
            let deleted_end = [&*last.key, b"\0"].concat();
            let deleted_start = client.keys.encode_key(&start);
            client
                .endpoints
                .call(RetryPolicy::Repeatable, 0, |endpoint| {
                    let options = DeleteOptions::new().with_range(deleted_end.clone());
                    let (mut kv, start) = (endpoint.kv.clone(), deleted_start.clone());
                    async move { kv.delete(start, Some(options)).await }
                })
                .await?;
        }
    }
    Ok(())
}

/// Reads the records of a verified backup on a thread that may block. An error is the last.
fn read_records(file: &Path) -> mpsc::Receiver<StoreResult<BackupRecord>> {
    let (sender, records) = mpsc::channel(READ_AHEAD);
    let file = file.to_owned();
    tokio::task::spawn_blocking(move || {
        let changed = |message| {
            let text = format!("the backup has changed since it was verified: {message}");
            Err(Error::Fatal(text))
        };
        let mut reader = match BackupReader::open(&file) {
            Ok(reader) => reader,
            Err(message) => return drop(sender.blocking_send(changed(message))),
        };
        while let Some(record) = reader.next_record().transpose() {
            let has_failed = record.is_err();
            if sender.blocking_send(record.or_else(changed)).is_err() || has_failed {
                return;
            }
        }
    });
    records
}

async fn write_records(client: &Arc<EtcdClient>, file: &Path) -> StoreResult<()> {
    let mut records = read_records(file);
    let mut writes = JoinSet::new();
    let panicked = |message| Error::Fatal(format!("a write was aborted: {message}"));
    while let Some(record) = records.recv().await {
        let (client, record) = (Arc::clone(client), record?);
        if writes.len() >= CONCURRENT_WRITES
            && let Some(written) = writes.join_next().await
        {
            written.map_err(panicked)??;
        }
        writes.spawn(async move { write_record(&client, record).await });
    }
    while let Some(written) = writes.join_next().await {
        written.map_err(panicked)??;
    }
    Ok(())
}

/// Writes one key. A write without an answer is repeated; its own value is no conflict.
async fn write_record(client: &EtcdClient, record: BackupRecord) -> StoreResult<()> {
    let ttl = record.expires_at_ms.map(time_to_live);
    let txn = SingleKeyTxn {
        key: Arc::clone(&record.key),
        expected: 0,
        op: SingleKeyTxnOp::Put {
            value: record.value.clone(),
            ttl,
        },
    };
    let mut attempt = 1;
    loop {
        let written = match ttl {
            Some(ttl) => client.put_with_ttl(&txn, ttl).await,
            None => client.commit_txn(&txn, None).await.map_err(|f| f.error),
        };
        match written {
            Ok(TxnResponse::Committed { .. }) => return Ok(()),
            Ok(TxnResponse::Conflict { current }) => {
                return match current {
                    Some(current) if attempt > 1 && current.value == record.value => Ok(()),
                    _ => Err(Error::Fatal(format!(
                        "another program wrote {} during the restore; stop all servers that use \
                         the prefix, and restore again with --force",
                        record.key
                    ))),
                };
            }
            Err(Error::Unavailable(_)) if attempt < WRITE_ATTEMPTS => {
                attempt += 1;
                tokio::time::sleep(WRITE_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The remaining time to live, rounded up.
fn time_to_live(expires_at_ms: i64) -> Duration {
    let remaining = expires_at_ms.saturating_sub(SystemClock.now().as_millisecond());
    let remaining = Duration::from_millis(u64::try_from(remaining).unwrap_or(0));
    let steps = remaining.as_secs() / TTL_STEP.as_secs() + 1;
    Duration::from_secs(steps.saturating_mul(TTL_STEP.as_secs()))
}

/// Compares what etcd holds with the backup. A key that expires may have expired since.
async fn compare_records(client: &EtcdClient, file: &Path) -> StoreResult<()> {
    let revision = client.current_revision().await.map_err(|f| f.error)?;
    let mut stored = StoredRecords {
        client,
        revision,
        page: Vec::new().into_iter(),
        after: "".into(),
        is_last: false,
    };
    let mut records = read_records(file);
    let mut stored_record = stored.next().await?;
    while let Some(record) = records.recv().await {
        let record = record?;
        match &stored_record {
            Some(other) if is_restored(other, &record) => stored_record = stored.next().await?,
            _ if record.expires_at_ms.is_some() => {}
            _ => return Err(difference(&record.key)),
        }
    }
    match stored_record {
        Some(other) => Err(difference(&other.key)),
        None => Ok(()),
    }
}

fn is_restored(stored: &BackupRecord, record: &BackupRecord) -> bool {
    stored.key == record.key
        && stored.value == record.value
        && stored.expires_at_ms.is_some() == record.expires_at_ms.is_some()
}

fn difference(key: &str) -> Error {
    Error::Fatal(format!(
        "the key {key} in etcd is not as it is in the backup; another program may have written \
         it during the restore"
    ))
}

/// The keys of etcd at one revision, page by page.
struct StoredRecords<'a> {
    client: &'a EtcdClient,
    revision: u64,
    page: std::vec::IntoIter<BackupRecord>,
    after: Arc<str>,
    is_last: bool,
}

impl StoredRecords<'_> {
    async fn next(&mut self) -> StoreResult<Option<BackupRecord>> {
        loop {
            if let Some(record) = self.page.next() {
                return Ok(Some(record));
            }
            if self.is_last {
                return Ok(None);
            }
            let page = self
                .client
                .snapshot_page(&self.after, self.revision)
                .await?;
            let SnapshotPage { records, is_last } = page;
            self.is_last = is_last;
            if let Some(last) = records.last() {
                self.after = Arc::clone(&last.key);
            }
            self.page = records.into_iter();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_are_rounded_up() {
        let now = SystemClock.now().as_millisecond();
        for (remaining_ms, seconds) in [(i64::MIN, 60), (-5_000, 60), (30_000, 60), (90_500, 120)] {
            let ttl = time_to_live(now.saturating_add(remaining_ms));
            assert_eq!(ttl, Duration::from_secs(seconds), "{remaining_ms}");
        }
    }
}
