//! The SQLite database: its lock and pragmas, its connections, and loading the
//! [`MvccIndex`] from it. Errors say what the operator can do.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, ToSql, params};

use super::mvcc_index::{KeyVersion, MvccIndex, SupersededRow};
use super::options::EmbeddedStoreOptions;
use super::schema::{self, APPLICATION_ID};
use crate::format;
use crate::store::{Error, StoreResult};

/// Bytes of recent events that the ring holds for watches.
const EVENT_RING_BYTES: usize = 8 << 20;
const PAGE_BYTES: u64 = 4096;
const OWNER_ONLY: u32 = 0o600;
/// Permission bits of group and others.
const GROUP_AND_OTHERS: u32 = 0o077;
/// The directory in which a restore builds its database.
pub(super) const INCOMPLETE_RESTORE_DIR: &str = "restore-incomplete";

/// A revision as SQLite stores it: a signed number. Revisions stay below 2^63.
#[derive(Clone, Copy, Debug)]
pub(super) struct SqlRevision(pub(super) u64);

impl ToSql for SqlRevision {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let number = i64::try_from(self.0);
        let number = number.map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
        Ok(ToSqlOutput::from(number))
    }
}

impl FromSql for SqlRevision {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let number = value.as_i64()?;
        u64::try_from(number)
            .map(Self)
            .map_err(|_| FromSqlError::OutOfRange(number))
    }
}

/// When a key expires (milliseconds since 1970), and the revision of the write that set
/// its time to live.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyExpiry {
    pub(super) expires_at_ms: i64,
    pub(super) revision: u64,
    pub(super) key: std::sync::Arc<str>,
}

/// The content of the database in memory, without values.
#[derive(Debug)]
pub(super) struct LoadedDatabase {
    pub(super) index: MvccIndex,
    pub(super) superseded_rows: VecDeque<SupersededRow>,
    pub(super) expiries: BinaryHeap<Reverse<KeyExpiry>>,
    /// The number of rows that refer to each base.
    pub(super) base_references: HashMap<i64, i64>,
}

/// A data directory that this process has locked.
#[derive(Debug)]
pub(super) struct LockedDataDirectory {
    pub(super) database: PathBuf,
    /// The kernel releases the lock when the process ends.
    lock: File,
}

impl LockedDataDirectory {
    /// Locks the directory, unless a restore into it was cut off.
    pub(super) fn lock(path: &Path) -> StoreResult<Self> {
        let locked = Self::lock_for_restore(path)?;
        check_no_incomplete_restore(path)?;
        Ok(locked)
    }

    pub(super) fn lock_for_restore(path: &Path) -> StoreResult<Self> {
        let failed = |e: std::io::Error| {
            Error::Fatal(format!(
                "cannot use the data directory {}: {e}; choose one that this user may write",
                path.display()
            ))
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(failed)?;
        let lock_file = path.join("lock");
        let mut lock = File::options()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .mode(OWNER_ONLY)
            .open(&lock_file)
            .map_err(failed)?;
        restrict_to_owner(&lock_file).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(e)) => return Err(failed(e)),
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                let _ = Read::by_ref(&mut lock).take(32).read_to_string(&mut owner);
                return Err(Error::Fatal(format!(
                    "the data directory {} is in use by process {}; stop it or choose another \
                     directory",
                    path.display(),
                    owner.trim()
                )));
            }
        }
        lock.set_len(0).map_err(failed)?;
        lock.rewind().map_err(failed)?;
        writeln!(lock, "{}", std::process::id()).map_err(failed)?;
        File::open(path)
            .and_then(|d| d.sync_all())
            .map_err(failed)?;
        Ok(Self {
            database: path.join("store.db"),
            lock,
        })
    }
}

impl Drop for LockedDataDirectory {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that this one has forked just then has a copy of
        // it until it executes its program. Nothing is left to do if that fails.
        let _ = self.lock.unlock();
    }
}

/// Removes the permissions of group and others from an existing file.
fn restrict_to_owner(path: &Path) -> std::io::Result<()> {
    match fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(file) if file.permissions().mode() & GROUP_AND_OTHERS == 0 => Ok(()),
        Ok(_) => fs::set_permissions(path, Permissions::from_mode(OWNER_ONLY)),
    }
}

