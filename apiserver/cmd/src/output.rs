//! Standard output and standard error.

use std::io::{self, Write};
use std::process::ExitCode;

use machinery::time::{Clock, SystemClock, rfc3339_micros};
use serde_json::json;

use crate::logs::Format;

/// Prints a line; a closed pipe is no reason to stop serving.
pub(crate) fn line(text: impl AsRef<str>) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{}", text.as_ref());
    let _ = out.flush();
}

/// Tells a person how it goes, beside the result.
pub(crate) fn progress(text: impl AsRef<str>) {
    let _ = writeln!(io::stderr().lock(), "{}", text.as_ref());
}

/// One line that says why, and the exit code that goes with it.
pub(crate) fn failed(error: &anyhow::Error, format: Format) -> ExitCode {
    let line = match format {
        Format::Text => format!("error: {error:#}"),
        // With the fields of a line of the log.
        Format::Json => json!({"timestamp": rfc3339_micros(SystemClock.now()), "level": "ERROR",
                               "message": format!("{error:#}"), "target": "flotilla"})
        .to_string(),
    };
    let _ = writeln!(io::stderr().lock(), "{line}");
    ExitCode::FAILURE
}
