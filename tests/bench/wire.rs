//! A minimal blocking HTTP/1.1 client, whose small and constant cost leaves the
//! measurements to the server.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::kubeconfig::Kubeconfig;

/// The size of one read of the socket; rustls itself reads small pieces.
const READ: usize = 256 * 1024;
const PATIENCE: Duration = Duration::from_secs(60);

/// The socket with a buffer below TLS.
struct Socket(BufReader<TcpStream>);

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }
}

/// One connection, used for one request at a time.
pub(crate) struct Connection {
    stream: StreamOwned<ClientConnection, Socket>,
    host: String,
    /// Further headers of every request.
    headers: String,
    /// Bytes that were read and not yet consumed, from `read_position` to `filled`.
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

/// A complete response.
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) body: Vec<u8>,
}

/// The length of a response body.
enum Length {
    Known(usize),
    Chunked,
}

/// The head of a response.
struct Head {
    code: u16,
    length: Length,
    gzip: bool,
}

impl Connection {
    pub(crate) fn open(to: &Kubeconfig) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(&to.address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let host = to.address.rsplit_once(':').context("no port")?.0;
        let name = ServerName::try_from(host.to_owned())?;
        let session = ClientConnection::new(to.tls("http/1.1"), name)?;
        let socket = Socket(BufReader::with_capacity(READ, socket));
        Ok(Self {
            stream: StreamOwned::new(session, socket),
            host: to.address.clone(),
            headers: to.token.as_ref().map_or_else(String::new, |token| {
                format!("authorization: Bearer {token}\r\n")
            }),
            buffer: vec![0; READ],
            from: 0,
            to: 0,
        })
    }

    /// A handle with which another thread ends a watch: dropping it closes the socket.
    pub(crate) fn handle(&self) -> anyhow::Result<Handle> {
        Ok(Handle(self.stream.sock.0.get_ref().try_clone()?))
    }

    pub(crate) fn get(&mut self, path: &str) -> anyhow::Result<Reply> {
        self.send("GET", path, "", "")
    }

    /// POST of a JSON document; anything but 201 is an error.
    pub(crate) fn post(&mut self, path: &str, body: &str) -> anyhow::Result<Reply> {
        let reply = self.send("POST", path, "application/json", body)?;
        reply.expect(201, path)
    }

    pub(crate) fn patch(&mut self, path: &str, body: &str) -> anyhow::Result<Reply> {
        let reply = self.send("PATCH", path, "application/merge-patch+json", body)?;
        reply.expect(200, path)
    }

    fn send(&mut self, method: &str, path: &str, kind: &str, body: &str) -> anyhow::Result<Reply> {
        self.ask(method, path, kind, body)?;
        let Head { code, length, .. } = self.head()?;
        let mut body = Vec::new();
        self.body(length, |part| body.extend_from_slice(part))?;
        Ok(Reply { code, body })
    }

    /// Accepts gzip from now on, as client-go does. Only [`Self::get_discarding_body`] can read
    /// such bodies.
    pub(crate) fn accept_gzip(&mut self) {
        self.headers.push_str("accept-encoding: gzip\r\n");
    }

    /// GET that discards the body; returns its length, and whether it is compressed.
    pub(crate) fn discard(&mut self, path: &str) -> anyhow::Result<(usize, bool)> {
        self.ask("GET", path, "", "")?;
        let Head { code, length, gzip } = self.head()?;
        ensure!(code == 200, "GET {path}: {code}");
        let mut sum = 0;
        self.body(length, |part| sum += part.len())?;
        Ok((sum, gzip))
    }

