//! HTTP/1.1 by hand over TLS: any client certificate, any header.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use auth::pki::Identity;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::behind::NAME;

const PATIENCE: Duration = Duration::from_secs(30);

/// Where Flotilla listens, and what it is known by.
pub(crate) struct Caller {
    port: u16,
    roots: Arc<RootCertStore>,
}

/// A reply, with its body put together.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// A header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl Caller {
    pub(crate) fn new(port: u16, bundle: &str) -> Self {
        let mut roots = RootCertStore::empty();
        for der in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(der.unwrap()).unwrap();
        }
        Self {
            port,
            roots: Arc::new(roots),
        }
    }

    /// GET, with or without a client certificate.
    pub(crate) fn get(
        &self,
        path: &str,
        identity: Option<&Identity>,
        headers: &[(&str, &str)],
    ) -> Reply {
        self.ask("GET", path, identity, headers, "")
    }

    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        identity: Option<&Identity>,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let mut stream = self.connect(identity);
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        stream.write_all(text.as_bytes()).unwrap();
        let mut raw = Vec::new();
        // A peer may close without saying so.
        let _ = stream.read_to_end(&mut raw);
        reply(&raw)
    }

    fn connect(&self, identity: Option<&Identity>) -> StreamOwned<ClientConnection, TcpStream> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(Arc::clone(&self.roots));
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes())
                    .collect::<Result<Vec<_>, _>>()
                    .unwrap();
                let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let name = ServerName::try_from(NAME).unwrap();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let tcp = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        StreamOwned::new(tls, tcp)
    }
}

fn reply(raw: &[u8]) -> Reply {
    let end = raw.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(raw[..end].to_vec()).unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut rest = &raw[end + 4..];
    let mut body = Vec::new();
    if head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked")
    {
        loop {
            let line = rest.windows(2).position(|w| w == b"\r\n").unwrap();
            let length = std::str::from_utf8(&rest[..line]).unwrap();
            let length = usize::from_str_radix(length, 16).unwrap();
            if length == 0 {
                break;
            }
            body.extend_from_slice(&rest[line + 2..line + 2 + length]);
            rest = &rest[line + 2 + length + 2..];
        }
    } else {
        body.extend_from_slice(rest);
    }
    Reply { code, head, body }
}
