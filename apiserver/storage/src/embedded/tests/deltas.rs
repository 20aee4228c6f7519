//! Values that are stored as deltas read as they were written, and bases end with their last row.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use machinery::time::SystemClock;
use proptest::prelude::*;

use super::{commit, manual_compaction_options, put, user_version, wait_until};
use crate::backup::{BackupReader, BackupSource, BackupStream};
use crate::embedded::{EmbeddedRestoreOptions, EmbeddedStore, EmbeddedStoreOptions, restore};
use crate::{DeltaOptions, Error, RangeRequest, SingleKeyTxnOp, Store, format};

const PREFIX: &str = "/registry/works/";

fn options() -> EmbeddedStoreOptions {
    EmbeddedStoreOptions {
        deltas: DeltaOptions {
            prefixes: vec![PREFIX.into()],
            minimum_bytes: 64,
        },
        ..manual_compaction_options()
    }
}

fn key(cluster: usize, template: usize) -> String {
    format!("{PREFIX}karmada-es-member-{cluster}/web-{template}")
}

/// A Work of about 4 KiB, of which some 200 bytes are its own.
fn work(cluster: usize, template: usize, status: &str) -> String {
    let environment: Vec<String> = (0..50)
        .map(|i| {
            format!(
                r#"{{"name":"VARIABLE_{i}","value":"{}"}}"#,
                (i + 1) * (template + 1) * 7919
            )
        })
        .collect();
    format!(
        r#"{{"kind":"Work","metadata":{{"name":"web-{template}","namespace":"karmada-es-member-{cluster}","uid":"{:08x}-6a0e-4bb2-a4a2-{:012x}","creationTimestamp":"2026-01-01T00:{:02}:{:02}Z"}},"spec":{{"workload":{{"manifests":[{{"kind":"Deployment","metadata":{{"annotations":{{"work.karmada.io/namespace":"karmada-es-member-{cluster}"}}}},"spec":{{"replicas":3,"text":"{}","env":[{}]}}}}]}}}},"status":{{{status}}}}}"#,
        cluster * 2_654_435_761 % 0xffff_ffff,
        template * 7_046_029_254 + cluster,
        cluster % 60,
        template % 60,
        "configuration ".repeat(100),
        environment.join(","),
    )
}

const APPLIED: &str = r#""conditions":[{"type":"Applied","status":"True","reason":"AppliedSuccessful","message":"Manifest has been successfully applied"}]"#;

/// The ids of the bases, and those that rows refer to.
fn bases(directory: &Path) -> (Vec<i64>, Vec<i64>) {
    let connection = rusqlite::Connection::open(directory.join("store.db")).unwrap();
    let ids = |query: &str| {
        let mut statement = connection.prepare(query).unwrap();
        let ids = statement.query_map([], |row| row.get(0)).unwrap();
        ids.collect::<Result<Vec<i64>, _>>().unwrap()
    };
    (
        ids("SELECT id FROM base ORDER BY id"),
        ids("SELECT DISTINCT base FROM history WHERE base IS NOT NULL ORDER BY base"),
    )
}

fn base_count(directory: &Path) -> usize {
    let (bases, referenced) = bases(directory);
    assert_eq!(
        bases, referenced,
        "a base is there as long as a row refers to it"
    );
    bases.len()
}

/// Creates Works and writes their status. Returns the bytes on disk after a checkpoint, and the
/// last revision of each.
async fn write_fleet(
    directory: &Path,
    options: EmbeddedStoreOptions,
    clusters: usize,
    templates: usize,
) -> (u64, Vec<u64>) {
    let store = EmbeddedStore::open(directory, options).unwrap();
    let mut revisions = Vec::new();
    for template in 0..templates {
        for cluster in 0..clusters {
            let created = put(work(cluster, template, ""));
            revisions.push(
                commit(&store, &key(cluster, template), 0, created)
                    .await
                    .unwrap(),
            );
        }
    }
    for (number, revision) in revisions.iter_mut().enumerate() {
        let (template, cluster) = (number / clusters, number % clusters);
        let applied = put(work(cluster, template, APPLIED));
        *revision = commit(&store, &key(cluster, template), *revision, applied)
            .await
            .unwrap();
    }
    store.close().await;
    let bytes = std::fs::metadata(directory.join("store.db")).unwrap().len();
    (bytes, revisions)
}

