//! Logs to standard error.

use tracing_subscriber::EnvFilter;

/// `-v=N` as kubectl users know it; `FLOTILLA_LOG` takes a filter and wins.
pub(crate) fn init(verbosity: u8) {
    let level = match verbosity {
        0 => "warn",
        1 => "info",
        2..=4 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("FLOTILLA_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(true)
        .init();
}
