//! The options of an embedded engine.

use std::sync::Arc;
use std::time::Duration;

use machinery::time::{Clock, SystemClock};

use crate::delta::DeltaOptions;
use crate::format;

/// The options of an embedded engine.
#[derive(Clone)]
pub struct EmbeddedStoreOptions {
    /// Whether a commit waits for fsync. Without it the store survives a crash of the
    /// process but not a power failure; simulated members do without.
    pub sync: bool,
    /// How long history stays readable at least. `None`: until [`crate::Store::compact`].
    pub history_retention: Option<Duration>,
    /// The interval between two sweeps of expired keys.
    pub key_expiry_interval: Duration,
    /// The largest size of the database in bytes; beyond it writes fail with
    /// [`crate::Error::NoSpace`].
    pub quota_bytes: Option<u64>,
    /// Raises the revision by this number when the store is opened, and compacts all
    /// history. After a restore from a backup, clients must not see a revision twice.
    pub skip_revisions: u64,
    /// The lowest format version ([`crate::format`]) that can represent the data.
    pub format: u32,
    /// The keys whose values are stored as deltas.
    pub deltas: DeltaOptions,
    /// The clock by which keys expire.
    pub clock: Arc<dyn Clock>,
}

impl Default for EmbeddedStoreOptions {
    fn default() -> Self {
        Self {
            sync: true,
            history_retention: Some(Duration::from_secs(300)),
            key_expiry_interval: Duration::from_secs(10),
            quota_bytes: None,
            skip_revisions: 0,
            format: format::BASE,
            deltas: DeltaOptions::default(),
            clock: Arc::new(SystemClock),
        }
    }
}
