//! Prints to standard output and standard error.

use std::io::{self, Write};
use std::process::ExitCode;

use machinery::time::{Clock, SystemClock, rfc3339_micros};
use serde_json::json;

use crate::logs::LogFormat;

/// Prints a line of the result to standard output. A closed pipe is ignored, since the
/// process may be serving.
pub(crate) fn print_line(text: impl AsRef<str>) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{}", text.as_ref());
    let _ = out.flush();
}

/// Prints a progress message to standard error.
pub(crate) fn print_progress(text: impl AsRef<str>) {
    let _ = writeln!(io::stderr().lock(), "{}", text.as_ref());
}

/// Prints an error as one line to standard error, and returns the exit code of failures.
pub(crate) fn print_error(error: &anyhow::Error, format: LogFormat) -> ExitCode {
    let line = match format {
        LogFormat::Text => format!("error: {error:#}"),
        // With the fields of a log line.
        LogFormat::Json => json!({"timestamp": rfc3339_micros(SystemClock.now()), "level": "ERROR",
                               "message": format!("{error:#}"), "target": "flotilla"})
        .to_string(),
    };
    let _ = writeln!(io::stderr().lock(), "{line}");
    ExitCode::FAILURE
}