// proves: WRK-stored-once
#[tokio::test]
async fn works_of_many_clusters_take_a_fifth_of_whole_copies_and_read_whole() {
    let (clusters, templates) = (20, 25);
    let unsynced = |options| EmbeddedStoreOptions {
        sync: false,
        ..options
    };
    let whole_directory = tempfile::tempdir().unwrap();
    let whole_options = unsynced(manual_compaction_options());
    let (whole_bytes, _) =
        write_fleet(whole_directory.path(), whole_options, clusters, templates).await;
    let directory = tempfile::tempdir().unwrap();
    let (bytes, revisions) =
        write_fleet(directory.path(), unsynced(options()), clusters, templates).await;
    let per_work = bytes / (clusters * templates) as u64;
    assert!(
        bytes * 5 <= whole_bytes && per_work <= 2048,
        "{bytes} of {whole_bytes}, {per_work} a Work"
    );
    assert!((templates..=3 * templates).contains(&base_count(directory.path())));

    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let count = clusters * templates;
    let created_at = RangeRequest {
        revision: count as u64,
        ..RangeRequest::prefix(PREFIX)
    };
    for (range, status) in [(RangeRequest::prefix(PREFIX), APPLIED), (created_at, "")] {
        let page = store.range(&range).await.unwrap();
        let values: BTreeMap<_, _> = page.kvs.iter().map(|kv| (&*kv.key, &kv.value)).collect();
        assert_eq!(values.len(), count);
        for number in 0..count {
            let (template, cluster) = (number / clusters, number % clusters);
            let value = values[&*key(cluster, template)];
            assert!(
                *value == work(cluster, template, status),
                "{template} {cluster}"
            );
        }
    }
    let mut watch = store.watch(PREFIX, 0).await.unwrap();
    let mut events = Vec::new();
    while events.len() < 2 * count {
        events.extend(watch.next().await.unwrap().events);
    }
    let last = events.last().unwrap();
    assert_eq!(Some(&last.revision), revisions.last());
    assert_eq!(
        last.value.as_ref().unwrap(),
        &work(clusters - 1, templates - 1, APPLIED)
    );
    assert_eq!(
        last.previous.as_ref().unwrap().value,
        work(clusters - 1, templates - 1, "")
    );
    let store = Arc::new(store);
    let source = Arc::clone(&store) as Arc<dyn BackupSource>;
    let mut stream = BackupStream::begin(source, &SystemClock).await.unwrap();
    let file = directory.path().join("backup");
    let mut content = Vec::new();
    while let Some(chunk) = stream.next_chunk().await {
        content.extend_from_slice(&chunk);
    }
    std::fs::write(&file, content).unwrap();
    let mut reader = BackupReader::open(&file).unwrap();
    assert_eq!(reader.header().storage_format, format::BASE);
    let first = reader.next_record().unwrap().unwrap();
    assert_eq!(first.value, work(0, 0, APPLIED));
    let restored = directory.path().join("restored");
    let restoring = EmbeddedRestoreOptions {
        revision_skip: 0,
        replace: false,
        deltas: options().deltas,
    };
    let (summary, _) = restore(&restored, &file, &restoring).unwrap();
    assert_eq!(summary.keys, count as u64);
    assert!((1..=2 * templates).contains(&base_count(&restored)));
    store.close().await;
}

