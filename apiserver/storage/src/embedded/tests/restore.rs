//! Backups of running embedded stores, and stores restored from them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use machinery::time::SystemClock;

use crate::backup::{BackupReader, BackupRecord, BackupSource, BackupStream};
use crate::delta::DeltaOptions;
use crate::embedded::database::INCOMPLETE_RESTORE_DIR;
use crate::embedded::{EmbeddedRestoreOptions, EmbeddedStore, EmbeddedStoreOptions, restore};
use crate::store::{Error, SingleKeyTxn, SingleKeyTxnOp, Store, TxnResponse};

const OPTIONS: EmbeddedRestoreOptions = EmbeddedRestoreOptions {
    revision_skip: 1_000,
    replace: false,
    deltas: DeltaOptions {
        prefixes: Vec::new(),
        minimum_bytes: 0,
    },
};

async fn put(store: &EmbeddedStore, key: &str, expected: u64, value: &str) -> u64 {
    put_with_ttl(store, key, expected, value.to_owned(), None).await
}

async fn put_with_ttl(
    store: &EmbeddedStore,
    key: &str,
    expected: u64,
    value: String,
    ttl: Option<Duration>,
) -> u64 {
    let txn = SingleKeyTxn {
        key: key.into(),
        expected,
        op: SingleKeyTxnOp::Put {
            value: value.into(),
            ttl,
        },
    };
    match store.commit(txn).await.unwrap() {
        TxnResponse::Committed { revision } => revision,
        TxnResponse::Conflict { current } => panic!("{current:?}"),
    }
}

/// Takes a backup and writes it to a file.
async fn take(store: &Arc<EmbeddedStore>, directory: &Path) -> PathBuf {
    let source = Arc::clone(store) as Arc<dyn BackupSource>;
    let mut stream = BackupStream::begin(source, &SystemClock).await.unwrap();
    let file = directory.join("backup");
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.next_chunk().await {
        bytes.extend_from_slice(&chunk);
    }
    fs::write(&file, bytes).unwrap();
    file
}

fn read(file: &Path) -> Vec<BackupRecord> {
    let mut reader = BackupReader::open(file).unwrap();
    std::iter::from_fn(|| reader.next_record().unwrap()).collect()
}

fn restored(directory: &Path) -> EmbeddedStore {
    EmbeddedStore::open(directory, EmbeddedStoreOptions::default()).unwrap()
}

#[tokio::test]
async fn a_restored_store_has_the_keys_revisions_and_expiries() {
    let directory = tempfile::tempdir().unwrap();
    let old = EmbeddedStore::open(
        &directory.path().join("old"),
        EmbeddedStoreOptions::default(),
    );
    let old = Arc::new(old.unwrap());
    let mut last = 0;
    // Several pages by number and by bytes, with deleted and replaced keys among them.
    for n in 0..1_100 {
        last = put(&old, &format!("/registry/a/{n:04}"), 0, "{}").await;
    }
    for n in 0..12 {
        let key = format!("/registry/b/{n}");
        last = put_with_ttl(&old, &key, 0, "x".repeat(1 << 20), None).await;
    }
    let ttl = Some(Duration::from_secs(3600));
    put_with_ttl(&old, "/registry/events/e", 0, "{}".into(), ttl).await;
    let txn = SingleKeyTxn {
        key: "/registry/b/11".into(),
        expected: last,
        op: SingleKeyTxnOp::Delete,
    };
    old.commit(txn).await.unwrap();
    let file = take(&old, directory.path()).await;
    let revision = old.revision().await.unwrap();

    let new = directory.path().join("new");
    let (summary, restored_revision) = restore(&new, &file, &OPTIONS).unwrap();
    assert_eq!((summary.keys, summary.header.revision), (1_112, revision));
    assert_eq!(restored_revision, revision + 1_000);
    let new = Arc::new(restored(&new));
    assert_eq!(new.revision().await.unwrap(), revision + 1_000);
    let second_directory = directory.path().join("again");
    fs::create_dir(&second_directory).unwrap();
    assert!(read(&take(&new, &second_directory).await) == read(&file));
    assert!(matches!(
        new.watch("/registry/", revision).await,
        Err(Error::Compacted { at }) if at == revision + 1_000
    ));
    let next = put(&new, "/registry/c", 0, "{}").await;
    assert_eq!(next, revision + 1_001);
}

