//! `exec` and `attach` of hollow containers, in which no process runs: the session echoes
//! its standard input; a command without standard input prints its own words, and `exit N`
//! ends with exit code N.
//!
//! The protocol is that of remote commands over SPDY (`v4.channel.k8s.io`): a stream each
//! for standard input, output and error, and one for the exit status.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use flotilla_http::{Body, Connection};
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use machinery::Status;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Containers;
use super::spdy::{Frame, Reader, Writer};

const SPDY: &str = "SPDY/3.1";
const PROTOCOL: &str = "v4.channel.k8s.io";
const PROTOCOLS: &str = "x-stream-protocol-version";
/// The most streams of a session.
const MOST_STREAMS: usize = 8;

/// The command and streams that the client requests.
#[derive(Clone, Debug, Default)]
struct Command {
    words: Vec<String>,
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

/// Upgrades the connection and starts the session.
pub(super) fn reply(
    containers: &Arc<Containers>,
    connection: Connection,
    attach: bool,
) -> Result<Response<Body>, Status> {
    let headers = connection.request.headers();
    let spdy = headers.get(UPGRADE).and_then(|u| u.to_str().ok());
    if !spdy.is_some_and(|u| u.eq_ignore_ascii_case(SPDY)) {
        let text =
            format!("a session with a container of a simulated cluster needs an upgrade to {SPDY}");
        return Err(Status::bad_request(text));
    }
    let offered = headers.get_all(PROTOCOLS).into_iter();
    let mut offered = offered
        .filter_map(|p| p.to_str().ok())
        .flat_map(|p| p.split(','));
    if !offered.any(|p| p.trim() == PROTOCOL) {
        let text = format!("unable to negotiate protocol: server supports [{PROTOCOL}]");
        return Err(Status::failure(403, "Forbidden", text));
    }
    let command = Command {
        words: connection.params("command"),
        stdin: connection.flag("stdin"),
        stdout: connection.flag("stdout"),
        // A terminal has one output.
        stderr: connection.flag("stderr") && !connection.flag("tty"),
    };
    if command.words.is_empty() && !attach {
        let text = "you must specify at least one command for the container";
        return Err(Status::bad_request(text));
    }
    let mut request = connection.request;
    let upgrade = hyper::upgrade::on(&mut request);
    let closing = connection.closing;
    containers.tasks.spawn(async move {
        if let Some(Err(error)) = closing.unless(talk(upgrade, command)).await {
            tracing::debug!(%error, "an exec session failed");
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(SPDY));
    headers.insert(PROTOCOLS, HeaderValue::from_static(PROTOCOL));
    Ok(response)
}

async fn talk(upgrade: OnUpgrade, command: Command) -> io::Result<()> {
    let stream = upgrade.await.map_err(io::Error::other)?;
    let (from, to) = tokio::io::split(TokioIo::new(stream));
    let session = Session {
        reader: Reader::new(from)?,
        writer: Writer::new(to),
        streams: HashMap::new(),
        command,
        over: false,
    };
    session.run().await
}

struct Session<R, W> {
    reader: Reader<R>,
    writer: Writer<W>,
    /// The stream ids by `streamtype`.
    streams: HashMap<String, u32>,
    command: Command,
    over: bool,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Session<R, W> {
    /// Runs until the client closes the connection.
    async fn run(mut self) -> io::Result<()> {
        while let Some(frame) = self.reader.next().await? {
            match frame {
                Frame::Open { stream, headers } => {
                    let purpose = headers.get("streamtype").cloned().unwrap_or_default();
                    if self.streams.len() >= MOST_STREAMS {
                        return Err(io::Error::other("too many streams"));
                    }
                    self.writer.accept(stream).await?;
                    self.streams.insert(purpose, stream);
                    if !self.command.stdin && self.is_complete() {
                        self.say_words().await?;
                    }
                }
                Frame::Data { stream, data, last } if self.is("stdin", stream) && !self.over => {
                    if let Some(out) = self.stream("stdout").filter(|_| !data.is_empty()) {
                        self.writer.data(out, &data, false).await?;
                    }
                    if last {
                        self.finish(0).await?;
                    }
                }
                Frame::Data { .. } => {}
                Frame::Ping(id) => self.writer.pong(id).await?,
                Frame::Reset(stream) => self.streams.retain(|_, s| *s != stream),
                Frame::Leave => break,
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
    fn is_complete(&self) -> bool {
        let required = [
            ("error", true),
            ("stdout", self.command.stdout),
            ("stderr", self.command.stderr),
        ];
        let is_open =
            |(purpose, required): (&str, bool)| !required || self.stream(purpose).is_some();
        !self.over && required.into_iter().all(is_open)
    }

    async fn say_words(&mut self) -> io::Result<()> {
        let code = match self.command.words.as_slice() {
            [word, code] if word == "exit" => code.parse().unwrap_or(2),
            words => {
                let line = format!("{}\n", words.join(" "));
                if let Some(out) = self.stream("stdout") {
                    self.writer.data(out, line.as_bytes(), false).await?;
                }
                0
            }
        };
        self.finish(code).await
    }

    async fn finish(&mut self, code: u8) -> io::Result<()> {
        self.over = true;
        let outcome = outcome(code).to_string();
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
fn outcome(code: u8) -> Value {
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]}})
}
