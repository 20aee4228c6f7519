//! Makes an embedded store from a backup, while no server uses the directory.
//!
//! The database is built in a directory beside its place, compared with the
//! backup, and moved there. No server starts on the directory while that one exists; so a
//! restore that is cut off leaves nothing that could be taken for a store.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode};

use super::database::{self, INCOMPLETE_RESTORE_DIR, LockedDataDirectory, wal_path};
use super::delta_encoder::DeltaEncoder;
use super::history_row::HistoryRow;
use super::mvcc_index::MvccIndex;
use super::options::EmbeddedStoreOptions;
use super::read_pool::read_row;
use crate::backup::{self, BackupReader, BackupRecord, BackupSummary};
use crate::delta::DeltaOptions;
use crate::etcd::EtcdOptions;
use crate::format;
use crate::store::{Error, StoreResult};

/// Bytes of keys and values in one transaction.
const BATCH_BYTES: usize = 16 << 20;
/// Keys in one transaction.
const BATCH_KEYS: usize = 10_000;
/// Revisions stay below the bit that marks tombstones, and SQLite's numbers.
const MAX_REVISION: u64 = 1 << 62;

/// The options of [`restore`].
#[derive(Clone, Debug)]
pub struct EmbeddedRestoreOptions {
    /// The distance of the revision from the revision of the backup. It must exceed the number of
    /// writes after the backup, so that no client sees a revision twice.
    pub revision_skip: u64,
    /// Whether a store in the directory is replaced.
    pub replace: bool,
    /// The keys whose values are stored as deltas.
    pub deltas: DeltaOptions,
}

/// Restores a backup into a directory. Returns what it holds, and the revision of the store.
///
/// # Errors
/// [`Error::Fatal`] when the backup cannot be used, a server uses the directory, it holds a
/// store, or it cannot be written. The directory then holds what it held before.
pub fn restore(
    directory: &Path,
    file: &Path,
    options: &EmbeddedRestoreOptions,
) -> StoreResult<(BackupSummary, u64)> {
    let unusable =
        |message: String| Error::Fatal(format!("cannot restore {}: {message}", file.display()));
    let backup = backup::verify(file).map_err(|message| unusable(message.to_string()))?;
    check_restorable(&backup, options).map_err(unusable)?;
    let directory = LockedDataDirectory::lock_for_restore(directory)?;
    let database = &directory.database;
    if !options.replace && database.exists() {
        return Err(Error::Fatal(format!(
            "the store {} exists; choose another data directory, or replace the store with --force",
            database.display()
        )));
    }
    let failed = |e: io::Error| {
        let text = format!("cannot restore to {}: {e}", database.display());
        match e.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::NoSpace(text),
            _ => Error::Fatal(text),
        }
    };
    let build = BuildDirectory::create(database).map_err(failed)?;
    let built = build.database(file, &backup, options);
    let revision = match built {
        Ok(revision) => revision,
        Err(error) => {
            build.remove().map_err(failed)?;
            return Err(error);
        }
    };
    build.install(database).map_err(failed)?;
    Ok((backup, revision))
}

fn check_restorable(
    backup: &BackupSummary,
    options: &EmbeddedRestoreOptions,
) -> Result<(), String> {
    let header = &backup.header;
    format::check("the backup", header.storage_format, format::NEWEST_BACKUP)
        .map_err(|e| e.to_string())?;
    let prefix = EtcdOptions::default().prefix;
    if header.storage_format >= format::ENCRYPTED && header.prefix != prefix {
        return Err(format!(
            "its values may be encrypted, and are then bound to the etcd prefix {}; the embedded \
             store has the prefix {prefix} and could not decrypt them",
            header.prefix
        ));
    }
    let highest = header.revision.checked_add(options.revision_skip);
    if highest.is_none_or(|revision| revision > MAX_REVISION) {
        return Err(format!(
            "its revision {} and the revision skip {} exceed the highest revision, {MAX_REVISION}",
            header.revision, options.revision_skip
        ));
    }
    Ok(())
}

/// The directory in which the database is built. Its existence keeps servers from starting.
struct BuildDirectory(PathBuf);

impl BuildDirectory {
    fn create(database: &Path) -> io::Result<Self> {
        let path = database.with_file_name(INCOMPLETE_RESTORE_DIR);
        // An earlier restore may have been cut off.
        remove_if_present(fs::remove_dir_all(&path))?;
        DirBuilder::new().mode(0o700).create(&path)?;
        database::sync_directory(&path)?;
        Ok(Self(path))
    }

