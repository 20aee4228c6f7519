//! The tables of the database, and the conversion of databases that earlier versions wrote.
//!
//! A row of `history` is one write and its primary key is the revision, so that a write is an
//! append to one B-tree; keys are looked up in memory. Loading does not read the pages of large
//! values: only a `base` follows a value, and a row with a base is small.

use rusqlite::{Connection, OptionalExtension};

use crate::format;

/// "Flot", in the header of the file.
pub(super) const APPLICATION_ID: i32 = 0x466c_6f74;
const SCHEMA: &str = "
CREATE TABLE history (
    revision INTEGER PRIMARY KEY,
    key      TEXT NOT NULL,
    previous INTEGER NOT NULL, -- revision of the key's state before; 0: absent
    expires  INTEGER,          -- milliseconds since 1970
    value    BLOB              -- NULL: deleted
) STRICT;
CREATE TABLE mark (name TEXT PRIMARY KEY, revision INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO mark VALUES ('compacted', 0);
";
/// What [`format::DELTAS`] adds. The rows of earlier versions hold whole values.
const DELTA_SCHEMA: &str = "
ALTER TABLE history ADD COLUMN base INTEGER; -- NULL: the value is whole, else a delta
CREATE TABLE base (id INTEGER PRIMARY KEY, value BLOB NOT NULL) STRICT;
";
/// Values may be encrypted since then.
const MARK_ENCRYPTED: &str = "INSERT OR IGNORE INTO mark SELECT 'encrypted', \
                              coalesce(max(revision), 0) FROM history;";

/// Creates the tables where they are missing, and adds those of newer versions, each in one
/// transaction. `value_format` is the version that the values need.
pub(super) fn prepare(connection: &Connection, value_format: u32) -> rusqlite::Result<()> {
    let version: u32 = connection.pragma_query_value(None, "user_version", |r| r.get(0))?;
    let encrypts = value_format.max(version) == format::ENCRYPTED;
    let mark = if encrypts { MARK_ENCRYPTED } else { "" };
    if version < format::DELTAS {
        let tables = if version == 0 { SCHEMA } else { "" };
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {tables} {DELTA_SCHEMA} {mark}
             PRAGMA application_id = {APPLICATION_ID};
             PRAGMA user_version = {}; COMMIT",
            format::DELTAS
        ))
    } else if value_format == format::ENCRYPTED && read_value_format(connection)? == format::BASE {
        connection.execute_batch(MARK_ENCRYPTED)
    } else {
        Ok(())
    }
}

/// The version of the values: [`format::BASE`], or [`format::ENCRYPTED`] when some may be.
pub(super) fn read_value_format(connection: &Connection) -> rusqlite::Result<u32> {
    let encrypts = connection
        .prepare_cached("SELECT 1 FROM mark WHERE name = 'encrypted'")?
        .query_row([], |_| Ok(()))
        .optional()?;
    Ok(encrypts.map_or(format::BASE, |()| format::ENCRYPTED))
}
