//! The line that says what a server command runs, and where.

use std::net::SocketAddr;
use std::path::Path;

use crate::engine::Choice;
use crate::logs::STARTUP;
use crate::version;

/// What a server command has started.
pub(crate) struct Startup<'a> {
    /// `standalone`, `aggregated` or `member`.
    pub(crate) mode: &'static str,
    pub(crate) store: &'a Choice,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    pub(crate) data: &'a Path,
    /// The API server in front of it.
    pub(crate) host: Option<&'a str>,
    /// Simulated members in the same process.
    pub(crate) members: usize,
}

impl Startup<'_> {
    /// Logs one line, whatever the verbosity.
    pub(crate) fn log(&self) {
        tracing::info!(
            target: STARTUP,
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
