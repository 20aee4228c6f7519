//! HTTP/1.1 by hand over TLS: tests see, and may send, every byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::plane::Plane;

const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const JSON: &str = "application/json";

/// How a client shows who it is.
pub(crate) struct Identity {
    config: Arc<ClientConfig>,
    stranger: Arc<ClientConfig>,
}

impl Identity {
    /// The administrator's, from the files of the plane.
    pub(crate) fn read(pki: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(pki.join("ca.crt")).unwrap();
        roots.add(ca).unwrap();
        let certificate = CertificateDer::from_pem_file(pki.join("admin.crt")).unwrap();
        let key = PrivateKeyDer::from_pem_file(pki.join("admin.key")).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Self {
            config: Arc::new(
                builder
                    .clone()
                    .with_client_auth_cert(vec![certificate], key)
                    .unwrap(),
            ),
            stranger: Arc::new(builder.with_no_client_auth()),
        }
    }
}

/// One exchange.
pub(crate) struct Ask<'a> {
    plane: &'a Plane,
    method: &'a str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    anonymous: bool,
}

/// A reply, with its body put together.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Plane {
    pub(crate) fn ask<'a>(&'a self, method: &'a str, path: &str) -> Ask<'a> {
        Ask {
            plane: self,
            method,
            path: path.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            anonymous: false,
        }
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path).reply()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.ask("POST", path).json(body).reply()
    }

    /// A new namespace.
    pub(crate) fn namespace(&self, name: &str) {
        let body = serde_json::json!({"metadata": {"name": name}});
        let reply = self.post("/api/v1/namespaces", &body);
        assert_eq!(reply.code, 201, "{}", reply.text());
    }
}

impl Ask<'_> {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header("Content-Type", kind)
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.body(JSON, body.to_string())
    }

    pub(crate) fn anonymous(mut self) -> Self {
        self.anonymous = true;
        self
    }

    pub(crate) fn reply(self) -> Reply {
        let mut stream = self.open();
        let mut body = Vec::new();
        if stream.chunked {
            while let Some(chunk) = stream.chunk() {
                body.extend(chunk);
            }
        } else if let Some(length) = stream.header("content-length") {
            body.resize(length.parse().unwrap(), 0);
            stream.reader.read_exact(&mut body).unwrap();
        }
        Reply {
            code: stream.code,
            headers: stream.headers,
            body,
        }
    }

    /// Sends the request and reads the head of the reply.
    pub(crate) fn open(self) -> Stream {
        let identity = &self.plane.admin;
        let config = match self.anonymous {
            true => &identity.stranger,
            false => &identity.config,
        };
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
        let socket = TcpStream::connect(&self.plane.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut tls = StreamOwned::new(connection, socket);
        let mut head = format!("{} {} HTTP/1.1\r\nHost: plane\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", self.body.len()));
        tls.write_all(head.as_bytes()).unwrap();
        tls.write_all(&self.body).unwrap();
        tls.flush().unwrap();
        Stream::read(BufReader::new(tls))
    }
}

/// A reply whose body is still coming.
pub(crate) struct Stream {
    reader: BufReader<StreamOwned<ClientConnection, TcpStream>>,
    pub(crate) code: u16,
    headers: Vec<(String, String)>,
    pub(crate) chunked: bool,
}

impl Stream {
    fn read(mut reader: BufReader<StreamOwned<ClientConnection, TcpStream>>) -> Self {
        let mut line = || {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        let first = line();
        let code = first.split(' ').nth(1).and_then(|c| c.parse().ok());
        let headers: Vec<(String, String)> = std::iter::from_fn(|| {
            let line = line();
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        })
        .collect();
        let mut stream = Self {
            reader,
            code: code.unwrap_or_else(|| panic!("not HTTP: {first:?}")),
            headers,
            chunked: false,
        };
        stream.chunked = stream.header("transfer-encoding").as_deref() == Some("chunked");
        stream
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        header(&self.headers, name)
    }

    /// The next chunk. `None`: the body ended as it should.
    pub(crate) fn chunk(&mut self) -> Option<Vec<u8>> {
        let mut size = String::new();
        self.reader.read_line(&mut size).unwrap();
        let size = usize::from_str_radix(size.trim(), 16)
            .unwrap_or_else(|_| panic!("no chunk size: {size:?}"));
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk).unwrap();
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }
}

fn header(headers: &[(String, String)], name: &str) -> Option<String> {
    let found = headers.iter().find(|(n, _)| n == name);
    found.map(|(_, value)| value.clone())
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> String {
        header(&self.headers, name).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
}
