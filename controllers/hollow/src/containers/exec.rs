//! `exec` and `attach` of hollow containers, in which no process runs: the session echoes
//! its standard input; a command without standard input prints its own words, and `exit N`
//! ends with exit code N.
//!
//! The protocol is that of remote commands over SPDY (`v4.channel.k8s.io`): a stream each
//! for standard input, output and error, and one for the exit status.

use std::collections::HashMap;
use std::io;

use http::HeaderMap;
use http::header::UPGRADE;
use machinery::Status;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use super::container::StartedContainer;
use super::spdy::{SpdyFrame, SpdyReader, SpdyWriter};

/// The protocol to which the connection of a session is upgraded.
pub const SPDY_PROTOCOL: &str = "SPDY/3.1";
/// The protocol of the streams.
pub const CHANNEL_PROTOCOL: &str = "v4.channel.k8s.io";
/// The header with which client and server agree on the protocol of the streams.
pub const PROTOCOL_HEADER: &str = "x-stream-protocol-version";
/// The most streams of a session.
const MAX_STREAMS: usize = 8;

/// The command and streams that the client requests.
#[derive(Clone, Debug)]
pub struct PodExecOptions {
    args: Vec<String>,
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

impl PodExecOptions {
    /// The command of a request from its query parameters. The command of `attach` runs
    /// already.
    pub fn parse(
        args: Vec<String>,
        flag: impl Fn(&str) -> bool,
        attach: bool,
    ) -> Result<Self, Status> {
        if args.is_empty() && !attach {
            let text = "you must specify at least one command for the container";
            return Err(Status::bad_request(text));
        }
        Ok(Self {
            args,
            stdin: flag("stdin"),
            stdout: flag("stdout"),
            // A terminal has one output.
            stderr: flag("stderr") && !flag("tty"),
        })
    }
}

/// The output of a command without standard input, and its exit code.
pub(super) struct CommandOutcome {
    pub(super) output: String,
    pub(super) code: u8,
}

impl PodExecOptions {
    /// Whether the session echoes its standard input, until that ends.
    pub(super) fn echoes(&self) -> bool {
        self.stdin
    }

    pub(super) fn has_stdout(&self) -> bool {
        self.stdout
    }

    pub(super) fn has_stderr(&self) -> bool {
        self.stderr
    }

    /// Runs a command that gets no standard input.
    pub(super) fn run(&self) -> CommandOutcome {
        match self.args.as_slice() {
            [word, code] if word == "exit" => CommandOutcome {
                output: String::new(),
                code: code.parse().unwrap_or(2),
            },
            words => CommandOutcome {
                output: format!("{}\n", words.join(" ")),
                code: 0,
            },
        }
    }
}

impl StartedContainer {
    /// Fails if the container has finished.
    pub fn check_running(&self) -> Result<(), Status> {
        if self.finished.is_some() {
            let text = format!("container {} is not running", self.name);
            return Err(Status::bad_request(text));
        }
        Ok(())
    }
}

/// Checks that a request offers SPDY and this protocol of its streams.
pub fn negotiate_spdy_protocol(headers: &HeaderMap, protocol: &str) -> Result<(), Status> {
    let spdy = headers.get(UPGRADE).and_then(|u| u.to_str().ok());
    if !spdy.is_some_and(|u| u.eq_ignore_ascii_case(SPDY_PROTOCOL)) {
        let text = format!(
            "a session with a container of a simulated cluster needs an upgrade to {SPDY_PROTOCOL}"
        );
        return Err(Status::bad_request(text));
    }
    let offered = headers.get_all(PROTOCOL_HEADER).into_iter();
    let mut offered = offered
        .filter_map(|p| p.to_str().ok())
        .flat_map(|p| p.split(','));
    if !offered.any(|p| p.trim() == protocol) {
        let text = format!("unable to negotiate protocol: server supports [{protocol}]");
        return Err(Status::failure(403, "Forbidden", text));
    }
    Ok(())
}

/// Runs the session on an upgraded connection until the client closes it.
pub async fn run_session(
    stream: impl AsyncRead + AsyncWrite,
    command: PodExecOptions,
) -> io::Result<()> {
    let (from, to) = tokio::io::split(stream);
    let session = ExecSession {
        reader: SpdyReader::new(from)?,
        writer: SpdyWriter::new(to),
        streams: HashMap::new(),
        command,
        finished: false,
    };
    session.run().await
}

struct ExecSession<R, W> {
    reader: SpdyReader<R>,
    writer: SpdyWriter<W>,
    /// The stream ids by `streamtype`.
    streams: HashMap<String, u32>,
    command: PodExecOptions,
    finished: bool,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> ExecSession<R, W> {
    /// Runs until the client closes the connection.
    async fn run(mut self) -> io::Result<()> {
        while let Some(frame) = self.reader.next().await? {
            match frame {
                SpdyFrame::Open { stream, headers } => {
                    let purpose = headers.get("streamtype").cloned().unwrap_or_default();
                    if self.streams.len() >= MAX_STREAMS {
                        return Err(io::Error::other("too many streams"));
                    }
                    self.writer.accept(stream).await?;
                    self.streams.insert(purpose, stream);
                    if !self.command.stdin && self.has_output_streams() {
                        self.print_args().await?;
                    }
                }
                SpdyFrame::Data { stream, data, last }
                    if self.is("stdin", stream) && !self.finished =>
                {
                    if let Some(out) = self.stream("stdout").filter(|_| !data.is_empty()) {
                        self.writer.data(out, &data, false).await?;
                    }
                    if last {
                        self.finish(0).await?;
                    }
                }
                SpdyFrame::Data { .. } => {}
                SpdyFrame::Ping(id) => self.writer.pong(id).await?,
                SpdyFrame::Reset(stream) => self.streams.retain(|_, s| *s != stream),
                SpdyFrame::GoAway => break,
            }
        }
        self.writer.close().await
    }

    fn stream(&self, purpose: &str) -> Option<u32> {
        self.streams.get(purpose).copied()
    }

    fn is(&self, purpose: &str, stream: u32) -> bool {
        self.stream(purpose) == Some(stream)
    }

    /// Whether the client has opened all output streams.
    fn has_output_streams(&self) -> bool {
        let required = [
            ("error", true),
            ("stdout", self.command.stdout),
            ("stderr", self.command.stderr),
        ];
        let is_open =
            |(purpose, required): (&str, bool)| !required || self.stream(purpose).is_some();
        !self.finished && required.into_iter().all(is_open)
    }

    async fn print_args(&mut self) -> io::Result<()> {
        let outcome = self.command.run();
        if let Some(out) = self.stream("stdout").filter(|_| !outcome.output.is_empty()) {
            self.writer
                .data(out, outcome.output.as_bytes(), false)
                .await?;
        }
        self.finish(outcome.code).await
    }

    async fn finish(&mut self, code: u8) -> io::Result<()> {
        self.finished = true;
        let outcome = exit_status(code).to_string();
        if let Some(error) = self.stream("error") {
            self.writer.data(error, outcome.as_bytes(), true).await?;
        }
        for purpose in ["stdout", "stderr"] {
            if let Some(stream) = self.stream(purpose) {
                self.writer.data(stream, b"", true).await?;
            }
        }
        Ok(())
    }
}

/// The Status for the exit code of a command.
pub(super) fn exit_status(code: u8) -> Value {
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]}})
}
