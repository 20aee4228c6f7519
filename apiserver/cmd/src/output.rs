//! Standard output and standard error.

use std::io::{self, Write};
use std::process::ExitCode;

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
pub(crate) fn failed(error: &anyhow::Error) -> ExitCode {
    let _ = writeln!(io::stderr().lock(), "error: {error:#}");
    ExitCode::FAILURE
}