#[tokio::test]
async fn a_backup_has_one_revision_while_keys_change() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::in_memory(EmbeddedStoreOptions::default()).unwrap();
    let store = Arc::new(store);
    let keys: Vec<String> = (0..1_500).map(|n| format!("/registry/a/{n:04}")).collect();
    let mut revisions = Vec::new();
    for key in &keys {
        revisions.push(put(&store, key, 0, "old").await);
    }
    let source = Arc::clone(&store) as Arc<dyn BackupSource>;
    let mut stream = BackupStream::begin(source, &SystemClock).await.unwrap();
    for (key, revision) in keys.iter().zip(&revisions) {
        put(&store, key, *revision, "new").await;
    }
    put(&store, "/registry/a/0000a", 0, "new").await;
    let file = directory.path().join("backup");
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.next_chunk().await {
        bytes.extend_from_slice(&chunk);
    }
    fs::write(&file, bytes).unwrap();
    let records = read(&file);
    let read: Vec<u64> = records.iter().map(|record| record.mod_revision).collect();
    assert_eq!(read, revisions);
    assert!(records.iter().all(|record| record.value == "old"));
}

#[tokio::test]
async fn a_backup_whose_history_is_compacted_says_so() {
    let store = EmbeddedStore::in_memory(EmbeddedStoreOptions::default()).unwrap();
    let store = Arc::new(store);
    let first = put(&store, "/registry/a", 0, "old").await;
    let source = Arc::clone(&store) as Arc<dyn BackupSource>;
    let mut stream = BackupStream::begin(source, &SystemClock).await.unwrap();
    let second = put(&store, "/registry/a", first, "new").await;
    store.compact(second).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.next_chunk().await {
        bytes.extend_from_slice(&chunk);
    }
    let mut reader = BackupReader::new(&bytes[..]).unwrap();
    let error = reader.next_record().unwrap_err().to_string();
    let expected = format!(
        "the server could not complete it: the history of its revision {first} was compacted (at \
         {second}) before all keys were sent"
    );
    assert!(error.starts_with(&expected), "{error}");
}

#[tokio::test]
async fn what_cannot_be_restored_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let old = EmbeddedStore::in_memory(EmbeddedStoreOptions::default()).unwrap();
    let old = Arc::new(old);
    put(&old, "/registry/a", 0, "{}").await;
    let file = take(&old, directory.path()).await;
    let new = directory.path().join("new");

    let damaged = directory.path().join("damaged");
    let mut bytes = fs::read(&file).unwrap();
    bytes.pop();
    fs::write(&damaged, bytes).unwrap();
    let error = restore(&new, &damaged, &OPTIONS).unwrap_err().to_string();
    assert!(error.contains("it is not complete"), "{error}");
    assert!(!new.exists());

    let skip = EmbeddedRestoreOptions {
        revision_skip: u64::MAX,
        ..OPTIONS
    };
    let error = restore(&new, &file, &skip).unwrap_err().to_string();
    assert!(error.contains("exceed the highest revision"), "{error}");
    assert!(!new.exists());

    let running = restored(&new);
    let replace = EmbeddedRestoreOptions {
        replace: true,
        ..OPTIONS
    };
    let error = restore(&new, &file, &replace).unwrap_err().to_string();
    assert!(error.contains("is in use by process"), "{error}");
    let revision = put(&running, "/registry/kept", 0, "{}").await;
    running.close().await;
    let error = restore(&new, &file, &OPTIONS).unwrap_err().to_string();
    assert!(error.contains("replace the store with --force"), "{error}");
    let running = restored(&new);
    assert_eq!(running.revision().await.unwrap(), revision);
    running.close().await;

    restore(&new, &file, &replace).unwrap();
    let replaced = restored(&new);
    assert!(replaced.get("/registry/kept").await.unwrap().is_none());
    assert!(replaced.get("/registry/a").await.unwrap().is_some());
}

#[tokio::test]
async fn no_store_opens_where_a_restore_was_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let old = EmbeddedStore::in_memory(EmbeddedStoreOptions::default()).unwrap();
    let old = Arc::new(old);
    put(&old, "/registry/a", 0, "{}").await;
    let file = take(&old, directory.path()).await;
    let new = directory.path().join("new");
    fs::create_dir_all(new.join(INCOMPLETE_RESTORE_DIR)).unwrap();
    fs::write(new.join(INCOMPLETE_RESTORE_DIR).join("store.db"), "part").unwrap();
    let opened = EmbeddedStore::open(&new, EmbeddedStoreOptions::default());
    let error = opened.err().unwrap().to_string();
    assert!(error.contains("was not completed"), "{error}");
    restore(&new, &file, &OPTIONS).unwrap();
    let store = restored(&new);
    assert!(store.get("/registry/a").await.unwrap().is_some());
}