/// Makes the files of a database private, and creates the database where it is missing. SQLite
/// creates its other files with the mode of the database. Existing files are not opened: closing
/// one would release the locks of this process on it.
fn make_private(database: &Path) -> std::io::Result<()> {
    let mut options = File::options();
    match options
        .create_new(true)
        .write(true)
        .mode(OWNER_ONLY)
        .open(database)
    {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    for suffix in ["", "-wal", "-shm"] {
        restrict_to_owner(&path_with_suffix(database, suffix))?;
    }
    Ok(())
}

/// Fails when a restore into this directory was cut off.
fn check_no_incomplete_restore(directory: &Path) -> StoreResult<()> {
    let incomplete = directory.join(INCOMPLETE_RESTORE_DIR);
    if !incomplete.exists() {
        return Ok(());
    }
    Err(Error::Fatal(format!(
        "a restore into the data directory was not completed; run `flotilla restore` again with \
         --force, or remove {} to use what was there before",
        incomplete.display()
    )))
}

/// Opens the writer's connection and creates the schema where it is missing.
pub(super) fn open(database: &Path, options: &EmbeddedStoreOptions) -> StoreResult<Connection> {
    let explain = |e: rusqlite::Error| match e.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            corruption_error(database, &e)
        }
        _ => {
            let text = format!("cannot open the store {}: {e}", database.display());
            match store_error(e) {
                Error::NoSpace(_) => Error::NoSpace(text),
                Error::Disk(_) => Error::Disk(text),
                _ => Error::Fatal(text),
            }
        }
    };
    make_private(database).map_err(|e| {
        let text = format!("cannot open the store {}: {e}", database.display());
        match e.kind() {
            ErrorKind::StorageFull => Error::NoSpace(text),
            _ => Error::Fatal(text),
        }
    })?;
    let connection = Connection::open(database).map_err(explain)?;
    check_application_id(&connection, database).map_err(|e| e.or_else(explain))?;
    configure(&connection, options).map_err(explain)?;
    Ok(connection)
}

/// Opens a database in memory, which belongs to this connection alone.
pub(super) fn open_memory(options: &EmbeddedStoreOptions) -> StoreResult<Connection> {
    let connection = Connection::open_in_memory().map_err(store_error)?;
    configure(&connection, options).map_err(store_error)?;
    Ok(connection)
}

/// Opens a further connection, for reads or for checkpoints.
pub(super) fn open_extra(database: &Path) -> StoreResult<Connection> {
    let connection = Connection::open(database).map_err(store_error)?;
    set_checkpoint_on_close(&connection, false)?;
    connection
        .busy_timeout(Duration::from_secs(5))
        .map_err(store_error)?;
    connection
        .pragma_update(None, "cache_size", -2048)
        .map_err(store_error)?;
    Ok(connection)
}

/// Why a database was not opened: we refuse its content, or SQLite failed.
enum OpenFailure {
    Rejected(Error),
    Sqlite(rusqlite::Error),
}

impl OpenFailure {
    fn or_else(self, explain: impl FnOnce(rusqlite::Error) -> Error) -> Error {
        match self {
            Self::Rejected(e) => e,
            Self::Sqlite(e) => explain(e),
        }
    }
}

impl From<rusqlite::Error> for OpenFailure {
    fn from(e: rusqlite::Error) -> Self {
        Self::Sqlite(e)
    }
}

fn check_application_id(connection: &Connection, database: &Path) -> Result<(), OpenFailure> {
    let id: i32 = connection.pragma_query_value(None, "application_id", |r| r.get(0))?;
    let version: u32 = connection.pragma_query_value(None, "user_version", |r| r.get(0))?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))?;
    let file = database.display();
    if id == 0 && version == 0 && tables == 0 {
        return Ok(());
    }
    if id != APPLICATION_ID {
        return Err(OpenFailure::Rejected(Error::Fatal(format!(
            "{file} is a database of another program; choose another data directory"
        ))));
    }
    format::check(&file.to_string(), version, format::DELTAS).map_err(OpenFailure::Rejected)
}

fn configure(connection: &Connection, options: &EmbeddedStoreOptions) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    let synchronous = if options.sync { "FULL" } else { "OFF" };
    connection.pragma_update(None, "synchronous", synchronous)?;
    // A thread of its own runs the checkpoints, see checkpoint.rs.
    connection.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "journal_size_limit", 64 << 20, |_| Ok(()))?;
    connection.pragma_update(None, "cache_size", -4096)?;
    if options.format >= format::ENCRYPTED {
        // Compaction overwrites rows that were stored as plaintext earlier.
        connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    }
    schema::prepare(connection, options.format)?;
    // After that, since a full store gets its new tables as well; SQLite then raises the limit
    // to the pages that there are.
    if let Some(quota) = options.quota_bytes {
        let pages = i64::try_from(quota / PAGE_BYTES).unwrap_or(i64::MAX);
        connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
    }
    // A crash may have left it behind, see `probe_space`.
    connection.execute_batch("DROP TABLE IF EXISTS space_probe")
}

/// Reads the versions of all keys.
pub(super) fn load(
    connection: &Connection,
    options: &EmbeddedStoreOptions,
) -> StoreResult<LoadedDatabase> {
    let file = PathBuf::from(connection.path().unwrap_or_default());
    load_rows(connection, options).map_err(|e| match e.sqlite_error_code() {
        Some(code) if code != ErrorCode::DatabaseCorrupt => store_error(e),
        _ => corruption_error(&file, &e),
    })
}

