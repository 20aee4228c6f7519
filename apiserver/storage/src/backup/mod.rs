//! Backups of a store: every key at one revision in a file that verifies itself.
//!
//! [`BackupSource`] ──pages──► [`BackupStream`] ──► file ──► [`BackupReader`] ──► restore
//!
//! A backup is the line `flotilla-backup 1`, a zlib stream, and the SHA-256 of both. The
//! stream has a header (four bytes of length, then JSON), the records in ascending order of
//! their keys, and a trailer with their count. Numbers are big-endian. A record is a tag, the revision of the key's last write, the lengths of key
//! and value, and both; a record with [`TAG_EXPIRING_KEY`] has the time of its expiry before
//! the revision. Where the server fails after it began to respond, [`TAG_FAILURE`] and the
//! reason take the place of the trailer.
//!
//! Values are copied as the engine stores them: what is encrypted stays encrypted.

mod reader;
mod source;
mod stream;
#[cfg(test)]
mod tests;
mod writer;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use self::reader::{BackupReader, BackupSummary, verify};
pub use self::source::{BackupSource, SnapshotPage};
pub use self::stream::BackupStream;
pub(crate) use self::writer::BackupEncoder;

/// The version of the file format that this program writes and reads.
const FORMAT_VERSION: u32 = 1;
/// The beginning of the first line; the version follows.
const MAGIC: &str = "flotilla-backup ";
/// The longest first line.
const MAX_MAGIC_LINE_BYTES: u64 = 64;
/// The longest header, and the longest reason of a failure.
const MAX_TEXT_BYTES: usize = 64 << 10;
const TAG_TRAILER: u8 = 0;
const TAG_KEY: u8 = 1;
const TAG_EXPIRING_KEY: u8 = 2;
const TAG_FAILURE: u8 = 255;
const SHA256_BYTES: usize = 32;

/// The content of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupHeader {
    /// The revision at which every key was read.
    pub revision: u64,
    /// The engine that it was taken from, `embedded` or `etcd`.
    pub engine: String,
    /// The prefix of the keys in etcd, which encrypted values are bound to; the embedded store
    /// has the default.
    pub prefix: String,
    /// The version of the storage format ([`crate::format`]).
    pub storage_format: u32,
    /// When it was begun.
    pub taken_at: String,
}

/// One key at the revision of the backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupRecord {
    pub key: Arc<str>,
    /// The value as it is stored.
    pub value: Bytes,
    pub mod_revision: u64,
    /// Milliseconds since 1970; `None`: it does not expire.
    pub expires_at_ms: Option<i64>,
}

/// Why a backup cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("it is not a backup of Flotilla")]
    NotABackup,
    #[error(
        "it has format {0} of backups, and this version of Flotilla knows only format \
         {FORMAT_VERSION}; use the version that wrote it, or a newer one"
    )]
    UnknownFormat(String),
    #[error("it is damaged: {0}")]
    Damaged(String),
    #[error("it is not complete: it ends before its trailer; the download or a copy was cut off")]
    Truncated,
    /// The server's own reason.
    #[error("the server could not complete it: {0}")]
    Incomplete(String),
    #[error("it cannot be read: {0}")]
    Io(io::Error),
}

impl From<io::Error> for BackupError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Truncated,
            // The errors of the decompressor.
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                Self::Damaged(error.to_string())
            }
            _ => Self::Io(error),
        }
    }
}
