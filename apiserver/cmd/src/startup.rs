//! The log line that a server command writes when it serves.

use std::net::SocketAddr;
use std::path::Path;

use crate::logs::STARTUP_TARGET;
use crate::storage_engine::StorageBackendConfig;
use crate::version;

/// The fields of the startup log line.
pub(crate) struct StartupLogFields<'a> {
    /// `standalone`, `aggregated` or `member`.
    pub(crate) mode: &'static str,
    pub(crate) store: &'a StorageBackendConfig,
    /// The address of the listener.
    pub(crate) address: SocketAddr,
    pub(crate) data: &'a Path,
    /// The host of an aggregated server.
    pub(crate) host: Option<&'a str>,
    /// Simulated members in the same process.
    pub(crate) members: usize,
}

impl StartupLogFields<'_> {
    /// Logs the line, at every verbosity.
    pub(crate) fn log(&self) {
        tracing::info!(
            target: STARTUP_TARGET,
            mode = self.mode,
            store = %self.store,
            address = %self.address,
            data = %self.data.display(),
            host = self.host,
            members = (self.members > 0).then_some(self.members),
            version = version::current().git_version,
            "serving"
        );
    }
}
