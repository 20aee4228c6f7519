//! Tests of what only the embedded engine promises: the lock of the data directory,
//! restarts, behavior without space or with a failing disk.

mod deltas;
mod fault;
mod history;
mod restore;
mod watcher;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use machinery::time::{Clock, FakeClock, SystemClock};

use super::{EmbeddedStore, EmbeddedStoreOptions};
use crate::backup::BackupSource;
use crate::{
    Error, RangeRequest, SingleKeyTxn, SingleKeyTxnOp, Store, StoreResult, TxnResponse, format,
};

pub(super) fn manual_compaction_options() -> EmbeddedStoreOptions {
    EmbeddedStoreOptions {
        history_retention: None,
        key_expiry_interval: Duration::from_millis(5),
        ..EmbeddedStoreOptions::default()
    }
}

pub(super) fn put(value: impl Into<Bytes>) -> SingleKeyTxnOp {
    SingleKeyTxnOp::Put {
        value: value.into(),
        ttl: None,
    }
}

pub(super) async fn commit(
    store: &EmbeddedStore,
    key: &str,
    expected: u64,
    op: SingleKeyTxnOp,
) -> StoreResult<u64> {
    let key = key.into();
    match store.commit(SingleKeyTxn { key, expected, op }).await? {
        TxnResponse::Committed { revision } => Ok(revision),
        TxnResponse::Conflict { current } => panic!("unexpected {current:?}"),
    }
}

pub(super) async fn wait_until(condition: impl Fn() -> bool) {
    let poll = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), poll)
        .await
        .unwrap();
}

#[tokio::test]
async fn restart_keeps_everything() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), manual_compaction_options()).unwrap();
    let first = commit(&store, "/a/1", 0, put("one")).await.unwrap();
    let second = commit(&store, "/a/1", first, put("two")).await.unwrap();
    let deleted = commit(&store, "/a/1", second, SingleKeyTxnOp::Delete)
        .await
        .unwrap();
    let other = commit(&store, "/a/2", 0, put("other")).await.unwrap();
    store.compact(first).await.unwrap();
    store.close().await;
    let closed = store.revision().await;
    assert!(matches!(closed, Err(Error::Unavailable(_))), "{closed:?}");

    let store = EmbeddedStore::open(directory.path(), manual_compaction_options()).unwrap();
    assert_eq!(store.revision().await.unwrap(), other);
    assert_eq!(store.get("/a/1").await.unwrap(), None);
    assert_eq!(store.get("/a/2").await.unwrap().unwrap().value, "other");
    let mut ask = RangeRequest::prefix("/a/");
    ask.revision = second;
    assert_eq!(store.range(&ask).await.unwrap().kvs[0].value, "two");
    let mut watch = store.watch("/a/", first).await.unwrap();
    let batch = watch.next().await.unwrap();
    let revisions: Vec<_> = batch.events.iter().map(|e| e.revision).collect();
    assert_eq!(revisions, [second, deleted, other]);
    assert_eq!(batch.events[1].previous.as_ref().unwrap().value, "two");
    assert!(matches!(
        store.watch("/a/", 0).await,
        Err(Error::Compacted { .. })
    ));
    store.close().await;
}

#[tokio::test]
async fn revision_is_never_used_twice() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), manual_compaction_options()).unwrap();
    let first = commit(&store, "/a/1", 0, put("one")).await.unwrap();
    let deleted = commit(&store, "/a/1", first, SingleKeyTxnOp::Delete)
        .await
        .unwrap();
    // Now no row is left.
    store.compact(deleted).await.unwrap();
    wait_until(|| store.stats().keys == 0).await;
    store.close().await;

    let store = EmbeddedStore::open(directory.path(), manual_compaction_options()).unwrap();
    assert_eq!(store.revision().await.unwrap(), deleted);
    assert_eq!(
        commit(&store, "/a/1", 0, put("again")).await.unwrap(),
        deleted + 1
    );
    store.close().await;

    let skip = EmbeddedStoreOptions {
        skip_revisions: 1000,
        ..manual_compaction_options()
    };
    let store = EmbeddedStore::open(directory.path(), skip).unwrap();
    assert_eq!(store.revision().await.unwrap(), deleted + 1001);
    assert!(matches!(
        store.watch("/a/", deleted + 1).await,
        Err(Error::Compacted { .. })
    ));
    assert_eq!(store.get("/a/1").await.unwrap().unwrap().value, "again");
    let next = commit(&store, "/a/2", 0, put("x")).await.unwrap();
    assert_eq!(next, deleted + 1002);
    let mut watch = store.watch("/a/", next - 1).await.unwrap();
    assert_eq!(watch.next().await.unwrap().events[0].revision, next);
    store.close().await;
}

