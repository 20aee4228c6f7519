//! Encodes a backup.

use std::io::{self, Write};

use aws_lc_rs::digest::{Context, SHA256};
use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::{
    BackupHeader, BackupRecord, FORMAT_VERSION, MAGIC, MAX_TEXT_BYTES, TAG_EXPIRING_KEY,
    TAG_FAILURE, TAG_KEY, TAG_TRAILER,
};

/// Encodes a backup piece by piece; the caller takes the bytes that are ready.
pub(crate) struct BackupEncoder {
    compressor: ZlibEncoder<Vec<u8>>,
    /// The hash of the bytes that the caller has taken.
    hash: Context,
    count: u64,
}

impl BackupEncoder {
    pub(crate) fn new(header: &BackupHeader) -> io::Result<Self> {
        let line = format!("{MAGIC}{FORMAT_VERSION}\n").into_bytes();
        let mut encoder = Self {
            // The fastest level: the time of a backup is bounded by the history.
            compressor: ZlibEncoder::new(line, Compression::fast()),
            hash: Context::new(&SHA256),
            count: 0,
        };
        let json = serde_json::to_vec(header)?;
        encoder.write(&length(json.len())?)?;
        encoder.write(&json)?;
        Ok(encoder)
    }

    pub(crate) fn record(&mut self, record: &BackupRecord) -> io::Result<()> {
        match record.expires_at_ms {
            None => self.write(&[TAG_KEY])?,
            Some(at) => {
                self.write(&[TAG_EXPIRING_KEY])?;
                self.write(&at.to_be_bytes())?;
            }
        }
        self.write(&record.mod_revision.to_be_bytes())?;
        self.write(&length(record.key.len())?)?;
        self.write(&length(record.value.len())?)?;
        self.write(record.key.as_bytes())?;
        self.write(&record.value)?;
        self.count += 1;
        Ok(())
    }

    /// The bytes that are ready.
    pub(crate) fn take_encoded(&mut self) -> Vec<u8> {
        let encoded = std::mem::take(self.compressor.get_mut());
        self.hash.update(&encoded);
        encoded
    }

    /// Ends the backup; returns its last bytes.
    pub(crate) fn finish(mut self) -> io::Result<Vec<u8>> {
        self.write(&[TAG_TRAILER])?;
        let count = self.count.to_be_bytes();
        self.write(&count)?;
        let mut encoded = self.compressor.finish()?;
        self.hash.update(&encoded);
        encoded.extend_from_slice(self.hash.finish().as_ref());
        Ok(encoded)
    }

    /// Ends the backup with the reason why it is not complete.
    pub(crate) fn fail(mut self, reason: &str) -> io::Result<Vec<u8>> {
        let reason = &reason.as_bytes()[..reason.len().min(MAX_TEXT_BYTES)];
        self.write(&[TAG_FAILURE])?;
        self.write(&length(reason.len())?)?;
        self.write(reason)?;
        self.compressor.finish()
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.compressor.write_all(bytes)
    }
}

fn length(bytes: usize) -> io::Result<[u8; 4]> {
    let length = u32::try_from(bytes).map_err(io::Error::other)?;
    Ok(length.to_be_bytes())
}
