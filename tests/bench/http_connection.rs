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
const READ_BUFFER_BYTES: usize = 256 * 1024;
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The socket with a buffer below TLS.
struct BufferedSocket(BufReader<TcpStream>);

impl Read for BufferedSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for BufferedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }
}

/// One connection, used for one request at a time.
pub(crate) struct BenchConnection {
    stream: StreamOwned<ClientConnection, BufferedSocket>,
    host: String,
    accept: &'static str,
    /// Further headers of every request.
    headers: String,
    /// Bytes that were read and not yet consumed, from `read_position` to `filled`.
    buffer: Vec<u8>,
    read_position: usize,
    filled: usize,
}

/// A complete response.
pub(crate) struct BenchResponse {
    pub(crate) code: u16,
    pub(crate) body: Vec<u8>,
}

/// The length of a response body.
enum BodyLength {
    Known(usize),
    Chunked,
}

/// The head of a response.
struct BenchResponseHead {
    code: u16,
    length: BodyLength,
    gzip: bool,
}

impl BenchConnection {
    pub(crate) fn open(kubeconfig: &Kubeconfig) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(&kubeconfig.address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(READ_TIMEOUT))?;
        let host = kubeconfig.address.rsplit_once(':').context("no port")?.0;
        let name = ServerName::try_from(host.to_owned())?;
        let session = ClientConnection::new(kubeconfig.tls_config("http/1.1"), name)?;
        let socket = BufferedSocket(BufReader::with_capacity(READ_BUFFER_BYTES, socket));
        Ok(Self {
            stream: StreamOwned::new(session, socket),
            host: kubeconfig.address.clone(),
            accept: "application/json",
            headers: kubeconfig.token.as_ref().map_or_else(String::new, |token| {
                format!("authorization: Bearer {token}\r\n")
            }),
            buffer: vec![0; READ_BUFFER_BYTES],
            read_position: 0,
            filled: 0,
        })
    }

    /// A handle with which another thread ends a watch: dropping it closes the socket.
    pub(crate) fn closer(&self) -> anyhow::Result<ConnectionCloser> {
        Ok(ConnectionCloser(self.stream.sock.0.get_ref().try_clone()?))
    }

    pub(crate) fn get(&mut self, path: &str) -> anyhow::Result<BenchResponse> {
        self.exchange("GET", path, "", "")
    }

    /// POST of a JSON document; anything but 201 is an error.
    pub(crate) fn post(&mut self, path: &str, body: &str) -> anyhow::Result<BenchResponse> {
        let reply = self.exchange("POST", path, "application/json", body)?;
        reply.expect_code(201, path)
    }

    pub(crate) fn patch(&mut self, path: &str, body: &str) -> anyhow::Result<BenchResponse> {
        let reply = self.exchange("PATCH", path, "application/merge-patch+json", body)?;
        reply.expect_code(200, path)
    }

    fn exchange(
        &mut self,
        method: &str,
        path: &str,
        kind: &str,
        body: &str,
    ) -> anyhow::Result<BenchResponse> {
        self.send_request(method, path, kind, body)?;
        let BenchResponseHead { code, length, .. } = self.read_head()?;
        let mut body = Vec::new();
        self.read_body(length, |part| body.extend_from_slice(part))?;
        Ok(BenchResponse { code, body })
    }

    /// Asks for this media type from now on; the default is JSON.
    pub(crate) fn accept(&mut self, media_type: &'static str) {
        self.accept = media_type;
    }

    /// Accepts gzip from now on, as client-go does. Only [`Self::get_discarding_body`] can read
    /// such bodies.
    pub(crate) fn accept_gzip(&mut self) {
        self.headers.push_str("accept-encoding: gzip\r\n");
    }

    /// GET that discards the body; returns its length, and whether it is compressed.
    pub(crate) fn get_discarding_body(&mut self, path: &str) -> anyhow::Result<(usize, bool)> {
        self.send_request("GET", path, "", "")?;
        let BenchResponseHead { code, length, gzip } = self.read_head()?;
        ensure!(code == 200, "GET {path}: {code}");
        let mut sum = 0;
        self.read_body(length, |part| sum += part.len())?;
        Ok((sum, gzip))
    }

    /// GET that passes each line of the body to `line`; returns at the end of the stream.
    pub(crate) fn get_lines(
        &mut self,
        path: &str,
        mut line: impl FnMut(&[u8]),
    ) -> anyhow::Result<()> {
        self.stream.sock.0.get_ref().set_read_timeout(None)?;
        self.send_request("GET", path, "", "")?;
        let BenchResponseHead { code, length, .. } = self.read_head()?;
        ensure!(code == 200, "GET {path}: {code}");
        let mut rest: Vec<u8> = Vec::new();
        self.read_body(length, |mut part| {
            while let Some(end) = part.iter().position(|b| *b == b'\n') {
                rest.extend_from_slice(&part[..end]);
                line(&rest);
                rest.clear();
                part = &part[end + 1..];
            }
            rest.extend_from_slice(part);
        })
    }

    fn send_request(
        &mut self,
        method: &str,
        path: &str,
        kind: &str,
        body: &str,
    ) -> anyhow::Result<()> {
        let mut text = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\naccept: {}\r\n{}",
            self.host, self.accept, self.headers
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

    fn read_head(&mut self) -> anyhow::Result<BenchResponseHead> {
        let mut code = 0;
        let (mut length, mut gzip) = (BodyLength::Known(0), false);
        loop {
            let line = self.read_line()?;
            let line = line.trim_ascii();
            if line.is_empty() {
                return Ok(BenchResponseHead { code, length, gzip });
            }
            let line = std::str::from_utf8(line)?;
            if let Some(status) = line.strip_prefix("HTTP/1.1 ") {
                code = status.get(..3).context("a status line")?.parse()?;
            } else if let Some((name, value)) = line.split_once(':') {
                match name.to_ascii_lowercase().as_str() {
                    "content-length" => length = BodyLength::Known(value.trim().parse()?),
                    "transfer-encoding" => length = BodyLength::Chunked,
                    "content-encoding" => gzip = value.trim() == "gzip",
                    _ => {}
                }
            }
        }
    }

    fn read_body(&mut self, length: BodyLength, mut part: impl FnMut(&[u8])) -> anyhow::Result<()> {
        if let BodyLength::Known(length) = length {
            return self.read_bytes(length, &mut part);
        }
        loop {
            let line = self.read_line()?;
            let digits = std::str::from_utf8(line.trim_ascii())?;
            let size = usize::from_str_radix(digits, 16)?;
            self.read_bytes(size, &mut part)?;
            self.read_line()?;
            if size == 0 {
                return Ok(());
            }
        }
    }

    fn read_bytes(
        &mut self,
        mut length: usize,
        part: &mut impl FnMut(&[u8]),
    ) -> anyhow::Result<()> {
        while length > 0 {
            if self.read_position == self.filled {
                self.fill_buffer()?;
            }
            let now = length.min(self.filled - self.read_position);
            part(&self.buffer[self.read_position..self.read_position + now]);
            self.read_position += now;
            length -= now;
        }
        Ok(())
    }

    /// The bytes up to the next line feed, without it.
    fn read_line(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            if self.read_position == self.filled {
                self.fill_buffer()?;
            }
            let there = &self.buffer[self.read_position..self.filled];
            if let Some(end) = there.iter().position(|b| *b == b'\n') {
                line.extend_from_slice(&there[..end]);
                self.read_position += end + 1;
                return Ok(line);
            }
            line.extend_from_slice(there);
            self.read_position = self.filled;
        }
    }

    fn fill_buffer(&mut self) -> anyhow::Result<()> {
        self.read_position = 0;
        self.filled = self.stream.read(&mut self.buffer)?;
        ensure!(self.filled > 0, "the server closed the connection");
        Ok(())
    }
}

impl BenchResponse {
    pub(crate) fn expect_code(self, code: u16, path: &str) -> anyhow::Result<Self> {
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
        Ok(machinery::json::from_slice(&self.body)?)
    }
}

/// Closes a connection from another thread when it is dropped.
pub(crate) struct ConnectionCloser(TcpStream);

impl Drop for ConnectionCloser {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}
