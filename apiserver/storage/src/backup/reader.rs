//! Reads and verifies a backup.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use flate2::bufread::ZlibDecoder;

use super::{
    BackupError, BackupHeader, BackupRecord, FORMAT_VERSION, MAGIC, MAX_MAGIC_LINE_BYTES,
    MAX_TEXT_BYTES, SHA256_BYTES, TAG_EXPIRING_KEY, TAG_FAILURE, TAG_KEY, TAG_TRAILER,
};
use crate::store::MAX_REQUEST_BYTES;

/// The content of a verified backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupSummary {
    pub header: BackupHeader,
    /// The number of keys.
    pub keys: u64,
}

/// Reads a backup from its beginning to its end.
///
/// # Errors
/// The first defect of the file.
pub fn verify(file: &Path) -> Result<BackupSummary, BackupError> {
    let mut reader = BackupReader::open(file)?;
    while reader.next_record()?.is_some() {}
    Ok(BackupSummary {
        keys: reader.count,
        header: reader.header,
    })
}

/// Reads a backup record by record. Only when [`BackupReader::next_record`] has returned
/// `None` is it known to be whole.
pub struct BackupReader<R> {
    content: BackupContent<R>,
    header: BackupHeader,
    count: u64,
    last_key: Arc<str>,
}

impl BackupReader<BufReader<File>> {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// As [`BackupReader::new`].
    pub fn open(file: &Path) -> Result<Self, BackupError> {
        let file = File::open(file).map_err(BackupError::Io)?;
        Self::new(BufReader::with_capacity(256 << 10, file))
    }
}

impl<R: BufRead> BackupReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// When the input is no backup, has an unknown format, or ends within its header.
    pub fn new(input: R) -> Result<Self, BackupError> {
        let mut input = HashingInput {
            input,
            hash: Context::new(&SHA256),
        };
        check_magic_line(&mut input)?;
        let mut content = BackupContent(ZlibDecoder::new(input));
        let length = content.length()?;
        let json = content.bytes(length, MAX_TEXT_BYTES)?;
        let header = machinery::json::from_slice(&json)
            .map_err(|e| BackupError::Damaged(format!("its header cannot be read: {e}")))?;
        Ok(Self {
            content,
            header,
            count: 0,
            last_key: "".into(),
        })
    }

    pub fn header(&self) -> &BackupHeader {
        &self.header
    }

    /// The next record; `None` after the last, when the trailer matches.
    ///
    /// # Errors
    /// The first defect.
    pub fn next_record(&mut self) -> Result<Option<BackupRecord>, BackupError> {
        let [tag] = self.content.array()?;
        let expires_at_ms = match tag {
            TAG_TRAILER => return self.check_trailer().map(|()| None),
            TAG_FAILURE => return Err(self.read_failure()),
            TAG_KEY => None,
            TAG_EXPIRING_KEY => Some(i64::from_be_bytes(self.content.array()?)),
            _ => return Err(BackupError::Damaged(format!("unknown record type {tag}"))),
        };
        let mod_revision = u64::from_be_bytes(self.content.array()?);
        let (key_length, value_length) = (self.content.length()?, self.content.length()?);
        let key = self.content.bytes(key_length, MAX_REQUEST_BYTES)?;
        let value = self.content.bytes(value_length, MAX_STORED_VALUE_BYTES)?;
        let key = String::from_utf8(key);
        let key: Arc<str> = key.map_err(|_| damaged("a key is not UTF-8"))?.into();
        if key <= self.last_key {
            return Err(damaged("its keys are not in ascending order"));
        }
        if mod_revision == 0 || mod_revision > self.header.revision {
            return Err(damaged("a key has a revision that the backup cannot have"));
        }
        self.count += 1;
        self.last_key = Arc::clone(&key);
        Ok(Some(BackupRecord {
            key,
            value: value.into(),
            mod_revision,
            expires_at_ms,
        }))
    }

    fn check_trailer(&mut self) -> Result<(), BackupError> {
        let count = u64::from_be_bytes(self.content.array()?);
        if count != self.count {
            return Err(damaged("its trailer has another number of keys"));
        }
        // Reading to the end also checks the checksum of the compression.
        if self.content.0.read(&mut [0])? != 0 {
            return Err(damaged("data follows its trailer"));
        }
        let input = self.content.0.get_mut();
        let actual = input.hash.clone().finish();
        let mut stored = [0; SHA256_BYTES];
        input.input.read_exact(&mut stored)?;
        if actual.as_ref() != stored {
            return Err(damaged("its SHA-256 does not match its content"));
        }
        match input.input.fill_buf()?.is_empty() {
            true => Ok(()),
            false => Err(damaged("data follows its end")),
        }
    }

    fn read_failure(&mut self) -> BackupError {
        let reason = self.content.length();
        match reason.and_then(|length| self.content.bytes(length, MAX_TEXT_BYTES)) {
            Ok(reason) => BackupError::Incomplete(String::from_utf8_lossy(&reason).into_owned()),
            Err(error) => error,
        }
    }
}

/// A value in etcd may be somewhat larger than the embedded engine's limit.
const MAX_STORED_VALUE_BYTES: usize = 8 << 20;
const _: () = assert!(MAX_STORED_VALUE_BYTES > MAX_REQUEST_BYTES);

fn damaged(message: &str) -> BackupError {
    BackupError::Damaged(message.into())
}

/// Checks the first line, which says whether the rest can be understood.
fn check_magic_line(input: &mut impl BufRead) -> Result<(), BackupError> {
    let mut line = Vec::new();
    input
        .by_ref()
        .take(MAX_MAGIC_LINE_BYTES)
        .read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(BackupError::Truncated);
    }
    if !line.ends_with(b"\n")
        && format!("{MAGIC}{FORMAT_VERSION}")
            .as_bytes()
            .starts_with(&line)
    {
        return Err(BackupError::Truncated);
    }
    let version = std::str::from_utf8(&line).ok();
    let version = version.and_then(|line| line.strip_prefix(MAGIC)?.strip_suffix('\n'));
    match version.map(|version| (version, version.parse::<u32>())) {
        Some((version, Ok(number))) if number.to_string() != version => {
            Err(BackupError::NotABackup)
        }
        Some((_, Ok(FORMAT_VERSION))) => Ok(()),
        Some((version, Ok(_))) => Err(BackupError::UnknownFormat(version.into())),
        _ => Err(BackupError::NotABackup),
    }
}

/// Hashes the file as it is read.
struct HashingInput<R> {
    input: R,
    hash: Context,
}

impl<R: BufRead> Read for HashingInput<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(bytes)?;
        self.hash.update(&bytes[..read]);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for HashingInput<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        // The consumed bytes are in the buffer, so that this reads nothing.
        if let Ok(buffer) = self.input.fill_buf() {
            self.hash.update(&buffer[..amount]);
        }
        self.input.consume(amount);
    }
}

/// The decompressed content.
struct BackupContent<R>(ZlibDecoder<HashingInput<R>>);

impl<R: BufRead> BackupContent<R> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], BackupError> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn length(&mut self) -> Result<usize, BackupError> {
        let length = u32::from_be_bytes(self.array()?);
        usize::try_from(length).map_err(|_| damaged("a length is too large"))
    }

    fn bytes(&mut self, length: usize, max: usize) -> Result<Vec<u8>, BackupError> {
        if length > max {
            return Err(BackupError::Damaged(format!(
                "a length of {length} bytes exceeds {max}"
            )));
        }
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