#[tokio::test]
async fn a_base_is_deleted_with_its_last_row() {
    let directory = tempfile::tempdir().unwrap();
    let (_, revisions) = write_fleet(directory.path(), options(), 3, 2).await;
    // The groups of names are forgotten with the process, the references are not.
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let mut last = 0;
    for (number, revision) in revisions.into_iter().enumerate() {
        let key = key(number % 3, number / 3);
        last = commit(&store, &key, revision, SingleKeyTxnOp::Delete)
            .await
            .unwrap();
        assert!(
            base_count(directory.path()) >= 2,
            "history still has the rows"
        );
    }
    store.compact(last).await.unwrap();
    wait_until(|| store.stats().keys == 0).await;
    assert_eq!(base_count(directory.path()), 0);
    // What the writer remembers of a group is not used after its bases are gone.
    commit(&store, &key(0, 0), 0, put(work(0, 0, "")))
        .await
        .unwrap();
    assert_eq!(base_count(directory.path()), 1);
    assert_eq!(
        store.get(&key(0, 0)).await.unwrap().unwrap().value,
        work(0, 0, "")
    );
    store.close().await;
}

#[tokio::test]
async fn small_and_encrypted_values_and_those_of_other_keys_are_whole() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let encrypted = format!("k8s:enc:aescbc:v1:key:{}", work(0, 0, ""));
    for (key, value) in [
        (key(0, 0), "{}".to_owned()),
        (key(0, 1), encrypted.clone()),
        (key(1, 1), encrypted),
        ("/registry/secrets/web-1".to_owned(), work(0, 1, "")),
    ] {
        commit(&store, &key, 0, put(value.clone())).await.unwrap();
        assert_eq!(store.get(&key).await.unwrap().unwrap().value, value);
    }
    assert_eq!(base_count(directory.path()), 0);
    store.close().await;
}

#[tokio::test]
async fn a_database_of_an_earlier_format_is_converted_as_it_is_written() {
    for (version, value_format) in [(1, format::BASE), (2, format::ENCRYPTED)] {
        let directory = tempfile::tempdir().unwrap();
        let earlier = rusqlite::Connection::open(directory.path().join("store.db")).unwrap();
        let value = work(0, 0, "");
        earlier
            .execute_batch(&format!(
                "CREATE TABLE history (revision INTEGER PRIMARY KEY, key TEXT NOT NULL,
                     previous INTEGER NOT NULL, expires INTEGER, value BLOB) STRICT;
                 CREATE TABLE mark (name TEXT PRIMARY KEY, revision INTEGER NOT NULL)
                     STRICT, WITHOUT ROWID;
                 INSERT INTO mark VALUES ('compacted', 0);
                 INSERT INTO history VALUES (1, '{}', 0, NULL, CAST('{value}' AS BLOB));
                 PRAGMA application_id = 1181511540; PRAGMA user_version = {version}",
                key(0, 0)
            ))
            .unwrap();
        drop(earlier);
        let store = EmbeddedStore::open(directory.path(), options()).unwrap();
        assert_eq!(user_version(directory.path()), format::DELTAS);
        assert_eq!(store.storage_format().await.unwrap(), value_format);
        assert_eq!(store.get(&key(0, 0)).await.unwrap().unwrap().value, value);
        assert_eq!(base_count(directory.path()), 0);
        let next = work(0, 0, APPLIED);
        let revision = commit(&store, &key(0, 0), 1, put(next.clone()))
            .await
            .unwrap();
        assert_eq!((revision, base_count(directory.path())), (2, 1));
        let mut watch = store.watch(PREFIX, 1).await.unwrap();
        let event = watch.next().await.unwrap().events.remove(0);
        assert_eq!(
            (event.value.unwrap(), event.previous.unwrap().value),
            (next.into(), value.into())
        );
        store.close().await;
    }
}

