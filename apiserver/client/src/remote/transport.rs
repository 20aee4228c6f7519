//! Opens the byte stream to a server: TCP, or a tunnel through an HTTP, HTTPS or SOCKS5 proxy.
//!
//! As in Go's `net/http`, host names are resolved by the proxy, and the certificate of an HTTPS
//! proxy is verified as the server's is.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_socks::TargetAddr;
use tokio_socks::tcp::Socks5Stream;

use super::config::RestConfig;
use super::proxy_url::{ProxyScheme, ProxyUrl};
use super::tls;

/// The largest reply of a proxy, headers included.
const MAX_PROXY_REPLY_BYTES: usize = 8 << 10;

/// The stream below a server's own TLS.
pub(super) enum TransportStream {
    Tcp(TcpStream),
    /// Within the TLS of an HTTPS proxy.
    Proxied(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for TransportStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Proxied(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for TransportStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Proxied(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Proxied(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Proxied(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Connects to the server of a configuration. The error is a message for users.
pub(super) async fn connect_transport(config: &RestConfig) -> Result<TransportStream, String> {
    let Some(proxy) = &config.proxy else {
        let server = &config.server;
        let connected = connect_tcp(bare_host(server), port(server)).await;
        return connected
            .map(TransportStream::Tcp)
            .map_err(|e| e.to_string());
    };
    let host = bare_host(proxy.address());
    let tcp = connect_tcp(host, proxy.port()).await;
    let tcp = tcp.map_err(|e| format!("proxy: {e}"))?;
    match proxy.scheme() {
        ProxyScheme::Http => Ok(TransportStream::Tcp(tunnel(tcp, config, proxy).await?)),
        ProxyScheme::Https => {
            let tls = tls::client_config(config, None, tls::ALPN_HTTP1)?;
            let connector = TlsConnector::from(Arc::new(tls));
            let stream = connector.connect(tls::server_name(host)?, tcp).await;
            let stream = stream.map_err(|e| format!("proxy: TLS: {e}"))?;
            let stream = tunnel(Box::new(stream), config, proxy).await?;
            Ok(TransportStream::Proxied(stream))
        }
        ProxyScheme::Socks5 => Ok(TransportStream::Tcp(
            connect_socks(tcp, &config.server, proxy).await?,
        )),
    }
}

/// The host without the brackets of an IPv6 address.
pub(super) fn bare_host(uri: &Uri) -> &str {
    let host = uri.host().unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']')
}

fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(match uri.scheme_str() {
        Some("http") => 80,
        _ => 443,
    })
}

async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Has an HTTP proxy connect to the server.
async fn tunnel<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    config: &RestConfig,
    proxy: &ProxyUrl,
) -> Result<S, String> {
    let hello = connect_request(config, proxy)?;
    let reply = async {
        stream.write_all(hello.as_bytes()).await?;
        stream.flush().await?;
        let mut reply = Vec::new();
        while !reply.ends_with(b"\r\n\r\n") && reply.len() < MAX_PROXY_REPLY_BYTES {
            // Read byte by byte: what follows the header belongs to the tunnel.
            reply.push(stream.read_u8().await?);
        }
        io::Result::Ok(reply)
    };
    let reply = reply.await.map_err(|e| format!("proxy: {e}"))?;
    let line = reply.split(|b| *b == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    if line.split(' ').nth(1) != Some("200") {
        return Err(format!("proxy refused: {line:.200}"));
    }
    Ok(stream)
}

fn connect_request(config: &RestConfig, proxy: &ProxyUrl) -> Result<String, String> {
    let server = &config.server;
    let to = format!("{}:{}", server.host().unwrap_or_default(), port(server));
    let mut hello = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n");
    if let Some((user, password)) = proxy.credentials() {
        let basic = STANDARD.encode(format!("{user}:{password}"));
        hello.push_str(&format!("Proxy-Authorization: Basic {basic}\r\n"));
    }
    for (name, value) in &config.proxy_headers {
        if name.contains(['\r', '\n', ':']) || value.contains(['\r', '\n']) {
            return Err(format!("proxy header {name:?} cannot be sent"));
        }
        hello.push_str(&format!("{name}: {value}\r\n"));
    }
    hello.push_str("\r\n");
    Ok(hello)
}

/// Has a SOCKS5 proxy connect to the server (RFC 1928, RFC 1929).
async fn connect_socks(
    tcp: TcpStream,
    server: &Uri,
    proxy: &ProxyUrl,
) -> Result<TcpStream, String> {
    let (host, port) = (bare_host(server), port(server));
    let target = match host.parse::<IpAddr>() {
        Ok(address) => TargetAddr::Ip((address, port).into()),
        Err(_) => TargetAddr::Domain(host.into(), port),
    };
    let connected = match proxy.credentials() {
        None => Socks5Stream::connect_with_socket(tcp, target).await,
        Some((user, password)) => {
            Socks5Stream::connect_with_password_and_socket(tcp, target, user, password).await
        }
    };
    match connected {
        Ok(stream) => Ok(stream.into_inner()),
        Err(error) => Err(format!("proxy refused: {error}")),
    }
}
