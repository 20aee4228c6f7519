//! Takes a backup: reads pages of one revision and encodes them as the client reads.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use machinery::time::Clock;

use super::{BackupEncoder, BackupHeader, BackupSource};
use crate::store::{Error, StoreResult};

/// A backup in the course of being taken. It keeps one page in memory, and neither the
/// writer nor the history of the engine waits for its reader.
pub struct BackupStream {
    source: Arc<dyn BackupSource>,
    /// `None`: the backup has ended.
    encoder: Option<BackupEncoder>,
    revision: u64,
    after: Arc<str>,
}

impl BackupStream {
    /// Begins a backup at the newest revision.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub async fn begin(source: Arc<dyn BackupSource>, clock: &dyn Clock) -> StoreResult<Self> {
        let revision = source.revision().await?;
        // After the revision: the format is raised before a value needs it.
        let storage_format = source.storage_format().await?;
        let header = BackupHeader {
            revision,
            engine: source.engine_name().to_owned(),
            prefix: source.key_prefix(),
            storage_format,
            taken_at: clock.now().to_string(),
        };
        Ok(Self {
            encoder: Some(BackupEncoder::new(&header).map_err(encoding_error)?),
            source,
            revision,
            after: "".into(),
        })
    }

    /// The next bytes of the backup; `None` after the last. A failure of the engine becomes
    /// the end of the backup.
    pub async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            let mut encoder = self.encoder.take()?;
            let page = match self.source.snapshot_page(&self.after, self.revision).await {
                Ok(page) => page,
                Err(error) => {
                    let reason = self.failure_reason(error);
                    tracing::warn!(%reason, "a backup was not completed");
                    return encoder.fail(&reason).ok().map(Bytes::from);
                }
            };
            if let Some(last) = page.records.last() {
                self.after = Arc::clone(&last.key);
            }
            // Compression takes longer than a task may block.
            let encoding = tokio::task::spawn_blocking(move || {
                for record in &page.records {
                    encoder.record(record)?;
                }
                if page.is_last {
                    return Ok((encoder.finish()?, None));
                }
                Ok::<_, io::Error>((encoder.take_encoded(), Some(encoder)))
            });
            let (encoded, encoder) = encoding.await.ok()?.ok()?;
            self.encoder = encoder;
            if !encoded.is_empty() {
                return Some(encoded.into());
            }
        }
    }

    fn failure_reason(&self, error: Error) -> String {
        match error {
            Error::Compacted { at } => format!(
                "the history of its revision {} was compacted (at {at}) before all keys were sent; \
                 it is kept for some minutes only, so read the backup faster, such as from a \
                 machine nearer to the server",
                self.revision
            ),
            error => error.to_string(),
        }
    }
}

fn encoding_error(error: io::Error) -> Error {
    Error::Unavailable(format!("the backup cannot be encoded: {error}"))
}
