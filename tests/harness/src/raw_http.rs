//! A blocking HTTP/1.1 client over TLS without an HTTP library, for tests that check exact
//! bytes.
//!
//! It opens a connection for each request and reads a response at once or by chunks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

const READ_TIMEOUT: Duration = Duration::from_secs(30);
pub const JSON_CONTENT_TYPE: &str = "application/json";

/// The certificate authority that a client trusts, and its client certificate, if any.
#[derive(Clone)]
pub struct TestTlsClientConfig(Arc<ClientConfig>);

impl TestTlsClientConfig {
    /// `own` is a client certificate and its key, both PEM; without it requests are anonymous.
    pub fn new(ca_pem: &str, own: Option<(&str, &str)>) -> Self {
        let own = own.map(|(certificate, key)| (certificate.as_bytes(), key.as_bytes()));
        Self(Arc::new(client_config(ca_pem.as_bytes(), own)))
    }
}

/// A TLS configuration that trusts `ca` and presents the certificate `own` with its key,
/// all PEM, if there is one.
pub(crate) fn client_config(ca: &[u8], own: Option<(&[u8], &[u8])>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for ca in CertificateDer::pem_slice_iter(ca) {
        roots.add(ca.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let Some((certificate, key)) = own else {
        return builder.with_no_client_auth();
    };
    let chain = CertificateDer::pem_slice_iter(certificate);
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(key).unwrap();
    builder.with_client_auth_cert(chain, key).unwrap()
}

/// A request to send.
pub struct RawHttpRequest<'a> {
    address: &'a str,
    identity: &'a TestTlsClientConfig,
    name: &'a str,
    host: &'a str,
    method: &'a str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A complete response.
#[derive(Debug)]
pub struct RawHttpResponse {
    pub code: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl<'a> RawHttpRequest<'a> {
    /// A request to the server at `host:port`.
    pub fn new(
        address: &'a str,
        identity: &'a TestTlsClientConfig,
        method: &'a str,
        path: &str,
    ) -> Self {
        Self {
            address,
            identity,
            name: "127.0.0.1",
            host: "plane",
            method,
            path: path.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn body(self, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body_without_type(body).header("Content-Type", kind)
    }

    pub fn json(self, body: &Value) -> Self {
        self.body(JSON_CONTENT_TYPE, body.to_string())
    }

    /// The name expected in the server's certificate; the default is its address.
    pub fn server_name(mut self, name: &'a str) -> Self {
        self.name = name;
        self
    }

    /// The value of the header `Host`.
    pub fn host(mut self, host: &'a str) -> Self {
        self.host = host;
        self
    }

    /// A body without a `Content-Type`.
    pub fn body_without_type(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends the request with another identity.
    pub fn with_identity(mut self, identity: &'a TestTlsClientConfig) -> Self {
        self.identity = identity;
        self
    }

    pub fn send(self) -> RawHttpResponse {
        let mut stream = self.send_streaming();
        let mut body = Vec::new();
        if stream.chunked {
            while let Some(chunk) = stream.next_chunk() {
                body.extend(chunk);
            }
        } else if let Some(length) = stream.header("content-length") {
            body.resize(length.parse().unwrap(), 0);
            stream.reader.read_exact(&mut body).unwrap();
        }
        RawHttpResponse {
            code: stream.code,
            headers: stream.headers,
            body,
        }
    }

    /// Sends the request but the last byte of its body, and keeps the connection. A server that refuses the
    /// body reads no more of it.
    pub fn send_all_but_the_end(mut self) -> RawHttpConnection {
        let length = self.body.len();
        self.body.pop();
        let mut stream = self.connect();
        let sent = self.write_request(&mut stream, length);
        assert!(sent.is_ok() || sent.is_err_and(|e| is_closed(&e)));
        RawHttpConnection { _stream: stream }
    }

    /// Sends the request and reads the head of the response.
    pub fn send_streaming(self) -> RawHttpResponseStream {
        let mut stream = self.connect();
        self.write_request(&mut stream, self.body.len()).unwrap();
        RawHttpResponseStream::read_head(BufReader::new(stream))
    }

    fn connect(&self) -> TlsStream {
        let name = ServerName::try_from(self.name.to_owned()).unwrap();
        let connection = ClientConnection::new(Arc::clone(&self.identity.0), name).unwrap();
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
        StreamOwned::new(connection, socket)
    }

    /// Sends the request, which announces a body of this length.
    fn write_request(&self, tls: &mut TlsStream, length: usize) -> std::io::Result<()> {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: {}\r\n",
            self.method, self.path, self.host
        );
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {length}\r\n\r\n"));
        tls.write_all(head.as_bytes())?;
        tls.write_all(&self.body)?;
        tls.flush()
    }
}

/// Whether the server has closed the connection.
fn is_closed(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    )
}

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// The connection of a request that is not complete. It ends when this is dropped.
pub struct RawHttpConnection {
    _stream: TlsStream,
}

/// A response whose body is read by chunks.
pub struct RawHttpResponseStream {
    reader: BufReader<TlsStream>,
    pub code: u16,
    headers: Vec<(String, String)>,
    pub chunked: bool,
}

impl RawHttpResponseStream {
    fn read_head(mut reader: BufReader<TlsStream>) -> Self {
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

    pub fn header(&self, name: &str) -> Option<String> {
        find_header(&self.headers, name)
    }

    /// The next bytes of a connection that speaks another protocol than HTTP.
    pub fn read_upgraded(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.reader.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// The next chunk. `None`: the terminating chunk was read.
    pub fn next_chunk(&mut self) -> Option<Vec<u8>> {
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

fn find_header(headers: &[(String, String)], name: &str) -> Option<String> {
    let header = headers.iter().find(|(n, _)| n == name);
    header.map(|(_, value)| value.clone())
}

impl RawHttpResponse {
    pub fn header(&self, name: &str) -> String {
        find_header(&self.headers, name).unwrap_or_default()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        machinery::json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
}