    /// Builds the database and compares it with the backup. Returns its revision.
    fn database(
        &self,
        file: &Path,
        backup: &BackupSummary,
        restore: &EmbeddedRestoreOptions,
    ) -> StoreResult<u64> {
        let skip = restore.revision_skip;
        let path = self.0.join("store.db");
        let mut options = EmbeddedStoreOptions {
            format: backup.header.storage_format,
            ..EmbeddedStoreOptions::default()
        };
        let connection = database::open(&path, &options)?;
        write_records(&connection, file, &restore.deltas)?;
        options.skip_revisions = skip;
        let loaded = database::load(&connection, &options)?;
        compare_records(&connection, file, &loaded.index)?;
        let revision = loaded.index.revision();
        if revision != backup.header.revision + skip || loaded.index.compact_revision() != revision
        {
            return Err(Error::Fatal(format!(
                "the restored store has revision {revision}"
            )));
        }
        copy_wal(&connection)?;
        connection
            .close()
            .map_err(|(_, e)| database::store_error(e))?;
        let wal = fs::metadata(wal_path(&path)).map_or(0, |wal| wal.len());
        match wal {
            0 => Ok(revision),
            _ => Err(Error::Disk("the WAL of the restored store remains".into())),
        }
    }

    /// Moves the database to its place.
    fn install(self, database: &Path) -> io::Result<()> {
        for suffix in ["-wal", "-shm"] {
            let mut old = database.as_os_str().to_owned();
            old.push(suffix);
            remove_if_present(fs::remove_file(old))?;
        }
        let built = self.0.join("store.db");
        File::open(&built)?.sync_all()?;
        fs::rename(built, database)?;
        database::sync_directory(database)?;
        self.remove()
    }

    fn remove(self) -> io::Result<()> {
        fs::remove_dir_all(&self.0)?;
        database::sync_directory(&self.0)
    }
}

fn remove_if_present(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn open_backup(file: &Path) -> StoreResult<BackupReader<io::BufReader<File>>> {
    BackupReader::open(file).map_err(|message| changed_backup(&message))
}

/// The backup was verified before; so an error now means that it has changed.
fn changed_backup(error: &backup::BackupError) -> Error {
    Error::Fatal(format!(
        "the backup has changed since it was verified: {error}"
    ))
}

/// Writes all records, in transactions of bounded size, and marks the history up to the
/// backup's revision as compacted.
fn write_records(connection: &Connection, file: &Path, options: &DeltaOptions) -> StoreResult<()> {
    let mut reader = open_backup(file)?;
    let mut deltas = DeltaEncoder::new(options.clone());
    let mut finished = false;
    while !finished {
        let transaction = connection
            .unchecked_transaction()
            .map_err(database::store_error)?;
        let (mut bytes, mut keys) = (0, 0);
        while bytes < BATCH_BYTES && keys < BATCH_KEYS {
            let Some(record) = reader.next_record().map_err(|e| changed_backup(&e))? else {
                finished = true;
                database::set_compacted(&transaction, reader.header().revision)
                    .map_err(database::store_error)?;
                break;
            };
            insert(&transaction, &record, &mut deltas)?;
            bytes += record.key.len() + record.value.len();
            keys += 1;
        }
        transaction.commit().map_err(database::store_error)?;
        deltas.commit();
        copy_wal(connection)?;
    }
    Ok(())
}

fn insert(
    connection: &Connection,
    record: &BackupRecord,
    deltas: &mut DeltaEncoder,
) -> StoreResult<()> {
    let row = HistoryRow {
        revision: record.mod_revision,
        key: &record.key,
        previous: 0,
        expires: record.expires_at_ms,
        value: Some(&record.value),
    };
    let inserted = row.insert(connection, deltas);
    match inserted {
        Ok(_) => Ok(()),
        Err(e) if e.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            Err(Error::Fatal(format!(
                "the backup has two keys of revision {}, one of them {}; another program wrote \
                 them to etcd, and only etcd can hold them",
                record.mod_revision, record.key
            )))
        }
        Err(e) => Err(database::store_error(e)),
    }
}

/// Compares the database, as a server loads it, with the backup.
fn compare_records(connection: &Connection, file: &Path, index: &MvccIndex) -> StoreResult<()> {
    let mut reader = open_backup(file)?;
    let mut keys = 0;
    while let Some(record) = reader.next_record().map_err(|e| changed_backup(&e))? {
        let revision = index.newest(&record.key).map(|newest| newest.revision);
        let row = read_row(connection, record.mod_revision).map_err(database::store_error)?;
        if revision != Some(record.mod_revision)
            || row != Some((record.value, record.expires_at_ms))
        {
            return Err(Error::Fatal(format!(
                "the key {} was not restored as it is in the backup; the disk may be damaged",
                record.key
            )));
        }
        keys += 1;
    }
    match index.keys() == keys {
        true => Ok(()),
        false => Err(Error::Fatal(format!(
            "the restored store has {} keys, and the backup {keys}",
            index.keys()
        ))),
    }
}

/// Copies the WAL into the database, so that it stays short.
fn copy_wal(connection: &Connection) -> StoreResult<()> {
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .map_err(database::store_error)
}