/// A batch without space is rolled back with the base that it added.
#[tokio::test]
async fn a_base_of_a_failed_batch_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let full = EmbeddedStoreOptions {
        quota_bytes: Some(1 << 20),
        ..options()
    };
    let store = EmbeddedStore::open(directory.path(), full).unwrap();
    let mut cluster = 0;
    let value = |cluster: usize| {
        let own = (cluster * 7919 + 1).to_string();
        format!("{cluster}{}", own.repeat(40_000 / own.len()))
    };
    loop {
        match commit(&store, &key(cluster, 0), 0, put(value(cluster))).await {
            Ok(_) => cluster += 1,
            Err(error) => break assert!(matches!(error, Error::NoSpace(_)), "{error:?}"),
        }
    }
    store.close().await;
    let count = base_count(directory.path());
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    commit(&store, &key(cluster, 0), 0, put(value(cluster)))
        .await
        .unwrap();
    assert_eq!(base_count(directory.path()), count + 1);
    for cluster in 0..=cluster {
        let stored = store.get(&key(cluster, 0)).await.unwrap().unwrap();
        assert!(stored.value == value(cluster), "{cluster}");
    }
    store.close().await;
}

#[tokio::test]
async fn a_write_after_a_restart_uses_the_base_of_the_row_that_it_replaces() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let mut revision = commit(&store, &key(0, 0), 0, put(work(0, 0, "")))
        .await
        .unwrap();
    store.close().await;
    for _ in 0..3 {
        let store = EmbeddedStore::open(directory.path(), options()).unwrap();
        let next = put(work(0, 0, APPLIED));
        revision = commit(&store, &key(0, 0), revision, next).await.unwrap();
        store.close().await;
        assert_eq!(bases(directory.path()), (vec![1], vec![1]));
    }
    // The id of a base whose last row is gone may be used again by the next process.
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let delete = SingleKeyTxnOp::Delete;
    revision = commit(&store, &key(0, 0), revision, delete).await.unwrap();
    store.compact(revision).await.unwrap();
    wait_until(|| store.stats().keys == 0).await;
    store.close().await;
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    commit(&store, &key(1, 1), 0, put(work(1, 1, "")))
        .await
        .unwrap();
    assert_eq!(bases(directory.path()), (vec![1], vec![1]));
    store.close().await;
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let stored = store.get(&key(1, 1)).await.unwrap().unwrap();
    assert_eq!(stored.value, work(1, 1, ""));
    store.close().await;
}

