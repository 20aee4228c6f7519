//! Waits for SIGTERM and SIGINT.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// Handlers of both signals.
pub(crate) struct TerminationSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl TerminationSignals {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let on = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
        })
    }

    /// Resolves at the first signal.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Runs `start`; returns `None` when a signal arrives first.
    pub(crate) async fn run_unless_signaled<T>(
        &mut self,
        start: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<Option<T>> {
        tokio::select! {
            () = self.wait() => Ok(None),
            started = start => started.map(Some),
        }
    }
}