#[tokio::test]
async fn history_is_compacted_by_age() {
    let options = EmbeddedStoreOptions {
        history_retention: Some(Duration::from_millis(20)),
        ..manual_compaction_options()
    };
    let store = EmbeddedStore::in_memory(options).unwrap();
    let first = commit(&store, "/a/1", 0, put("one")).await.unwrap();
    let second = commit(&store, "/a/1", first, put("two")).await.unwrap();
    commit(&store, "/a/1", second, SingleKeyTxnOp::Delete)
        .await
        .unwrap();
    let kept_revision = commit(&store, "/a/2", 0, put("kept")).await.unwrap();
    wait_until(|| store.stats().compact_revision == kept_revision && store.stats().keys == 1).await;
    assert_eq!(store.get("/a/2").await.unwrap().unwrap().value, "kept");
    store.close().await;
}

#[tokio::test]
async fn time_to_live_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(FakeClock::new(SystemClock.now()));
    let options = || EmbeddedStoreOptions {
        clock: clock.clone(),
        ..manual_compaction_options()
    };
    let short = |value: &'static str, hours: u64| SingleKeyTxnOp::Put {
        value: value.into(),
        ttl: Some(Duration::from_secs(3600 * hours)),
    };
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    commit(&store, "/a/1", 0, short("one", 1)).await.unwrap();
    let second = commit(&store, "/a/2", 0, short("two", 1)).await.unwrap();
    commit(&store, "/a/2", second, short("longer", 3))
        .await
        .unwrap();
    store.close().await;

    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let revision = store.revision().await.unwrap();
    let mut watch = store.watch("/a/", revision).await.unwrap();
    clock.advance(hours(2));
    let batch = watch.next().await.unwrap();
    assert_eq!(&*batch.events[0].key, "/a/1");
    assert_eq!(batch.events[0].value, None);
    assert_eq!(store.get("/a/2").await.unwrap().unwrap().value, "longer");
    clock.advance(hours(2));
    assert_eq!(&*watch.next().await.unwrap().events[0].key, "/a/2");
    store.close().await;
}

fn hours(hours: i64) -> jiff::SignedDuration {
    jiff::SignedDuration::from_hours(hours)
}

fn user_version(directory: &Path) -> u32 {
    let connection = rusqlite::Connection::open(directory.join("store.db")).unwrap();
    let version = connection.pragma_query_value(None, "user_version", |row| row.get(0));
    version.unwrap()
}

fn open_error(directory: &Path) -> String {
    match EmbeddedStore::open(directory, manual_compaction_options()) {
        Err(Error::Fatal(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn files_are_readable_by_their_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let names = ["lock", "store.db", "store.db-wal", "store.db-shm"];
    let mode = |name: &str| fs::metadata(path(name)).unwrap().permissions().mode() & 0o777;
    for _ in 0..2 {
        let store = EmbeddedStore::open(directory.path(), manual_compaction_options()).unwrap();
        commit(
            &store,
            "/a",
            store
                .get("/a")
                .await
                .unwrap()
                .map_or(0, |kv| kv.mod_revision),
            put("x"),
        )
        .await
        .unwrap();
        assert_eq!(names.map(mode), [0o600; 4]);
        store.close().await;
        // An earlier release left the files in this state.
        for name in names.iter().filter(|name| path(name).exists()) {
            fs::set_permissions(path(name), fs::Permissions::from_mode(0o644)).unwrap();
        }
    }
}

#[tokio::test]
async fn directory_belongs_to_one_process() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), manual_compaction_options()).unwrap();
    let text = open_error(directory.path());
    assert!(
        text.contains(&format!("in use by process {};", std::process::id())),
        "{text}"
    );
    store.close().await;
    EmbeddedStore::open(directory.path(), manual_compaction_options())
        .unwrap()
        .close()
        .await;
}

#[tokio::test]
async fn the_format_of_values_is_raised_and_never_lowered() {
    let directory = tempfile::tempdir().unwrap();
    for (needed, stored) in [
        (format::BASE, format::BASE),
        (format::ENCRYPTED, format::ENCRYPTED),
        (format::BASE, format::ENCRYPTED),
    ] {
        let options = EmbeddedStoreOptions {
            format: needed,
            ..manual_compaction_options()
        };
        let store = EmbeddedStore::open(directory.path(), options).unwrap();
        assert_eq!(store.storage_format().await.unwrap(), stored);
        store.close().await;
        assert_eq!(user_version(directory.path()), format::DELTAS);
    }
}