/// The tables of the new format need a page or two more than the quota.
#[tokio::test]
async fn a_full_database_of_an_earlier_format_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let earlier = rusqlite::Connection::open(directory.path().join("store.db")).unwrap();
    earlier
        .execute_batch(&format!(
            "CREATE TABLE history (revision INTEGER PRIMARY KEY, key TEXT NOT NULL,
                 previous INTEGER NOT NULL, expires INTEGER, value BLOB) STRICT;
             CREATE TABLE mark (name TEXT PRIMARY KEY, revision INTEGER NOT NULL)
                 STRICT, WITHOUT ROWID;
             INSERT INTO mark VALUES ('compacted', 0);
             INSERT INTO history VALUES (1, '{0}', 0, NULL, zeroblob(500000));
             INSERT INTO history VALUES (2, '{0}', 1, NULL, zeroblob(500000));
             PRAGMA application_id = 1181511540; PRAGMA user_version = 1",
            key(0, 0)
        ))
        .unwrap();
    drop(earlier);
    let full = EmbeddedStoreOptions {
        quota_bytes: Some(900_000),
        ..options()
    };
    let store = EmbeddedStore::open(directory.path(), full).unwrap();
    let stored = store.get(&key(0, 0)).await.unwrap().unwrap();
    assert_eq!((stored.mod_revision, stored.value.len()), (2, 500_000));
    let rejected = commit(&store, &key(1, 0), 0, put(vec![7; 600_000])).await;
    assert!(matches!(rejected, Err(Error::NoSpace(_))), "{rejected:?}");
    // Compaction makes space.
    store.compact(2).await.unwrap();
    let small = loop {
        match commit(&store, &key(1, 0), 0, put(work(1, 0, ""))).await {
            Err(Error::NoSpace(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
            other => break other.unwrap(),
        }
    };
    assert_eq!(small, 3);
    store.close().await;
}

#[derive(Clone, Debug)]
enum Step {
    Put {
        cluster: usize,
        template: usize,
        status: usize,
    },
    Delete {
        cluster: usize,
        template: usize,
    },
    /// Writes that are sent together with one for which there is no space: the batch that
    /// gets that one is rolled back.
    Overfill {
        template: usize,
        status: usize,
    },
    Compact,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let object = || (0..3_usize, 0..2_usize);
    let step = prop_oneof![
        6 => (object(), 0..40_usize).prop_map(|((cluster, template), status)| Step::Put { cluster, template, status }),
        2 => object().prop_map(|(cluster, template)| Step::Delete { cluster, template }),
        1 => (0..2_usize, 0..40_usize).prop_map(|(template, status)| Step::Overfill { template, status }),
        1 => Just(Step::Compact),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..40)
}

/// The store against a map, with the invariant of bases after each step that ends a batch.
async fn check_steps(steps: Vec<Step>) {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let unsynced = EmbeddedStoreOptions {
            sync: false,
            quota_bytes: Some(1 << 20),
            ..options()
        };
        EmbeddedStore::open(directory.path(), unsynced).unwrap()
    };
    let mut store = open();
    let mut model: BTreeMap<String, (u64, String)> = BTreeMap::new();
    let mut revision = 0;
    for step in steps {
        match step {
            Step::Put {
                cluster,
                template,
                status,
            } => {
                let key = key(cluster, template);
                let value = work(cluster, template, &"s".repeat(status * status));
                let expected = model.get(&key).map_or(0, |(revision, _)| *revision);
                revision = commit(&store, &key, expected, put(value.clone()))
                    .await
                    .unwrap();
                model.insert(key, (revision, value));
            }
            Step::Delete { cluster, template } => {
                let key = key(cluster, template);
                if let Some((expected, _)) = model.remove(&key) {
                    let deleted = commit(&store, &key, expected, SingleKeyTxnOp::Delete);
                    revision = deleted.await.unwrap();
                }
            }
            Step::Overfill { template, status } => {
                let write = |cluster: usize| {
                    let key = key(cluster, template);
                    let value = match cluster {
                        3 => "x".repeat(1_400_000),
                        _ => work(cluster, template, &"o".repeat(status * status)),
                    };
                    let expected = model.get(&key).map_or(0, |(revision, _)| *revision);
                    let store = &store;
                    async move {
                        let result = commit(store, &key, expected, put(value.clone())).await;
                        (key, value, result)
                    }
                };
                let results: [_; 4] = tokio::join!(write(0), write(1), write(2), write(3)).into();
                for (key, value, result) in results {
                    match result {
                        Ok(written) => {
                            assert!(value.len() < 1_000_000);
                            revision = revision.max(written);
                            model.insert(key, (written, value));
                        }
                        Err(error) => assert!(matches!(error, Error::NoSpace(_)), "{error:?}"),
                    }
                }
            }
            Step::Compact => store.compact(revision).await.unwrap(),
            Step::Restart => {
                store.close().await;
                base_count(directory.path());
                store = open();
            }
        }
        let page = store.range(&RangeRequest::prefix(PREFIX)).await.unwrap();
        let read = page
            .kvs
            .iter()
            .map(|kv| (kv.key.to_string(), (kv.mod_revision, kv.value.clone())));
        let expected = model
            .iter()
            .map(|(key, (revision, value))| (key.clone(), (*revision, value.clone().into())));
        assert!(read.eq(expected), "the values differ from those written");
    }
    store.compact(revision).await.unwrap();
    wait_until(|| store.stats().keys == model.len()).await;
    store.close().await;
    base_count(directory.path());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_order_of_writes_compactions_and_restarts_reads_as_written(steps in steps()) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(check_steps(steps));
    }
}
