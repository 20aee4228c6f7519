//! Prints to standard output and standard error.

use std::io::{self, Write};

/// Prints a line of the result to standard output. A closed pipe is ignored, since the
/// process may be serving.
pub fn print_line(text: impl AsRef<str>) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{}", text.as_ref());
    let _ = out.flush();
}

/// Prints a progress message to standard error.
pub fn print_progress(text: impl AsRef<str>) {
    let _ = writeln!(io::stderr().lock(), "{}", text.as_ref());
}

/// Prints an error with its causes as one line to standard error.
pub fn print_error(error: &anyhow::Error) {
    print_progress(format!("error: {error:#}"));
}