#[test]
fn foreign_and_damaged_files_are_refused() {
    let check = |content: &dyn Fn(&Path), expected: &str| {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("store.db");
        content(&file);
        let before = fs::read(&file).unwrap();
        let text = open_error(directory.path());
        assert!(
            text.contains(expected) && text.contains("store.db"),
            "{text}"
        );
        assert_eq!(fs::read(&file).unwrap(), before, "must not be changed");
    };
    let sql = |file: &Path, sql: &str| {
        rusqlite::Connection::open(file)
            .unwrap()
            .execute_batch(sql)
            .unwrap();
    };
    check(
        &|file| fs::write(file, "a letter to the editor".repeat(50)).unwrap(),
        "not a store",
    );
    check(&|file| sql(file, "CREATE TABLE t(x)"), "another program");
    check(
        &|file| sql(file, "PRAGMA user_version = 7"),
        "another program",
    );
    check(
        &|file| {
            sql(
                file,
                "PRAGMA application_id = 1181511540; PRAGMA user_version = 99",
            )
        },
        "format 99",
    );
}

#[tokio::test]
async fn truncated_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), manual_compaction_options()).unwrap();
    for i in 0..200 {
        commit(&store, &format!("/a/{i}"), 0, put(vec![7; 2000]))
            .await
            .unwrap();
    }
    store.close().await;
    let file = directory.path().join("store.db");
    let content = fs::read(&file).unwrap();
    assert!(content.len() > 400_000, "closing runs a checkpoint");
    fs::write(&file, &content[..content.len() / 2]).unwrap();
    let text = open_error(directory.path());
    assert!(
        text.contains("damaged") && text.contains("backup"),
        "{text}"
    );
}

#[tokio::test]
async fn reads_succeed_without_space() {
    let directory = tempfile::tempdir().unwrap();
    let options = EmbeddedStoreOptions {
        quota_bytes: Some(1 << 20),
        ..manual_compaction_options()
    };
    let store = EmbeddedStore::open(directory.path(), options).unwrap();
    let mut revision = 0;
    let failure = loop {
        match commit(&store, "/a/1", revision, put(vec![7; 50_000])).await {
            Ok(next) => revision = next,
            Err(error) => break error,
        }
    };
    assert!(matches!(failure, Error::NoSpace(_)), "{failure:?}");
    assert!(revision > 10);
    assert_eq!(store.revision().await.unwrap(), revision);
    assert_eq!(
        store.get("/a/1").await.unwrap().unwrap().mod_revision,
        revision
    );
    let mut watch = store.watch("/a/", revision).await.unwrap();
    // Compaction makes space, and the next write is the next revision.
    store.compact(revision).await.unwrap();
    let next = loop {
        match commit(&store, "/a/1", revision, put(vec![7; 500_000])).await {
            Ok(next) => break next,
            Err(Error::NoSpace(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(next, revision + 1);
    assert_eq!(watch.next().await.unwrap().events[0].revision, next);
    commit(&store, "/a/2", 0, put(vec![7; 300_000]))
        .await
        .unwrap();
    store.close().await;
}

#[tokio::test]
async fn failure_is_final() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), manual_compaction_options()).unwrap();
    commit(&store, "/a/1", 0, put("one")).await.unwrap();
    let mut watch = store.watch("/a/", 1).await.unwrap();
    let vandal = rusqlite::Connection::open(directory.path().join("store.db")).unwrap();
    vandal.execute_batch("DROP TABLE history").unwrap();
    let result = commit(&store, "/a/2", 0, put("two")).await;
    assert!(matches!(result, Err(Error::Fatal(_))), "{result:?}");
    assert!(matches!(store.wait_for_failure().await, Error::Fatal(_)));
    assert!(matches!(watch.next().await, Err(Error::Fatal(_))));
    let result = commit(&store, "/a/3", 0, put("three")).await;
    assert!(matches!(result, Err(Error::Fatal(_))), "{result:?}");
    store.close().await;
}

#[tokio::test]
async fn wal_does_not_grow_without_bound() {
    let directory = tempfile::tempdir().unwrap();
    let options = EmbeddedStoreOptions {
        sync: false,
        history_retention: Some(Duration::from_millis(10)),
        ..manual_compaction_options()
    };
    let store = EmbeddedStore::open(directory.path(), options).unwrap();
    let mut revision = 0;
    for _ in 0..1000 {
        revision = commit(&store, "/a/1", revision, put(vec![7; 200_000]))
            .await
            .unwrap();
    }
    // 200 MB were written.
    let wal = fs::metadata(directory.path().join("store.db-wal"))
        .unwrap()
        .len();
    let stats = store.stats();
    assert!(
        wal < 72 << 20 && stats.disk_bytes < 110 << 20,
        "{wal} {stats:?}"
    );
    store.close().await;
}