    /// GET that passes each line of the body to `line`; returns at the end of the stream.
    pub(crate) fn lines(&mut self, path: &str, mut line: impl FnMut(&[u8])) -> anyhow::Result<()> {
        self.stream.sock.0.get_ref().set_read_timeout(None)?;
        self.ask("GET", path, "", "")?;
        let Head { code, length, .. } = self.head()?;
        ensure!(code == 200, "GET {path}: {code}");
        let mut rest: Vec<u8> = Vec::new();
        self.body(length, |mut part| {
            while let Some(end) = part.iter().position(|b| *b == b'\n') {
                rest.extend_from_slice(&part[..end]);
                line(&rest);
                rest.clear();
                part = &part[end + 1..];
            }
            rest.extend_from_slice(part);
        })
    }

    fn ask(&mut self, method: &str, path: &str, kind: &str, body: &str) -> anyhow::Result<()> {
        let mut text = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\naccept: application/json\r\n{}",
            self.host, self.headers
        );
        if !kind.is_empty() {
            text.push_str(&format!(
                "content-type: {kind}\r\ncontent-length: {}\r\n",
                body.len()
            ));
        }
        text.push_str("\r\n");
        text.push_str(body);
        self.stream.write_all(text.as_bytes())?;
        Ok(self.stream.flush()?)
    }

    fn head(&mut self) -> anyhow::Result<Head> {
        let mut code = 0;
        let (mut length, mut gzip) = (Length::Known(0), false);
        loop {
            let line = self.line()?;
            let line = line.trim_ascii();
            if line.is_empty() {
                return Ok(Head { code, length, gzip });
            }
            let line = std::str::from_utf8(line)?;
            if let Some(status) = line.strip_prefix("HTTP/1.1 ") {
                code = status.get(..3).context("a status line")?.parse()?;
            } else if let Some((name, value)) = line.split_once(':') {
                match name.to_ascii_lowercase().as_str() {
                    "content-length" => length = Length::Known(value.trim().parse()?),
                    "transfer-encoding" => length = Length::Chunked,
                    "content-encoding" => gzip = value.trim() == "gzip",
                    _ => {}
                }
            }
        }
    }

    fn body(&mut self, length: Length, mut part: impl FnMut(&[u8])) -> anyhow::Result<()> {
        if let Length::Known(length) = length {
            return self.take(length, &mut part);
        }
        loop {
            let line = self.line()?;
            let digits = std::str::from_utf8(line.trim_ascii())?;
            let size = usize::from_str_radix(digits, 16)?;
            self.take(size, &mut part)?;
            self.line()?;
            if size == 0 {
                return Ok(());
            }
        }
    }

    fn take(&mut self, mut length: usize, part: &mut impl FnMut(&[u8])) -> anyhow::Result<()> {
        while length > 0 {
            if self.from == self.to {
                self.fill()?;
            }
            let now = length.min(self.to - self.from);
            part(&self.buffer[self.from..self.from + now]);
            self.from += now;
            length -= now;
        }
        Ok(())
    }

    /// The bytes up to the next line feed, without it.
    fn line(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            if self.from == self.to {
                self.fill()?;
            }
            let there = &self.buffer[self.from..self.to];
            if let Some(end) = there.iter().position(|b| *b == b'\n') {
                line.extend_from_slice(&there[..end]);
                self.from += end + 1;
                return Ok(line);
            }
            line.extend_from_slice(there);
            self.from = self.to;
        }
    }

    fn fill(&mut self) -> anyhow::Result<()> {
        self.from = 0;
        self.to = self.stream.read(&mut self.buffer)?;
        ensure!(self.to > 0, "the server closed the connection");
        Ok(())
    }
}

impl Reply {
    pub(crate) fn expect(self, code: u16, path: &str) -> anyhow::Result<Self> {
        if self.code != code {
            bail!(
                "{path}: {} {}",
                self.code,
                String::from_utf8_lossy(&self.body)
            );
        }
        Ok(self)
    }

    pub(crate) fn json(&self) -> anyhow::Result<serde_json::Value> {
        Ok(serde_json::from_slice(&self.body)?)
    }
}

/// Closes a connection from another thread when it is dropped.
pub(crate) struct Handle(TcpStream);

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}
