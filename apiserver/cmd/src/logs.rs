//! Logs to standard error, as text or as one JSON document per line.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use flotilla_cli::output;
use machinery::time::{Clock, SystemClock, rfc3339_micros};
use serde_json::json;
use tracing_subscriber::EnvFilter;

/// The log target of the startup line, which is logged at every verbosity.
pub(crate) const STARTUP_TARGET: &str = "flotilla::startup";

/// The logging flag of commands that serve, named as kube-apiserver's.
#[derive(Args, Clone, Copy, Debug)]
#[group(id = "logs")]
#[command(next_help_heading = "Logs flags")]
pub(crate) struct LoggingArgs {
    /// Sets the log format.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) logging_format: LogFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

/// Initializes logging: `-v=N` as in kubectl; a filter in `FLOTILLA_LOG` takes precedence.
pub(crate) fn init(verbosity: u8, format: LogFormat) {
    let level = match verbosity {
        0 => "warn",
        1 => "info",
        2..=4 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("FLOTILLA_LOG")
        .unwrap_or_else(|_| EnvFilter::new(format!("{level},{STARTUP_TARGET}=info")));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(true);
    match format {
        LogFormat::Text => {
            let no_color = std::env::var_os("NO_COLOR");
            let no_color = no_color.is_some_and(|value| !value.is_empty());
            let is_terminal = std::io::stderr().is_terminal();
            logs.with_ansi(has_colors(is_terminal, no_color)).init();
        }
        LogFormat::Json => {
            logs.json().flatten_event(true).init();
            // The default hook writes several lines of text.
            std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "panicked")));
        }
    }
}

/// Prints an error as one line to standard error, and returns the exit code of failures.
pub(crate) fn print_error(error: &anyhow::Error, format: LogFormat) -> ExitCode {
    match format {
        LogFormat::Text => output::print_error(error),
        LogFormat::Json => {
            // With the fields of a log line.
            let line = json!({"timestamp": rfc3339_micros(SystemClock.now()), "level": "ERROR",
                              "message": format!("{error:#}"), "target": "flotilla"});
            output::print_progress(line.to_string());
        }
    }
    ExitCode::FAILURE
}

/// Whether logs have color codes: on a terminal without NO_COLOR
/// (<https://no-color.org>).
fn has_colors(is_terminal: bool, no_color: bool) -> bool {
    is_terminal && !no_color
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_for_terminals_without_no_color() {
        assert!(has_colors(true, false));
        assert!(!has_colors(true, true));
        assert!(!has_colors(false, false));
        assert!(!has_colors(false, true));
    }
}