fn load_rows(
    connection: &Connection,
    options: &EmbeddedStoreOptions,
) -> rusqlite::Result<LoadedDatabase> {
    let SqlRevision(mut compacted) = connection.query_row(
        "SELECT revision FROM mark WHERE name = 'compacted'",
        [],
        |r| r.get(0),
    )?;
    let mut state = MvccIndex::new(EVENT_RING_BYTES);
    let mut garbage = VecDeque::new();
    let mut expiries = BinaryHeap::new();
    let mut base_references = HashMap::new();
    let mut revision = 0;
    let mut statement = connection.prepare(
        "SELECT revision, key, expires, value IS NULL, base FROM history ORDER BY revision",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        SqlRevision(revision) = row.get(0)?;
        let key: std::sync::Arc<str> = row.get_ref(1)?.as_str()?.into();
        if let Some(at) = row.get(2)? {
            expiries.push(Reverse(KeyExpiry {
                expires_at_ms: at,
                revision,
                key: key.clone(),
            }));
        }
        let deleted = row.get(3)?;
        if let Some(base) = row.get::<_, Option<i64>>(4)? {
            *base_references.entry(base).or_default() += 1;
        }
        state.load_row(key, KeyVersion::new(revision, deleted), &mut garbage);
    }
    // The rows of the last writes may be tombstones that were compacted.
    revision = revision.max(compacted);
    if options.skip_revisions > 0 {
        revision += options.skip_revisions;
        compacted = revision;
        set_compacted(connection, compacted)?;
    }
    state.finish_load(revision, compacted);
    Ok(LoadedDatabase {
        index: state,
        superseded_rows: garbage,
        expiries,
        base_references,
    })
}

pub(super) fn set_compacted(connection: &Connection, revision: u64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE mark SET revision = ?1 WHERE name = 'compacted'")?
        .execute(params![SqlRevision(revision)])
        .map(drop)
}

/// Maps an error of SQLite to an error of the store.
pub(super) fn store_error(e: rusqlite::Error) -> Error {
    let extended = e.sqlite_error().map_or(0, |e| e.extended_code);
    match e.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::NoSpace(e.to_string()),
        // The shared-memory index of the WAL cannot grow.
        _ if extended == SQLITE_IOERR_SHMSIZE => Error::NoSpace(e.to_string()),
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::OutOfMemory
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed,
        ) => Error::Disk(format!("{e} (SQLite code {extended})")),
        _ => Error::Fatal(e.to_string()),
    }
}

/// Sets whether SQLite runs a checkpoint when the last connection is closed.
pub(super) fn set_checkpoint_on_close(connection: &Connection, enabled: bool) -> StoreResult<()> {
    let option = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    connection
        .set_db_config(option, !enabled)
        .map_err(store_error)?;
    Ok(())
}

/// Writes every page of the WAL again and syncs it. An fsync of an earlier process may
/// have failed; the kernel then marks pages clean that can be read but are not on the
/// disk. No connection may be open.
pub(super) fn rewrite_wal(database: &Path) -> StoreResult<()> {
    let path = wal_path(database);
    let rewrite = || {
        let log = match File::options().read(true).write(true).open(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            log => log?,
        };
        let mut chunk = vec![0; 1 << 20];
        let mut index = 0;
        loop {
            let size = log.read_at(&mut chunk, index)?;
            if size == 0 {
                break;
            }
            log.write_all_at(&chunk[..size], index)?;
            index += size as u64;
        }
        log.sync_all()?;
        sync_directory(&path)
    };
    rewrite().map_err(|e: std::io::Error| {
        let text = format!("cannot rewrite {}: {e}", path.display());
        match e.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::NoSpace(text),
            _ => Error::Disk(text),
        }
    })
}

/// Syncs the directory that holds a file.
pub(super) fn sync_directory(file: &Path) -> std::io::Result<()> {
    match file.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

/// Checks that this many bytes can be written and synced, by writing them to a table
/// that it drops again.
pub(super) fn probe_space(connection: &Connection, bytes: usize) -> StoreResult<()> {
    let written = connection.execute_batch(&format!(
        "BEGIN IMMEDIATE; DROP TABLE IF EXISTS space_probe; CREATE TABLE space_probe (value BLOB);
         INSERT INTO space_probe VALUES (zeroblob({bytes})); COMMIT; DROP TABLE space_probe"
    ));
    if written.is_err() && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK").map_err(store_error)?;
    }
    written.map_err(store_error)
}

fn corruption_error(database: &Path, e: &rusqlite::Error) -> Error {
    Error::Fatal(format!(
        "the store {} is damaged or not a store ({e}); restore it from a backup, or move it away \
         to start empty",
        database.display()
    ))
}

/// The bytes of the database and its WAL on disk.
pub(super) fn disk_bytes(database: &Path) -> u64 {
    let size = |path: &Path| fs::metadata(path).map_or(0, |m| m.len());
    size(database) + size(&wal_path(database))
}

pub(super) fn wal_path(database: &Path) -> PathBuf {
    path_with_suffix(database, "-wal")
}

fn path_with_suffix(database: &Path, suffix: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_lock_in_a_child_process_does_not_keep_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let locked = LockedDataDirectory::lock(directory.path()).unwrap();
        let copy = locked.lock.try_clone().unwrap();
        drop(locked);
        LockedDataDirectory::lock(directory.path()).unwrap();
        drop(copy);
    }
}
