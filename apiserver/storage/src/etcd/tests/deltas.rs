//! Values that are stored as deltas take a fraction of the bytes, and read, list, watch and back up as
//! they were written.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use machinery::time::SystemClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::backup::{BackupReader, BackupSource, BackupStream};
use crate::encryption::unreadable_reason;
use crate::format::{BASE, ENCRYPTED};
use crate::{KeyValue, RangeRequest, StoreEvent, StoreWatch};

const CLUSTERS: usize = 20;
const TEMPLATES: usize = 50;

/// The bytes of keys and values that an etcd has been sent.
async fn put_bytes(etcd: &EtcdCluster) -> u64 {
    let address = etcd.nodes[0].address;
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = b"GET /metrics HTTP/1.0\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let line = response
        .lines()
        .find(|line| line.contains("mvcc_total_put_size_in_bytes ") && !line.starts_with('#'));
    let number = line.unwrap().rsplit(' ').next().unwrap();
    let number: f64 = number.parse().unwrap();
    number as u64
}

/// The bytes of an etcd's database without history.
async fn database_bytes(etcd: &EtcdCluster, store: &EtcdStore) -> u64 {
    store
        .compact(store.revision().await.unwrap())
        .await
        .unwrap();
    etcd.etcdctl(&["defrag", "--endpoints", &etcd.endpoints()]);
    let output = etcd.etcdctl(&[
        "endpoint",
        "status",
        "-w",
        "json",
        "--endpoints",
        &etcd.endpoints(),
    ]);
    let status: serde_json::Value = machinery::json::from_str(&output).unwrap();
    status[0]["Status"]["dbSizeInUse"].as_u64().unwrap()
}

/// Creates a Work of each template in each cluster, and then writes the status of each.
async fn write_fleet(store: &EtcdStore) -> (u64, Vec<(String, u64, String)>) {
    let numbers = (0..TEMPLATES).flat_map(|t| (0..CLUSTERS).map(move |c| (c, t)));
    let created = numbers.clone().map(|(c, t)| (key(c, t), 0, work(c, t, "")));
    let mut works: Vec<_> = created.collect();
    write_works(store, &mut works).await;
    let created_revision = store.revision().await.unwrap();
    for ((_, _, value), (c, t)) in works.iter_mut().zip(numbers) {
        *value = work(c, t, APPLIED);
    }
    write_works(store, &mut works).await;
    (created_revision, works)
}

async fn list_in_pages(store: &dyn Store, revision: u64) -> Vec<KeyValue> {
    let mut range = RangeRequest {
        limit: 300,
        revision,
        ..RangeRequest::prefix(PREFIX)
    };
    let mut entries = Vec::new();
    loop {
        let page = store.range(&range).await.unwrap();
        range.revision = page.revision;
        entries.extend(page.kvs);
        range.start = format!("{}\0", entries.last().unwrap().key);
        if page.remaining == 0 {
            return entries;
        }
    }
}

async fn read_events(watch: &mut Box<dyn StoreWatch>, count: usize) -> Vec<StoreEvent> {
    let mut events = Vec::new();
    while events.len() < count {
        let next = tokio::time::timeout(Duration::from_secs(60), watch.next());
        events.extend(next.await.unwrap().unwrap().events);
    }
    events
}

// proves: WRK-stored-once-etcd
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn works_of_many_clusters_take_a_fifth_of_whole_copies_and_read_whole() {
    let Some(plain) = start_etcd() else { return };
    let Some(etcd) = start_etcd() else { return };
    let plain_store = EtcdStore::open(plain_options(&plain)).await.unwrap();
    plain_store.raise_format(BASE).await.unwrap();
    write_fleet(&plain_store).await;
    let store = open_with_deltas(delta_options(&etcd)).await;
    let (created_revision, works) = write_fleet(&store).await;
    let bytes = put_bytes(&etcd).await;
    let plain_bytes = put_bytes(&plain).await;
    assert!(
        bytes * 5 <= plain_bytes,
        "{bytes} of {plain_bytes} were sent"
    );

    // Another process, which has no base in memory.
    let reader = EtcdStore::open(plain_options(&etcd)).await.unwrap();
    let expected: BTreeMap<&str, &str> = works
        .iter()
        .map(|(key, _, value)| (&**key, &**value))
        .collect();
    let entries = list_in_pages(&reader, 0).await;
    assert_eq!(entries.len(), works.len());
    for entry in &entries {
        assert_eq!(entry.value, expected[&*entry.key], "{}", entry.key);
    }
    let created: BTreeMap<Arc<str>, KeyValue> = list_in_pages(&reader, created_revision)
        .await
        .into_iter()
        .map(|entry| (Arc::clone(&entry.key), entry))
        .collect();
    for (cluster, template) in [(0, 0), (CLUSTERS - 1, TEMPLATES - 1)] {
        let entry = &created[&*key(cluster, template)];
        assert_eq!(entry.value, work(cluster, template, ""));
    }
    let mut watch = reader.watch(PREFIX, created_revision).await.unwrap();
    for event in read_events(&mut watch, works.len()).await {
        assert_eq!(
            event.value.as_deref(),
            Some(expected[&*event.key].as_bytes())
        );
        assert_eq!(event.previous.as_ref(), created.get(&event.key));
    }
    let stale = commit(&reader, &works[0].0, 1, Some("{}".into())).await;
    assert_eq!(stale.unwrap(), None);

    let plain_bytes = database_bytes(&plain, &plain_store).await;
    let bytes = database_bytes(&etcd, &store).await;
    assert!(
        bytes * 5 <= plain_bytes,
        "{bytes} of {plain_bytes} are stored"
    );
    for store in [plain_store, store, reader] {
        store.close().await;
    }
}

