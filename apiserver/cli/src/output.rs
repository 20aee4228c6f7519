//! Prints to standard output and standard error.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

/// Prints a line of the result to standard output. A closed pipe is ignored, since the
/// process may be serving.
pub fn print_line(text: impl AsRef<str>) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{}", shown(text.as_ref(), out.is_terminal()));
    let _ = out.flush();
}

/// Prints a progress message to standard error.
pub fn print_progress(text: impl AsRef<str>) {
    let mut out = io::stderr().lock();
    let _ = writeln!(out, "{}", shown(text.as_ref(), out.is_terminal()));
}

/// A text as it is printed: on a terminal without control characters, by which names and messages
/// of a member could do more there than be read.
fn shown(text: &str, on_terminal: bool) -> Cow<'_, str> {
    let acts = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !on_terminal || !text.contains(acts) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match acts(c) {
            true => escaped.extend(c.escape_default()),
            false => escaped.push(c),
        }
    }
    escaped.into()
}

/// Prints an error with its causes as one line to standard error.
pub fn print_error(error: &anyhow::Error) {
    print_progress(error_text(error));
}

/// An error in the words of kubectl (`StandardErrorMessage`): what a server has answered, and
/// that it could not be reached, have beginnings of their own.
fn error_text(error: &anyhow::Error) -> String {
    let outermost = error.chain().next();
    match outermost.and_then(|e| e.downcast_ref::<client::Error>()) {
        Some(client::Error::Status(status)) => match status.reason.as_str() {
            "Unauthorized" => format!(
                "error: You must be logged in to the server ({})",
                status.message
            ),
            "" => format!("Error from server: {status}"),
            reason => format!("Error from server ({reason}): {status}"),
        },
        Some(client::Error::Transport { host, message }) if message.contains("refused") => {
            format!(
                "The connection to the server {host} was refused - did you specify the right host or port?"
            )
        }
        Some(client::Error::Transport { message, .. }) => {
            format!("Unable to connect to the server: {message}")
        }
        Some(client::Error::Protocol(_)) | None => format!("error: {error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use machinery::Status;

    use super::*;

    // proves: CLI-terminal
    #[test]
    fn a_terminal_gets_no_control_characters() {
        for (text, on_terminal) in [
            ("a\tb\nc \u{e9}", "a\tb\nc \u{e9}"),
            ("\u{1b}]0;x\u{7}\r", "\\u{1b}]0;x\\u{7}\\r"),
            ("\u{9b}2J", "\\u{9b}2J"),
        ] {
            assert_eq!(shown(text, true), on_terminal);
            assert_eq!(shown(text, false), text);
        }
    }

    #[test]
    fn errors_begin_as_those_of_kubectl() {
        let status = |code, reason: &str| {
            client::Error::from(Status::failure(
                code,
                reason,
                "pods \"a\" is missing".to_owned(),
            ))
        };
        let transport = |message: &str| client::Error::Transport {
            host: "plane:6443".to_owned(),
            message: message.to_owned(),
        };
        let table: [(anyhow::Error, &str); 7] = [
            (
                status(404, "NotFound").into(),
                "Error from server (NotFound): pods \"a\" is missing",
            ),
            (
                status(500, "").into(),
                "Error from server: pods \"a\" is missing",
            ),
            (
                status(401, "Unauthorized").into(),
                "error: You must be logged in to the server (pods \"a\" is missing)",
            ),
            (
                transport("connect: Connection refused").into(),
                "The connection to the server plane:6443 was refused - did you specify the right host or port?",
            ),
            (
                transport("no route").into(),
                "Unable to connect to the server: no route",
            ),
            (anyhow::anyhow!("no name"), "error: no name"),
            (
                Err::<(), _>(status(404, "NotFound"))
                    .context("reading a")
                    .unwrap_err(),
                "error: reading a: pods \"a\" is missing",
            ),
        ];
        for (error, text) in table {
            assert_eq!(error_text(&error), text);
        }
    }
}

/// Moves the cursor to the upper left corner of the terminal and erases all that is below.
const CLEAR_SCREEN: &str = "\x1b[H\x1b[J";

/// A text that is printed again when it changes: on a terminal in place of the last one,
/// elsewhere below it.
#[derive(Default)]
pub struct RedrawnText {
    is_printed: bool,
}

impl RedrawnText {
    /// Whether standard output is a terminal.
    pub fn is_in_place() -> bool {
        io::stdout().is_terminal()
    }

    pub fn print(&mut self, text: &str) {
        let before = match (Self::is_in_place(), self.is_printed) {
            (true, _) => CLEAR_SCREEN,
            (false, true) => "\n",
            (false, false) => "",
        };
        self.is_printed = true;
        let _ = write!(io::stdout().lock(), "{before}");
        print_line(text);
    }
}