// proves: WRK-stored-once-converted
#[tokio::test]
async fn whole_values_are_converted_when_they_are_written_and_back() {
    let Some(etcd) = start_etcd() else { return };
    let is_delta = |key: &str| {
        etcd.list_prefix(key)[0]
            .value
            .starts_with(b"flotilla:delta:")
    };
    let stored_format =
        || etcd.etcdctl(&["get", "/registry/flotilla/format", "--print-value-only"]);
    let before = EtcdStore::open(plain_options(&etcd)).await.unwrap();
    before.raise_format(ENCRYPTED).await.unwrap();
    let keys = [key(1, 0), key(2, 0)];
    let mut revisions = [0; 2];
    for (n, key) in keys.iter().enumerate() {
        revisions[n] = put(&before, key, 0, work(n, 0, "")).await;
    }
    assert_eq!(stored_format().trim(), "{\"format\":2}");

    // Older processes may still run.
    let mut waiting = delta_options(&etcd);
    waiting.deltas.write_delay = Duration::from_secs(3600);
    let waiting = open_with_deltas(waiting).await;
    assert_eq!(stored_format().trim(), "{\"format\":4}");
    revisions[0] = put(&waiting, &keys[0], revisions[0], work(1, 0, APPLIED)).await;
    assert!(!is_delta(&keys[0]));

    let after = open_with_deltas(delta_options(&etcd)).await;
    for (n, key) in keys.iter().enumerate() {
        revisions[n] = put(&after, key, revisions[n], work(n, 0, APPLIED)).await;
        assert!(is_delta(key));
    }
    // Without the flag deltas are read, and whole values written.
    for (n, key) in keys.iter().enumerate() {
        let entry = before.get(key).await.unwrap().unwrap();
        assert_eq!(entry.value, work(n, 0, APPLIED));
        put(&before, key, entry.mod_revision, work(n, 0, "")).await;
        assert!(!is_delta(key));
        assert_eq!(after.get(key).await.unwrap().unwrap().value, work(n, 0, ""));
    }
    before.raise_format(BASE).await.unwrap();
    assert_eq!(stored_format().trim(), "{\"format\":4}");
}

/// Takes a backup into a file of a directory that is removed with the first value.
async fn take_backup(store: &Arc<EtcdStore>) -> (tempfile::TempDir, PathBuf) {
    let source = Arc::clone(store) as Arc<dyn BackupSource>;
    let mut stream = BackupStream::begin(source, &SystemClock).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.next_chunk().await {
        bytes.extend_from_slice(&chunk);
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("etcd.backup");
    std::fs::write(&file, &bytes).unwrap();
    (directory, file)
}

#[tokio::test]
async fn backups_hold_whole_values_and_no_bases() {
    let Some(etcd) = start_etcd() else { return };
    let store = Arc::new(open_with_deltas(delta_options(&etcd)).await);
    for cluster in 0..3 {
        put(&*store, &key(cluster, 0), 0, work(cluster, 0, "")).await;
    }
    let (_directory, file) = take_backup(&store).await;
    let mut reader = BackupReader::open(&file).unwrap();
    assert_eq!(reader.header().storage_format, BASE);
    for cluster in 0..3 {
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!(*record.key, key(cluster, 0));
        assert_eq!(record.value, work(cluster, 0, ""));
    }
    assert!(reader.next_record().unwrap().is_none());

    let (_, revision) = super::super::restore(plain_options(&etcd), &file, true)
        .await
        .unwrap();
    assert!(etcd.list_prefix(BASES).is_empty());
    let restored = open_with_deltas(delta_options(&etcd)).await;
    let entry = restored.get(&key(0, 0)).await.unwrap().unwrap();
    assert!(entry.value == work(0, 0, "") && entry.mod_revision <= revision);
}

#[tokio::test]
async fn a_backup_passes_over_more_bases_than_a_page_holds() {
    let Some(etcd) = start_etcd() else { return };
    let store = Arc::new(open_with_deltas(delta_options(&etcd)).await);
    let large = |template| {
        work(
            0,
            template,
            &format!(r#""text":"{}""#, "s".repeat(900 << 10)),
        )
    };
    for template in 0..8 {
        put(&*store, &key(0, template), 0, large(template)).await;
    }
    assert_eq!(etcd.list_prefix(BASES).len(), 8);
    let backup = tokio::time::timeout(Duration::from_secs(60), take_backup(&store)).await;
    let (_directory, file) = backup.unwrap();
    let mut reader = BackupReader::open(&file).unwrap();
    for template in 0..8 {
        let record = reader.next_record().unwrap().unwrap();
        assert!(*record.key == key(0, template) && record.value == large(template));
    }
    assert!(reader.next_record().unwrap().is_none());
}

/// An operator has deleted a base.
#[tokio::test]
async fn a_missing_base_affects_only_its_values() {
    let Some(etcd) = start_etcd() else { return };
    let store = open_with_deltas(delta_options(&etcd)).await;
    for template in 0..2 {
        put(&store, &key(0, template), 0, work(0, template, "")).await;
    }
    let stored = etcd.list_prefix(&key(0, 1)).remove(0).value;
    let name = String::from_utf8_lossy(&stored).into_owned();
    let name = name.split(':').nth(3).unwrap();
    let base = format!("/registry/flotilla/bases{name}");
    etcd.etcdctl(&["del", &base]);
    let reader = EtcdStore::open(plain_options(&etcd)).await.unwrap();
    let page = reader.range(&RangeRequest::prefix(PREFIX)).await.unwrap();
    assert_eq!(page.kvs[0].value, work(0, 0, ""));
    let reason = unreadable_reason(&page.kvs[1].value).unwrap();
    assert!(reason.contains(&base), "{reason}");
}
